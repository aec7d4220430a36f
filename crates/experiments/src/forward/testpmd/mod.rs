//! DPDK's testpmd as switch and as guest: its command lines, its prompt, and what it prints.
//!
//! A guest here is testpmd with `net_virtio_user`: a virtio driver in a process, with no hypervisor
//! below it. Rates are those that testpmd prints itself, "since last show": it looks at its own
//! clock as it reads its counters, however late the command reached it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haul_measure::clock::{Clock, ClockKind};

use super::flow::{Flow, Layout};
use super::protocol::Side;
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

/// How far the time that it counts may exceed the time that went by: two clocks are read.
const SHARE_MAX: f64 = 1.05;

/// Descriptors of a ring, and packets that its pool holds: the rings' four times over.
const RING: u32 = 1024;
const PACKETS: u32 = 16_384;

/// Its memory: pool and rings take 40 MiB.
const MEMORY_MIB: u32 = 256;

/// Its name, as Debian has it.
const FILE: &str = "dpdk-testpmd";

/// testpmd, found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testpmd {
    path: PathBuf,
    simd_bits: Option<u32>,
}

/// What one is started with.
#[derive(Clone, Debug)]
pub(super) struct Setting<'a> {
    pub(super) side: Side,
    pub(super) flow: Flow,
    pub(super) layout: Layout,
    pub(super) size_bytes: usize,
    /// The socket between switch and guest.
    pub(super) socket: &'a Path,
    /// Where it may put what it needs while it runs.
    pub(super) folder: &'a Path,
    /// The processor of the thread that forwards, and all that its others may use.
    pub(super) cpu: usize,
    pub(super) cpus: &'a [usize],
    /// Whether its memory is of the kernel's pool of huge pages.
    pub(super) is_huge: bool,
}

/// One that runs.
pub(super) struct Session {
    terminal: Terminal,
    side: Side,
    flow: Flow,
    metered_since: Option<Instant>,
}

/// What it says of the cycles of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Metering {
    /// No packet came.
    None,
    /// Cycles of one.
    Cycles(f64),
    /// More cycles than went by: nothing that can be shown.
    Refused,
}

/// A port's counters and rates, as `show port stats` prints them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) rx_packets: u64,
    pub(super) tx_packets: u64,
    pub(super) rx_pps: u64,
    pub(super) tx_pps: u64,
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

fn arguments(setting: &Setting<'_>) -> Vec<OsString> {
    let Setting { side, flow, layout, size_bytes, cpu, cpus, is_huge, .. } = setting;
    let all: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |word: String| words.push(word.into());
    // The main thread goes wherever there is room; the other is pinned and forwards.
    add("--lcores".into());
    add(format!("0@({}),1@{cpu}", all.join(",")));
    for word in ["--no-pci", "--no-telemetry", "-v", "-m"] {
        add(word.into());
    }
    add(MEMORY_MIB.to_string());
    if *is_huge {
        // virtio-user hands its memory over by few descriptors.
        add("--in-memory".into());
        add("--single-file-segments".into());
    } else {
        add("--no-huge".into());
        add(format!("--file-prefix={}", if *side == Side::Switch { "switch" } else { "guest" }));
    }
    let socket = setting.socket.as_os_str().to_string_lossy();
    let mode = match side {
        Side::Switch => {
            add(format!("--vdev=net_vhost0,iface={socket},queues=1"));
            if *flow == Flow::Pvp {
                add(format!("--vdev=net_null0,size={size_bytes},copy=0"));
            }
            switch_mode(*flow)
        }
        Side::Guest => {
            add("--log-level=pmd.net.virtio.init:debug".into());
            if *layout == Layout::PackedVector {
                // Else it stays with AVX2, and with scalar functions.
                add("--force-max-simd-bitwidth=512".into());
            }
            add(format!(
                "--vdev=net_virtio_user0,path={socket},queues=1,queue_size={RING},\
                 mac=00:11:22:33:44:10,{}",
                layout_options(*layout)
            ));
            guest_mode(*flow)
        }
    };
    // It waits for links that come when the other side does, for up to nine seconds, else.
    for word in ["--", "-i", "--nb-cores=1", "--no-flush-rx", "--burst=32", "--disable-link-check"]
    {
        add(word.into());
    }
    for (name, value) in [("rxd", RING), ("txd", RING), ("total-num-mbufs", PACKETS)] {
        add(format!("--{name}={value}"));
    }
    add(format!("--forward-mode={mode}"));
    words
}

fn switch_mode(flow: Flow) -> &'static str {
    match flow {
        Flow::Pvp | Flow::Loopback | Flow::Return => "io",
        Flow::Enqueue => "txonly",
        Flow::Dequeue => "rxonly",
    }
}

fn guest_mode(flow: Flow) -> &'static str {
    match flow {
        Flow::Pvp | Flow::Loopback => "mac",
        Flow::Enqueue => "rxonly",
        // A guest of the second is haul's: see `Flow::Return`.
        Flow::Dequeue | Flow::Return => "txonly",
    }
}

fn layout_options(layout: Layout) -> &'static str {
    match layout {
        Layout::Split => "mrg_rxbuf=1,in_order=0",
        Layout::SplitVector => "mrg_rxbuf=0,in_order=0,vectorized=1",
        Layout::SplitInOrder => "mrg_rxbuf=1,in_order=1",
        Layout::Packed => "packed_vq=1,mrg_rxbuf=1,in_order=0",
        Layout::PackedInOrder => "packed_vq=1,mrg_rxbuf=1,in_order=1",
        Layout::PackedVector => "packed_vq=1,mrg_rxbuf=0,in_order=1,vectorized=1",
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
        let (side, flow) = (setting.side, setting.flow);
        let mut session = Self { terminal, side, flow, metered_since: None };
        let heard = session.terminal.hear_until(PROMPT, PATIENCE_TO_START);
        heard.map_err(|silence| session.failure(&silence))?;
        let makes = match setting.side {
            Side::Switch => [Flow::Enqueue, Flow::Loopback].contains(&setting.flow),
            Side::Guest => setting.flow.is_from_guest(),
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
        let is_first = (self.side, self.flow) == (Side::Switch, Flow::Loopback);
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

/// The number behind a key of one port's counters.
fn parse_stats(text: &str, port: u32) -> Option<Stats> {
    let heading = format!("NIC statistics for port {port} ");
    let own = text.split(&heading).nth(1)?;
    let own = own.split("NIC statistics for port").next()?;
    let number = |key: &str| -> Option<u64> {
        let rest = own.split(key).nth(1)?.trim_start();
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    Some(Stats {
        rx_packets: number("RX-packets:")?,
        tx_packets: number("TX-packets:")?,
        rx_pps: number("Rx-pps:")?,
        tx_pps: number("Tx-pps:")?,
    })
}

/// What was counted in so long a time, as far as it can be.
fn credible(found: Option<(f64, f64)>, time: Duration) -> Metering {
    let Some((of_packet, all)) = found else { return Metering::None };
    if all > time.as_secs_f64() * hertz() * SHARE_MAX {
        return Metering::Refused;
    }
    Metering::Cycles(of_packet)
}

/// Cycles a second; where that is not known, more than any processor has.
fn hertz() -> f64 {
    let clock = Clock::get();
    match clock.kind() {
        ClockKind::Counter => 1e9 / clock.ns_between(0, 1_000_000) * 1e6,
        ClockKind::System => 10e9,
    }
}

/// `69.66` and 8,359,200 of `CPU cycles/packet=69.66 (total cycles=8359200 / total ...`.
fn parse_cycles(text: &str) -> Option<(f64, f64)> {
    let number = |key: &str| {
        let rest = text.split(key).nth(1)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    // Later releases say "busy" where 22.11 says "total".
    let all = number("(total cycles=").or_else(|| number("(busy cycles="))?;
    Some((number("CPU cycles/packet=")?, all))
}

fn parse_version(text: &str) -> Option<String> {
    let rest = text.split("RTE Version: 'DPDK ").nth(1)?;
    rest.split('\'').next().map(str::to_owned)
}

/// A switch prints what it was sent, a guest what it sends; the last counts.
fn parse_features(text: &str) -> Option<u64> {
    let marks = ["negotiated Virtio features: 0x", "features after negotiate = "];
    let rests = marks.iter().filter_map(|mark| text.rsplit_once(mark));
    let hex = rests.map(|(_, rest)| rest.split(|c: char| !c.is_ascii_hexdigit()).next());
    hex.flatten().find_map(|digits| u64::from_str_radix(digits, 16).ok())
}

fn parse_path(text: &str, direction: &str) -> Option<String> {
    let mark = format!(" {direction} path on port");
    let before = text.rsplit_once(&mark)?.0;
    before.rsplit_once("using ").map(|(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "show port stats all\r\n\r\n  \
        ######################## NIC statistics for port 0  ########################\r\n  \
        RX-packets: 1359200    RX-missed: 0          RX-bytes:  86988800\r\n\
        \r\nPort 0: link state change event\r\n  \
        TX-packets: 1360704    TX-errors: 0          TX-bytes:  87085056\r\n\r\n  \
        Throughput (since last show)\r\n  \
        Rx-pps:       784872          Rx-bps:    401854896\r\n  \
        Tx-pps:       785095          Tx-bps:    401968880\r\n  \
        ######################## NIC statistics for port 1  ########################\r\n  \
        RX-packets: 37942208   RX-missed: 0          RX-bytes:  0\r\n  \
        TX-packets: 1359200    TX-errors: 0          TX-bytes:  0\r\n  \
        Rx-pps:            0          Rx-bps:            0\r\n  \
        Tx-pps:            1          Tx-bps:            0\r\ntestpmd> ";

    #[test]
    fn counters_are_read_whatever_stands_between_them() {
        let own = Stats {
            rx_packets: 1_359_200,
            tx_packets: 1_360_704,
            rx_pps: 784_872,
            tx_pps: 785_095,
        };
        assert_eq!(parse_stats(STATS, 0), Some(own));
        let null = Stats { rx_packets: 37_942_208, tx_packets: 1_359_200, rx_pps: 0, tx_pps: 1 };
        assert_eq!(parse_stats(STATS, 1), Some(null));
        for text in ["", "RX-packets: 1", &STATS[..300], &STATS.replace("-pps:", "-pps: -")] {
            assert_eq!(parse_stats(text, 1), None, "{text}");
        }
    }

    #[test]
    fn cycles_are_read_where_there_are_any() {
        let text = "  +++++ Accumulated forward statistics for all ports+++++\r\n\r\n  \
            CPU cycles/packet=69.66 (total cycles=8359200 / total RX packets=120000) at 2100 MHz \
            Clock\r\ntestpmd> ";
        assert_eq!(parse_cycles(text), Some((69.66, 8_359_200.0)));
        let of_25_11 = "  CPU cycles/packet=23.49 (busy cycles=1197844564 / total rxonly \
            packets=50985984) at 2300 MHz Clock\r\n";
        assert_eq!(parse_cycles(of_25_11), Some((23.49, 1_197_844_564.0)));
        assert_eq!(parse_cycles("testpmd> "), None);
        let time = Duration::from_millis(100);
        assert_eq!(credible(None, time), Metering::None);
        for (share, expected) in [
            (0.5, Metering::Cycles(69.66)),
            (1.0, Metering::Cycles(69.66)),
            (1.2, Metering::Refused),
            // The machine has run for a day.
            (864_000.0, Metering::Refused),
        ] {
            assert_eq!(credible(Some((69.66, 0.1 * share * hertz())), time), expected, "{share}");
        }
    }

    #[test]
    fn a_receipt_is_read() {
        let text = "EAL: RTE Version: 'DPDK 22.11.11'\r\n\
            virtio_ethdev_negotiate_features(): host_features before negotiate = 1100101a3\r\n\
            virtio_ethdev_negotiate_features(): features after negotiate = 110010020\r\n\
            set_rxtx_funcs(): virtio: using standard Tx path on port 0\r\n\
            set_rxtx_funcs(): virtio: using mergeable buffer Rx path on port 0\r\n";
        assert_eq!(parse_version(text).as_deref(), Some("22.11.11"));
        assert_eq!(parse_features(text), Some(0x1_1001_0020));
        assert_eq!(parse_path(text, "Rx").as_deref(), Some("mergeable buffer"));
        assert_eq!(parse_path(text, "Tx").as_deref(), Some("standard"));
        let switch = "VHOST_CONFIG: (/s) negotiated Virtio features: 0x150008000\r\n";
        assert_eq!(parse_features(switch), Some(0x1_5000_8000));
        assert_eq!(
            (parse_version(switch), parse_features(""), parse_path(switch, "Rx")),
            (None, None, None)
        );
    }

    #[test]
    fn who_is_not_there_or_is_no_testpmd_is_found_out() {
        let absent = Testpmd::find(Some(Path::new("/nonexistent/testpmd")));
        assert!(absent.unwrap_err().contains("is no file"));
        let folder = tempfile::tempdir().unwrap();
        let other = Testpmd::find(Some(Path::new("/bin/true"))).unwrap();
        let socket = folder.path().join("socket");
        let setting = Setting {
            side: Side::Switch,
            flow: Flow::Pvp,
            layout: Layout::Split,
            size_bytes: 64,
            socket: &socket,
            folder: folder.path(),
            cpu: 0,
            cpus: &[0],
            is_huge: false,
        };
        let reason = Session::start(&other, &setting).map(drop).unwrap_err();
        assert_eq!(reason, Silence::Ended.to_string());
    }
}
