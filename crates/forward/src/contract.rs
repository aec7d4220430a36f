//! The interface of every port.

use haul_model::pcie::Counts;

use super::counters::Counters;
use super::error::Error;
use super::offloads::Offloads;
use super::pool::{Burst, Pool};

/// Whether the port has a connection to its other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// No connection yet, or no longer; a peer may still connect.
    Down,
    /// Packets pass in both directions.
    Up,
    /// The port has delivered all its packets, such as those of a file, and delivers no more.
    Finished,
}

/// The features and the ring size that a virtual machine's device and its driver negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Virtio's feature bits.
    pub features: u64,
    /// The number of descriptors per ring.
    pub ring_size: u32,
}

/// A queue pair of a port, which one worker drives. A port of several queues is opened as several
/// queue pairs, one for each worker. They share no state.
///
/// Each worker has one pool. The worker passes this pool to every call, and all packets belong to
/// the pool. A port may keep packets of the pool, such as those that a device fills;
/// [`Port::stop`] returns them.
///
/// No call waits, neither for the other side nor for a packet. Every call is allowed in any state.
/// Without a link, no packet arrives, and each packet that is sent is dropped and counted as
/// [`super::DropReason::NoLink`].
pub trait Port: Send {
    /// The port's name, unique in a forwarder: `vhost0`, `gen0`.
    fn name(&self) -> &str;

    /// Which of the port's queue pairs this is.
    fn queue(&self) -> u16 {
        0
    }

    /// Appends packets to `burst`, at most [`Burst::room`], and returns their number. The caller
    /// then owns these packets: it must send or free them.
    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize;

    /// Removes packets from the front of `burst` and returns how many were sent. Packets for which
    /// the other side has no room stay in `burst`; the caller retries or drops them. Packets that
    /// can never be sent are freed and counted as dropped.
    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize;

    /// Does the work that is not needed for each burst, such as the control plane's messages and
    /// reconnecting. The worker calls it every few milliseconds. It needs microseconds, and
    /// milliseconds if a peer connects or disconnects.
    ///
    /// # Errors
    /// [`Error`] if the port can no longer be used. A fault of the other side is not an error: the
    /// port resets and counts it.
    fn service(&mut self, _pool: &mut Pool) -> Result<(), Error> {
        Ok(())
    }

    /// The work that this port takes with a packet that it sends ([`Pool::header`]). A forwarder's
    /// worker does all other work before it passes the packet to [`Port::tx_burst`]: it computes
    /// checksums, and divides packets.
    fn offloads(&self) -> Offloads {
        Offloads::NONE
    }

    /// The state of the connection.
    fn link(&self) -> Link {
        Link::Up
    }

    /// Stops the source of new packets: a generator makes no more packets, a file is read no
    /// further. Packets that the other side has already sent still arrive.
    fn quiesce(&mut self) {}

    /// What the port negotiated with the other side. `None` without a link, and for a port that is
    /// not a virtual machine's device.
    fn agreement(&self) -> Option<Agreement> {
        None
    }

    /// Why the port has no link, if the port knows more than the absence of a peer: what a
    /// rejected peer lacks, and the remedy.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// What an operator should know of the port although packets pass: what is lost or left out,
    /// how much of it, and the remedy. One sentence each; its numbers may grow from call to call.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The transactions that have crossed a modelled link; `None` without such a link.
    fn crossed(&self) -> Option<&Counts> {
        None
    }

    /// Whether all packets that were sent have left the port. The worker calls it repeatedly before
    /// [`Port::stop`], after it has sent the last packet. A port that has copied packets
    /// to the other side once it returns always returns true.
    fn drain(&mut self, _pool: &mut Pool) -> bool {
        true
    }

    /// Returns the packets that the port keeps to the pool, and disconnects. The port neither
    /// receives nor sends afterwards.
    fn stop(&mut self, _pool: &mut Pool) {}

    /// All counts so far.
    fn counters(&self) -> &Counters;

    /// The counters for the worker, which counts here the packets that it drops because the port
    /// had no room.
    fn counters_mut(&mut self) -> &mut Counters;
}
