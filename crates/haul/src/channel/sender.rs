//! The sending half.

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

use super::account::{Account, Meter};
use super::checksum::Sum;
use super::double::Push;
use super::error::Error;
use super::layout::{self, Header, SLOTS, SumState};
use super::lease::{CannotReach, Lay, Mapped};
use super::link::{self, Kind, Lane, Link, Step, Transfer};
use super::peer::Readable;
use super::ring::{Run, Tell};
use super::sealed::Building;
use super::source::Source;
use super::vmsplice::{Pipe, Pour};
use super::{Mechanism, choose, inline, pull, ring, staged};

/// The end that messages go into.
#[derive(Debug)]
pub struct Sender {
    lane: Lane,
    /// Messages published.
    next: u64,
    /// Messages that the receiver took, as last known.
    consumed: u64,
    /// Chunks filled.
    filled: u64,
    /// Chunks that the receiver emptied, as last known.
    drained: u64,
    /// The chunks of this direction have pages.
    has_chunks: bool,
    /// Pools of the receiver's.
    mapped: Mapped,
    pipe: Option<Pipe>,
}

/// A message on its way. Its bytes stay borrowed until it is complete.
///
/// Dropped before that it is given up: the receiver gets an error, and the channel can do no more.
/// (Forgotten, with [`std::mem::forget`], and the bytes changed, the receiver may get them changed.)
#[derive(Debug)]
pub struct Sending<'a> {
    sender: &'a mut Sender,
    source: Source<'a>,
    length: u64,
    stage: Stage,
    /// Sealed memory that waits to be handed over.
    file: Option<OwnedFd>,
    account: Account,
    meter: Option<Meter>,
    readable: Option<Readable>,
    before: Before,
    calls_before: u64,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
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

impl Sender {
    pub(super) fn new(link: Arc<Link>, index: usize) -> Self {
        let lane = Lane::for_sending(link, index);
        let (mapped, pipe) = (Mapped::default(), None);
        let (next, consumed, filled, drained) = (0, 0, 0, 0);
        Self { lane, next, consumed, filled, drained, has_chunks: false, mapped, pipe }
    }

    /// Sends a message and returns as the bytes are the caller's again: nothing that is written to
    /// them afterwards is ever seen by the receiver. Whether the receiver has the message by then
    /// depends on the mechanism: small ones and the last chunks may still be in shared memory.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Unavailable`]: nothing happened. [`Error::Deadline`] with
    /// nothing moved: the receiver takes nothing, the message can be sent again. Everything else
    /// ends the channel.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Account, Error> {
        self.start_send(bytes)?.finish()
    }

    /// Sends several slices as one message, see [`send`](Self::send).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<Account, Error> {
        self.start(Source::many(parts), None)?.finish()
    }

    /// Hands over what was built in place, without a copy.
    ///
    /// # Errors
    /// As [`send`](Self::send), and [`Error::System`] where the memory cannot be handed over.
    pub fn send_built(&mut self, building: Building) -> Result<Account, Error> {
        self.start(Source::one(&[]), Some(building))?.finish()
    }

    /// Begins to send, and does what can be done without waiting.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn start_send<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Sending<'a>, Error> {
        self.start(Source::one(bytes), None)
    }

    fn start<'a>(
        &'a mut self,
        mut source: Source<'a>,
        building: Option<Building>,
    ) -> Result<Sending<'a>, Error> {
        self.lane.link.check_whole()?;
        let limit = self.lane.link.settings.size_max;
        let length = building.as_ref().map_or_else(|| source.length(), |b| b.len() as u64);
        if length > limit {
            return Err(Error::TooLong { size: Bytes(length), limit: Bytes(limit) });
        }
        let calls_before = self.lane.system_calls;
        let meter = Meter::of(length);
        if self.lane.link.settings.integrity {
            let mut sum = Sum::default();
            sum.add(0, building.as_deref().unwrap_or_default());
            source.begin_sum(sum);
        }
        let (mechanism, file) = match building {
            Some(building) => {
                (choose::for_built(&self.lane.link.settings), Some(building.seal()?.0))
            }
            None => (choose::choose(&self.lane.link, &source, length)?, None),
        };
        let account = Account { mechanism, size_bytes: length, ..Account::default() };
        let (stage, readable, before) = (Stage::Slot, None, Before::default());
        Ok(Sending {
            sender: self,
            source,
            length,
            stage,
            file,
            account,
            meter,
            readable,
            before,
            calls_before,
        })
    }

    /// What to poll for reading before [`Sending::advance`] is called again.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.lane.link.socket.as_fd()
    }

    /// Whether the mechanism can be used to send to this peer, as it was tried when they met.
    #[must_use]
    pub fn offers(&self, mechanism: Mechanism) -> bool {
        self.lane.link.offers(mechanism)
    }

    /// Whether there is room for one more message.
    fn has_slot(&mut self) -> Result<bool, Error> {
        if self.next - self.consumed < SLOTS {
            return Ok(true);
        }
        let told = self.lane.load(layout::CONSUMED);
        if !(self.consumed..=self.next).contains(&told) {
            return Err(Error::protocol("count of messages taken", told, self.next));
        }
        self.consumed = told;
        Ok(self.next - told < SLOTS)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if self.lane.state(layout::SENDER_STATE) == layout::OPEN {
            self.lane.set_state(layout::SENDER_STATE, layout::CLOSED);
        }
    }
}

impl Sending<'_> {
    /// Moves on without waiting: true as the message is complete and its bytes are the caller's
    /// again; false where [`Sender::as_fd`] is to be polled for reading first.
    ///
    /// # Errors
    /// As [`Sender::send`]. The deadline is the caller's to keep.
    pub fn advance(&mut self) -> Result<bool, Error> {
        let result = link::advance(self);
        Ok(self.told(result)?.is_some())
    }

    /// What to poll for reading before [`advance`](Self::advance) is called again.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    /// Waits until the message is complete.
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub fn finish(mut self) -> Result<Account, Error> {
        let result = link::drive(&mut self);
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

    /// There is room: the message begins. Until the header is out the receiver knows nothing.
    fn begin(&mut self) -> Result<Step<()>, Error> {
        let mut entries = 0;
        self.before = Before::of(self.sender);
        let lane = &mut self.sender.lane;
        match self.account.mechanism {
            Mechanism::Inline => {
                inline::put(lane, self.sender.next, &mut self.source, self.length as usize);
                self.account.copied_bytes = self.length;
            }
            Mechanism::Pull | Mechanism::Double => {
                self.readable = Readable::to(lane.link.peer.identity);
                if self.readable.is_none() {
                    // Another peer is being read. Whoever asked for this way by name waits.
                    let asked = lane.link.settings.mechanism;
                    let is_asked_for = asked == Some(self.account.mechanism);
                    return if is_asked_for { Ok(Step::Blocked) } else { self.fall_back() };
                }
                lane.note(layout::PUSHED, 0);
                entries = pull::put(lane, self.sender.next, &self.source);
            }
            Mechanism::Staged | Mechanism::Sealed => return self.begin_with_memory(),
            Mechanism::Vmsplice => return self.begin_with_pipe(),
            Mechanism::Lease => {}
            Mechanism::Ring => {
                self.have_chunks()?;
                return self.begin_with_chunks();
            }
        }
        self.publish(entries);
        self.stage = match self.account.mechanism {
            Mechanism::Inline => Stage::Complete,
            Mechanism::Pull => Stage::Answer,
            Mechanism::Double => Stage::Push(Push::new(self.length)),
            Mechanism::Lease => Stage::Lay(Lay::new(self.length)),
            _ => Stage::Failed,
        };
        Ok(Step::Moved)
    }

    /// A message of one chunk is in it before it is told of, if there is room: one word that the
    /// receiver waits for, not two.
    fn begin_with_chunks(&mut self) -> Result<Step<()>, Error> {
        let sender = &mut *self.sender;
        let mut run = Run::new(0, self.length, sender.lane.link.chunk_bytes);
        if run.is_last() {
            let counts = (&mut sender.filled, &mut sender.drained);
            let (lane, source) = (&mut sender.lane, &mut self.source);
            ring::fill(lane, source, &mut run, counts, Tell::Later)?;
            self.account.copied_bytes = run.offset;
        }
        self.publish(0);
        self.stage = if run.is_complete() { Stage::Complete } else { Stage::Chunks(run) };
        Ok(Step::Moved)
    }

    fn begin_with_memory(&mut self) -> Result<Step<()>, Error> {
        // What was built in place is nowhere else.
        let can_fall_back = self.source.length() == self.length;
        if self.file.is_none() {
            match staged::make(&mut self.source, self.length as usize) {
                Ok(file) => self.file = Some(file),
                Err(_) => return self.fall_back(),
            }
            self.account.system_calls += staged::CALLS_TO_MAKE;
            self.account.copied_bytes = self.length;
            self.account.extra_memory_bytes = self.length;
        }
        let Some(file) = &self.file else { return Ok(Step::Blocked) };
        let lane = &mut self.sender.lane;
        lane.system_calls += 1;
        match lane.link.send_file(Kind::Memory, self.sender.next, file.as_fd()) {
            Ok(()) => {}
            // A full socket too: polling would not tell that there is room again.
            Err(_) if can_fall_back => {
                self.file = None;
                return self.fall_back();
            }
            Err(Errno::AGAIN) => return Ok(Step::Blocked),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                let (done, size) = (Bytes(0), Bytes(self.length));
                return Err(Error::PeerGone { attempt: "send", done, size });
            }
            Err(reason) => return Err(Error::system("hand memory over")(reason)),
        }
        self.file = None;
        self.publish(0);
        self.stage = Stage::Complete;
        Ok(Step::Moved)
    }

    /// The first bytes go into the pipe before the receiver knows of the message, so that a kernel
    /// that refuses costs nothing.
    fn begin_with_pipe(&mut self) -> Result<Step<()>, Error> {
        let sender = &mut *self.sender;
        let is_new = sender.pipe.is_none();
        let pipe = match sender.pipe.take().map_or_else(Pipe::new, Ok) {
            Ok(pipe) => sender.pipe.insert(pipe),
            Err(_) => return self.fall_back(),
        };
        if !pipe.is_handed_over {
            self.account.system_calls += if is_new { 3 } else { 1 };
            match sender.lane.link.send_file(Kind::Pipe, sender.next, pipe.reader.as_fd()) {
                Ok(()) => pipe.is_handed_over = true,
                // A full socket too: polling would not tell that there is room again.
                Err(_) => return self.fall_back(),
            }
        }
        let mut pour = Pour::new(self.length);
        if pour.step(&mut sender.lane, &self.source, pipe).is_err() {
            sender.pipe = None;
            return self.fall_back();
        }
        let number = pipe.number.get_or_insert(sender.next);
        let is_first = u64::from(*number == sender.next);
        self.publish(is_first);
        self.stage = Stage::Pour(pour);
        Ok(Step::Moved)
    }

    /// Before anything was published: through the ring instead.
    fn fall_back(&mut self) -> Result<Step<()>, Error> {
        self.take_the_ring();
        self.account.copied_bytes = 0;
        self.source.seek(0);
        Ok(Step::Moved)
    }

    fn take_the_ring(&mut self) {
        self.account.fell_back_from = Some(self.account.mechanism);
        self.account.mechanism = Mechanism::Ring;
    }

    fn have_chunks(&mut self) -> Result<(), Error> {
        let sender = &mut *self.sender;
        let bytes = layout::CHUNKS as usize * sender.lane.link.chunk_bytes;
        if !sender.has_chunks {
            sender.lane.link.region.reserve(sender.lane.chunks(), bytes)?;
            sender.lane.system_calls += 1;
            sender.has_chunks = true;
        }
        self.account.extra_memory_bytes += bytes as u64;
        Ok(())
    }

    /// Writes the header and lets the receiver know.
    fn publish(&mut self, entries: u64) {
        let sender = &mut *self.sender;
        let kind = self.account.mechanism.number();
        let header = Header {
            message: sender.next,
            kind,
            length: self.length,
            entries,
            sum: self.source.sum(),
        };
        let at = sender.lane.slot(sender.next);
        for (index, word) in header.words().into_iter().enumerate() {
            sender.lane.link.region.word64(at + index * 8).store(word, Relaxed);
        }
        sender.next += 1;
        sender.lane.tell(layout::PUBLISHED, sender.next);
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
            sender.lane.ring();
        }
        Step::Moved
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
        self.take_the_ring();
        self.source.seek(offset);
        self.have_chunks()?;
        self.stage =
            Stage::Chunks(Run::new(offset, self.length, self.sender.lane.link.chunk_bytes));
        Ok(Step::Moved)
    }
}

/// What the receiver's words say as long as it has not begun with a message.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    /// Chunks of the messages before it, which the receiver may still be emptying.
    chunks: u64,
    /// Other ways are answered before the next message begins, so these stand still until then.
    words: [u64; 2],
}

impl Before {
    fn of(sender: &Sender) -> Self {
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
        let is_closed = self.sender.lane.state(layout::RECEIVER_STATE) != layout::OPEN;
        if matches!(step, Step::Blocked) && is_closed {
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
