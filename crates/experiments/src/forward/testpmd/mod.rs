//! DPDK's testpmd as switch and as guest: its command lines, its prompt, and its output.
//!
//! In this module, a guest is testpmd with `net_virtio_user`: a virtio driver in a process,
//! without a hypervisor. Rates are the figures that testpmd itself prints, "since last show".
//! testpmd reads its own clock together with its counters, so that a late command does not change
//! the rates.
//!
//! From the bottom up:
//!
//! - `arguments`: its command line;
//! - `printed`: the parser of its output.

mod arguments;
mod printed;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) use self::arguments::Setting;
use self::arguments::{arguments, packet_command};
pub(super) use self::printed::{Metering, Stats};
use self::printed::{
    credible, parse_cycles, parse_features, parse_path, parse_stats, parse_version,
};
use super::flow::Flow;
use super::library::{Library, Served, parse_served};
use super::protocol::Role;
use crate::drive::{Program, Silence, Terminal};

/// The prompt for a command.
const PROMPT: &str = "testpmd> ";

/// The longest time until testpmd has started: it touches all of its memory.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time until testpmd answers: its main thread shares a processor with a thread that
/// polls.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time until two connected sides see each other.
const LINK_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time from the guest's end to the account of a library that serves it.
const TELL_TIMEOUT: Duration = Duration::from_secs(1);

/// The time between two requests.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The largest number of requests for cycles if testpmd's answers are impossible.
const TRIES_TO_METER: usize = 3;

/// The name of the program in Debian.
const FILE: &str = "dpdk-testpmd";

/// An installed testpmd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testpmd {
    path: PathBuf,
    simd_bits: Option<u32>,
    library: Option<Library>,
}

/// A running testpmd.
pub(super) struct Session {
    terminal: Terminal,
    role: Role,
    flow: Flow,
    metered_since: Option<Instant>,
    /// Whether the library that the switch preloads prints what it served.
    is_telling: bool,
}

impl Testpmd {
    /// The remedy if it is not installed.
    pub const REMEDY: &'static str = "apt-get install dpdk-dev, or name it by --set testpmd=FILE";

    /// The testpmd at this path, or on `PATH`.
    ///
    /// # Errors
    /// The reason why testpmd cannot be used.
    pub fn find(path: Option<&Path>) -> Result<Self, String> {
        if let Some(path) = path {
            let is_there = path.is_file();
            let absent = || format!("{} is not a file", path.display());
            let own = || Self { path: path.to_owned(), simd_bits: None, library: None };
            return is_there.then(own).ok_or_else(absent);
        }
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(FILE));
        let found = paths.find(|path| path.is_file());
        let found = found.map(|path| Self { path, simd_bits: None, library: None });
        found.ok_or_else(|| format!("no {FILE} on PATH"))
    }

    /// This testpmd with vectors of at most this many bits. `None` leaves the choice to DPDK's
    /// EAL.
    #[must_use]
    pub fn with_simd_bits(self, simd_bits: Option<u32>) -> Self {
        Self { simd_bits, ..self }
    }

    /// This testpmd with a library that it loads as switch.
    #[must_use]
    pub fn with_library(self, library: Option<Library>) -> Self {
        Self { library, ..self }
    }

    /// The library that it loads as switch.
    pub(super) fn library(&self) -> Option<&Library> {
        self.library.as_ref()
    }

    /// The widest vectors in bits, if they are limited.
    pub(super) fn simd_bits(&self) -> Option<u32> {
        self.simd_bits
    }

    /// The program with its arguments.
    pub(super) fn program(&self, setting: &Setting<'_>) -> Program {
        let bits = self.simd_bits.map(|bits| format!("--force-max-simd-bitwidth={bits}").into());
        let words = bits.into_iter().chain(arguments(setting)).collect();
        let mut program = Program::new(&self.path).with(words);
        // Otherwise testpmd leaves a folder in /var/run/dpdk.
        program.environment = vec![("RUNTIME_DIRECTORY".into(), setting.folder.into())];
        program.environment.extend(self.library.iter().flat_map(Library::environment));
        program
    }
}

impl Session {
    /// Starts testpmd, and waits for its first prompt.
    ///
    /// # Errors
    /// testpmd cannot be started, or fails; the text contains its output.
    pub(super) fn start(testpmd: &Testpmd, setting: &Setting<'_>) -> Result<Self, String> {
        let program = testpmd.program(setting);
        let terminal = Terminal::start(&program).map_err(|error| error.to_string())?;
        let (role, flow) = (setting.role, setting.flow);
        let is_telling = testpmd.library.as_ref().is_some_and(Library::has_ring);
        let mut session = Self { terminal, role, flow, metered_since: None, is_telling };
        let heard = session.terminal.hear_until(PROMPT, START_TIMEOUT);
        heard.map_err(|silence| session.failure(&silence))?;
        if let Some(library) = &testpmd.library {
            library.check_loaded(session.process())?;
        }
        let makes = match setting.role {
            Role::Switch => [Flow::Enqueue, Flow::Loopback].contains(&setting.flow),
            Role::Guest => setting.flow.is_from_guest(),
        };
        if makes {
            session.ask(&packet_command(setting))?;
        }
        Ok(session)
    }

    /// testpmd's process ID.
    pub(super) fn process(&self) -> u32 {
        self.terminal.process()
    }

    /// Begins to forward. A loopback's first packets come from the switch.
    ///
    /// # Errors
    /// testpmd has ended, or does not answer.
    pub(super) fn go(&mut self) -> Result<(), String> {
        let is_first = (self.role, self.flow) == (Role::Switch, Flow::Loopback);
        self.ask(if is_first { "start tx_first 32" } else { "start" }).map(drop)
    }

    /// Waits until the port to the other side has its link.
    ///
    /// # Errors
    /// The port has no link in time.
    pub(super) fn await_link(&mut self) -> Result<(), String> {
        let started = Instant::now();
        while started.elapsed() < LINK_TIMEOUT {
            if self.ask("show port info 0")?.contains("Link status: up") {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Err(format!("its port has no link after {} s", LINK_TIMEOUT.as_secs()))
    }

    /// The counters, and the rates since the last call, of the port to the other side, and of the
    /// physical port if it exists.
    ///
    /// # Errors
    /// testpmd has ended, does not answer, or its answer has no counters.
    pub(super) fn stats(&mut self) -> Result<(Stats, Option<Stats>), String> {
        let text = self.ask("show port stats all")?;
        let own = parse_stats(&text, 0).ok_or_else(|| format!("no counters in {text:?}"))?;
        Ok((own, parse_stats(&text, 1)))
    }

    /// testpmd's version, such as `22.11.11`.
    pub(super) fn version(&self) -> Option<String> {
        parse_version(&self.terminal.everything())
    }

    /// The features that both sides agreed on, as virtio's bits.
    pub(super) fn features(&self) -> Option<u64> {
        parse_features(&self.terminal.everything())
    }

    /// The names of the functions with which a guest receives and sends.
    pub(super) fn paths(&self) -> (Option<String>, Option<String>) {
        let text = self.terminal.everything();
        (parse_path(&text, "Rx"), parse_path(&text, "Tx"))
    }

    /// Starts counting the cycles in which testpmd's thread had packets.
    ///
    /// # Errors
    /// testpmd has ended, or does not answer.
    pub(super) fn meter(&mut self) -> Result<(), String> {
        self.ask("set record-core-cycles on")?;
        // A thread in the middle of a burst would count the time since the machine's start for
        // that burst. The thread must have finished the burst before the counts are cleared.
        std::thread::sleep(POLL_INTERVAL);
        self.clear()
    }

    fn clear(&mut self) -> Result<(), String> {
        self.metered_since = Some(Instant::now());
        self.ask("clear fwd stats all").map(drop)
    }

    /// The cycles per packet since the counting began; `None` if no packet arrived. Counts that
    /// testpmd's thread writes while the counts are cleared keep their old values, so that more
    /// cycles are counted than have passed. In this case, the cycles are counted again, a few
    /// times.
    ///
    /// # Errors
    /// testpmd has ended, or does not answer.
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
            std::thread::sleep(POLL_INTERVAL);
        }
        self.ask("set record-core-cycles off")?;
        Ok(found)
    }

    /// Kills testpmd. To end regularly, it would need a second or two, in which it waits for its
    /// threads. Returns the packets that its library served, by the library's own account, which
    /// it gives once the guest has ended.
    pub(super) fn quit(mut self) -> Option<Served> {
        if self.is_telling {
            // A library that serves nothing prints no account.
            let _ = self.terminal.hear_until(" to DPDK", TELL_TIMEOUT);
        }
        self.terminal.end(&[], Duration::ZERO);
        parse_served(self.terminal.everything().lines())
    }

    /// Stops forwarding, and returns its counters.
    ///
    /// # Errors
    /// testpmd has ended, or does not answer.
    pub(super) fn halt(&mut self) -> Result<(Stats, Option<Stats>), String> {
        self.ask("stop")?;
        self.stats()
    }

    /// The answer of testpmd to a command: everything up to the next prompt. A line that another
    /// thread prints before the prompt, such as the line about a link, does not end the answer.
    fn ask(&mut self, command: &str) -> Result<String, String> {
        let answer = self.terminal.say(command);
        let answer = answer.and_then(|()| self.terminal.hear_until(PROMPT, TIMEOUT));
        answer.map_err(|silence| self.failure(&silence))
    }

    /// The reason why there is no answer, with the last output if testpmd has ended.
    fn failure(&self, silence: &Silence) -> String {
        let text = self.terminal.everything();
        let reasons = ["EAL: ", "Cause: ", "VHOST_CONFIG: ", "virtio_user"];
        let is_reason = |line: &&str| {
            reasons.iter().any(|reason| line.contains(reason))
                && ["rror", "annot", "ailed", "ause: ", "not compatible", "nable", "No free"]
                    .iter()
                    .any(|word| line.contains(word))
        };
        let reasons: Vec<&str> = text.lines().map(str::trim).filter(is_reason).take(4).collect();
        if reasons.is_empty() {
            return silence.to_string();
        }
        format!("{silence} (it printed: {})", reasons.join(" / "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::flow::{Buffers, Layout};

    #[test]
    fn find_rejects_missing_and_other_programs() {
        let absent = Testpmd::find(Some(Path::new("/nonexistent/testpmd")));
        assert!(absent.unwrap_err().contains("is not a file"));
        let folder = tempfile::tempdir().unwrap();
        let other = Testpmd::find(Some(Path::new("/bin/true"))).unwrap();
        let socket = folder.path().join("socket");
        let setting = Setting {
            role: Role::Switch,
            flow: Flow::Pvp,
            layout: Layout::Split,
            size_bytes: 64,
            buffers: Buffers::Several,
            socket: &socket,
            folder: folder.path(),
            cpu: 0,
            cpus: &[0],
            is_huge: false,
            is_to_kernel: false,
            guest_listens: false,
        };
        let reason = Session::start(&other, &setting).map(drop).unwrap_err();
        assert_eq!(reason, Silence::Ended.to_string());
    }
}
