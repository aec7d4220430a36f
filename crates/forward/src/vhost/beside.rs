//! Packets to the guest that an engine copies, see [`VhostSettings::engine`].
//!
//! ```text
//! burst: place its packets in the guest's buffers, behind those that are on their way
//!        long enough: the engine copies; else, or while it has enough to do: this thread
//!        keep the packets, and note the burst behind those that are on their way
//! poll:  publish the bursts whose copies have ended, in order, up to the first that has not
//!        free their packets, and count them
//! ```
//!
//! The ring belongs to the device, which two threads use; the packets belong to the pool of one
//! worker. So the ring keeps a list of copies, and the port a list of packets. A burst has one
//! [`Fate`], through which the port learns what became of its packets.
//!
//! A copy keeps the guest's memory and the pool's memory mapped. A ring that is stopped, or whose
//! memory is changed, first ends its copies: the conversation's thread takes part in them.
//!
//! [`VhostSettings::engine`]: super::VhostSettings::engine

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::thread;

use haul_engine::Queue;
use haul_peer::caller::Caller;
use haul_peer::fork::Here;
use haul_peer::guest::Guest;
use rustix::fd::AsFd;

use super::Vhost;
use super::chain::Scratch;
use super::copying::{Copying, Fate};
use super::device::Device;
use super::enqueue::{self, Tally};
use super::layout::ahead::Ahead;
use super::layout::{Broken, ReadAhead};
use super::vring::{Active, AnyActive, Slot};
use crate::copy::Copier;
use crate::counters::DropReason;
use crate::pool::{Burst, Packet, Pool};

/// From this number of bytes on, an engine copies a burst. A stated default: a helper thread takes
/// a submission in 0.1 us and hands a burst back in 0.4 us, in which a processor copies about this
/// much.
pub(super) const BYTES_MIN: usize = 16 << 10;

/// The largest number of bursts that an engine copies at a time for a ring. This thread copies
/// those that come meanwhile. A stated default: one that the engine copies, and some behind it.
const COPYING_MAX: usize = 4;

/// The largest number of bursts on their way to a ring. Later packets wait. A stated default: while
/// a helper thread does not run for some time, this thread goes on with so many.
const BURSTS_MAX: usize = 64;

/// A burst's packets while they are on their way, by their indices in the pool.
#[derive(Debug, Default)]
struct Kept {
    /// The ring to which they go.
    ring: usize,
    fate: Arc<Fate>,
    indices: Vec<u32>,
    done: Tally,
}

/// The engine of a port, and the packets that are on their way.
#[derive(Debug)]
pub(super) struct Keeper {
    queue: Queue,
    bytes_min: usize,
    /// The bursts, in the order of their rings.
    kept: VecDeque<Kept>,
    /// Memory of earlier bursts, so that no burst allocates.
    spare: Vec<Kept>,
    here: Here,
}

impl Keeper {
    /// The keeper of a port whose engine copies bursts of `bytes_min` bytes and more. `None` if the
    /// engine is the CPU alone.
    pub(super) fn of(queue: &Queue, bytes_min: usize) -> Option<Self> {
        let bytes_min = bytes_min.max(queue.settings().cpu_below);
        let (kept, spare) = (VecDeque::new(), Vec::new());
        let keeper = Self { queue: queue.clone(), bytes_min, kept, spare, here: Here::now() };
        (bytes_min < usize::MAX).then_some(keeper)
    }

    /// Takes the packets that were placed or dropped from the front of the burst.
    fn keep(&mut self, mut kept: Kept, burst: &mut Burst, done: Tally) {
        let packets = std::iter::from_fn(|| burst.pop()).take(done.consumed);
        kept.indices.extend(packets.map(Packet::into_index));
        kept.done = done;
        self.kept.push_back(kept);
    }
}

impl Vhost {
    /// [`Port::tx_burst`](crate::Port::tx_burst) of a port with an engine.
    #[cold]
    #[inline(never)]
    pub(super) fn tx_beside(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let to_guest = self.device.ring_to_guest(self.queue);
        let Self { device, caller, copier, scratch, counters, keeper, .. } = self;
        let Some(keeper) = keeper else { return 0 };
        // Packets wait while the front end changes the ring.
        let Some(mut slot) = device.ring_soon(to_guest) else { return 0 };
        if slot.is_changing {
            return 0;
        }
        let Some(active) = &mut slot.active else {
            drop(slot);
            self.drop_all(pool, burst, DropReason::NoLink);
            self.collect(pool);
            return 0;
        };
        let mut kept = keeper.spare.pop().unwrap_or_default();
        kept.ring = to_guest;
        let Keeper { queue, bytes_min, .. } = &*keeper;
        let means = Means { queue, bytes_min: *bytes_min, copier, scratch };
        let placed = active.enqueue_beside(pool, burst, means, &kept.fate);
        let mut packets = 0;
        if let Ok(Some(done)) = placed {
            scratch.drops.iter().for_each(|reason| counters.tx.dropped(*reason, 1));
            keeper.keep(kept, burst, done);
            packets = done.packets;
        } else {
            keeper.spare.push(kept);
            counters.tx.batch(0, 0);
        }
        let published = placed.and_then(|_| active.publish_ended());
        if !end(device, caller, slot, published) {
            self.drop_all(pool, burst, DropReason::Reset);
        }
        self.collect(pool);
        packets
    }

    /// Publishes what has arrived, then frees and counts the packets that have ended.
    #[cold]
    #[inline(never)]
    pub(super) fn collect(&mut self, pool: &mut Pool) {
        while let Some(ring) = self.first_ring() {
            if !self.free_ended(pool) {
                self.publish_ended(ring);
                if !self.free_ended(pool) {
                    return;
                }
            }
        }
    }

    /// Whether packets of this port are on their way.
    #[inline]
    pub(super) fn has_kept(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| !keeper.kept.is_empty())
    }

    /// Ends all copies of this port's packets, and frees them.
    pub(super) fn collect_all(&mut self, pool: &mut Pool) {
        while let Some(ring) = self.first_ring() {
            if let Some(keeper) = self.keeper.as_mut().filter(|keeper| !keeper.here.is_here()) {
                // In a child of fork, the packets are the parent's.
                keeper.kept.clear();
                return;
            }
            if let Some(mut slot) = self.device.ring_soon(ring) {
                let wants_call = slot.active.as_mut().is_some_and(AnyActive::complete);
                end(&self.device, &self.caller, slot, Ok(wants_call));
            }
            self.collect(pool);
            if self.has_kept() {
                // The conversation ends the copies of a ring that it has removed.
                thread::yield_now();
            }
        }
    }

    /// Publishes what has arrived in a ring.
    fn publish_ended(&self, ring: usize) {
        let Some(mut slot) = self.device.ring_soon(ring) else { return };
        if let Some(active) = &mut slot.active {
            let published = active.publish_ended();
            end(&self.device, &self.caller, slot, published);
        }
    }

    fn first_ring(&self) -> Option<usize> {
        self.keeper.as_ref()?.kept.front().map(|kept| kept.ring)
    }

    /// Frees and counts the packets of the bursts that have ended, in order. Returns whether there
    /// was one.
    fn free_ended(&mut self, pool: &mut Pool) -> bool {
        let Self { keeper: Some(keeper), counters, .. } = self else { return false };
        let mut has_ended = false;
        while let Some(is_sent) = keeper.kept.front().and_then(|kept| kept.fate.is_sent()) {
            let Some(mut kept) = keeper.kept.pop_front() else { break };
            kept.indices.drain(..).for_each(|index| pool.free(Packet::from_index(index)));
            let Tally { packets, bytes, .. } = kept.done;
            if is_sent {
                counters.tx.batch(packets, bytes);
            } else {
                counters.tx.dropped(DropReason::Reset, packets as u64);
                counters.tx.batch(0, 0);
            }
            keeper.spare.push(kept);
            has_ended = true;
        }
        has_ended
    }
}

/// Calls the guest if it wants a call. After a fault, disconnects the guest and returns false.
fn end(
    device: &Device,
    caller: &Caller,
    mut slot: MutexGuard<'_, Slot>,
    published: Result<bool, Broken>,
) -> bool {
    match published {
        Ok(wants_call) => {
            let call = if wants_call { slot.call.clone() } else { None };
            drop(slot);
            call.iter().for_each(|call| caller.call(call.as_fd()));
            true
        }
        Err(Broken) => {
            let is_memory_lost = slot.abandon();
            drop(slot);
            device.disconnect_after_fault(is_memory_lost);
            false
        }
    }
}

/// What copies packets, for one burst.
struct Means<'a> {
    queue: &'a Queue,
    bytes_min: usize,
    copier: &'a Copier,
    scratch: &'a mut Scratch,
}

impl AnyActive {
    /// Places packets of the burst in the guest's buffers, as many as there are buffers for, and
    /// starts their copies. The placed and the dropped packets stay in the burst, at its front:
    /// the caller keeps them until `fate` is known. `None` if no packet was placed or dropped.
    ///
    /// # Errors
    /// [`Broken`]; the burst then keeps all packets, and `fate` is not used.
    fn enqueue_beside(
        &mut self,
        pool: &Pool,
        burst: &Burst,
        means: Means<'_>,
        fate: &Arc<Fate>,
    ) -> Result<Option<Tally>, Broken> {
        match self {
            Self::SplitAhead(active) => active.enqueue_beside(pool, burst, means, fate),
            Self::PackedAhead(active) => active.enqueue_beside(pool, burst, means, fate),
            // The rings of a port with an engine are read ahead.
            Self::Split(_) | Self::Packed(_) => Ok(None),
        }
    }
}

impl<L: ReadAhead> Active<Ahead<L>, Guest> {
    fn enqueue_beside(
        &mut self,
        pool: &Pool,
        burst: &Burst,
        means: Means<'_>,
        fate: &Arc<Fate>,
    ) -> Result<Option<Tally>, Broken> {
        if self.back_off.is_active() || self.ring.bursts() >= BURSTS_MAX {
            return Ok(None);
        }
        let done = self.place(pool, burst, means.scratch)?;
        self.record_room(&done, burst);
        if done.consumed == 0 {
            return Ok(None);
        }
        let copying = self.copy(pool, &done, &means);
        self.ring.send(copying, fate);
        Ok(Some(done))
    }

    /// Copies the placed packets, or lets the engine begin to. Returns the engine's copies.
    fn copy(&mut self, pool: &Pool, done: &Tally, means: &Means<'_>) -> Option<Copying> {
        let parts = &means.scratch.parts;
        if (done.bytes as usize) < means.bytes_min || self.ring.copying() >= COPYING_MAX {
            // SAFETY: sources are packets of the burst, and targets were looked up in the guest's
            // memory, which this ring keeps mapped; each is valid for its length.
            unsafe { enqueue::copy(means.copier, parts) };
            return None;
        }
        let (pairs, memory) = (self.ring.spare_pairs(), (&self.memory, pool.memory()));
        // SAFETY: as above. The caller keeps the packets until the copies have ended.
        Some(unsafe { Copying::start(means.queue, parts, memory, pairs) })
    }
}
