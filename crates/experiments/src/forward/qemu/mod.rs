//! QEMU as guest: a Linux kernel whose own virtio driver drives the card. The kernel's bridge
//! sends every packet back through the same card.
//!
//! `scripts/vhost-guest --image` makes the kernel and its first process. The guest boots once and
//! outlives its switches: QEMU itself connects to the next switch. A question to the guest is a
//! number on its console. The guest answers with a line that begins with this number and contains
//! the guest's state.
//!
//! Below is `machine`: the command line of QEMU.

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

/// The longest time until a kernel has booted: under emulation, on a busy machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(200);

/// The longest time until a running kernel answers and sees a new switch.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The time until an unanswered question is repeated, and the time between two checks of the stop
/// flag.
const REPEAT_INTERVAL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The beginning of the guest's answers.
const ANSWER: &str = "haul-guest ";

/// A port of a bridge that forwards: `BR_STATE_FORWARDING` of linux/if_bridge.h.
const FORWARDS: &str = "3";

/// Runs a program until it ends, or until the shell's own input ends, so that it does not outlive
/// the run. QEMU is killed, because without a switch, the emulated card keeps QEMU from handling
/// SIGTERM. A killed QEMU leaves no files.
const UNTIL_INPUT_ENDS: &str = "exec 3<&0; \"$@\" </dev/null 3<&- & child=$!; \
    { read -r _ <&3; kill -9 $child; } & reader=$!; trap 'kill -9 $child' TERM; \
    wait $child; wait $child; kill $reader 2>/dev/null";

/// A running guest.
pub(super) struct Session {
    /// QEMU ends when its input is closed.
    input: Option<ChildStdin>,
    children: Children,
    printed: Printed,
    console: Conversation,
    version: String,
    accelerator: &'static str,
    state: State,
    /// The number of questions so far.
    asked: u64,
}

/// The guest's state, according to its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    kernel: String,
    features: u64,
    /// Whether the guest's card has a link, and the guest's bridge forwards its packets.
    forwards: bool,
}

impl Session {
    /// Starts QEMU, and waits until its kernel has booted. The switch must already run.
    ///
    /// # Errors
    /// QEMU failed, or the run was stopped.
    pub(super) fn start(found: &Qemu, setting: &Setting<'_>) -> Result<Self, String> {
        let as_text = |error: std::io::Error| error.to_string();
        let (mut printed, writer) = Printed::new().map_err(as_text)?;
        let mut words: Vec<OsString> = ["-c", UNTIL_INPUT_ENDS, "sh"].map(OsString::from).into();
        words.push(found.path().into());
        words.extend(found.arguments(setting));
        let mut command = Program::new("/bin/sh").with(words).command(&writer).map_err(as_text)?;
        command.stdin(Stdio::piped()).stdout(writer);
        // QEMU inherits the processors of the thread that starts it.
        let own = sys::affinity();
        let is_moved = sys::set_affinity(&found.cpus(setting));
        let spawned = command.spawn();
        if is_moved && !sys::set_affinity(&own) {
            return Err("cannot restore the processors of this thread".to_owned());
        }
        drop(command);
        let mut child = spawned.map_err(as_text)?;
        let input = child.stdin.take();
        let mut children = Children::new();
        children.push(child);
        let console = match connect(&console(setting.folder), &mut children) {
            Ok(console) => console,
            Err(reason) => {
                drop(input);
                children.end();
                return Err(printed.with_output(reason));
            }
        };
        let (version, accelerator) = (found.version().to_owned(), found.accelerator());
        let (state, asked) = (State::default(), 0);
        let mut session =
            Self { input, children, printed, console, version, accelerator, state, asked };
        session.state = session.ask(BOOT_TIMEOUT, setting.stop)?;
        Ok(session)
    }

    /// Waits until the kernel sees the switch and sends packets back.
    ///
    /// # Errors
    /// The kernel does not send packets back in time, or the run was stopped.
    pub(super) fn await_forwarding(&mut self, stop: &AtomicBool) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < TIMEOUT {
            self.state = self.ask(TIMEOUT, stop)?;
            if self.state.forwards {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(format!("its kernel sees no link after {} s", TIMEOUT.as_secs()))
    }

    /// QEMU's version, and its accelerator.
    pub(super) fn version(&self) -> (&str, &'static str) {
        (&self.version, self.accelerator)
    }

    /// The kernel's version, and the features that its driver agreed on.
    pub(super) fn kernel(&self) -> (&str, u64) {
        (&self.state.kernel, self.state.features)
    }

    /// Ends QEMU.
    pub(super) fn quit(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.input = None;
        self.children.await_end();
        self.children.end();
    }

    /// The answer to a question. The question is repeated as often as needed, because a booting
    /// kernel does not read questions.
    fn ask(&mut self, timeout: Duration, stop: &AtomicBool) -> Result<State, String> {
        let started = Instant::now();
        while started.elapsed() < timeout {
            self.asked += 1;
            let mark = format!("{ANSWER}{} ", self.asked);
            self.console.say(&self.asked.to_string()).map_err(|silence| self.failure(&silence))?;
            let asked = Instant::now();
            while asked.elapsed() < REPEAT_INTERVAL {
                if stop.load(Ordering::Relaxed) {
                    return Err("the run was stopped".to_owned());
                }
                match self.console.hear_within(POLL_INTERVAL) {
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
        Err(format!("its kernel does not answer within {} s", timeout.as_secs()))
    }

    fn failure(&mut self, silence: &Silence) -> String {
        self.end();
        self.printed.with_output(silence.to_string())
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
        if started.elapsed() > TIMEOUT {
            return Err(format!("no console at {}: {failed}", socket.display()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The state in an answer, after its number. Each feature bit is a digit, the lowest bit first.
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
    fn guest_answers_are_parsed() {
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
    fn start_fails_if_program_ends() {
        let folder = tempfile::tempdir().unwrap();
        let (found, stop) = (Qemu::for_tests("/bin/false", "7.2.22"), AtomicBool::new(false));
        let (socket, layout) = (Path::new("/none"), Layout::Split);
        let setting =
            Setting { socket, folder: folder.path(), layout, cpu: 0, cpus: &[0], stop: &stop };
        let reason = Session::start(&found, &setting).map(drop).unwrap_err();
        assert_eq!(reason, Silence::Ended.to_string());
    }
}
