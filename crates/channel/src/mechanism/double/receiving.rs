//! The receiver's part: offers its target and reads pieces from the back out of the sender's
//! memory.

use std::time::{Duration, Instant};

use super::Pieces;
use crate::mechanism::contract::{Incoming, Receives, Taken};
use crate::mechanism::pull::Table;
use crate::shared::counter::{self, Claim};
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::layout::{self, ABANDONED, CLAIMED, OFFERED, OFFERED_AT, PUSHED};
use crate::shared::message::Message;
use crate::shared::transfer::Step;
use haul_peer::process::Readable;

/// How long a receiver that gives up waits for the sender's current piece: a thousand times the
/// duration of a piece.
const REVOKE_MAX: Duration = Duration::from_millis(100);

/// The receiver's part.
#[derive(Debug)]
pub(crate) struct Receiving {
    process: i32,
    table: Table,
    pieces: Pieces,
    /// Number of pieces that this end has read, counted from the back.
    pieces_read: u64,
    /// The sender's permission to write to this end's memory.
    writable: Option<Readable>,
    is_offered: bool,
    /// The sender got no permission to write: this end reads all pieces.
    is_declined: bool,
    /// The sender no longer writes: this end also reads the pieces that the sender claimed but
    /// did not finish.
    is_sender_done: bool,
    /// Number of pieces that the sender had claimed when this end could no longer read.
    closed_at: Option<u64>,
    is_revoked: bool,
}

impl Receives for Receiving {
    type State = ();

    const SUMS: bool = false;

    fn begin(_: &mut (), header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        let is_allowed = lane.link.can_pull && lane.link.peer_can_pull;
        let (process, table) = Table::validate(header, lane, is_allowed)?;
        Ok(Self::new(process, table, header.length))
    }

    fn step(
        &mut self,
        _: &mut (),
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        let before = self.bytes();
        let message = incoming.message;
        let step = if self.is_offered {
            self.read_or_poll(incoming.lane, target, message)?
        } else {
            match incoming.is_exposed {
                true => self.offer(incoming.lane, target, message),
                false => self.decline(incoming.lane, message),
            }
            Step::Moved
        };
        incoming.account.copied_bytes += self.bytes() - before;
        Ok(step)
    }

    fn progress(&self) -> u64 {
        self.bytes()
    }

    fn revoke(&mut self, _: &mut (), lane: &mut Lane, message: Message, _target: &[u8]) -> bool {
        self.close(lane, message)
    }
}

impl Receiving {
    fn new(process: i32, table: Table, length: u64) -> Self {
        let pieces = Pieces::of(length);
        Self {
            process,
            table,
            pieces,
            pieces_read: 0,
            writable: None,
            is_offered: false,
            is_declined: false,
            is_sender_done: false,
            closed_at: None,
            is_revoked: false,
        }
    }

    /// Bytes that this end has read.
    fn bytes(&self) -> u64 {
        self.pieces.length - self.pieces.start(self.pieces.count() - self.pieces_read)
    }

    /// Reads one piece, or polls whether the sender has finished its pieces.
    ///
    /// # Errors
    /// [`Error::Protocol`] if the counter or the sender's count is impossible.
    fn read_or_poll(
        &mut self,
        lane: &mut Lane,
        target: &mut [u8],
        message: Message,
    ) -> Result<Step<Taken>, Error> {
        if let Some(front) = self.closed_at {
            return self.wait_to_refuse(lane, front, message);
        }
        if self.is_sender_done {
            return self.poll_sender(lane, target, message);
        }
        let count = self.pieces.count();
        match counter::claim_back(lane.word(CLAIMED), message.count(), count, self.pieces_read) {
            Claim::Piece(piece) => {
                self.read_piece(lane, target, piece, message);
                Ok(Step::Moved)
            }
            Claim::Nothing => self.poll_sender(lane, target, message),
            Claim::Nonsense(word) => {
                Err(Error::protocol("counter of pieces", word, count - self.pieces_read))
            }
        }
    }

    fn offer(&mut self, lane: &mut Lane, target: &mut [u8], message: Message) {
        counter::begin(lane.word(CLAIMED), message.count());
        self.writable = Readable::to(lane.peer().identity);
        lane.store(OFFERED_AT, target.as_mut_ptr().expose_provenance() as u64);
        lane.signal(OFFERED, message.count());
        self.is_offered = true;
    }

    /// Claims all pieces before the sender can claim one. The sender finds no piece to claim and
    /// waits for the answer.
    fn decline(&mut self, lane: &mut Lane, message: Message) {
        counter::begin(lane.word(CLAIMED), message.count());
        counter::close(lane.word(CLAIMED), message.count(), self.pieces.count());
        lane.store(OFFERED_AT, 0);
        lane.signal(OFFERED, message.count());
        self.is_offered = true;
        self.is_declined = true;
        self.is_sender_done = true;
        self.is_revoked = true;
    }

    /// Reads a piece that this end has claimed.
    fn read_piece(&mut self, lane: &mut Lane, target: &mut [u8], piece: u64, message: Message) {
        let end = self.pieces.start(piece + 1) as usize;
        let mut at = self.pieces.start(piece) as usize;
        self.table.seek(at as u64);
        while at < end {
            lane.system_calls += 1;
            match self.table.pull(self.process, &mut target[at..end]) {
                Ok(count) if count > 0 => at += count,
                _ => {
                    let count = self.pieces.count();
                    let front = counter::close(lane.word(CLAIMED), message.count(), count);
                    // The sender has at most the pieces that this end has not read: the peer
                    // cannot change `pieces_read`.
                    self.closed_at = Some(front.min(count - self.pieces_read));
                    return;
                }
            }
        }
        self.pieces_read += 1;
        lane.store(layout::PULLED, lane.load(layout::PULLED).wrapping_add(1));
    }

    /// All pieces are claimed: polls whether the sender has finished its pieces.
    fn poll_sender(
        &mut self,
        lane: &mut Lane,
        target: &mut [u8],
        message: Message,
    ) -> Result<Step<Taken>, Error> {
        let due = self.pieces.count() - self.pieces_read;
        let is_abandoned = self.is_sender_done || lane.names(ABANDONED, message);
        // Without permission to write, the sender cannot have finished a piece, whatever it
        // reports.
        let pushed = if self.is_declined { 0 } else { lane.load(PUSHED) };
        if pushed > due {
            return Err(Error::protocol("count of pieces written", pushed, due));
        }
        if pushed == due {
            self.finish();
            return Ok(Step::Done(Taken::Whole));
        }
        if is_abandoned {
            self.is_sender_done = true;
            self.read_piece(lane, target, due - 1, message);
            return Ok(Step::Moved);
        }
        Ok(Step::Blocked)
    }

    /// This end can no longer read: the sender finishes its current piece, then sends the
    /// remainder through the ring.
    fn wait_to_refuse(
        &mut self,
        lane: &Lane,
        front: u64,
        message: Message,
    ) -> Result<Step<Taken>, Error> {
        let is_abandoned = lane.names(ABANDONED, message);
        let pushed = lane.load(PUSHED);
        if pushed > front {
            return Err(Error::protocol("count of pieces written", pushed, front));
        }
        if pushed < front && !is_abandoned {
            return Ok(Step::Blocked);
        }
        self.finish();
        Ok(Step::Done(Taken::Part(self.pieces.start(pushed) as usize)))
    }

    fn finish(&mut self) {
        self.writable = None;
        self.is_revoked = true;
    }

    /// Gives up: from now on the sender can claim no piece. Returns true once the sender
    /// certainly no longer writes to the target. Returns false if a live, trusted sender did not
    /// finish its piece within a tenth of a second; then the target must not be reused while that
    /// process lives.
    fn close(&mut self, lane: &mut Lane, message: Message) -> bool {
        if !self.is_offered || self.is_revoked {
            return true;
        }
        let front = counter::close(lane.word(CLAIMED), message.count(), self.pieces.count());
        let start = Instant::now();
        loop {
            // A sender that gave up the message writes no piece, because the same thread writes
            // the pieces and reports that it gave up.
            let has_given_up = lane.state(layout::SENDER_STATE) != layout::OPEN;
            let is_over = lane.load(PUSHED) >= front || lane.names(ABANDONED, message);
            if is_over || has_given_up || lane.peer().is_dead() {
                self.finish();
                return true;
            }
            if start.elapsed() >= REVOKE_MAX {
                self.withdraw(lane);
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Withdraws the offer. If a sender was stopped after it claimed a piece and before it read the
    /// offer, it finds no target when it continues. Under Yama, the sender also loses the
    /// permission to write.
    fn withdraw(&mut self, lane: &Lane) {
        lane.store(OFFERED_AT, 0);
        self.writable = None;
    }
}
