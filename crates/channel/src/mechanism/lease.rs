//! `lease`: the sender copies directly into the receiver's memory, which both ends have mapped.
//! `lease` makes one copy by the processor, without a system call and, once the memory is warm,
//! without a page fault.
//!
//! ```text
//! sender:    publish the length,  wait for the offer
//! receiver:  lease a part of a pool,  hand the pool over if it is new,  offer the part
//! sender:    copy,  publish
//! ```
//!
//! This mechanism is only for ends that trust each other, because the sender can still write to
//! the memory that the receiver gets. The receiver does not offer a target that is outside the
//! pool or shares a page with other memory. The receiver reports a target that it does not offer,
//! and the message goes through the ring. The sender allocates the pool's pages when its copy
//! reaches them.

use std::sync::Arc;

use haul_copy::Hint;

use super::contract::{
    Begun, Destination, Incoming, NO_TRUST, Outgoing, Receives, Sends, Taken, Then,
};
use crate::pages::buffer::Buffer;
use crate::pages::pool::{POOLS_MAX, Pool, Pools};
use crate::shared::beside::{BYTES_MIN, Copying, Keeper};
use crate::shared::error::Error;
use crate::shared::header::{Header, SumState};
use crate::shared::lane::Lane;
use crate::shared::layout::{
    ABANDONED, LEASE_FILLED, OFFERED, OFFERED_AT, OFFERED_KEPT, OFFERED_POOL,
};
use crate::shared::link::Kind;
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::transfer::Step;
use haul_peer::memory::Sealed;
use haul_peer::region::Region;

/// Number of bytes that are copied between two checks of the clock and the peer, in about 0.1 ms.
const STEP_BYTES: u64 = 1 << 20;
/// The same while an engine copies the bytes: a helper thread and this thread share them.
const STEP_BYTES_BESIDE: u64 = 4 << 20;
/// Number of bytes for which one system call allocates a pool's pages.
const BACKED_BYTES: usize = 4 << 20;
/// From this size on, stores to the target bypass the caches, see `ring`.
const STREAMED_BYTES_MIN: u64 = 32 << 20;

/// The receiver's pools that this end has mapped, each in its slot.
#[derive(Debug, Default)]
pub(crate) struct MappedPools {
    slots: [Option<MappedPool>; POOLS_MAX],
}

/// A pool that this end has mapped.
#[derive(Debug)]
struct MappedPool {
    number: u64,
    region: Arc<Region>,
    /// Number of bytes from the pool's beginning that have allocated pages.
    backed: usize,
}

impl MappedPools {
    /// Unmaps the pools of slots that the receiver has emptied.
    fn keep(&mut self, kept: u64) {
        for (slot, mapped_pool) in self.slots.iter_mut().enumerate() {
            mapped_pool.take_if(|_| kept >> slot & 1 == 0);
        }
    }

    /// The pool that the receiver offered. Maps the pool first if it is new.
    fn find(&mut self, lane: &Lane, number: u64) -> Option<&mut MappedPool> {
        let slot = &mut self.slots[(number % POOLS_MAX as u64) as usize];
        if slot.as_ref().is_none_or(|mapped_pool| mapped_pool.number != number) {
            *slot = None;
            let file =
                lane.link.take_file(Kind::Pool, number, "one memory file for a pool").ok()?;
            let size = usize::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
            let region = Arc::new(Region::open(file, size, Sealed::Size).ok()?);
            *slot = Some(MappedPool { number, region, backed: 0 });
        }
        slot.as_mut()
    }
}

impl MappedPool {
    /// Whether the pool has `length` bytes from `offset` on.
    fn has(&self, offset: u64, length: u64) -> bool {
        let end = offset.checked_add(length);
        end.is_some_and(|end| end <= self.region.size_bytes() as u64)
    }

    /// Allocates the missing pages up to `end`, and some behind `end` in advance.
    fn back(&mut self, lane: &mut Lane, end: usize) -> Result<(), Error> {
        if end > self.backed {
            let wanted = end.next_multiple_of(BACKED_BYTES).min(self.region.size_bytes());
            self.region.reserve(self.backed, wanted - self.backed)?;
            lane.system_calls += 1;
            self.backed = wanted;
        }
        Ok(())
    }
}

/// The sender's part.
#[derive(Debug)]
pub(crate) struct Sending {
    length: u64,
    /// The number of bytes copied.
    copied: u64,
    /// The next bytes, which an engine copies while the sender does something else.
    ahead: Option<Ahead>,
}

/// Bytes that an engine copies.
#[derive(Debug)]
struct Ahead {
    copying: Copying,
    region: Arc<Region>,
    bytes: usize,
}

impl Sending {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, copied: 0, ahead: None }
    }

    /// The location of the next bytes, with their pages allocated, if the whole message fits there.
    fn location<'a>(
        &self,
        lane: &mut Lane,
        mapped: &'a mut MappedPools,
        step: usize,
    ) -> Option<(&'a Arc<Region>, usize)> {
        let (number, offset) = (lane.load(OFFERED_POOL), lane.load(OFFERED_AT));
        if self.copied == 0 {
            mapped.keep(lane.load(OFFERED_KEPT));
        }
        let mapped_pool =
            mapped.find(lane, number).filter(|mapped_pool| mapped_pool.has(offset, self.length))?;
        let at = (offset + self.copied) as usize;
        mapped_pool.back(lane, at + step).ok()?;
        Some((&mapped_pool.region, at))
    }

    /// Counts the next bytes as copied, and reports the whole message to the receiver.
    fn note_copied(
        &mut self,
        out: &mut Outgoing<'_, '_>,
        region: &Region,
        bytes: usize,
    ) -> Result<Step<Then>, Error> {
        if region.is_broken() {
            return Err(Error::memory_gone());
        }
        self.copied += bytes as u64;
        out.account.copied_bytes += bytes as u64;
        if self.copied < self.length {
            return Ok(Step::Moved);
        }
        out.lane.put_sum(out.message, out.source.sum());
        out.lane.signal(LEASE_FILLED, out.message.count());
        Ok(Step::Done(Then::Complete))
    }
}

impl Sends for Sending {
    type State = MappedPools;

    const SUMS: bool = true;

    fn peer_obstacle(link: &Link) -> Option<&'static str> {
        (!link.is_trusted).then_some(NO_TRUST)
    }

    fn begin(&mut self, _: &mut MappedPools, _out: &mut Outgoing<'_, '_>) -> Result<Begun, Error> {
        Ok(Begun::Moving { detail: 0 })
    }

    /// Copies the next bytes, if the receiver has offered its target. Reports to the receiver if
    /// the target cannot be mapped.
    fn step(
        &mut self,
        mapped: &mut MappedPools,
        out: &mut Outgoing<'_, '_>,
    ) -> Result<Step<Then>, Error> {
        if out.is_refused() {
            return Ok(Step::Done(Then::Answer));
        }
        if !out.lane.names(OFFERED, out.message) {
            return Ok(Step::Blocked);
        }
        if let Some(ahead) = &mut self.ahead {
            if !ahead.copying.has_ended() {
                return Ok(Step::Blocked);
            }
            let Ahead { region, bytes, .. } = self.ahead.take().expect("it was just there");
            return self.note_copied(out, &region, bytes);
        }
        let link = Arc::clone(&out.lane.link);
        let beside = link.beside.as_ref().filter(|_| out.source.sum() == SumState::None);
        let most = if beside.is_some() { STEP_BYTES_BESIDE } else { STEP_BYTES };
        let step = (self.length - self.copied).min(most) as usize;
        let Some((region, at)) = self.location(out.lane, mapped, step) else {
            out.lane.signal(ABANDONED, out.message.count());
            return Ok(Step::Done(Then::Answer));
        };
        let hint = if self.length < STREAMED_BYTES_MIN { Hint::ReadSoon } else { Hint::Streamed };
        if let (Some(beside), Some(bytes)) = (beside, out.source.shared_bytes())
            && step >= BYTES_MIN
        {
            let memory = (&**region, at, Arc::clone(region) as Keeper);
            // SAFETY: the region is mapped while it exists, and the copy keeps it.
            let copying = unsafe { beside.start(memory, (bytes, self.copied), step, hint) };
            self.ahead = Some(Ahead { copying, region: Arc::clone(region), bytes: step });
            out.source.seek(self.copied + step as u64);
            return Ok(Step::Moved);
        }
        out.source.write_to(region, at, step, hint, beside);
        self.note_copied(out, region, step)
    }

    fn progress(&self) -> u64 {
        self.copied
    }

    fn copying(&mut self) -> Option<&mut Copying> {
        self.ahead.as_mut().map(|ahead| &mut ahead.copying)
    }
}

/// The receiver's part.
#[derive(Debug, Default)]
pub(crate) struct Receiving {
    /// The pool of the target, once this end has offered the target.
    offered: Option<Arc<Pool>>,
}

impl Receives for Receiving {
    type State = Pools;

    const SUMS: bool = false;

    fn begin(_: &mut Pools, header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        match lane.link.is_trusted {
            true => Ok(Self::default()),
            false => Err(Error::protocol("mechanism", header.kind, 0)),
        }
    }

    /// Without a pool the message goes through the ring, into a separate buffer.
    fn destination(
        &mut self,
        pools: &mut Pools,
        _lane: &mut Lane,
        length: usize,
    ) -> Result<Option<Destination>, Error> {
        let lease = pools.lease(length).ok();
        Ok(lease
            .map(|lease| Destination { memory: Buffer::leased(lease, length), is_whole: false }))
    }

    /// Offers the target, or polls whether the sender has filled it.
    fn step(
        &mut self,
        pools: &mut Pools,
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        let (lane, message) = (&mut *incoming.lane, incoming.message);
        if self.offered.is_none() {
            return Ok(self.offer(lane, target, pools, message));
        }
        if lane.names(LEASE_FILLED, message) {
            if self.offered.take().is_some_and(|pool| pool.is_broken()) {
                return Err(Error::memory_gone());
            }
            return Ok(Step::Done(Taken::Whole));
        }
        if lane.names(ABANDONED, message) {
            self.offered = None;
            return Ok(Step::Done(REFUSED));
        }
        Ok(Step::Blocked)
    }

    /// From this call on, bytes that the sender still copies do not reach the target.
    fn revoke(
        &mut self,
        _: &mut Pools,
        _lane: &mut Lane,
        _message: Message,
        target: &[u8],
    ) -> bool {
        self.offered.take().is_none_or(|pool| pool.cut_off(target).is_ok())
    }
}

/// The sender cannot write to the target; it has copied nothing.
const REFUSED: Taken = Taken::Part(0);

impl Receiving {
    fn offer(
        &mut self,
        lane: &mut Lane,
        target: &[u8],
        pools: &Pools,
        message: Message,
    ) -> Step<Taken> {
        let Some((pool, offset)) = pools.of(target) else { return Step::Done(REFUSED) };
        if !pool.is_handed_over() {
            lane.system_calls += 1;
            match lane.link.send_file(Kind::Pool, pool.number, pool.file()) {
                Ok(()) => pool.set_handed_over(),
                // A full socket counts as a refusal too, because no event would signal that it
                // has room again.
                Err(_) => return Step::Done(REFUSED),
            }
        }
        lane.store(OFFERED_AT, offset as u64);
        lane.store(OFFERED_POOL, pool.number);
        lane.store(OFFERED_KEPT, pools.kept());
        lane.signal(OFFERED, message.count());
        self.offered = Some(Arc::clone(pool));
        Step::Moved
    }
}
