//! The transfer of a validated message to its target, and the checks that it is whole.

use haul_model::Bytes;

use super::inbox::Inbox;
use crate::mechanism::contract::{Incoming, Taken};
use crate::mechanism::dispatch::AnyReceiving;
use crate::pages::buffer::Buffer;
use crate::shared::account::Account;
use crate::shared::checksum::{SUM_BYTES, Sum};
use crate::shared::closing;
use crate::shared::error::Error;
use crate::shared::header::SumState;
use crate::shared::lane::Lane;
use crate::shared::layout;
use crate::shared::names::Mechanism;
use crate::shared::transfer::{Step, Transfer};

/// Why there is a current message.
const VALIDATED: &str = "a header was validated before";

impl Inbox {
    /// The memory of the current message, if its mechanism provides it.
    pub(crate) fn destination(&mut self, length: usize) -> Result<Option<Buffer>, Error> {
        let pending = self.pending.as_mut().expect(VALIDATED);
        let destination = pending.by.destination(&mut self.states, &mut self.lane, length)?;
        pending.is_moved |= destination.as_ref().is_some_and(|destination| destination.is_whole);
        Ok(destination.map(|destination| destination.memory))
    }

    /// Moves bytes of the current message into a target of exactly its length.
    fn fill(&mut self, target: &mut [u8], is_exposed: bool) -> Result<Step<Account>, Error> {
        // This end reads the state before any other word, as in `closing`. Then this end sees
        // every word that the sender published before it closed.
        let state = self.lane.state(layout::SENDER_STATE);
        match self.move_some(target, is_exposed)? {
            Step::Done(Taken::Part(bytes)) => {
                self.refuse(bytes);
                Ok(Step::Moved)
            }
            Step::Done(Taken::Whole) => match self.compare(target)? {
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

    /// Moves a piece of the current message by its mechanism.
    fn move_some(&mut self, target: &mut [u8], is_exposed: bool) -> Result<Step<Taken>, Error> {
        let pending = self.pending.as_mut().expect(VALIDATED);
        pending.is_begun = true;
        if pending.is_moved {
            return Ok(Step::Done(Taken::Whole));
        }
        let (lane, account, message) = (&mut self.lane, &mut pending.account, self.consumed);
        let sum = pending.check.as_mut().map(|(sum, _)| sum);
        let mut incoming = Incoming { lane, account, message, sum, is_exposed };
        pending.by.step(&mut self.states, &mut incoming, target)
    }

    /// Asks the sender for the remainder of the message, from `refused_at` on, through the ring.
    fn refuse(&mut self, refused_at: usize) {
        let offset = refused_at as u64;
        let pending = self.pending.as_mut().expect(VALIDATED);
        pending.refused_at = refused_at;
        if let Some(check) = &mut pending.check {
            *check = (Sum::default(), 0);
        }
        pending.by = AnyReceiving::remainder(&self.lane.link, offset, pending.length as u64);
        pending.account.fell_back_from = Some(pending.account.mechanism);
        pending.account.mechanism = Mechanism::Ring;
        self.lane.store(layout::REFUSED_AT, offset);
        self.lane.signal(layout::REFUSED, self.consumed.count());
    }

    /// Compares the kept bytes with the checksum, if there is one. Bytes that the processor copied
    /// are already added; the other bytes are added here.
    fn compare(&mut self, target: &[u8]) -> Result<Step<()>, Error> {
        let pending = self.pending.as_mut().expect(VALIDATED);
        pending.is_moved = true;
        let Some((sum, summed)) = &mut pending.check else { return Ok(Step::Done(())) };
        let by_others = if pending.by.sums() { pending.refused_at } else { target.len() };
        if *summed < by_others {
            let next = &target[*summed..by_others];
            let next = &next[..next.len().min(SUM_BYTES)];
            sum.add(*summed as u64, next);
            *summed += next.len();
            return Ok(Step::Moved);
        }
        let expected = match self.lane.sum(self.consumed) {
            SumState::Known(expected) => expected,
            state if pending.by.has_sum_in_header() => {
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

    /// Revokes the peer's access to a target. Returns false if the peer may still write to it.
    pub(crate) fn revoke_target(&mut self, target: &[u8]) -> bool {
        self.states.retire();
        let Some(pending) = &mut self.pending else { return true };
        pending.by.revoke(&mut self.states, &mut self.lane, self.consumed, target)
    }

    /// Checks that the sender had not given up, because bytes that were read from its memory
    /// afterwards may have changed. The bytes in a published slot, and memory that was handed over,
    /// do not change.
    fn check_not_given_up(&self, length: usize) -> Result<(), Error> {
        if self.pending.as_ref().is_some_and(|pending| pending.by.is_fixed()) {
            return Ok(());
        }
        if closing::has_given_up(self.lane.state_word(layout::SENDER_STATE)) {
            let size = Bytes(length as u64);
            return Err(Error::GivenUp { done: size, size });
        }
        Ok(())
    }

    /// Checks that the peer lives. If the peer does not live, bytes that were read through its
    /// process ID may have come from another process.
    fn check_still_the_peer(&mut self, length: usize) -> Result<(), Error> {
        let mechanism = self.pending.as_ref().map(|pending| pending.account.mechanism);
        if mechanism.is_some_and(Mechanism::reads_the_peer) && self.lane.is_peer_gone(true) {
            let size = Bytes(length as u64);
            return Err(Error::PeerGone { attempt: "receive", done: size, size });
        }
        Ok(())
    }

    /// Called if no bytes were found. Checks that the sender had not closed the channel within
    /// the message before, because then it sends no more of the message.
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
        (pending.by.progress(), pending.length as u64)
    }

    /// Completes a whole message: the sender may reuse its slot and its other resources.
    fn complete(&mut self) -> Account {
        self.consumed = self.consumed.next();
        self.lane.signal(layout::CONSUMED, self.consumed.index());
        let pending = self.pending.take().expect("only a validated message completes");
        pending.by.end();
        let mut account = pending.account;
        account.system_calls = self.lane.system_calls - pending.calls_before;
        if let Some(meter) = pending.meter {
            meter.write_to(&mut account);
            // The sender chooses a mechanism by this word; a late value only costs time. This end
            // writes the word only when it changes, because the sender reads this line.
            let is_new = u64::from(account.received_into_new());
            if self.lane.load(layout::INTO_NEW_MEMORY) != is_new {
                self.lane.store(layout::INTO_NEW_MEMORY, is_new);
            }
        }
        account
    }
}

/// Waits for a header.
pub(crate) struct AwaitingHeader<'a> {
    pub(crate) inbox: &'a mut Inbox,
}

/// Moves the bytes.
pub(crate) struct Filling<'a> {
    pub(crate) inbox: &'a mut Inbox,
    pub(crate) target: &'a mut [u8],
    /// See [`Incoming::is_exposed`].
    pub(crate) is_exposed: bool,
}

impl<'a> Filling<'a> {
    /// Fills haul's own memory. The caller must not reuse the memory if the peer may still write
    /// to it.
    pub(crate) fn into_own(inbox: &'a mut Inbox, memory: &'a mut Buffer) -> Self {
        Self { inbox, target: memory, is_exposed: true }
    }
}

impl Transfer for AwaitingHeader<'_> {
    type Output = usize;

    fn step(&mut self) -> Result<Step<usize>, Error> {
        self.inbox.poll_header()
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.inbox.lane
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
        self.inbox.fill(self.target, self.is_exposed)
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.inbox.lane
    }

    fn attempt(&self) -> &'static str {
        "receive"
    }

    fn progress(&self) -> (u64, u64) {
        self.inbox.progress()
    }

    fn has_begun(&self) -> bool {
        true
    }
}
