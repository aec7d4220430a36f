//! The two sides of a flow as their run sees them, whichever program each is: started, asked, and
//! ended with it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use haul::forward::Copy;

use super::flow::{Flow, Layout};
use super::openvswitch::{self, OpenVswitch};
use super::protocol::{Counted, Reply, Side, Source, Start, Task};
use super::testpmd::{self, Metering, Session, Stats, Testpmd};
use super::waits;
use crate::drive::{Children, Conversation, Printed, Program};

/// How long haul's own process takes to answer: it waits for a link, and stops with nothing lost.
const PATIENCE: Duration = Duration::from_secs(15);

/// How often it is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// The same of a trial, of which the longest is a minute.
const PATIENCE_FOR_TRIAL: Duration = Duration::from_secs(90);

/// Which program a side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forwarder {
    /// This one.
    Haul,
    /// DPDK's.
    Testpmd(Testpmd),
    /// Open vSwitch with DPDK: a switch alone.
    OpenVswitch(OpenVswitch),
}

/// Whether a copy is named by the file of a library that has it, and not by a name of haul's.
#[must_use]
pub fn is_library(copy: &str) -> bool {
    copy.contains('/')
}

/// Whether a copy of haul's switch is a ceiling: packets arrive without their bytes, and so without
/// numbers.
#[must_use]
pub fn is_ceiling(copy: &str) -> bool {
    Copy::named(copy).is_some_and(|copy| copy.is_ceiling())
}

/// What both sides of a flow have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'a> {
    pub(super) flow: Flow,
    pub(super) layout: Layout,
    pub(super) size_bytes: usize,
    /// Where haul's packets come from.
    pub(super) source: Source,
    /// Where the socket is, and what else the sides need while they run.
    pub(super) folder: &'a Path,
    /// All processors of the run.
    pub(super) cpus: &'a [usize],
    /// Whether memory is of the kernel's pool of huge pages.
    pub(super) is_huge: bool,
    /// How haul's own processes are started.
    pub(super) driver: &'a Program,
}

/// A side that runs.
pub(super) enum Running {
    Haul(Box<Haul>),
    Testpmd(Session),
    OpenVswitch(openvswitch::Session),
}

/// A process of haul's.
pub(super) struct Haul {
    children: Children,
    conversation: Conversation,
    printed: Printed,
    process: u32,
    before: Counted,
}

/// Packets a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// From the ring.
    pub(super) rx: f64,
    /// Into the ring.
    pub(super) tx: f64,
    /// Back at the physical side.
    pub(super) returned: f64,
}

/// Cycles of a packet on one side, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cycles {
    /// In rounds of its thread that moved packets.
    pub(super) all: Option<f64>,
    /// In calls at the ring, there and back.
    pub(super) ring: Option<f64>,
    /// Whether what the program counted cannot be, and is left out.
    pub(super) is_refused: bool,
}

/// What a side says of itself and of what was agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) version: Option<String>,
    pub(super) features: Option<u64>,
    pub(super) rx_path: Option<String>,
    pub(super) tx_path: Option<String>,
}

impl Forwarder {
    /// Its name in commands and records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Haul => "haul",
            Self::Testpmd(_) => "testpmd",
            Self::OpenVswitch(_) => "ovs",
        }
    }

    /// DPDK's, if it is that.
    pub(super) fn testpmd(&self) -> Option<&Testpmd> {
        if let Self::Testpmd(found) = self { Some(found) } else { None }
    }

    /// Starts it as this side, on this processor, with this copy.
    pub(super) fn start(
        &self,
        side: Side,
        common: &Common<'_>,
        cpu: usize,
        copy: &str,
    ) -> Result<Running, String> {
        let socket = common.folder.join("socket");
        match self {
            Self::Haul => {
                // A library's memcpy is that of the process.
                let (copy, preloaded) =
                    if is_library(copy) { ("libc", Some(copy)) } else { (copy, None) };
                let start = Start {
                    side,
                    flow: common.flow.name().to_owned(),
                    layout: common.layout.name().to_owned(),
                    size_bytes: common.size_bytes,
                    copy: copy.to_owned(),
                    source: common.source,
                    socket,
                    cpu,
                };
                let mut driver = common.driver.clone();
                let preload = preloaded.map(|file| ("LD_PRELOAD".into(), file.into()));
                driver.environment.extend(preload);
                Haul::start(&driver, &start).map(|haul| Running::Haul(Box::new(haul)))
            }
            Self::Testpmd(found) => {
                let setting = testpmd::Setting {
                    side,
                    flow: common.flow,
                    layout: common.layout,
                    size_bytes: common.size_bytes,
                    socket: &socket,
                    folder: common.folder,
                    cpu,
                    cpus: common.cpus,
                    is_huge: common.is_huge,
                };
                Session::start(found, &setting).map(Running::Testpmd)
            }
            Self::OpenVswitch(_) if side == Side::Guest => Err("it is no guest".to_owned()),
            Self::OpenVswitch(found) => {
                let Common { flow, size_bytes, is_huge, .. } = *common;
                let socket = &socket;
                let setting = openvswitch::Setting { socket, flow, size_bytes, cpu, is_huge };
                openvswitch::Session::start(found, &setting).map(Running::OpenVswitch)
            }
        }
    }
}

impl Running {
    /// Waits until it sees the other side.
    pub(super) fn await_link(&mut self) -> Result<(), String> {
        match self {
            Self::Haul(haul) => haul.done(&Task::Await),
            Self::Testpmd(session) => session.await_link(),
            // It polls whatever is there.
            Self::OpenVswitch(_) => Ok(()),
        }
    }

    /// Whether its own counters say what goes through at the moment.
    pub(super) fn counts(&self) -> bool {
        !matches!(self, Self::OpenVswitch(_))
    }

    /// Begins to forward; haul makes this many packets a second where it makes any.
    pub(super) fn go(&mut self, rate: Option<f64>) -> Result<(), String> {
        match self {
            Self::Haul(haul) => haul.done(&Task::Go(rate)),
            Self::Testpmd(session) => session.go(),
            Self::OpenVswitch(_) => Ok(()),
        }
    }

    /// Offers so many packets a second for a time, and says what came of them. Only haul can.
    pub(super) fn trial(&mut self, rate: f64, time: Duration) -> Result<Counted, String> {
        match self {
            Self::Haul(haul) => haul.counted(&Task::Trial { rate, seconds: time.as_secs_f64() }),
            Self::Testpmd(_) | Self::OpenVswitch(_) => {
                Err("it cannot make packets at a rate".to_owned())
            }
        }
    }

    /// Makes packets of this size from now on. Only haul can.
    pub(super) fn resize(&mut self, size_bytes: usize) -> Result<(), String> {
        match self {
            Self::Haul(haul) => haul.done(&Task::Resize(size_bytes)),
            Self::Testpmd(_) | Self::OpenVswitch(_) => {
                Err("it makes packets of one size".to_owned())
            }
        }
    }

    /// Counts cycles as well from now on, where it can: of a switch those at the ring too.
    pub(super) fn meter(&mut self, side: Side) -> Result<(), String> {
        match self {
            Self::Haul(haul) => {
                haul.done(&Task::Meter(side == Side::Switch))?;
                haul.before = haul.counted(&Task::Count)?;
                Ok(())
            }
            Self::Testpmd(session) => session.meter(),
            Self::OpenVswitch(_) => Ok(()),
        }
    }

    /// What a packet took since then, and counts no longer.
    pub(super) fn metered(&mut self) -> Result<Cycles, String> {
        match self {
            Self::Haul(haul) => {
                let now = haul.counted_later()?;
                haul.done(&Task::Meter(false))?;
                Ok(cycles_between(&haul.before, &now))
            }
            Self::Testpmd(session) => Ok(match session.metered()? {
                Metering::None => Cycles::default(),
                Metering::Cycles(cycles) => Cycles { all: Some(cycles), ..Cycles::default() },
                Metering::Refused => Cycles { is_refused: true, ..Cycles::default() },
            }),
            Self::OpenVswitch(_) => Ok(Cycles::default()),
        }
    }

    /// A time to measure begins.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        match self {
            Self::Haul(haul) => {
                haul.before = haul.counted(&Task::Count)?;
                Ok(())
            }
            Self::Testpmd(session) => session.stats().map(drop),
            Self::OpenVswitch(_) => Ok(()),
        }
    }

    /// What went through since it began.
    pub(super) fn rates(&mut self, flow: Flow) -> Result<Rates, String> {
        match self {
            Self::Haul(haul) => {
                let now = haul.counted_later()?;
                Ok(rates_between(&haul.before, &now))
            }
            Self::Testpmd(session) => session.stats().map(|stats| rates_of(stats, flow)),
            Self::OpenVswitch(_) => Err("its packets are counted at the guest".to_owned()),
        }
    }

    /// Stops forwarding, and says what it has counted.
    pub(super) fn halt(&mut self) -> Result<Counted, String> {
        match self {
            Self::Haul(haul) => haul.counted(&Task::Halt),
            Self::Testpmd(session) => session.halt().map(counted_of),
            Self::OpenVswitch(_) => Ok(Counted::default()),
        }
    }

    /// Ends it.
    pub(super) fn end(self) {
        match self {
            Self::Haul(mut haul) => {
                haul.conversation.close();
                haul.children.await_end();
            }
            Self::Testpmd(session) => session.quit(),
            Self::OpenVswitch(session) => session.quit(),
        }
    }

    /// How long its threads that forward have run, and have waited for their processor.
    pub(super) fn waits(&self) -> Option<(u64, u64)> {
        waits::of(match self {
            Self::Haul(haul) => haul.process,
            Self::Testpmd(session) => session.process(),
            Self::OpenVswitch(session) => session.process(),
        })
    }

    /// What it says of itself.
    pub(super) fn receipt(&self) -> Receipt {
        match self {
            Self::Haul(_) => Receipt {
                version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                features: None,
                rx_path: Some("haul".to_owned()),
                tx_path: Some("haul".to_owned()),
            },
            Self::Testpmd(session) => {
                let (rx_path, tx_path) = session.paths();
                let (version, features) = (session.version(), session.features());
                Receipt { version, features, rx_path, tx_path }
            }
            Self::OpenVswitch(session) => {
                Receipt { version: Some(session.version().to_owned()), ..Receipt::default() }
            }
        }
    }
}

impl Haul {
    fn start(driver: &Program, start: &Start) -> Result<Self, String> {
        let said = |error: io::Error| error.to_string();
        let (mut printed, writer) = Printed::new().map_err(said)?;
        let (own, other) = UnixStream::pair().map_err(said)?;
        let mut command = driver.command(&writer).map_err(said)?;
        command.stdin(Stdio::from(OwnedFd::from(other)));
        command.stdout(writer);
        let child = command.spawn().map_err(said)?;
        drop(command);
        let process = child.id();
        let mut children = Children::new();
        children.push(child);
        let mut conversation = Conversation::with_driver(own).map_err(said)?;
        let text = serde_json::to_string(start).map_err(|error| error.to_string())?;
        let ready = conversation.say(&text).and_then(|()| conversation.hear_within(PATIENCE));
        let ready = ready.map_err(|silence| silence.to_string()).and_then(|line| parse(&line));
        match ready {
            Ok(Reply::Ready) => {}
            Ok(other) => return Err(format!("it says {other:?} at its start")),
            Err(reason) => {
                children.end();
                return Err(printed.told_with(reason));
            }
        }
        Ok(Self { children, conversation, printed, process, before: Counted::default() })
    }

    fn ask(&mut self, task: &Task) -> Result<Reply, String> {
        let text = serde_json::to_string(task).map_err(|error| error.to_string())?;
        let said = self.conversation.say(&text);
        let is_trial = matches!(task, Task::Trial { .. });
        let patience = if is_trial { PATIENCE_FOR_TRIAL } else { PATIENCE };
        let heard = said.and_then(|()| self.conversation.hear_within(patience));
        match heard {
            Ok(line) => parse(&line),
            Err(silence) => {
                self.children.end();
                Err(self.printed.told_with(silence.to_string()))
            }
        }
    }

    fn done(&mut self, task: &Task) -> Result<(), String> {
        match self.ask(task)? {
            Reply::Done => Ok(()),
            other => Err(format!("it answers {other:?} to {task:?}")),
        }
    }

    /// What it has counted since [`Haul::before`]: it publishes its counts every 20 ms, or when its
    /// thread has a processor again.
    fn counted_later(&mut self) -> Result<Counted, String> {
        let started = Instant::now();
        loop {
            let now = self.counted(&Task::Count)?;
            if now.time_ns > self.before.time_ns || started.elapsed() > PATIENCE {
                return Ok(now);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn counted(&mut self, task: &Task) -> Result<Counted, String> {
        match self.ask(task)? {
            Reply::Counted(counted) => Ok(counted),
            other => Err(format!("it answers {other:?} to {task:?}")),
        }
    }
}

/// The reply, or why the process failed.
fn parse(line: &str) -> Result<Reply, String> {
    match serde_json::from_str(line) {
        Ok(Reply::Failed(reason)) => Err(reason),
        Ok(reply) => Ok(reply),
        Err(_) => Err(format!("it answers {line:?}")),
    }
}

fn rates_between(before: &Counted, now: &Counted) -> Rates {
    let seconds = now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9;
    let rate = |of: fn(&Counted) -> u64| {
        let packets = of(now).saturating_sub(of(before)) as f64;
        if seconds > 0.0 { packets / seconds } else { 0.0 }
    };
    Rates {
        rx: rate(|it| it.rx_packets),
        tx: rate(|it| it.tx_packets),
        returned: rate(|it| it.returned),
    }
}

fn cycles_between(before: &Counted, now: &Counted) -> Cycles {
    let per = |cycles: u64, packets: u64| (packets > 0).then(|| cycles as f64 / packets as f64);
    let packets = [now.rx_packets - before.rx_packets, now.tx_packets - before.tx_packets];
    let of = |way: usize| {
        let (now, before) = (now.metered[way], before.metered[way]);
        per(now.cycles - before.cycles, now.packets - before.packets)
    };
    let ring = [of(0), of(1)].into_iter().flatten().reduce(|there, back| there + back);
    let all = per(now.busy_cycles - before.busy_cycles, packets[0].max(packets[1]));
    Cycles { all, ring, is_refused: false }
}

fn rates_of((ring, physical): (Stats, Option<Stats>), flow: Flow) -> Rates {
    let returned = match (flow, physical) {
        (Flow::Pvp, Some(physical)) => physical.tx_pps,
        _ => ring.rx_pps,
    };
    Rates { rx: ring.rx_pps as f64, tx: ring.tx_pps as f64, returned: returned as f64 }
}

fn counted_of((ring, physical): (Stats, Option<Stats>)) -> Counted {
    Counted {
        made: physical.map_or(0, |physical| physical.rx_packets),
        rx_packets: ring.rx_packets,
        tx_packets: ring.tx_packets,
        returned: physical.map_or(0, |physical| physical.tx_packets),
        ..Counted::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Metered;
    use super::*;

    #[test]
    fn rates_are_of_the_time_between() {
        let before = Counted { time_ns: 1_000, rx_packets: 10, ..Counted::default() };
        let now = Counted {
            time_ns: 500_001_000,
            rx_packets: 1_010,
            tx_packets: 500,
            ..Counted::default()
        };
        let expected = Rates { rx: 2000.0, tx: 1000.0, returned: 0.0 };
        assert_eq!(rates_between(&before, &now), expected);
        assert_eq!(rates_between(&now, &now), Rates::default());
    }

    #[test]
    fn a_packets_cycles_are_those_there_and_those_back() {
        let of = |cycles, packets| Metered { cycles, packets };
        let before = Counted { busy_cycles: 50, rx_packets: 7, ..Counted::default() };
        let now = Counted {
            busy_cycles: 1_050,
            rx_packets: 17,
            tx_packets: 10,
            metered: [of(300, 10), of(800, 20)],
            ..Counted::default()
        };
        let expected = Cycles { all: Some(100.0), ring: Some(70.0), is_refused: false };
        assert_eq!(cycles_between(&before, &now), expected);
        assert_eq!(cycles_between(&now, &now), Cycles::default());
    }

    #[test]
    fn the_physical_side_says_what_has_returned() {
        let ring = Stats { rx_pps: 3, tx_pps: 4, ..Stats::default() };
        let physical = Stats { rx_pps: 9, tx_pps: 2, ..Stats::default() };
        assert_eq!(rates_of((ring, Some(physical)), Flow::Pvp).returned, 2.0);
        assert_eq!(rates_of((ring, None), Flow::Dequeue).returned, 3.0);
    }

    #[test]
    fn a_process_that_is_no_driver_is_found_out() {
        let start = Start {
            side: Side::Switch,
            flow: "pvp".into(),
            layout: "split".into(),
            size_bytes: 64,
            copy: "haul".into(),
            source: Source::Generator,
            socket: "/nonexistent/socket".into(),
            cpu: 0,
        };
        for (script, expected) in [
            ("echo no such thing >&2", "its process ended (it printed: no such thing)"),
            ("read line; echo '{\"Failed\":\"no room\"}' >&0", "no room"),
            ("read line; echo 'hm' >&0; read line", "it answers \"hm\""),
        ] {
            let program = Program::new("/bin/sh").with(vec!["-c".into(), script.into()]);
            let reason = Haul::start(&program, &start).map(drop).unwrap_err();
            assert!(reason.starts_with(expected), "{script}: {reason}");
        }
    }
}
