//! QEMU as guest: a Linux kernel whose own virtio driver has the card, and which bridges it to
//! itself, so that what comes goes back.
//!
//! The kernel and its first process are those that `scripts/vhost-guest --image` makes. The guest
//! boots once and outlives its switches: QEMU connects to the next one by itself. At its console it
//! answers a number with a line that begins with that number, and says how far it is.
//!
//! Below is `machine`: what QEMU is started with.

mod machine;

use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use haul_measure::sys;

pub use self::machine::Qemu;
pub(super) use self::machine::Setting;
use self::machine::console;
use crate::drive::{Children, Conversation, Printed, Program, Silence};

/// The longest that a kernel takes to boot: under emulation, on a machine that others keep busy.
const PATIENCE_TO_BOOT: Duration = Duration::from_secs(200);

/// The longest that a kernel which runs takes to answer and to see a new switch.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long an answer is waited for before the question is put again, and how often it is looked
/// whether the run was told to stop.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What an answer of the guest's begins with.
const ANSWER: &str = "haul-guest ";

/// A port of a bridge that forwards: `BR_STATE_FORWARDING` of linux/if_bridge.h.
const FORWARDS: &str = "3";

/// Runs a program until it ends or the shell's own input does, so that it does not outlive whoever
/// started it. QEMU leaves nothing behind: a card without a switch keeps it from hearing SIGTERM.
const UNTIL_LEFT: &str = "exec 3<&0; \"$@\" </dev/null 3<&- & child=$!; \
    { read -r _ <&3; kill -9 $child; } & reader=$!; trap 'kill -9 $child' TERM; \
    wait $child; wait $child; kill $reader 2>/dev/null";

/// One that runs.
pub(super) struct Session {
    /// Ended when its input is closed.
    input: Option<ChildStdin>,
    children: Children,
    printed: Printed,
    console: Conversation,
    version: String,
    accelerator: &'static str,
    state: State,
    /// Questions so far.
    asked: u64,
}

/// What the guest says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    kernel: String,
    features: u64,
    /// Whether its card has a link, and the bridge takes what comes by it.
    forwards: bool,
}

impl Session {
    /// Starts it, until its kernel has booted. The switch has to be there.
    ///
    /// # Errors
    /// What QEMU said instead; or the run was told to stop.
    pub(super) fn start(found: &Qemu, setting: &Setting<'_>) -> Result<Self, String> {
        let said = |error: std::io::Error| error.to_string();
        let (mut printed, writer) = Printed::new().map_err(said)?;
        let mut words: Vec<OsString> = ["-c", UNTIL_LEFT, "sh"].map(OsString::from).into();
        words.push(found.path().into());
        words.extend(found.arguments(setting));
        let mut command = Program::new("/bin/sh").with(words).command(&writer).map_err(said)?;
        command.stdin(Stdio::piped()).stdout(writer);
        // It has the processors of the thread that starts it.
        let own = sys::affinity();
        let is_moved = sys::set_affinity(&found.cpus(setting));
        let spawned = command.spawn();
        if is_moved && !sys::set_affinity(&own) {
            return Err("this thread does not get its processors back".to_owned());
        }
        drop(command);
        let mut child = spawned.map_err(said)?;
        let input = child.stdin.take();
        let mut children = Children::new();
        children.push(child);
        let console = match connect(&console(setting.folder), &mut children) {
            Ok(console) => console,
            Err(reason) => {
                drop(input);
                children.end();
                return Err(printed.told_with(reason));
            }
        };
        let (version, accelerator) = (found.version().to_owned(), found.accelerator());
        let (state, asked) = (State::default(), 0);
        let mut session =
            Self { input, children, printed, console, version, accelerator, state, asked };
        session.state = session.ask(PATIENCE_TO_BOOT, setting.stop)?;
        Ok(session)
    }

    /// Waits until the kernel sees the switch, and gives back what comes.
    ///
    /// # Errors
    /// It does not in time, or the run was told to stop.
    pub(super) fn await_forwarding(&mut self, stop: &AtomicBool) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            self.state = self.ask(PATIENCE, stop)?;
            if self.state.forwards {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(format!("its kernel sees no link after {} s", PATIENCE.as_secs()))
    }

    /// QEMU's version, and what runs the guest's instructions.
    pub(super) fn version(&self) -> (&str, &'static str) {
        (&self.version, self.accelerator)
    }

    /// The kernel's version, and the features that its driver has agreed on.
    pub(super) fn kernel(&self) -> (&str, u64) {
        (&self.state.kernel, self.state.features)
    }

    /// Ends it.
    pub(super) fn quit(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.input = None;
        self.children.await_end();
        self.children.end();
    }

    /// Its answer to a question, put again as often as it takes: a kernel that boots does not hear.
    fn ask(&mut self, patience: Duration, stop: &AtomicBool) -> Result<State, String> {
        let started = Instant::now();
        while started.elapsed() < patience {
            self.asked += 1;
            let mark = format!("{ANSWER}{} ", self.asked);
            self.console.say(&self.asked.to_string()).map_err(|silence| self.failure(&silence))?;
            let asked = Instant::now();
            while asked.elapsed() < ASK_AGAIN {
                if stop.load(Ordering::Relaxed) {
                    return Err("the run was told to stop".to_owned());
                }
                match self.console.hear_within(LOOK_AGAIN) {
                    Ok(line) => {
                        let state = line.trim().strip_prefix(&mark).and_then(parse_state);
                        if let Some(state) = state {
                            return Ok(state);
                        }
                    }
                    Err(Silence::TooLong(_)) => {}
                    Err(silence) => return Err(self.failure(&silence)),
                }
            }
        }
        Err(format!("its kernel gives no answer within {} s", patience.as_secs()))
    }

    fn failure(&mut self, silence: &Silence) -> String {
        self.end();
        self.printed.told_with(silence.to_string())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

fn connect(socket: &Path, children: &mut Children) -> Result<Conversation, String> {
    let started = Instant::now();
    loop {
        let failed = match UnixStream::connect(socket) {
            Ok(stream) => {
                return Conversation::with_driver(stream).map_err(|error| error.to_string());
            }
            Err(error) => error,
        };
        if !children.are_running() {
            return Err(Silence::Ended.to_string());
        }
        if started.elapsed() > PATIENCE {
            return Err(format!("no console at {}: {failed}", socket.display()));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What an answer says, behind its number. Features are a digit each, the lowest first.
fn parse_state(text: &str) -> Option<State> {
    let word = |key: &str| text.split(' ').find_map(|word| word.strip_prefix(key));
    let bits = word("features=")?.bytes().enumerate();
    let features = bits.filter(|(_, bit)| *bit == b'1');
    Some(State {
        kernel: word("kernel=")?.to_owned(),
        features: features.map(|(place, _)| 1_u64.checked_shl(place as u32).unwrap_or(0)).sum(),
        forwards: word("carrier=")? == "1" && word("state=")? == FORWARDS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::flow::Layout;

    #[test]
    fn answers_are_read() {
        let text = "kernel=6.1.0-56-cloud-amd64 features=001001000000000100000000000000001 \
            carrier=1 state=3";
        let state = parse_state(text).unwrap();
        assert_eq!((state.kernel.as_str(), state.forwards), ("6.1.0-56-cloud-amd64", true));
        assert_eq!(state.features, 1 << 2 | 1 << 5 | 1 << 15 | 1 << 32);
        for other in ["carrier=0 state=3", "carrier=1 state=0", "carrier= state="] {
            assert!(!parse_state(&text.replace("carrier=1 state=3", other)).unwrap().forwards);
        }
        assert_eq!((parse_state(""), parse_state("kernel=6.1 features=1")), (None, None));
    }

    #[test]
    fn one_that_ends_at_once_is_found_out() {
        let folder = tempfile::tempdir().unwrap();
        let (found, stop) = (Qemu::for_tests("/bin/false", "7.2.22"), AtomicBool::new(false));
        let (socket, layout) = (Path::new("/none"), Layout::Split);
        let setting =
            Setting { socket, folder: folder.path(), layout, cpu: 0, cpus: &[0], stop: &stop };
        let reason = Session::start(&found, &setting).map(drop).unwrap_err();
        assert_eq!(reason, Silence::Ended.to_string());
    }
}
