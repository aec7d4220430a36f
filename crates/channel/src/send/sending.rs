//! A message in transit: the states of its transfer.

use std::time::Duration;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd};

use super::outbox::Outbox;
use crate::mechanism::contract::{Begun, Outgoing, Then};
use crate::mechanism::dispatch::{AnySending, SenderStates};
use crate::shared::account::{Account, Meter};
use crate::shared::beside::Copying;
use crate::shared::error::Error;
use crate::shared::header::{Header, SumState};
use crate::shared::lane::Lane;
use crate::shared::layout;
use crate::shared::message::Message;
use crate::shared::names::Mechanism;
use crate::shared::source::Source;
use crate::shared::transfer::{self, Step, Transfer};

/// A message in transit. The bytes of the message stay borrowed until it is complete.
///
/// If a `Sending` is dropped before its message is complete, the message is given up: the
/// receiver gets an error, and the channel has ended. (If a `Sending` is forgotten, with
/// [`std::mem::forget`], and the bytes are changed, the receiver may get changed bytes.)
#[derive(Debug)]
pub struct Sending<'a> {
    outbox: &'a mut Outbox,
    message: Message,
    source: Source<'a>,
    length: u64,
    by: AnySending,
    state: State,
    account: Account,
    meter: Option<Meter>,
    before: Before,
    calls_before: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for a free slot; the message is not published.
    Slot,
    /// The sender's part of the mechanism moves the message.
    Moving,
    /// The receiver moves the remainder and will answer.
    Answer,
    /// The caller may reuse the bytes.
    Complete,
    /// A call has returned an error.
    Failed,
}

impl<'a> Sending<'a> {
    pub(crate) fn new(
        outbox: &'a mut Outbox,
        source: Source<'a>,
        by: AnySending,
        account: Account,
        (meter, calls_before): (Option<Meter>, u64),
    ) -> Self {
        let (message, length) = (outbox.next, account.size_bytes);
        let (state, before) = (State::Slot, Before::default());
        Self { outbox, message, source, length, by, state, account, meter, before, calls_before }
    }

    /// Moves bytes without waiting, for some milliseconds at most. Returns true if the message is
    /// complete: the caller may reuse the bytes. Returns false if [`as_fd`](Self::as_fd) must be
    /// polled for reading before the next call.
    ///
    /// # Errors
    /// The errors of [`send`](crate::Sender::send). The caller must check the deadline.
    pub fn advance(&mut self) -> Result<bool, Error> {
        self.check_own()?;
        let result = transfer::advance(self);
        Ok(self.end_on_error(result)?.is_some())
    }

    /// The descriptor to poll for reading before the next call of [`advance`](Self::advance).
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.outbox.lane.link.as_fd()
    }

    /// Waits until the message is complete, for `time` at most. Returns whether it is complete.
    /// If the message is not complete, the transfer continues with a later call of `wait`,
    /// [`advance`](Self::advance) or [`finish`](Self::finish).
    ///
    /// # Errors
    /// The errors of [`send`](crate::Sender::send). The caller must check the deadline.
    pub fn wait(&mut self, time: Duration) -> Result<bool, Error> {
        self.check_own()?;
        let result = transfer::drive_for(self, time);
        Ok(self.end_on_error(result)?.is_some())
    }

    /// Waits until the message is complete.
    ///
    /// # Errors
    /// The errors of [`send`](crate::Sender::send).
    pub fn finish(mut self) -> Result<Account, Error> {
        self.check_own()?;
        let result = transfer::drive(&mut self);
        self.end_on_error(result)?;
        self.account.system_calls += self.outbox.lane.system_calls - self.calls_before;
        if let Some(meter) = &self.meter {
            meter.write_to(&mut self.account);
        }
        Ok(std::mem::take(&mut self.account))
    }

    /// Returns an error in a process that was forked within the message, because that process
    /// cannot continue it.
    fn check_own(&mut self) -> Result<(), Error> {
        self.outbox.lane.check_own()
    }

    /// Ends the channel after an error within a message.
    fn end_on_error<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            if self.state != State::Slot {
                self.give_up();
            }
            self.state = State::Failed;
        }
        result
    }

    /// Whether the message is published and not complete.
    fn is_out(&self) -> bool {
        !matches!(self.state, State::Slot | State::Complete | State::Failed)
    }

    fn give_up(&mut self) {
        self.outbox.lane.link.break_off();
        self.outbox.lane.set_state(layout::SENDER_STATE, layout::GIVEN_UP);
        self.by.release(&mut self.outbox.states, false);
    }

    /// The mechanism, its state, and the message for it.
    fn parts(&mut self) -> (&mut AnySending, &mut SenderStates, Outgoing<'_, 'a>) {
        let Outbox { lane, states, .. } = &mut *self.outbox;
        let (source, account) = (&mut self.source, &mut self.account);
        let (message, length) = (self.message, self.length);
        (&mut self.by, states, Outgoing { lane, source, account, message, length })
    }

    /// Begins the message in a free slot. Until the header is published, the message can still use
    /// another mechanism.
    fn begin(&mut self) -> Result<Step<()>, Error> {
        self.before = Before::of(self.outbox);
        let (by, states, mut out) = self.parts();
        let (detail, state) = match by.begin(states, &mut out)? {
            Begun::Whole { detail } => (detail, State::Complete),
            Begun::Moving { detail } => (detail, State::Moving),
            Begun::Left { detail } => (detail, State::Answer),
            Begun::NotYet => return Ok(Step::Moved),
            Begun::Blocked => return Ok(Step::Blocked),
            Begun::Impossible => {
                self.fall_back();
                return Ok(Step::Moved);
            }
        };
        self.publish(detail);
        self.state = state;
        if self.account.mechanism == Mechanism::Inline {
            self.outbox.fetch_slots(self.length as usize);
        }
        Ok(Step::Moved)
    }

    /// Uses the ring instead of the chosen mechanism, before the message is published.
    fn fall_back(&mut self) {
        self.note_fallback();
        self.account.copied_bytes = 0;
        self.source.seek(0);
        self.by.release(&mut self.outbox.states, false);
        self.by = AnySending::new(Mechanism::Ring, &self.outbox.lane.link, self.length);
    }

    fn note_fallback(&mut self) {
        self.account.fell_back_from = Some(self.account.mechanism);
        self.account.mechanism = Mechanism::Ring;
    }

    /// Writes the header and publishes the message.
    fn publish(&mut self, detail: u64) {
        let (kind, length) = (self.account.mechanism.number(), self.length);
        let (message, sum) = (self.message.index(), self.source.sum());
        let outbox = &mut *self.outbox;
        outbox.lane.put_header(Header { message, kind, length, detail, sum });
        outbox.next = self.message.next();
        outbox.lane.signal(layout::PUBLISHED, outbox.next.index());
    }

    /// Moves a piece by the mechanism.
    fn move_on(&mut self) -> Result<Step<()>, Error> {
        let (by, states, mut out) = self.parts();
        Ok(match by.step(states, &mut out)? {
            Step::Moved => Step::Moved,
            Step::Blocked => Step::Blocked,
            Step::Done(then) => {
                self.state = match then {
                    Then::Complete => State::Complete,
                    Then::Answer => State::Answer,
                };
                Step::Moved
            }
        })
    }

    /// Adds bytes to the checksum while the kernel or the receiver moves them.
    fn sum_some(&mut self) -> Step<()> {
        self.source.sum_some();
        if self.source.sum() != SumState::Due {
            self.outbox.lane.put_sum(self.message, self.source.sum());
            self.outbox.lane.ring_bell();
        }
        Step::Moved
    }

    /// Polls whether the receiver has consumed the message, or reported that it cannot receive all
    /// of it.
    fn poll_answer(&mut self) -> Result<Step<()>, Error> {
        let count = self.message.count();
        let lane = &self.outbox.lane;
        let reported = lane.load(layout::CONSUMED);
        if !(self.outbox.consumed.index()..=count).contains(&reported) {
            return Err(Error::protocol("count of consumed messages", reported, count));
        }
        if reported == count {
            self.by.release(&mut self.outbox.states, true);
            self.state = State::Complete;
            return Ok(Step::Moved);
        }
        if !lane.is_refused(self.message) {
            return Ok(Step::Blocked);
        }
        let offset = lane.load(layout::REFUSED_AT);
        if offset >= self.length {
            return Err(Error::protocol("count of received bytes", offset, self.length - 1));
        }
        self.by.release(&mut self.outbox.states, false);
        // The checksum must also include the bytes that the receiver already has.
        if !self.source.is_summed_to(offset) {
            self.source.sum_some();
            return Ok(Step::Moved);
        }
        self.note_fallback();
        let (_, states, mut out) = self.parts();
        self.by = AnySending::remainder(states, &mut out, offset)?;
        self.state = State::Moving;
        Ok(Step::Moved)
    }
}

/// The values of the receiver's words before it begins with a message.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// The number of cells of earlier messages, which the receiver may still be emptying.
    chunks: u64,
    /// The words of those mechanisms that answer a message before the next message begins. So
    /// these words do not change before the receiver begins with this message.
    words: [u64; 2],
}

impl Before {
    fn of(outbox: &Outbox) -> Self {
        Self { chunks: outbox.states.ring.cells(), words: Self::words(&outbox.lane) }
    }

    fn words(lane: &Lane) -> [u64; 2] {
        [layout::PULLED, layout::OFFERED].map(|word| lane.load(word))
    }

    fn is_over(self, lane: &Lane) -> bool {
        lane.load(layout::DRAINED) > self.chunks || Self::words(lane) != self.words
    }
}

impl Transfer for Sending<'_> {
    type Output = ();

    fn step(&mut self) -> Result<Step<()>, Error> {
        // This end reads the state before the step, as in `closing`. Then the step sees every
        // word that the receiver published before it closed. For a message without a slot, this
        // end need not read the receiver's words.
        let was_closed = self.state != State::Slot && self.outbox.is_closed();
        let step = match self.state {
            State::Complete => return Ok(Step::Done(())),
            State::Failed => return Err(Error::Broken),
            State::Slot if self.outbox.has_slot()? => match self.begin()? {
                Step::Moved if self.state == State::Complete => Step::Done(()),
                step => step,
            },
            State::Slot => Step::Blocked,
            State::Moving => self.move_on()?,
            State::Answer => self.poll_answer()?,
        };
        let is_by_others = match self.state {
            State::Moving => !self.by.sums(),
            state => state == State::Answer,
        };
        if matches!(step, Step::Blocked) && is_by_others && self.source.sum() == SumState::Due {
            return Ok(self.sum_some());
        }
        let is_blocked = matches!(step, Step::Blocked);
        if is_blocked && (was_closed || self.state == State::Slot && self.outbox.is_closed()) {
            let (done, size) = self.progress();
            return Err(Error::PeerGone { attempt: "send", done: Bytes(done), size: Bytes(size) });
        }
        Ok(step)
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.outbox.lane
    }

    fn attempt(&self) -> &'static str {
        "send"
    }

    fn progress(&self) -> (u64, u64) {
        let done = match self.state {
            State::Moving => self.by.progress(),
            State::Complete => self.length,
            State::Slot | State::Answer | State::Failed => 0,
        };
        (done, self.length)
    }

    fn has_begun(&self) -> bool {
        let lane = &self.outbox.lane;
        self.is_out() && (lane.is_refused(self.message) || self.before.is_over(lane))
    }

    fn copying(&mut self) -> Option<&mut Copying> {
        let is_moving = self.state == State::Moving;
        self.by.copying().filter(|copying| is_moving && copying.is_pending())
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if !self.outbox.lane.is_own() {
            return;
        }
        // No later call continues this work.
        self.outbox.lane.clear_pending();
        if self.is_out() {
            self.give_up();
        }
        if let Some(copying) = self.by.copying() {
            copying.end();
        }
        self.outbox.lane.clear_copied();
    }
}
