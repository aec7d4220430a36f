//! The interface through which a run uses the two sides of a flow. The trait `Side` is this
//! interface, and each program has a file that implements it.
//!
//! From the bottom up:
//!
//! - `rates`: packets per second and cycles per packet, from the counters of a side;
//! - `haul`: a process of haul as a side;
//! - `testpmd`: DPDK's testpmd as a side;
//! - `openvswitch`: Open vSwitch as a side;
//! - `qemu`: a Linux kernel under QEMU as a side.

mod haul;
mod openvswitch;
mod qemu;
mod rates;
mod testpmd;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use self::haul::Haul;
pub(super) use self::rates::{Cycles, Rates};
use super::flow::{Buffers, Flow, Layout};
use super::library::{Library, Served};
use super::openvswitch::{OpenVswitch, Statistics, VhostPort};
use super::protocol::{Counted, Role, Source};
use super::qemu::Qemu;
use super::testpmd::Testpmd;
use crate::drive::Program;

/// The socket between switch and guest, in the folder of a run.
pub(super) const SOCKET: &str = "socket";

/// The program of a side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forwarder {
    /// This program.
    Haul,
    /// DPDK's testpmd.
    Testpmd(Testpmd),
    /// Open vSwitch with DPDK, which can only be the switch.
    OpenVswitch(OpenVswitch),
    /// A Linux kernel under QEMU, which can only be the guest.
    Qemu(Qemu),
}

/// Whether a copy is the file of a library with a `memcpy`, and not the name of one of haul's
/// copies.
#[must_use]
pub fn is_library(copy: &str) -> bool {
    copy.contains('/')
}

/// The settings that both sides of a flow share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Common<'a> {
    pub(super) flow: Flow,
    pub(super) layout: Layout,
    pub(super) size_bytes: usize,
    /// How testpmd as guest holds a long packet.
    pub(super) buffers: Buffers,
    /// The source of haul's packets.
    pub(super) source: Source,
    /// The folder for the socket and for the files that the sides need while they run.
    pub(super) folder: &'a Path,
    /// Queue pairs between the sides.
    pub(super) queues: u16,
    /// All processors of the run.
    pub(super) cpus: &'a [usize],
    /// Whether memory comes from the kernel's pool of huge pages.
    pub(super) is_huge: bool,
    /// The command that starts haul's own processes.
    pub(super) driver: &'a Program,
    /// Whether the guest listens on the socket.
    pub(super) guest_listens: bool,
    /// Whether the guest is a kernel. A kernel drops packets without addresses, and may hold the
    /// other packets for longer than a process that polls.
    pub(super) is_to_kernel: bool,
    /// The flag that stops the run.
    pub(super) stop: &'a AtomicBool,
}

/// A side that runs.
///
/// # Errors
/// Every method that returns a `Result` fails if the program has ended or does not answer (the
/// error then contains its last output), or if its answer is unexpected.
pub(super) trait Side {
    /// Waits until this side sees the other side. If the program also polls without a link, this
    /// does not wait.
    fn await_link(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Waits until this side forwards, if that is later than its link.
    fn await_forwarding(&mut self, _stop: &AtomicBool) -> Result<(), String> {
        Ok(())
    }

    /// Whether this side's own counters give the rate. If not, the other side counts the packets.
    fn counts(&self) -> bool {
        false
    }

    /// Begins to forward. A side that makes packets makes `rate` packets per second, or as many
    /// as it can if `rate` is `None`.
    fn go(&mut self, _rate: Option<f64>) -> Result<(), String> {
        Ok(())
    }

    /// Offers `rate` packets per second for `time`, and returns the counters afterwards.
    fn trial(&mut self, _rate: f64, _time: Duration) -> Result<Counted, String> {
        Err("it cannot make packets at a rate".to_owned())
    }

    /// Makes packets of this size from now on.
    fn resize(&mut self, _size_bytes: usize) -> Result<(), String> {
        Err("it makes packets of one size".to_owned())
    }

    /// Also counts cycles from now on, if the program can. A switch also counts the cycles of
    /// calls at the ring.
    fn meter(&mut self, _role: Role) -> Result<(), String> {
        Ok(())
    }

    /// The cycles per packet since [`Side::meter`], which this call ends.
    fn metered(&mut self) -> Result<Cycles, String> {
        Ok(Cycles::default())
    }

    /// Begins a measured window.
    fn begin(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The packets per second since [`Side::begin`].
    fn rates(&mut self, _flow: Flow) -> Result<Rates, String> {
        Err("its packets are counted at the other side".to_owned())
    }

    /// Makes no more packets, but still forwards those of the other side.
    fn pause(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// The counters so far.
    fn count(&mut self) -> Result<Counted, String> {
        Err("its packets are counted at the other side".to_owned())
    }

    /// A switch's own counters of its port to the guest, which a run compares with the guest's;
    /// `None` if the switch has none.
    fn statistics(&mut self) -> Result<Option<Statistics>, String> {
        Ok(None)
    }

    /// Stops forwarding, and returns the counters.
    fn halt(&mut self) -> Result<Counted, String> {
        Ok(Counted::default())
    }

    /// Ends the program, after the other side if it is a switch. Returns the packets that a library
    /// served in a switch, if it says so.
    fn end(self: Box<Self>) -> Option<Served>;

    /// The nanoseconds for which the side's forwarding threads have run, and those for which they
    /// have waited for their processor. `None` if the kernel does not report these times, or if
    /// the threads wait for each other.
    fn waits(&self) -> Option<(u64, u64)>;

    /// The program's version, and the features that it agreed on with the other side.
    fn receipt(&self) -> Receipt;
}

/// The version of a side, and the features that it agreed on with the other side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Receipt {
    pub(super) version: Option<String>,
    pub(super) features: Option<u64>,
    pub(super) rx_path: Option<String>,
    pub(super) tx_path: Option<String>,
    /// The version of a guest's kernel.
    pub(super) kernel: Option<String>,
    /// The emulator's accelerator, which runs a guest kernel's instructions.
    pub(super) accelerator: Option<&'static str>,
}

/// The role, processors and copy of a side that starts.
#[derive(Clone, Copy, Debug)]
struct Assignment<'a> {
    role: Role,
    common: &'a Common<'a>,
    socket: &'a Path,
    /// The processors of the side's threads. haul has a thread on each processor; the other
    /// programs use the first one, `cpu`.
    cpus: &'a [usize],
    cpu: usize,
    copy: &'a str,
}

impl Forwarder {
    /// The name in commands and records: that of the program, and of a library that it loads as
    /// switch, such as `ovs+haul`.
    #[must_use]
    pub fn name(&self) -> String {
        let program = match self {
            Self::Haul => "haul",
            Self::Testpmd(_) => "testpmd",
            Self::OpenVswitch(_) => "ovs",
            Self::Qemu(_) => "qemu",
        };
        match self.library() {
            Some(library) => format!("{program}+{}", library.name()),
            None => program.to_owned(),
        }
    }

    /// The library that the program loads as switch.
    pub(super) fn library(&self) -> Option<&Library> {
        match self {
            Self::Testpmd(found) => found.library(),
            Self::OpenVswitch(found) => found.library(),
            Self::Haul | Self::Qemu(_) => None,
        }
    }

    /// The kind of the port to the guest, if the program is Open vSwitch.
    pub(super) fn port(&self) -> Option<VhostPort> {
        if let Self::OpenVswitch(found) = self { Some(found.port()) } else { None }
    }

    /// Whether the program runs a kernel, which boots once and outlives its switches.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        matches!(self, Self::Qemu(_))
    }

    /// DPDK's testpmd, if that is the program.
    pub(super) fn testpmd(&self) -> Option<&Testpmd> {
        if let Self::Testpmd(found) = self { Some(found) } else { None }
    }

    /// Starts the program in this role, on these processors, with this copy.
    ///
    /// # Errors
    /// There is no processor for the program, the program cannot have this role, or it does not
    /// start.
    pub(super) fn start(
        &self,
        role: Role,
        common: &Common<'_>,
        cpus: &[usize],
        copy: &str,
    ) -> Result<Box<dyn Side>, String> {
        let cpu = *cpus.first().ok_or("it has no processor")?;
        let socket = common.folder.join(SOCKET);
        let assignment = Assignment { role, common, socket: &socket, cpus, cpu, copy };
        match self {
            Self::Haul => Haul::start_in(&assignment),
            Self::Testpmd(found) => testpmd::start_in(found, &assignment),
            Self::OpenVswitch(found) => openvswitch::start_in(found, &assignment),
            Self::Qemu(found) => qemu::start_in(found, &assignment),
        }
    }
}
