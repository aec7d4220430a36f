//! The sender's part: writes pieces from the front into the receiver's target.

use std::io;
use std::ops::Range;

use super::Pieces;
use crate::mechanism::contract::{Begun, Outgoing, Sends, Then};
use crate::mechanism::pull::{self, Exposed};
use crate::shared::counter::{self, Claim};
use crate::shared::error::Error;
use crate::shared::lane::Lane;
use crate::shared::layout::{ABANDONED, CLAIMED, OFFERED, OFFERED_AT, PUSHED};
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::source::{Source, Walk};
use crate::shared::transfer::Step;
use haul_peer::reach;

/// Largest number of the source's parts per system call.
const PARTS_MAX: usize = 64;

const NOT_WRITABLE: &str = "this process has no permission to write the peer's memory";
const COUNTER_IS_FULL: &str = "the message has more pieces than the counter can represent";

/// The sender's part.
#[derive(Debug)]
pub(crate) struct Sending {
    exposed: Exposed,
    pieces: Pieces,
    /// Number of pieces finished.
    pushed: u64,
    walk: Walk,
    is_over: bool,
}

impl Sending {
    pub(crate) fn new(length: u64) -> Self {
        let pieces = Pieces::of(length);
        let exposed = Exposed::default();
        Self { exposed, pieces, pushed: 0, walk: Walk::default(), is_over: false }
    }

    /// Bytes that this end has written.
    fn bytes(&self) -> u64 {
        self.pieces.start(self.pushed)
    }

    /// Writes one piece, if the receiver has offered its target and a piece is unclaimed.
    fn write_piece(&mut self, lane: &mut Lane, source: &Source<'_>, message: Message) -> Step<()> {
        if self.is_over {
            return Step::Done(());
        }
        if !lane.names(OFFERED, message) {
            return Step::Blocked;
        }
        let count = self.pieces.count();
        let claim = counter::claim_front(lane.word(CLAIMED), message.count(), count);
        let Claim::Piece(piece) = claim else {
            // The receiver validates the counter. Without a claim, this end writes nothing.
            self.is_over = true;
            return Step::Done(());
        };
        let (start, end) = (self.pieces.start(piece), self.pieces.start(piece + 1));
        let target = lane.load(OFFERED_AT);
        if piece == self.pushed && write(lane, source, (start..end, &mut self.walk), target).is_ok()
        {
            self.pushed += 1;
            lane.signal(PUSHED, self.pushed);
        } else {
            self.is_over = true;
            lane.signal(ABANDONED, message.count());
        }
        Step::Moved
    }
}

impl Sends for Sending {
    type State = ();

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
        let step = self.write_piece(out.lane, out.source, out.message);
        out.account.copied_bytes += self.bytes() - before;
        Ok(step.map(|()| Then::Answer))
    }

    fn progress(&self) -> u64 {
        self.bytes()
    }

    fn release(&mut self, _: &mut (), _has_arrived: bool) {
        self.exposed.end();
    }
}

/// Writes these bytes of the message to their location in the receiver's memory.
fn write(
    lane: &mut Lane,
    source: &Source<'_>,
    (bytes, walk): (Range<u64>, &mut Walk),
    target: u64,
) -> io::Result<()> {
    // Another process may get the receiver's process ID after the receiver's death.
    let process = lane.peer().identity.process.filter(|_| !lane.is_peer_gone(true));
    let process = process.ok_or(io::ErrorKind::NotFound)?;
    let mut at = bytes.start;
    while at < bytes.end {
        let slices = source.slices(walk, at, (bytes.end - at) as usize, PARTS_MAX);
        let address = target.checked_add(at).ok_or(io::ErrorKind::InvalidInput)?;
        lane.system_calls += 1;
        at += reach::write(process, &slices, address)? as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::shared::handshake::Agreement;
    use crate::shared::layout;
    use crate::shared::settings::Settings;
    use haul_peer::life::Life;
    use haul_peer::process::Peer;
    use haul_peer::region::Region;
    use haul_peer::socket::{self, Socket};

    /// The process ID of a dead peer now belongs to another process, namely this one.
    #[test]
    fn sending_does_not_write_to_process_that_reuses_number_of_dead_peer() {
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
        let link = Link::new(socket, agreed, Settings::default(), 0).unwrap();
        let mut lane = Lane::for_sending(Arc::new(link), 0, Life::new().unwrap());
        let (bytes, mut target) = ([7; 100], [0_u8; 100]);
        let address = target.as_mut_ptr().expose_provenance() as u64;
        let source = Source::one(&bytes);
        let written = write(&mut lane, &source, (0..100, &mut Walk::default()), address);
        assert!(written.is_err() && target == [0; 100], "{written:?}");
    }
}
