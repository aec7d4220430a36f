//! The two sides of a flow as their run sees them, whichever program each is: started, asked, and
//! ended with it.
//!
//! From the bottom up:
//!
//! - `rates`: rates and cycles, from what a side has counted;
//! - `haul`: a process of haul's as a side.

mod haul;
mod rates;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::haul::Haul;
pub(super) use self::rates::{Cycles, Rates};
use self::rates::{counted_of, cycles_between, rates_between, rates_of};
use super::flow::{Flow, Layout};
use super::openvswitch::{self, OpenVswitch};
use super::protocol::{Counted, Side, Source, Start, Task};
use super::qemu::{self, Qemu};
use super::testpmd::{self, Metering, Session, Testpmd};
use super::waits;
use crate::drive::Program;

/// The socket between switch and guest, in the folder of a run.
pub(super) const SOCKET: &str = "socket";

/// Which program a side is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forwarder {
    /// This one.
    Haul,
    /// DPDK's.
    Testpmd(Testpmd),
    /// Open vSwitch with DPDK: a switch alone.
    OpenVswitch(OpenVswitch),
    /// A Linux kernel under QEMU: a guest alone.
    Qemu(Qemu),
}

/// Whether a copy is named by the file of a library that has it, and not by a name of haul's.
#[must_use]
pub fn is_library(copy: &str) -> bool {
    copy.contains('/')
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
    /// Queue pairs between the sides.
    pub(super) queues: u16,
    /// All processors of the run.
    pub(super) cpus: &'a [usize],
    /// Whether memory is of the kernel's pool of huge pages.
    pub(super) is_huge: bool,
    /// How haul's own processes are started.
    pub(super) driver: &'a Program,
    /// Whether the guest is a kernel: it drops packets without addresses, and may hold others for
    /// longer than a process that polls.
    pub(super) is_to_kernel: bool,
    /// Set to end.
    pub(super) stop: &'a AtomicBool,
}

/// A side that runs.
pub(super) enum Running {
    Haul(Box<Haul>),
    Testpmd(Session),
    OpenVswitch(openvswitch::Session),
    Qemu(Box<qemu::Session>),
}

/// What a side says of itself and of what was agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) version: Option<String>,
    pub(super) features: Option<u64>,
    pub(super) rx_path: Option<String>,
    pub(super) tx_path: Option<String>,
    /// Of a guest that is a kernel, its version and what runs its instructions.
    pub(super) kernel: Option<String>,
    pub(super) accelerator: Option<&'static str>,
}

impl Forwarder {
    /// Its name in commands and records.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Haul => "haul",
            Self::Testpmd(_) => "testpmd",
            Self::OpenVswitch(_) => "ovs",
            Self::Qemu(_) => "qemu",
        }
    }

    /// Whether it is a kernel, which boots once and outlives its switches.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Qemu(_))
    }

    /// DPDK's, if it is that.
    pub(super) fn testpmd(&self) -> Option<&Testpmd> {
        if let Self::Testpmd(found) = self { Some(found) } else { None }
    }

    /// Starts it as this side, on these processors, with this copy. Haul has a thread on each, the
    /// others use the first.
    pub(super) fn start(
        &self,
        side: Side,
        common: &Common<'_>,
        cpus: &[usize],
        copy: &str,
    ) -> Result<Running, String> {
        let cpu = *cpus.first().ok_or("it has no processor")?;
        let socket = common.folder.join(SOCKET);
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
                    queues: common.queues,
                    cpus: cpus.to_vec(),
                    is_to_kernel: common.is_to_kernel,
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
                    is_to_kernel: common.is_to_kernel,
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
            Self::Qemu(_) if side == Side::Switch => Err("it is no switch".to_owned()),
            Self::Qemu(found) => {
                let Common { folder, layout, cpus, stop, .. } = *common;
                let socket = &socket;
                let setting = qemu::Setting { socket, folder, layout, cpu, cpus, stop };
                let started = qemu::Session::start(found, &setting);
                started.map(|session| Running::Qemu(Box::new(session)))
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
            // One polls whatever is there; the other has booted.
            Self::OpenVswitch(_) | Self::Qemu(_) => Ok(()),
        }
    }

    /// Waits until it forwards, where that is later than its link.
    pub(super) fn await_forwarding(&mut self, stop: &AtomicBool) -> Result<(), String> {
        match self {
            Self::Qemu(session) => session.await_forwarding(stop),
            Self::Haul(_) | Self::Testpmd(_) | Self::OpenVswitch(_) => Ok(()),
        }
    }

    /// Whether its own counters say what goes through at the moment.
    pub(super) fn counts(&self) -> bool {
        !matches!(self, Self::OpenVswitch(_) | Self::Qemu(_))
    }

    /// Begins to forward; haul makes this many packets a second where it makes any.
    pub(super) fn go(&mut self, rate: Option<f64>) -> Result<(), String> {
        match self {
            Self::Haul(haul) => haul.done(&Task::Go(rate)),
            Self::Testpmd(session) => session.go(),
            Self::OpenVswitch(_) | Self::Qemu(_) => Ok(()),
        }
    }

    /// Offers so many packets a second for a time, and says what came of them. Only haul can.
    pub(super) fn trial(&mut self, rate: f64, time: Duration) -> Result<Counted, String> {
        match self {
            Self::Haul(haul) => haul.counted(&Task::Trial { rate, seconds: time.as_secs_f64() }),
            Self::Testpmd(_) | Self::OpenVswitch(_) | Self::Qemu(_) => {
                Err("it cannot make packets at a rate".to_owned())
            }
        }
    }

    /// Makes packets of this size from now on. Only haul can.
    pub(super) fn resize(&mut self, size_bytes: usize) -> Result<(), String> {
        match self {
            Self::Haul(haul) => haul.done(&Task::Resize(size_bytes)),
            Self::Testpmd(_) | Self::OpenVswitch(_) | Self::Qemu(_) => {
                Err("it makes packets of one size".to_owned())
            }
        }
    }

    /// Counts cycles as well from now on, where it can: of a switch those at the ring too.
    pub(super) fn meter(&mut self, side: Side) -> Result<(), String> {
        match self {
            Self::Haul(haul) => {
                haul.done(&Task::Meter(side == Side::Switch))?;
                haul.begin()
            }
            Self::Testpmd(session) => session.meter(),
            Self::OpenVswitch(_) | Self::Qemu(_) => Ok(()),
        }
    }

    /// What a packet took since then, and counts no longer.
    pub(super) fn metered(&mut self) -> Result<Cycles, String> {
        match self {
            Self::Haul(haul) => {
                let now = haul.counted_later()?;
                haul.done(&Task::Meter(false))?;
                Ok(cycles_between(haul.before(), &now))
            }
            Self::Testpmd(session) => Ok(match session.metered()? {
                Metering::None => Cycles::default(),
                Metering::Cycles(cycles) => Cycles { all: Some(cycles), ..Cycles::default() },
                Metering::Refused => Cycles { is_refused: true, ..Cycles::default() },
            }),
            Self::OpenVswitch(_) | Self::Qemu(_) => Ok(Cycles::default()),
        }
    }

    /// A time to measure begins.
    pub(super) fn begin(&mut self) -> Result<(), String> {
        match self {
            Self::Haul(haul) => haul.begin(),
            Self::Testpmd(session) => session.stats().map(drop),
            Self::OpenVswitch(_) | Self::Qemu(_) => Ok(()),
        }
    }

    /// What went through since it began.
    pub(super) fn rates(&mut self, flow: Flow) -> Result<Rates, String> {
        match self {
            Self::Haul(haul) => {
                let now = haul.counted_later()?;
                Ok(rates_between(haul.before(), &now))
            }
            Self::Testpmd(session) => session.stats().map(|stats| rates_of(stats, flow)),
            Self::OpenVswitch(_) | Self::Qemu(_) => {
                Err("its packets are counted at the other side".to_owned())
            }
        }
    }

    /// Stops forwarding, and says what it has counted.
    pub(super) fn halt(&mut self) -> Result<Counted, String> {
        match self {
            Self::Haul(haul) => haul.counted(&Task::Halt),
            Self::Testpmd(session) => session.halt().map(counted_of),
            Self::OpenVswitch(_) | Self::Qemu(_) => Ok(Counted::default()),
        }
    }

    /// Ends it.
    pub(super) fn end(self) {
        match self {
            Self::Haul(haul) => haul.end(),
            Self::Testpmd(session) => session.quit(),
            Self::OpenVswitch(session) => session.quit(),
            Self::Qemu(session) => session.quit(),
        }
    }

    /// How long its threads that forward have run, and have waited for their processor.
    pub(super) fn waits(&self) -> Option<(u64, u64)> {
        waits::of(match self {
            Self::Haul(haul) => haul.process(),
            Self::Testpmd(session) => session.process(),
            Self::OpenVswitch(session) => session.process(),
            // An emulator's threads wait for each other.
            Self::Qemu(_) => return None,
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
                ..Receipt::default()
            },
            Self::Testpmd(session) => {
                let (rx_path, tx_path) = session.paths();
                let (version, features) = (session.version(), session.features());
                Receipt { version, features, rx_path, tx_path, ..Receipt::default() }
            }
            Self::OpenVswitch(session) => {
                Receipt { version: Some(session.version().to_owned()), ..Receipt::default() }
            }
            Self::Qemu(session) => {
                let ((version, accelerator), (kernel, features)) =
                    (session.version(), session.kernel());
                let driver = Some("virtio_net".to_owned());
                Receipt {
                    version: Some(version.to_owned()),
                    features: Some(features),
                    rx_path: driver.clone(),
                    tx_path: driver,
                    kernel: Some(kernel.to_owned()),
                    accelerator: Some(accelerator),
                }
            }
        }
    }
}
