//! DPDK's testpmd as switch and as guest: its command lines, its prompt, and what it prints.
//!
//! A guest here is testpmd with `net_virtio_user`: a virtio driver in a process, with no hypervisor
//! below it. Rates are those that testpmd prints itself, "since last show": it looks at its own
//! clock as it reads its counters, however late the command reached it.
//!
//! From the bottom up:
//!
//! - `arguments`: what it is started with;
//! - `printed`: what it prints, read.

mod arguments;
mod printed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) use self::arguments::Setting;
use self::arguments::arguments;
pub(super) use self::printed::{Metering, Stats};
use self::printed::{
    credible, parse_cycles, parse_features, parse_path, parse_stats, parse_version,
};
use super::flow::Flow;
use super::protocol::Role;
use crate::drive::{Program, Silence, Terminal};

/// What it says when it waits for a command.
const PROMPT: &str = "testpmd> ";

/// The longest that it takes to start: it touches all of its memory.
const PATIENCE_TO_START: Duration = Duration::from_secs(30);

/// The longest that an answer takes: its main thread has no processor of its own while both poll.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a connected pair takes to see each other.
const PATIENCE_FOR_LINK: Duration = Duration::from_secs(10);

/// How often it is asked.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How often cycles are asked for that cannot be.
const TRIES_TO_METER: usize = 3;

/// Its name, as Debian has it.
const FILE: &str = "dpdk-testpmd";

/// testpmd, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testpmd {
    path: PathBuf,
    simd_bits: Option<u32>,
}

/// One that runs.
pub(super) struct Session {
    terminal: Terminal,
    role: Role,
    flow: Flow,
    metered_since: Option<Instant>,
}

impl Testpmd {
    /// What helps where there is none.
    pub const REMEDY: &'static str = "apt-get install dpdk-dev, or name it with --testpmd";

    /// The one at this path, or on `PATH`.
    ///
    /// # Errors
    /// Why there is none.
    pub fn find(path: Option<&Path>) -> Result<Self, String> {
        if let Some(path) = path {
            let is_there = path.is_file();
            let absent = || format!("{} is no file", path.display());
            let own = || Self { path: path.to_owned(), simd_bits: None };
            return is_there.then(own).ok_or_else(absent);
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(FILE));
        let found = paths.find(|path| path.is_file());
        found.map(|path| Self { path, simd_bits: None }).ok_or_else(|| format!("no {FILE} on PATH"))
    }

    /// The same with vectors of so many bits at most; `None` leaves it to its EAL.
    #[must_use]
    pub fn with_simd_bits(self, simd_bits: Option<u32>) -> Self {
        Self { simd_bits, ..self }
    }

    /// How wide its vectors are at most, where it is told.
    pub(super) fn simd_bits(&self) -> Option<u32> {
        self.simd_bits
    }

    /// The program with its arguments.
    pub(super) fn program(&self, setting: &Setting<'_>) -> Program {
        let bits = self.simd_bits.map(|bits| format!("--force-max-simd-bitwidth={bits}").into());
        let words = bits.into_iter().chain(arguments(setting)).collect();
        let mut program = Program::new(&self.path).with(words);
        // Else it leaves a folder in /var/run/dpdk.
        program.environment = vec![("RUNTIME_DIRECTORY".into(), setting.folder.into())];
        program
    }
}

impl Session {
    /// Starts it, up to its prompt.
    ///
    /// # Errors
    /// What it said instead.
    pub(super) fn start(testpmd: &Testpmd, setting: &Setting<'_>) -> Result<Self, String> {
        let program = testpmd.program(setting);
        let terminal = Terminal::start(&program).map_err(|error| error.to_string())?;
        let (role, flow) = (setting.role, setting.flow);
        let mut session = Self { terminal, role, flow, metered_since: None };
        let heard = session.terminal.hear_until(PROMPT, PATIENCE_TO_START);
        heard.map_err(|silence| session.failure(&silence))?;
        let makes = match setting.role {
            Role::Switch => [Flow::Enqueue, Flow::Loopback].contains(&setting.flow),
            Role::Guest => setting.flow.is_from_guest(),
        };
        if makes {
            session.ask(&format!("set txpkts {}", setting.size_bytes))?;
        }
        Ok(session)
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.terminal.process()
    }

    /// Begins to forward. A loopback's first packets come from the switch.
    ///
    /// # Errors
    /// It ended, or gives no answer.
    pub(super) fn go(&mut self) -> Result<(), String> {
        let is_first = (self.role, self.flow) == (Role::Switch, Flow::Loopback);
        self.ask(if is_first { "start tx_first 32" } else { "start" }).map(drop)
    }

    /// Waits until the port to the other side has its link.
    ///
    /// # Errors
    /// It has none in time.
    pub(super) fn await_link(&mut self) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < PATIENCE_FOR_LINK {
            if self.ask("show port info 0")?.contains("Link status: up") {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(format!("its port has no link after {} s", PATIENCE_FOR_LINK.as_secs()))
    }

    /// Counters of both of its ports, and their rates since the last time: the one to the other
    /// side, and the physical one where it has it.
    ///
    /// # Errors
    /// It ended, gives no answer, or one that holds no counters.
    pub(super) fn stats(&mut self) -> Result<(Stats, Option<Stats>), String> {
        let text = self.ask("show port stats all")?;
        let own = parse_stats(&text, 0).ok_or_else(|| format!("no counters in {text:?}"))?;
        Ok((own, parse_stats(&text, 1)))
    }

    /// Its version, such as `22.11.11`.
    pub(super) fn version(&self) -> Option<String> {
        parse_version(&self.terminal.everything())
    }

    /// What the two sides agreed on, as virtio's feature bits.
    pub(super) fn features(&self) -> Option<u64> {
        parse_features(&self.terminal.everything())
    }

    /// The functions by which a guest receives and sends.
    pub(super) fn paths(&self) -> (Option<String>, Option<String>) {
        let text = self.terminal.everything();
        (parse_path(&text, "Rx"), parse_path(&text, "Tx"))
    }

    /// Counts from now on the cycles in which its thread had packets.
    ///
    /// # Errors
    /// It ended, or gives no answer.
    pub(super) fn meter(&mut self) -> Result<(), String> {
        self.ask("set record-core-cycles on")?;
        // A thread in the middle of a burst takes the time since the machine's start for that
        // burst's: it has to be through before the counts are cleared.
        std::thread::sleep(LOOK_AGAIN);
        self.clear()
    }

    fn clear(&mut self) -> Result<(), String> {
        self.metered_since = Some(Instant::now());
        self.ask("clear fwd stats all").map(drop)
    }

    /// Cycles of a packet since then; `None` where none came. Counts that its thread writes as they
    /// are cleared are as if they were not: more cycles than went by are counted anew, some times.
    ///
    /// # Errors
    /// It ended, or gives no answer.
    pub(super) fn metered(&mut self) -> Result<Metering, String> {
        let mut found = Metering::None;
        for _ in 0..TRIES_TO_METER {
            let text = self.ask("show fwd stats all")?;
            let since = self.metered_since.take().map_or(Duration::ZERO, |since| since.elapsed());
            found = credible(parse_cycles(&text), since);
            if found != Metering::Refused {
                break;
            }
            self.clear()?;
            std::thread::sleep(LOOK_AGAIN);
        }
        self.ask("set record-core-cycles off")?;
        Ok(found)
    }

    /// Ends it. Its own end would take a second or two, in which it waits for its threads.
    pub(super) fn quit(mut self) {
        self.terminal.end(&[], Duration::ZERO);
    }

    /// Stops forwarding and says what it has counted by then.
    ///
    /// # Errors
    /// It ended, or gives no answer.
    pub(super) fn halt(&mut self) -> Result<(Stats, Option<Stats>), String> {
        self.ask("stop")?;
        self.stats()
    }

    /// Its answer to a command: everything up to the next prompt, so that a line which another
    /// thread prints in between, such as that of a link, is not taken for the end.
    fn ask(&mut self, command: &str) -> Result<String, String> {
        let answer = self.terminal.say(command);
        let answer = answer.and_then(|()| self.terminal.hear_until(PROMPT, PATIENCE));
        answer.map_err(|silence| self.failure(&silence))
    }

    /// Why there is no answer: with the last that it printed where it has ended.
    fn failure(&self, silence: &Silence) -> String {
        let text = self.terminal.everything();
        let reasons = ["EAL: ", "Cause: ", "VHOST_CONFIG: ", "virtio_user"];
        let is_reason = |line: &&str| {
            reasons.iter().any(|reason| line.contains(reason))
                && ["rror", "annot", "ailed", "ause: ", "not compatible", "nable", "No free"]
                    .iter()
                    .any(|word| line.contains(word))
        };
        let said: Vec<&str> = text.lines().map(str::trim).filter(is_reason).take(4).collect();
        if said.is_empty() {
            return silence.to_string();
        }
        format!("{silence} (it printed: {})", said.join(" / "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::flow::Layout;

    #[test]
    fn who_is_not_there_or_is_no_testpmd_is_found_out() {
        let absent = Testpmd::find(Some(Path::new("/nonexistent/testpmd")));
        assert!(absent.unwrap_err().contains("is no file"));
        let folder = tempfile::tempdir().unwrap();
        let other = Testpmd::find(Some(Path::new("/bin/true"))).unwrap();
        let socket = folder.path().join("socket");
        let setting = Setting {
            role: Role::Switch,
            flow: Flow::Pvp,
            layout: Layout::Split,
            size_bytes: 64,
            socket: &socket,
            folder: folder.path(),
            cpu: 0,
            cpus: &[0],
            is_huge: false,
            is_to_kernel: false,
        };
        let reason = Session::start(&other, &setting).map(drop).unwrap_err();
        assert_eq!(reason, Silence::Ended.to_string());
    }
}
