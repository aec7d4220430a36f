//! How a message that was believed comes to its target, by each mechanism, and how it is made sure
//! that it is whole.

use haul_model::Bytes;
use rustix::fd::AsFd;

use super::incoming::{Pending, Way};
use super::receiver::Receiver;
use crate::channel::mechanism::double::Drawn;
use crate::channel::mechanism::inline;
use crate::channel::mechanism::lease::Laid;
use crate::channel::mechanism::ring::{self, Run};
use crate::channel::mechanism::sealed::{self, Kept};
use crate::channel::mechanism::staged;
use crate::channel::mechanism::vmsplice::{self, Drained};
use crate::channel::shared::account::Account;
use crate::channel::shared::checksum::{SUM_BYTES, Sum};
use crate::channel::shared::error::Error;
use crate::channel::shared::header::SumState;
use crate::channel::shared::lane::Lane;
use crate::channel::shared::names::Mechanism;
use crate::channel::shared::pace::Pace;
use crate::channel::shared::transfer::{Step, Transfer};
use crate::channel::shared::{closing, layout};
use crate::peer::memory::Sealed;
use crate::peer::{closer, memory};

/// Memory that so much was copied out of is closed by a thread of its own: the kernel takes the
/// pages back in that one call, 0.15 s for a GiB.
const CLOSED_ASIDE_MIN: usize = 16 << 20;

impl Receiver {
    /// Moves bytes of the message under way into a target of exactly its length.
    fn fill(&mut self, target: &mut [u8]) -> Result<Step<Account>, Error> {
        // Before looking for anything, as in `closing`: what the sender told before it closed is
        // found.
        let state = self.lane.state(layout::SENDER_STATE);
        let pending = self.pending.as_mut().expect("a header was taken before");
        let sum = pending.check.as_mut().map(|(sum, _)| sum);
        let step = match &mut pending.way {
            _ if pending.is_moved => Step::Done(()),
            Way::Inline => {
                inline::take(&self.lane, self.consumed, target, sum);
                pending.account.copied_bytes = target.len() as u64;
                Step::Done(())
            }
            Way::Chunks(run) => {
                let before = run.offset;
                let step = ring::drain(&mut self.lane, target, run, &mut self.drained, sum)?;
                pending.account.copied_bytes += run.offset - before;
                step
            }
            Way::Memory { .. } => self.copy_out(target)?,
            Way::Pull { .. } => self.pull(target),
            Way::Double(_) => self.draw(target)?,
            Way::Lease(_) => self.be_given(target),
            Way::Pipe { .. } => self.drain_pipe(target),
        };
        match step {
            Step::Done(()) => match self.compare(target)? {
                Step::Done(()) => {
                    self.check_still_the_peer(target.len())?;
                    self.check_not_given_up(target.len())?;
                    Ok(Step::Done(self.complete()))
                }
                Step::Moved => Ok(Step::Moved),
                Step::Blocked => {
                    self.check_still_coming(state)?;
                    Ok(Step::Blocked)
                }
            },
            Step::Moved => Ok(Step::Moved),
            Step::Blocked => {
                self.check_still_coming(state)?;
                Ok(Step::Blocked)
            }
        }
    }

    /// Copies a piece of the memory that came, or puts all of its pages in the place of the
    /// target's.
    fn copy_out(&mut self, target: &mut [u8]) -> Result<Step<()>, Error> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let Way::Memory { file, offset } = &mut pending.way else { return Ok(Step::Blocked) };
        if *offset == 0 {
            self.lane.system_calls += staged::CALLS_TO_CHECK;
            if pending.account.mechanism == Mechanism::Sealed {
                let kept = Kept::of(file.as_fd(), target.len(), self.lane.link.is_trusted)?;
                if let Some(copied) = sealed::put_into(file.as_fd(), target, kept)? {
                    pending.account.copied_bytes = copied as u64;
                    return Ok(Step::Done(()));
                }
            } else {
                memory::check(file.as_fd(), target.len(), Sealed::Bytes)?;
            }
        }
        *offset += staged::copy_some(file.as_fd(), target, *offset)?;
        self.lane.system_calls += staged::CALLS_TO_COPY_SOME;
        pending.account.copied_bytes = *offset as u64;
        Ok(if *offset == target.len() { Step::Done(()) } else { Step::Moved })
    }

    fn pull(&mut self, target: &mut [u8]) -> Step<()> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let Way::Pull { process, table, offset } = &mut pending.way else { return Step::Blocked };
        if *offset == target.len() {
            return Step::Done(());
        }
        self.lane.system_calls += 1;
        match table.pull(*process, &mut target[*offset..]) {
            Ok(count) if count > 0 => {
                *offset += count;
                pending.account.copied_bytes += count as u64;
                let pulled = self.lane.load(layout::PULLED).wrapping_add(count as u64);
                self.lane.note(layout::PULLED, pulled);
            }
            // Whatever the reason, the sender still has the bytes and can bring the rest itself.
            _ => {
                let offset = *offset;
                self.refuse(offset);
            }
        }
        Step::Moved
    }

    fn draw(&mut self, target: &mut [u8]) -> Result<Step<()>, Error> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let Way::Double(draw) = &mut pending.way else { return Ok(Step::Blocked) };
        let before = draw.bytes();
        let drawn = draw.step(&mut self.lane, target, self.consumed + 1)?;
        pending.account.copied_bytes += draw.bytes() - before;
        match drawn {
            Drawn::Step(step) => Ok(step),
            Drawn::Refused(offset) => {
                self.refuse(offset as usize);
                Ok(Step::Moved)
            }
        }
    }

    fn be_given(&mut self, target: &[u8]) -> Step<()> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let Way::Lease(lease) = &mut pending.way else { return Step::Blocked };
        match lease.step(&mut self.lane, target, &self.pools, self.consumed + 1) {
            Laid::Step(step) => step,
            Laid::Refused => {
                self.refuse(0);
                Step::Moved
            }
        }
    }

    fn drain_pipe(&mut self, target: &mut [u8]) -> Step<()> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let (Way::Pipe { offset }, Some(pipe)) = (&mut pending.way, &self.pipe) else {
            return Step::Blocked;
        };
        let before = *offset;
        let drained = vmsplice::drain(&mut self.lane, pipe, target, offset, self.consumed + 1);
        let offset = *offset;
        pending.account.copied_bytes += (offset - before) as u64;
        match drained {
            Drained::Step(step) => step,
            Drained::Refused => {
                self.pipe = None;
                self.refuse(offset);
                Step::Moved
            }
        }
    }

    /// Has the sender bring the rest of the message, which is there up to here, through the ring.
    fn refuse(&mut self, refused_at: usize) {
        let offset = refused_at as u64;
        let pending = self.pending.as_mut().expect("a header was taken before");
        pending.refused_at = refused_at;
        if let Some(check) = &mut pending.check {
            *check = (Sum::default(), 0);
        }
        let run =
            Run::new(offset, pending.length as u64, self.lane.link.chunk_bytes, Pace::default());
        pending.way = Way::Chunks(run);
        pending.account.fell_back_from = Some(pending.account.mechanism);
        pending.account.mechanism = Mechanism::Ring;
        self.lane.note(layout::REFUSED_AT, offset);
        self.lane.tell(layout::REFUSED, self.consumed + 1);
    }

    /// Compares the bytes that are kept with the checksum, if there is one. What the processor
    /// copied was added then; what others brought is added here.
    fn compare(&mut self, target: &[u8]) -> Result<Step<()>, Error> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        pending.is_moved = true;
        let Some((sum, summed)) = &mut pending.check else { return Ok(Step::Done(())) };
        let by_others = match pending.way {
            Way::Inline => 0,
            Way::Chunks(_) => pending.refused_at,
            _ => target.len(),
        };
        if *summed < by_others {
            let next = &target[*summed..by_others];
            let next = &next[..next.len().min(SUM_BYTES)];
            sum.add(*summed as u64, next);
            *summed += next.len();
            return Ok(Step::Moved);
        }
        let expected = match self.lane.sum(self.consumed) {
            SumState::Known(expected) => expected,
            // The sum of such memory comes with its header.
            state if matches!(pending.way, Way::Memory { .. }) => {
                return Err(Error::protocol("state of a checksum", state.words()[0], 2));
            }
            _ => return Ok(Step::Blocked),
        };
        if *sum != expected {
            let (found, expected) = (sum.folded(), expected.folded());
            return Err(Error::Damaged { size: Bytes(target.len() as u64), found, expected });
        }
        pending.account.is_checked = true;
        Ok(Step::Done(()))
    }

    /// Makes sure that nothing is written to a target any more; false where that is not sure.
    pub(crate) fn settle(&mut self, target: &[u8]) -> bool {
        let message = self.consumed + 1;
        self.pools.retire();
        match self.pending.as_mut().map(|pending| &mut pending.way) {
            Some(Way::Double(draw)) => draw.settle(&mut self.lane, message),
            Some(Way::Lease(lease)) => lease.cut_off(target),
            _ => true,
        }
    }

    /// Bytes read from a sender that had given up by then may have changed already; but not those
    /// in the slot of a message that is told, which nobody touches before it is taken, nor memory
    /// that was handed over.
    fn check_not_given_up(&self, length: usize) -> Result<(), Error> {
        if matches!(self.pending, Some(Pending { way: Way::Inline | Way::Memory { .. }, .. })) {
            return Ok(());
        }
        if closing::has_given_up(self.lane.state_word(layout::SENDER_STATE)) {
            let size = Bytes(length as u64);
            return Err(Error::GivenUp { done: size, size });
        }
        Ok(())
    }

    /// What was read from a process of the peer's number was the peer's if it lives.
    fn check_still_the_peer(&mut self, length: usize) -> Result<(), Error> {
        let way = self.pending.as_ref().map(|pending| &pending.way);
        if matches!(way, Some(Way::Pull { .. } | Way::Double(_))) && self.lane.is_peer_gone() {
            let size = Bytes(length as u64);
            return Err(Error::PeerGone { attempt: "receive", done: size, size });
        }
        Ok(())
    }

    /// Whoever had closed in the middle of a message, before there was nothing to be found of it,
    /// brings nothing more.
    fn check_still_coming(&self, state: u32) -> Result<(), Error> {
        let (done, size) = self.progress();
        let (done, size) = (Bytes(done), Bytes(size));
        match state {
            layout::OPEN => Ok(()),
            layout::CLOSED => Err(Error::PeerGone { attempt: "receive", done, size }),
            _ => Err(Error::GivenUp { done, size }),
        }
    }

    fn progress(&self) -> (u64, u64) {
        let Some(pending) = &self.pending else { return (0, 0) };
        let done = match &pending.way {
            Way::Chunks(run) => run.offset,
            Way::Pull { offset, .. } => *offset as u64,
            Way::Double(draw) => draw.bytes(),
            Way::Pipe { offset } => *offset as u64,
            Way::Memory { offset, .. } => *offset as u64,
            Way::Inline | Way::Lease(_) => 0,
        };
        (done, pending.length as u64)
    }

    /// The message is whole: its slot, and what else it took, is the sender's again.
    fn complete(&mut self) -> Account {
        self.consumed += 1;
        self.lane.tell(layout::CONSUMED, self.consumed);
        let pending = self.pending.take().expect("only what was taken completes");
        if let Way::Memory { file, offset: CLOSED_ASIDE_MIN.. } = pending.way {
            closer::close([file]);
        }
        let mut account = pending.account;
        account.system_calls = self.lane.system_calls - pending.calls_before;
        if let Some(meter) = pending.meter {
            meter.write_to(&mut account);
            // For the sender's choice: that it comes late, or never, costs time alone. Written only
            // as it changes, for the sender looks at this line.
            let is_new = u64::from(account.took_into_new());
            if self.lane.load(layout::TOOK_INTO_NEW) != is_new {
                self.lane.note(layout::TOOK_INTO_NEW, is_new);
            }
        }
        account
    }
}

/// Waits for a header.
pub(crate) struct Taking<'a> {
    pub(crate) receiver: &'a mut Receiver,
}

/// Moves the bytes.
pub(crate) struct Filling<'a> {
    pub(crate) receiver: &'a mut Receiver,
    pub(crate) target: &'a mut [u8],
}

impl Transfer for Taking<'_> {
    type Output = usize;

    fn step(&mut self) -> Result<Step<usize>, Error> {
        self.receiver.take_header()
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.receiver.lane
    }

    fn attempt(&self) -> &'static str {
        "receive"
    }

    fn progress(&self) -> (u64, u64) {
        (0, 0)
    }

    fn has_begun(&self) -> bool {
        false
    }
}

impl Transfer for Filling<'_> {
    type Output = Account;

    fn step(&mut self) -> Result<Step<Account>, Error> {
        self.receiver.fill(self.target)
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.receiver.lane
    }

    fn attempt(&self) -> &'static str {
        "receive"
    }

    fn progress(&self) -> (u64, u64) {
        self.receiver.progress()
    }

    fn has_begun(&self) -> bool {
        true
    }
}
