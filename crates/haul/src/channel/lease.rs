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
//! A target that is not of the pool cannot be reached; then the receiver says so, and the message
//! goes through the ring.

use std::sync::Arc;

use haul_copy::Hint;
use rustix::io::Errno;

use super::layout::{ABANDONED, LAID, OFFERED, OFFERED_AT, OFFERED_POOL};
use super::link::{Kind, Lane, Step};
use super::pool::{POOLS_MAX, Pool, Pools};
use super::region::Region;
use super::source::Source;

/// Bytes copied between two looks at the clock and the peer: 0.1 ms.
const STEP_BYTES: u64 = 1 << 20;
/// From this size on the target goes past the caches, see `ring`.
const STREAMED_BYTES_MIN: u64 = 32 << 20;

/// The receiver's pools that this end has mapped.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    regions: Vec<(u64, Region)>,
}

impl Mapped {
    /// The place that was offered, if `length` bytes can be written there.
    fn find(&mut self, lane: &Lane, number: u64, offset: u64, length: u64) -> Option<usize> {
        if !self.regions.iter().any(|&(known, _)| known == number) {
            let file = lane.link.take_file(Kind::Pool, number)?;
            let size = usize::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
            let region = Region::open(file, size).ok()?;
            if self.regions.len() == POOLS_MAX {
                self.regions.remove(0);
            }
            self.regions.push((number, region));
        }
        let index = self.regions.iter().position(|&(known, _)| known == number)?;
        let end = offset.checked_add(length)?;
        (end <= self.regions[index].1.size_bytes() as u64).then_some(index)
    }
}

/// The sender's part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lay {
    length: u64,
    /// Bytes copied.
    pub(super) laid: u64,
}

impl Lay {
    pub(super) fn new(length: u64) -> Self {
        Self { length, laid: 0 }
    }

    /// Copies the next bytes, if the receiver has made its offer; `message` is counted from 1.
    ///
    /// # Errors
    /// [`CannotReach`], and the receiver is told.
    pub(super) fn step(
        &mut self,
        lane: &mut Lane,
        source: &mut Source<'_>,
        mapped: &mut Mapped,
        message: u64,
    ) -> Result<Step<()>, CannotReach> {
        if lane.load(OFFERED) != message {
            return Ok(Step::Blocked);
        }
        let (number, offset) = (lane.load(OFFERED_POOL), lane.load(OFFERED_AT));
        let Some(index) = mapped.find(lane, number, offset, self.length) else {
            lane.tell(ABANDONED, message);
            return Err(CannotReach);
        };
        let step = (self.length - self.laid).min(STEP_BYTES) as usize;
        let hint = if self.length < STREAMED_BYTES_MIN { Hint::ReadSoon } else { Hint::Streamed };
        source.write_to(&mapped.regions[index].1, (offset + self.laid) as usize, step, hint);
        self.laid += step as u64;
        if self.laid < self.length {
            return Ok(Step::Moved);
        }
        lane.put_sum(message - 1, source.sum());
        lane.tell(LAID, message);
        Ok(Step::Done(()))
    }
}

/// What was offered is not there.
#[derive(Debug)]
pub(super) struct CannotReach;

/// The receiver's part.
#[derive(Debug, Default)]
pub(super) struct Let {
    /// The pool that the target stands in, once it was offered.
    offered: Option<Arc<Pool>>,
}

/// How far a step of the receiver came.
#[derive(Debug)]
pub(super) enum Laid {
    Step(Step<()>),
    /// The sender cannot reach the target; it has copied nothing.
    Refused,
}

impl Let {
    /// Offers the target, or sees whether the sender has filled it; `message` is counted from 1.
    pub(super) fn step(
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
                Err(Errno::AGAIN) => return Laid::Step(Step::Blocked),
                Err(_) => return Laid::Refused,
            }
        }
        lane.note(OFFERED_AT, offset as u64);
        lane.note(OFFERED_POOL, pool.number);
        lane.tell(OFFERED, message);
        self.offered = Some(Arc::clone(pool));
        Laid::Step(Step::Moved)
    }

    /// Gives up: what the sender still copies does not get into the target. False where that
    /// cannot be had.
    pub(super) fn cut_off(&mut self, target: &[u8]) -> bool {
        self.offered.take().is_none_or(|pool| pool.cut_off(target).is_ok())
    }
}
