//! `double`: one copy, by both ends at once. The sender writes pieces from the front of the message
//! straight into the receiver's target, the receiver reads pieces from its back straight out of the
//! sender's memory, until they meet.
//!
//! ```text
//! receiver:  counter = nothing claimed,  offer the target
//!            while claim a piece from the back: process_vm_readv
//!            wait until what the sender finished and what it claimed itself meet
//! sender:    publish where the bytes stand,  wait for the offer
//!            while claim a piece from the front: process_vm_writev, finished += 1
//! ```
//!
//! Only between ends that trust each other, as `pull`; and the receiver lets its memory be written.
//! Trust goes no further than that: the shared counter proves nothing, see `counter`. A sender that
//! may not write says so, and the receiver reads what is left; a receiver that may not read takes
//! what the sender has finished, and the rest goes through the ring.
//!
//! A receiver that gives up takes the rest of the pieces for itself, so that the sender writes at
//! most the one that it is at; see [`Draw::close`].

use std::io;
use std::time::{Duration, Instant};

use super::contract::{Begun, Incoming, Outgoing, Receives, Sends, Taken, Then};
use super::pull::{self, Exposed, Table};
use crate::channel::shared::counter::{self, Claim};
use crate::channel::shared::error::Error;
use crate::channel::shared::header::Header;
use crate::channel::shared::lane::Lane;
use crate::channel::shared::layout::{self, ABANDONED, CLAIMED, OFFERED, OFFERED_AT, PUSHED};
use crate::channel::shared::link::Link;
use crate::channel::shared::message::Message;
use crate::channel::shared::source::{Source, Walk};
use crate::channel::shared::transfer::Step;
use crate::peer::process::Readable;
use crate::peer::reach;

/// Largest piece: 0.1 ms, so that neither end waits long for the other at the end, and large enough
/// that the system call is a hundredth of it.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// Smallest piece: below, the system call is a tenth of it.
const PIECE_BYTES_MIN: u64 = 64 << 10;
/// Pieces that a small message is cut into: two ends that begin a little apart still share it.
const PIECES_OF_SMALL: u64 = 8;
/// Parts of the source that one system call takes.
const PARTS_MAX: usize = 64;
/// How long a receiver that gives up waits for the piece that the sender is at: a thousand times
/// what the piece takes.
const SETTLE: Duration = Duration::from_millis(100);

const NOT_WRITABLE: &str = "this process may not write the peer's memory";
const COUNTER_IS_FULL: &str = "the message has more pieces than the counter counts";

/// A message cut into pieces, by its length alone, so that both ends cut alike.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    length: u64,
    piece: u64,
}

impl Pieces {
    fn of(length: u64) -> Self {
        let even = length.div_ceil(PIECES_OF_SMALL).next_multiple_of(PIECE_BYTES_MIN);
        Self { length, piece: even.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX) }
    }

    /// Whether the counter has room for them.
    fn fit(self) -> bool {
        self.count() <= counter::PIECES_MAX
    }

    fn count(self) -> u64 {
        self.length.div_ceil(self.piece)
    }

    /// Where a piece begins, or the message's end.
    fn start(self, piece: u64) -> u64 {
        (piece * self.piece).min(self.length)
    }
}

/// The sender's part.
#[derive(Debug)]
pub(crate) struct Push {
    exposed: Exposed,
    pieces: Pieces,
    /// Pieces finished.
    pushed: u64,
    walk: Walk,
    is_over: bool,
}

impl Push {
    pub(crate) fn new(length: u64) -> Self {
        let pieces = Pieces::of(length);
        let exposed = Exposed::default();
        Self { exposed, pieces, pushed: 0, walk: Walk::default(), is_over: false }
    }

    /// Bytes that this end has moved.
    fn bytes(&self) -> u64 {
        self.pieces.start(self.pushed)
    }

    /// Writes one piece, if the receiver has made its offer and one is left.
    fn push(&mut self, lane: &mut Lane, source: &Source<'_>, message: Message) -> Step<()> {
        if self.is_over {
            return Step::Done(());
        }
        if !lane.names(OFFERED, message) {
            return Step::Blocked;
        }
        let count = self.pieces.count();
        let claim = counter::claim_front(lane.word(CLAIMED), message.count(), count);
        let Claim::Piece(piece) = claim else {
            // What the word says is the receiver's to judge; without a claim nothing is touched.
            self.is_over = true;
            return Step::Done(());
        };
        let (start, end) = (self.pieces.start(piece), self.pieces.start(piece + 1));
        let target = lane.load(OFFERED_AT);
        if piece == self.pushed && write(lane, source, (start..end, &mut self.walk), target).is_ok()
        {
            self.pushed += 1;
            lane.tell(PUSHED, self.pushed);
        } else {
            self.is_over = true;
            lane.tell(ABANDONED, message.count());
        }
        Step::Moved
    }
}

impl Sends for Push {
    type Lasting = ();

    const SUMS: bool = false;

    fn peer_obstacle(link: &Link) -> Option<&'static str> {
        let other_way = || (!link.can_pull).then_some(NOT_WRITABLE);
        pull::peer_obstacle(link).or_else(other_way)
    }

    fn obstacle(source: &Source<'_>, length: u64) -> Option<&'static str> {
        let too_many = || (!Pieces::of(length).fit()).then_some(COUNTER_IS_FULL);
        pull::obstacle(source).or_else(too_many)
    }

    fn begin(&mut self, _: &mut (), out: &mut Outgoing<'_, '_>) -> Result<Begun, Error> {
        let detail = self.exposed.begin(out);
        Ok(detail.map_or_else(|why| why, |detail| Begun::Moving { detail }))
    }

    fn step(&mut self, _: &mut (), out: &mut Outgoing<'_, '_>) -> Result<Step<Then>, Error> {
        let before = self.bytes();
        let step = self.push(out.lane, out.source, out.message);
        out.account.copied_bytes += self.bytes() - before;
        Ok(step.map(|()| Then::Answer))
    }

    fn progress(&self) -> u64 {
        self.bytes()
    }

    fn settle(&mut self, _: &mut (), _has_arrived: bool) {
        self.exposed.end();
    }
}

/// Writes these bytes of the message to their place in the receiver.
fn write(
    lane: &mut Lane,
    source: &Source<'_>,
    (bytes, walk): (std::ops::Range<u64>, &mut Walk),
    target: u64,
) -> io::Result<()> {
    // Whoever has its number after it is not the receiver.
    let process = lane.link.peer.identity.process.filter(|_| !lane.is_peer_gone());
    let process = process.ok_or(io::ErrorKind::NotFound)?;
    let mut at = bytes.start;
    while at < bytes.end {
        let slices = source.slices(walk, at, (bytes.end - at) as usize, PARTS_MAX);
        let place = target.checked_add(at).ok_or(io::ErrorKind::InvalidInput)?;
        lane.system_calls += 1;
        at += reach::write(process, &slices, place)? as u64;
    }
    Ok(())
}

/// The receiver's part.
#[derive(Debug)]
pub(crate) struct Draw {
    process: i32,
    table: Table,
    pieces: Pieces,
    /// Pieces read, from the back.
    drawn: u64,
    /// While the sender may write here.
    writable: Option<Readable>,
    is_offered: bool,
    /// The sender writes no more: what it claimed and did not finish is this end's as well.
    is_alone: bool,
    /// Pieces that the sender had claimed as this end could read no more.
    closed_at: Option<u64>,
    is_settled: bool,
}

impl Receives for Draw {
    type Lasting = ();

    const SUMS: bool = false;

    fn begin(_: &mut (), header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        let is_allowed = lane.link.can_pull && lane.link.peer_can_pull;
        let (process, table) = Table::believe(header, lane, is_allowed)?;
        Ok(Self::new(process, table, header.length))
    }

    fn step(
        &mut self,
        _: &mut (),
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        let before = self.bytes();
        let step = self.draw_or_see(incoming.lane, target, incoming.message)?;
        incoming.account.copied_bytes += self.bytes() - before;
        Ok(step)
    }

    fn progress(&self) -> u64 {
        self.bytes()
    }

    fn settle(&mut self, _: &mut (), lane: &mut Lane, message: Message, _target: &[u8]) -> bool {
        self.close(lane, message)
    }
}

impl Draw {
    fn new(process: i32, table: Table, length: u64) -> Self {
        let pieces = Pieces::of(length);
        Self {
            process,
            table,
            pieces,
            drawn: 0,
            writable: None,
            is_offered: false,
            is_alone: false,
            closed_at: None,
            is_settled: false,
        }
    }

    /// Bytes that this end has moved.
    fn bytes(&self) -> u64 {
        self.pieces.length - self.pieces.start(self.pieces.count() - self.drawn)
    }

    /// Offers the target, reads one piece, or sees whether the sender has finished its own.
    ///
    /// # Errors
    /// [`Error::Protocol`] where the counter or the sender's count cannot be true.
    fn draw_or_see(
        &mut self,
        lane: &mut Lane,
        target: &mut [u8],
        message: Message,
    ) -> Result<Step<Taken>, Error> {
        if !self.is_offered {
            self.offer(lane, target, message);
            return Ok(Step::Moved);
        }
        if let Some(front) = self.closed_at {
            return self.wait_to_refuse(lane, front, message);
        }
        if self.is_alone {
            return self.meet(lane, target, message);
        }
        let count = self.pieces.count();
        match counter::claim_back(lane.word(CLAIMED), message.count(), count, self.drawn) {
            Claim::Piece(piece) => {
                self.draw(lane, target, piece, message);
                Ok(Step::Moved)
            }
            Claim::Nothing => self.meet(lane, target, message),
            Claim::Nonsense(word) => {
                Err(Error::protocol("counter of pieces", word, count - self.drawn))
            }
        }
    }

    fn offer(&mut self, lane: &mut Lane, target: &mut [u8], message: Message) {
        counter::begin(lane.word(CLAIMED), message.count());
        self.writable = Readable::to(lane.link.peer.identity);
        lane.note(OFFERED_AT, target.as_mut_ptr().expose_provenance() as u64);
        lane.tell(OFFERED, message.count());
        self.is_offered = true;
    }

    /// Reads a piece that is this end's own.
    fn draw(&mut self, lane: &mut Lane, target: &mut [u8], piece: u64, message: Message) {
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
                    // Not more than this end leaves: the count of its own pieces is private.
                    self.closed_at = Some(front.min(count - self.drawn));
                    return;
                }
            }
        }
        self.drawn += 1;
        lane.note(layout::PULLED, lane.load(layout::PULLED).wrapping_add(1));
    }

    /// Nothing is left to claim: has the sender finished what it claimed?
    fn meet(
        &mut self,
        lane: &mut Lane,
        target: &mut [u8],
        message: Message,
    ) -> Result<Step<Taken>, Error> {
        let due = self.pieces.count() - self.drawn;
        let is_abandoned = lane.names(ABANDONED, message);
        let pushed = lane.load(PUSHED);
        if pushed > due {
            return Err(Error::protocol("count of pieces written", pushed, due));
        }
        if pushed == due {
            self.finish();
            return Ok(Step::Done(Taken::Whole));
        }
        if is_abandoned {
            self.is_alone = true;
            self.draw(lane, target, due - 1, message);
            return Ok(Step::Moved);
        }
        Ok(Step::Blocked)
    }

    /// This end can read no more: the sender finishes the piece that it is at, then brings the rest
    /// another way.
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
        self.is_settled = true;
    }

    /// Gives up: from here on the sender claims nothing more. True as soon as it is sure that
    /// nothing is written to the target any more, false where a sender that lives, and is trusted,
    /// did not finish its piece within a tenth of a second: then the target must not be used for
    /// anything else while that process lives.
    fn close(&mut self, lane: &mut Lane, message: Message) -> bool {
        if !self.is_offered || self.is_settled {
            return true;
        }
        let front = counter::close(lane.word(CLAIMED), message.count(), self.pieces.count());
        let start = Instant::now();
        loop {
            // A sender that gave the message up is at no piece: it says so in the thread that
            // writes.
            let has_given_up = lane.state(layout::SENDER_STATE) != layout::OPEN;
            let is_over = lane.load(PUSHED) >= front || lane.names(ABANDONED, message);
            if is_over || has_given_up || lane.link.peer.is_dead() {
                self.finish();
                return true;
            }
            if start.elapsed() >= SETTLE {
                self.withdraw(lane);
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Takes back what can be: a sender that was stopped between its claim and its look at the
    /// offer finds nothing to write to, and where there is Yama it may write nowhere.
    fn withdraw(&mut self, lane: &Lane) {
        lane.note(OFFERED_AT, 0);
        self.writable = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::channel::shared::handshake::Agreement;
    use crate::channel::shared::settings::Settings;
    use crate::peer::process::Peer;
    use crate::peer::region::Region;
    use crate::peer::socket::{self, Socket};

    #[test]
    fn pieces_cover_a_message_of_any_length() {
        for length in [1, 65535, 65536, 65537, 600_001, 1 << 20, (8 << 20) + 1, 1 << 36] {
            let pieces = Pieces::of(length);
            assert_eq!(pieces.start(0), 0);
            assert_eq!(pieces.start(pieces.count()), length);
            assert!(pieces.start(pieces.count() - 1) < length && pieces.fit());
        }
        assert!(!Pieces::of(u64::MAX).fit());
    }

    /// The number of a peer that died, now that of another process: this one.
    #[test]
    fn whoever_has_a_dead_peers_number_is_not_written_to() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .arg("--list")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut peer = Peer::watch((child.id() as i32, 0, 0));
        child.wait().unwrap();
        peer.identity.process = Some(std::process::id() as i32);
        let region = Region::create(layout::region_bytes(layout::CHUNK_BYTES_MIN)).unwrap();
        let agreed = Agreement {
            peer,
            region,
            chunk_bytes: layout::CHUNK_BYTES_MIN,
            is_trusted: true,
            can_pull: true,
            peer_can_pull: true,
        };
        let (socket, _other) = socket::pair().unwrap();
        let socket = Socket::adopt(socket).unwrap();
        let link = Link::new(socket, agreed, Settings::default()).unwrap();
        let mut lane = Lane::for_sending(Arc::new(link), 0);
        let (bytes, mut target) = ([7; 100], [0_u8; 100]);
        let place = target.as_mut_ptr().expose_provenance() as u64;
        let source = Source::one(&bytes);
        let written = write(&mut lane, &source, (0..100, &mut Walk::default()), place);
        assert!(written.is_err() && target == [0; 100], "{written:?}");
    }
}
