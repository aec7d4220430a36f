//! What every port does.

use haul_model::pcie::Counts;

use super::counters::Counters;
use super::error::Error;
use super::pool::{Burst, Pool};

/// Whether anybody is at the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not yet, or not any more; it may still come.
    Down,
    /// Packets go through.
    Up,
    /// The port has given all that it had and gives nothing more: the end of a file, a count of
    /// packets.
    Finished,
}

/// What a virtual machine's device and its driver have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Virtio's feature bits.
    pub features: u64,
    /// Descriptors of a ring.
    pub ring_size: u32,
}

/// A queue pair of a port, which one worker drives. A port of several queues is opened as several
/// of these, one for each worker, which know nothing of each other's.
///
/// One pool serves a worker: all calls get the same, and packets are of it. A port may keep packets
/// of the pool, such as those that a device fills; [`Port::stop`] gives them back.
///
/// No call waits: not for the other side, nor for a packet. Each may be called in any state;
/// without a link nothing comes, and what is sent is dropped and counted as
/// [`super::DropReason::NoLink`].
pub trait Port: Send {
    /// The port's name, unique in a forwarder: `vhost0`, `gen0`.
    fn name(&self) -> &str;

    /// Which of the port's queue pairs this is.
    fn queue(&self) -> u16 {
        0
    }

    /// Appends packets to `burst`, at most [`Burst::room`], and says how many. They are the
    /// caller's: to be sent, or freed.
    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize;

    /// Takes packets from the front of `burst`, and says how many went through. Those that the
    /// other side has no room for stay in `burst`: the caller tries again, or drops them. Those
    /// that can never be sent are freed and counted as dropped.
    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize;

    /// What is not done for each burst: messages of the control plane, a connection made again.
    /// Called every few milliseconds by the worker; takes microseconds, and milliseconds where a
    /// peer comes or goes.
    ///
    /// # Errors
    /// [`Error`] where the port is of no use any more. What the other side does is no error: the
    /// port resets and counts it.
    fn service(&mut self, _pool: &mut Pool) -> Result<(), Error> {
        Ok(())
    }

    /// Whether packets go through.
    fn link(&self) -> Link {
        Link::Up
    }

    /// Nothing new is to come: a generator makes no more packets, a file is read no further. What
    /// the other side has sent already still comes.
    fn quiesce(&mut self) {}

    /// What was agreed on with the other side; `None` without a link, and for what is no virtual
    /// machine's device.
    fn agreement(&self) -> Option<Agreement> {
        None
    }

    /// Why nobody is at the other side, where the port knows more than that nobody came: what it
    /// misses in who did, and what helps.
    fn obstacle(&self) -> Option<String> {
        None
    }

    /// What a person ought to know of the port although packets go through: what is lost or left
    /// out on the way, how much of it, and what helps. A sentence each; its numbers may grow from
    /// call to call.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// What crossed a modelled link so far; `None` for what has none.
    fn crossed(&self) -> Option<&Counts> {
        None
    }

    /// Called again and again before [`Port::stop`], when nothing more is sent: whether all that
    /// was sent has left. A port that hands packets to the other side by copying them has nothing
    /// to do.
    fn drain(&mut self, _pool: &mut Pool) -> bool {
        true
    }

    /// Gives back what the port keeps of the pool, and leaves the other side. Nothing comes and
    /// goes any more.
    fn stop(&mut self, _pool: &mut Pool) {}

    /// What was counted so far.
    fn counters(&self) -> &Counters;

    /// The same, for the worker: what it drops because this port had no room is counted here.
    fn counters_mut(&mut self) -> &mut Counters;
}
