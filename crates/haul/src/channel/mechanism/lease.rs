//! `lease`: the sender copies straight into memory of the receiver's that both have mapped: one
//! copy, by the processor, without a system call and without a fault once it is warm.
//!
//! ```text
//! sender:    publish the length,  wait for the offer
//! receiver:  lease a place of the pool,  hand the pool over if it is new,  offer the place
//! sender:    copy,  tell
//! ```
//!
//! Only between ends that trust each other: what the receiver gets stays within the sender's reach.
//! A target that is not of the pool, or shares a page with other memory, is not offered; then the
//! receiver says so, and the message goes through the ring. The pool gets its pages as the sender
//! comes to them.

use std::sync::Arc;

use haul_copy::Hint;

use crate::channel::pages::pool::{POOLS_MAX, Pool, Pools};
use crate::channel::shared::error::Error;
use crate::channel::shared::lane::Lane;
use crate::channel::shared::layout::{
    ABANDONED, LAID, OFFERED, OFFERED_AT, OFFERED_KEPT, OFFERED_POOL,
};
use crate::channel::shared::link::Kind;
use crate::channel::shared::source::Source;
use crate::channel::shared::transfer::Step;
use crate::peer::memory::Sealed;
use crate::peer::region::Region;

/// Bytes copied between two looks at the clock and the peer: 0.1 ms.
const STEP_BYTES: u64 = 1 << 20;
/// Bytes of a pool that are given pages at a time, one system call.
const BACKED_BYTES: usize = 4 << 20;
/// From this size on the target goes past the caches, see `ring`.
const STREAMED_BYTES_MIN: u64 = 32 << 20;

/// The receiver's pools that this end has mapped, each in its place.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    places: [Option<Known>; POOLS_MAX],
}

/// A pool that this end has mapped.
#[derive(Debug)]
struct Known {
    number: u64,
    region: Region,
    /// So many bytes from its beginning have pages.
    backed: usize,
}

impl Mapped {
    /// Unmaps what was in places that have no pool any more.
    fn keep(&mut self, kept: u64) {
        for (place, known) in self.places.iter_mut().enumerate() {
            known.take_if(|_| kept >> place & 1 == 0);
        }
    }

    /// The pool that was offered; mapped if it is new.
    fn find(&mut self, lane: &Lane, number: u64) -> Option<&mut Known> {
        let place = &mut self.places[(number % POOLS_MAX as u64) as usize];
        if place.as_ref().is_none_or(|known| known.number != number) {
            *place = None;
            let file =
                lane.link.take_file(Kind::Pool, number, "one memory file for a pool").ok()?;
            let size = usize::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
            let region = Region::open(file, size, Sealed::Size).ok()?;
            *place = Some(Known { number, region, backed: 0 });
        }
        place.as_mut()
    }
}

impl Known {
    /// Whether it has so many bytes from `offset` on.
    fn has(&self, offset: u64, length: u64) -> bool {
        let end = offset.checked_add(length);
        end.is_some_and(|end| end <= self.region.size_bytes() as u64)
    }

    /// Gives what comes before `end` pages, if it has none yet, and what comes after it ahead of
    /// need.
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lay {
    length: u64,
    /// Bytes copied.
    pub(crate) laid: u64,
}

impl Lay {
    pub(crate) fn new(length: u64) -> Self {
        Self { length, laid: 0 }
    }

    /// Copies the next bytes, if the receiver has made its offer; `message` is counted from 1.
    ///
    /// # Errors
    /// [`CannotReach`], and the receiver is told.
    pub(crate) fn step(
        &mut self,
        lane: &mut Lane,
        source: &mut Source<'_>,
        mapped: &mut Mapped,
        message: u64,
    ) -> Result<Step<()>, CannotReach> {
        if lane.load(OFFERED) != message {
            return Ok(Step::Blocked);
        }
        let step = (self.length - self.laid).min(STEP_BYTES) as usize;
        let Some((region, at)) = self.place(lane, mapped, step) else {
            lane.tell(ABANDONED, message);
            return Err(CannotReach);
        };
        let hint = if self.length < STREAMED_BYTES_MIN { Hint::ReadSoon } else { Hint::Streamed };
        source.write_to(region, at, step, hint);
        self.laid += step as u64;
        if self.laid < self.length {
            return Ok(Step::Moved);
        }
        lane.put_sum(message - 1, source.sum());
        lane.tell(LAID, message);
        Ok(Step::Done(()))
    }

    /// Where the next bytes go, if the whole message has room there, with pages under them.
    fn place<'a>(
        &self,
        lane: &mut Lane,
        mapped: &'a mut Mapped,
        step: usize,
    ) -> Option<(&'a Region, usize)> {
        let (number, offset) = (lane.load(OFFERED_POOL), lane.load(OFFERED_AT));
        if self.laid == 0 {
            mapped.keep(lane.load(OFFERED_KEPT));
        }
        let known = mapped.find(lane, number).filter(|known| known.has(offset, self.length))?;
        let at = (offset + self.laid) as usize;
        known.back(lane, at + step).ok()?;
        Some((&known.region, at))
    }
}

/// What was offered is not there.
#[derive(Debug)]
pub(crate) struct CannotReach;

/// The receiver's part.
#[derive(Debug, Default)]
pub(crate) struct Let {
    /// The pool that the target stands in, once it was offered.
    offered: Option<Arc<Pool>>,
}

/// How far a step of the receiver came.
#[derive(Debug)]
pub(crate) enum Laid {
    Step(Step<()>),
    /// The sender cannot reach the target; it has copied nothing.
    Refused,
}

impl Let {
    /// Offers the target, or sees whether the sender has filled it; `message` is counted from 1.
    pub(crate) fn step(
        &mut self,
        lane: &mut Lane,
        target: &[u8],
        pools: &Pools,
        message: u64,
    ) -> Laid {
        if self.offered.is_none() {
            return self.offer(lane, target, pools, message);
        }
        if lane.load(LAID) == message {
            self.offered = None;
            return Laid::Step(Step::Done(()));
        }
        if lane.load(ABANDONED) == message {
            self.offered = None;
            return Laid::Refused;
        }
        Laid::Step(Step::Blocked)
    }

    fn offer(&mut self, lane: &mut Lane, target: &[u8], pools: &Pools, message: u64) -> Laid {
        let Some((pool, offset)) = pools.of(target) else { return Laid::Refused };
        if !pool.is_handed_over() {
            lane.system_calls += 1;
            match lane.link.send_file(Kind::Pool, pool.number, pool.file()) {
                Ok(()) => pool.set_handed_over(),
                // A full socket too: nothing would tell that there is room again.
                Err(_) => return Laid::Refused,
            }
        }
        lane.note(OFFERED_AT, offset as u64);
        lane.note(OFFERED_POOL, pool.number);
        lane.note(OFFERED_KEPT, pools.kept());
        lane.tell(OFFERED, message);
        self.offered = Some(Arc::clone(pool));
        Laid::Step(Step::Moved)
    }

    /// Gives up: what the sender still copies does not get into the target. False where that
    /// cannot be had.
    pub(crate) fn cut_off(&mut self, target: &[u8]) -> bool {
        self.offered.take().is_none_or(|pool| pool.cut_off(target).is_ok())
    }
}
