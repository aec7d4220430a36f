//! A message on its way: what it waits for, how it moves on, and when it is over.

use std::time::Duration;

use haul_model::Bytes;
use rustix::fd::{BorrowedFd, OwnedFd};

use super::sender::Sender;
use crate::channel::mechanism::double::Push;
use crate::channel::mechanism::lease::{CannotReach, Lay};
use crate::channel::mechanism::ring::{self, Run, Tell};
use crate::channel::mechanism::sealed::Built;
use crate::channel::mechanism::staged::Making;
use crate::channel::mechanism::vmsplice::Pour;
use crate::channel::shared::account::{Account, Meter};
use crate::channel::shared::error::Error;
use crate::channel::shared::header::SumState;
use crate::channel::shared::lane::Lane;
use crate::channel::shared::layout;
use crate::channel::shared::pace::Pace;
use crate::channel::shared::source::Source;
use crate::channel::shared::transfer::{self, Step, Transfer};
use crate::peer::process::Readable;

/// A message on its way. Its bytes stay borrowed until it is complete.
///
/// Dropped before that it is given up: the receiver gets an error, and the channel can do no more.
/// (Forgotten, with [`std::mem::forget`], and the bytes changed, the receiver may get them
/// changed.)
#[derive(Debug)]
pub struct Sending<'a> {
    pub(crate) sender: &'a mut Sender,
    pub(crate) source: Source<'a>,
    pub(crate) length: u64,
    pub(crate) stage: Stage,
    /// What was built in place, while it is added to the checksum.
    pub(crate) built: Option<Built>,
    /// Memory that the message is being copied to.
    pub(crate) making: Option<Making>,
    /// Memory that waits to be handed over.
    pub(crate) file: Option<OwnedFd>,
    pub(crate) account: Account,
    pub(crate) meter: Option<Meter>,
    pub(crate) readable: Option<Readable>,
    pub(crate) before: Before,
    pub(crate) calls_before: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stage {
    /// Waits for a free slot; the receiver knows nothing yet.
    Slot,
    /// Moves through the ring.
    Chunks(Run),
    /// Both ends copy.
    Push(Push),
    /// This end copies into the receiver's pool.
    Lay(Lay),
    /// This end's pages go into the pipe.
    Pour(Pour),
    /// The receiver copies by itself and will answer.
    Answer,
    /// The sender's bytes are its own again.
    Complete,
    /// An error was told.
    Failed,
}

impl Sending<'_> {
    /// Moves on without waiting, for some milliseconds at most: true as the message is complete and
    /// its bytes are the caller's again; false where [`Sender::as_fd`] is to be polled for reading
    /// first.
    ///
    /// # Errors
    /// As [`Sender::send`]. The deadline is the caller's to keep.
    pub fn advance(&mut self) -> Result<bool, Error> {
        let result = transfer::advance(self);
        Ok(self.told(result)?.is_some())
    }

    /// What to poll for reading before [`advance`](Self::advance) is called again.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    /// Waits until the message is complete, for so long at most: true as it is; false where it goes
    /// on, to be waited for again, or advanced, or finished.
    ///
    /// # Errors
    /// As [`Sender::send`]. The deadline is the caller's to keep.
    pub fn wait(&mut self, time: Duration) -> Result<bool, Error> {
        let result = transfer::drive_for(self, time);
        Ok(self.told(result)?.is_some())
    }

    /// Waits until the message is complete.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn finish(mut self) -> Result<Account, Error> {
        let result = transfer::drive(&mut self);
        self.told(result)?;
        self.account.system_calls += self.sender.lane.system_calls - self.calls_before;
        if let Some(meter) = &self.meter {
            meter.write_to(&mut self.account);
        }
        Ok(std::mem::take(&mut self.account))
    }

    /// An error in the middle of a message is the end of the channel.
    fn told<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            if !matches!(self.stage, Stage::Slot) {
                self.give_up();
            }
            self.stage = Stage::Failed;
        }
        result
    }

    /// Whether the receiver knows of the message, and the bytes are not the caller's yet.
    fn is_out(&self) -> bool {
        !matches!(self.stage, Stage::Slot | Stage::Complete | Stage::Failed)
    }

    fn give_up(&mut self) {
        self.sender.lane.link.break_off();
        self.sender.lane.set_state(layout::SENDER_STATE, layout::GIVEN_UP);
        self.sender.pipe = None;
        self.readable = None;
    }

    fn fill(&mut self, mut run: Run) -> Result<Step<()>, Error> {
        let sender = &mut *self.sender;
        let counts = (&mut sender.filled, &mut sender.drained);
        let (before, message) = (run.offset, Tell::Of(sender.next - 1));
        let (lane, source) = (&mut sender.lane, &mut self.source);
        let step = ring::fill(lane, source, &mut run, counts, message)?;
        self.account.copied_bytes += run.offset - before;
        self.stage = if run.is_complete() { Stage::Complete } else { Stage::Chunks(run) };
        Ok(step)
    }

    fn push(&mut self, mut push: Push) -> Step<()> {
        let sender = &mut *self.sender;
        let before = push.bytes();
        let step = push.step(&mut sender.lane, &self.source, sender.next);
        self.account.copied_bytes += push.bytes() - before;
        match step {
            Step::Done(()) => {
                self.stage = Stage::Answer;
                Step::Moved
            }
            step => {
                self.stage = Stage::Push(push);
                step
            }
        }
    }

    fn lay(&mut self, mut lay: Lay) -> Result<Step<()>, Error> {
        if self.is_refused() {
            return self.look_for_answer();
        }
        let sender = &mut *self.sender;
        let (source, mapped, before) = (&mut self.source, &mut sender.mapped, lay.laid);
        let step = lay.step(&mut sender.lane, source, mapped, sender.next);
        self.account.copied_bytes += lay.laid - before;
        self.stage = match step {
            Ok(Step::Done(())) => Stage::Complete,
            Ok(_) => Stage::Lay(lay),
            Err(CannotReach) => Stage::Answer,
        };
        Ok(if matches!(step, Ok(Step::Blocked)) { Step::Blocked } else { Step::Moved })
    }

    fn pour(&mut self, mut pour: Pour) -> Result<Step<()>, Error> {
        if self.is_refused() {
            return self.look_for_answer();
        }
        let sender = &mut *self.sender;
        let Some(pipe) = &sender.pipe else { return Err(Error::Broken) };
        let step = pour.step(&mut sender.lane, &self.source, pipe);
        self.stage = match step {
            Ok(Step::Done(())) => Stage::Answer,
            Ok(_) => Stage::Pour(pour),
            Err(_) => {
                // The receiver takes what is in the pipe, and says how much that was.
                Pour::abandon(&mut sender.lane, sender.next);
                Stage::Answer
            }
        };
        Ok(if matches!(step, Ok(Step::Blocked)) { Step::Blocked } else { Step::Moved })
    }

    /// While others move the bytes, this end sums them.
    fn sum_some(&mut self) -> Step<()> {
        let sender = &mut *self.sender;
        self.source.sum_some();
        if self.source.sum() != SumState::Due {
            sender.lane.put_sum(sender.next - 1, self.source.sum());
            sender.lane.ring_bell();
        }
        Step::Moved
    }

    /// Whether the receiver takes nothing more.
    fn is_closed(&self) -> bool {
        self.sender.lane.state(layout::RECEIVER_STATE) != layout::OPEN
    }

    fn is_refused(&self) -> bool {
        self.sender.lane.load(layout::REFUSED) == self.sender.next
    }

    /// Has the receiver taken the message, or said that it cannot take all of it?
    fn look_for_answer(&mut self) -> Result<Step<()>, Error> {
        let message = self.sender.next;
        let lane = &self.sender.lane;
        let told = lane.load(layout::CONSUMED);
        if !(self.sender.consumed..=message).contains(&told) {
            return Err(Error::protocol("count of messages taken", told, message));
        }
        if told == message {
            self.readable = None;
            self.stage = Stage::Complete;
            return Ok(Step::Moved);
        }
        if !self.is_refused() {
            return Ok(Step::Blocked);
        }
        let offset = lane.load(layout::REFUSED_AT);
        if offset >= self.length {
            return Err(Error::protocol("count of bytes taken", offset, self.length - 1));
        }
        self.readable = None;
        // With what may still be in it.
        self.sender.pipe = None;
        // What the receiver has is in the checksum of the whole as well.
        if !self.source.is_summed_to(offset) {
            self.source.sum_some();
            return Ok(Step::Moved);
        }
        self.take_the_ring();
        self.source.seek(offset);
        let run = Run::new(offset, self.length, self.sender.lane.link.chunk_bytes, Pace::default());
        self.have_cells(&run)?;
        self.stage = Stage::Chunks(run);
        Ok(Step::Moved)
    }
}

/// What the receiver's words say as long as it has not begun with a message.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Before {
    /// Chunks of the messages before it, which the receiver may still be emptying.
    chunks: u64,
    /// Other ways are answered before the next message begins, so these stand still until then.
    words: [u64; 2],
}

impl Before {
    pub(crate) fn of(sender: &Sender) -> Self {
        Self { chunks: sender.filled, words: Self::words(&sender.lane) }
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
        // Before the step, as in `closing`: what the receiver told before it closed is seen by it.
        // Not before there is a message, whose sending need not look at the receiver's words.
        let was_closed = !matches!(self.stage, Stage::Slot) && self.is_closed();
        let step = match self.stage {
            Stage::Complete => return Ok(Step::Done(())),
            Stage::Failed => return Err(Error::Broken),
            Stage::Slot if self.sender.has_slot()? => match self.begin()? {
                Step::Moved if matches!(self.stage, Stage::Complete) => Step::Done(()),
                step => step,
            },
            Stage::Slot => Step::Blocked,
            Stage::Chunks(run) => self.fill(run)?,
            Stage::Push(push) => self.push(push),
            Stage::Lay(lay) => self.lay(lay)?,
            Stage::Pour(pour) => self.pour(pour)?,
            Stage::Answer => self.look_for_answer()?,
        };
        let is_by_others = matches!(self.stage, Stage::Push(_) | Stage::Pour(_) | Stage::Answer);
        if matches!(step, Step::Blocked) && is_by_others && self.source.sum() == SumState::Due {
            return Ok(self.sum_some());
        }
        let is_blocked = matches!(step, Step::Blocked);
        if is_blocked && (was_closed || matches!(self.stage, Stage::Slot) && self.is_closed()) {
            let (done, size) = self.progress();
            return Err(Error::PeerGone { attempt: "send", done: Bytes(done), size: Bytes(size) });
        }
        Ok(step)
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.sender.lane
    }

    fn attempt(&self) -> &'static str {
        "send"
    }

    fn progress(&self) -> (u64, u64) {
        let done = match self.stage {
            Stage::Chunks(run) => run.offset,
            Stage::Push(push) => push.bytes(),
            Stage::Lay(lay) => lay.laid,
            Stage::Pour(pour) => pour.poured,
            Stage::Complete => self.length,
            Stage::Slot | Stage::Answer | Stage::Failed => 0,
        };
        (done, self.length)
    }

    fn has_begun(&self) -> bool {
        self.is_out() && (self.is_refused() || self.before.is_over(&self.sender.lane))
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if self.is_out() {
            self.give_up();
        }
    }
}
