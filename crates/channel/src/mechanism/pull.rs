//! `pull`: the kernel copies directly out of the sender's memory for the receiver: one copy.
//!
//! This mechanism is only for ends that trust each other. A sender that permits reads permits
//! reads of all its memory. A sender can also block the receiver's system call on pages that
//! never arrive, and no deadline ends that call. The slot contains a table with the addresses of
//! the message's bytes. The receiver checks the table's sum, copies piece by piece, and answers
//! by consuming the message. If the kernel refuses a piece (permission gone, pages gone), the
//! receiver reports how many bytes it has, and the ring carries the remainder.

use std::io;

use super::contract::{Begun, Incoming, NO_TRUST, Outgoing, Receives, Sends, Taken};
use crate::shared::error::Error;
use crate::shared::header::Header;
use crate::shared::lane::Lane;
use crate::shared::layout::{self, HEADER_BYTES, INLINE_BYTES_MAX};
use crate::shared::link::Link;
use crate::shared::message::Message;
use crate::shared::source::Source;
use crate::shared::transfer::Step;
use haul_peer::process::Readable;
use haul_peer::reach;

/// Size of a table entry: an address and a length.
const ENTRY_BYTES: usize = 16;
/// Entries that a slot can hold.
const ENTRIES_MAX: usize = INLINE_BYTES_MAX / ENTRY_BYTES;
/// Bytes that one system call copies. A call takes about 0.2 ms, so that this end can check the
/// clock and the peer between two calls, or 7 ms if the target is a new huge page that the host
/// must allocate first. The kernel's own limit is 0x7ffff000.
const CALL_BYTES_MAX: usize = 2 << 20;

const NOT_READABLE: &str = "the peer has no permission to read this process's memory";
const TABLE_IS_FULL: &str = "the message has more parts than the table has room for";

/// The reason why the receiver cannot read this end's memory.
pub(crate) fn peer_obstacle(link: &Link) -> Option<&'static str> {
    match link {
        _ if !link.is_trusted => Some(NO_TRUST),
        _ if !link.peer_can_pull => Some(NOT_READABLE),
        _ => None,
    }
}

/// Why the receiver cannot read the bytes of this message.
pub(crate) fn obstacle(source: &Source<'_>) -> Option<&'static str> {
    (source.parts().len() > ENTRIES_MAX).then_some(TABLE_IS_FULL)
}

/// This end's memory, while the receiver has permission to read it.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    readable: Option<Readable>,
}

impl Exposed {
    /// Writes the addresses of the bytes into the slot and returns the number of entries. If the
    /// receiver cannot read the bytes now, the error says how the transfer continues.
    pub(crate) fn begin(&mut self, out: &mut Outgoing<'_, '_>) -> Result<u64, Begun> {
        self.readable = Readable::to(out.lane.peer().identity);
        if self.readable.is_none() {
            // Another peer is reading this process. A caller that selected this mechanism by name
            // waits.
            let asked = out.lane.link.settings.mechanism;
            let is_asked_for = asked == Some(out.account.mechanism);
            return Err(if is_asked_for { Begun::Blocked } else { Begun::Impossible });
        }
        out.lane.store(layout::PUSHED, 0);
        Ok(write_table(out.lane, out.message, out.source))
    }

    pub(crate) fn end(&mut self) {
        self.readable = None;
    }
}

/// The sender's part: only permits reads of its memory.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    exposed: Exposed,
}

impl Sends for Sending {
    type State = ();

    const SUMS: bool = false;

    fn peer_obstacle(link: &Link) -> Option<&'static str> {
        peer_obstacle(link)
    }

    fn obstacle(source: &Source<'_>, _length: u64) -> Option<&'static str> {
        obstacle(source)
    }

    fn begin(&mut self, _: &mut (), out: &mut Outgoing<'_, '_>) -> Result<Begun, Error> {
        let detail = self.exposed.begin(out);
        Ok(detail.map_or_else(|why| why, |detail| Begun::Left { detail }))
    }

    fn release(&mut self, _: &mut (), _has_arrived: bool) {
        self.exposed.end();
    }
}

/// The receiver's part.
#[derive(Debug)]
pub(crate) struct Receiving {
    process: i32,
    table: Table,
    offset: usize,
}

impl Receives for Receiving {
    type State = ();

    const SUMS: bool = false;

    fn begin(_: &mut (), header: &Header, lane: &mut Lane) -> Result<Self, Error> {
        let (process, table) = Table::validate(header, lane, lane.link.can_pull)?;
        Ok(Self { process, table, offset: 0 })
    }

    fn step(
        &mut self,
        _: &mut (),
        incoming: &mut Incoming<'_>,
        target: &mut [u8],
    ) -> Result<Step<Taken>, Error> {
        if self.offset == target.len() {
            return Ok(Step::Done(Taken::Whole));
        }
        let lane = &mut *incoming.lane;
        lane.system_calls += 1;
        match self.table.pull(self.process, &mut target[self.offset..]) {
            Ok(count) if count > 0 => {
                self.offset += count;
                incoming.account.copied_bytes += count as u64;
                let pulled = lane.load(layout::PULLED).wrapping_add(count as u64);
                lane.store(layout::PULLED, pulled);
                Ok(Step::Moved)
            }
            // Whatever the reason, the sender still has the bytes and can send the remainder
            // through the ring.
            _ => Ok(Step::Done(Taken::Part(self.offset))),
        }
    }

    fn progress(&self) -> u64 {
        self.offset as u64
    }
}

/// The addresses of a message's bytes in the sender's memory.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Vec<(u64, u64)>,
    entry: usize,
    within: u64,
}

/// Writes the table into the message's slot and returns the number of its entries.
fn write_table(lane: &Lane, message: Message, source: &Source<'_>) -> u64 {
    let parts = source.parts().iter().filter(|part| !part.is_empty());
    let at = lane.slot(message) + HEADER_BYTES;
    let mut count = 0;
    for part in parts {
        let address = part.as_ptr().expose_provenance() as u64;
        for (within, word) in [(0, address), (8, part.len() as u64)] {
            let offset = at + count * ENTRY_BYTES + within;
            lane.link.region.word64(offset).store(word, std::sync::atomic::Ordering::Relaxed);
        }
        count += 1;
    }
    count as u64
}

impl Table {
    /// The process to read a message from, and the addresses of the message's bytes in that
    /// process, if this end may read that process at all.
    ///
    /// # Errors
    /// [`Error::Protocol`].
    pub(crate) fn validate(
        header: &Header,
        lane: &Lane,
        is_allowed: bool,
    ) -> Result<(i32, Self), Error> {
        let link = &lane.link;
        if !(link.is_trusted && is_allowed) {
            return Err(Error::protocol("mechanism", header.kind, 0));
        }
        // Process 0 does not exist: nothing is read from a sender whose process is unknown.
        let process = lane.peer().identity.process.unwrap_or(0);
        let message = Message::after(header.message);
        let table = Self::read(lane, message, header.detail, header.length);
        let table = table.ok_or_else(|| {
            let what = "table of parts for a length of";
            Error::protocol(what, header.detail, header.length)
        })?;
        Ok((process, table))
    }

    /// Reads the table of a message once; `None` if its lengths do not add up to the message's
    /// length.
    fn read(lane: &Lane, message: Message, entries: u64, length: u64) -> Option<Self> {
        let count = usize::try_from(entries).ok().filter(|count| *count <= ENTRIES_MAX)?;
        let at = lane.slot(message) + HEADER_BYTES;
        let word = |offset| {
            lane.link.region.word64(at + offset).load(std::sync::atomic::Ordering::Relaxed)
        };
        let entries: Vec<(u64, u64)> =
            (0..count).map(|i| (word(i * ENTRY_BYTES), word(i * ENTRY_BYTES + 8))).collect();
        let mut sum = 0_u64;
        for &(address, bytes) in &entries {
            address.checked_add(bytes)?;
            sum = sum.checked_add(bytes)?;
        }
        (sum == length).then_some(Self { entries, entry: 0, within: 0 })
    }

    /// Makes the message's byte at `offset` the next byte to copy.
    pub(crate) fn seek(&mut self, offset: u64) {
        (self.entry, self.within) = (0, offset);
        while let Some(&(_, bytes)) = self.entries.get(self.entry)
            && self.within >= bytes
        {
            (self.entry, self.within) = (self.entry + 1, self.within - bytes);
        }
    }

    /// Copies the next bytes to the start of `target` and returns their number.
    ///
    /// # Errors
    /// The kernel's error; this call copied nothing.
    pub(crate) fn pull(&mut self, process: i32, target: &mut [u8]) -> io::Result<usize> {
        while self.entries.get(self.entry).is_some_and(|entry| entry.1 == self.within) {
            (self.entry, self.within) = (self.entry + 1, 0);
        }
        let Some(&(address, bytes)) = self.entries.get(self.entry) else { return Ok(0) };
        let left = usize::try_from(bytes - self.within).unwrap_or(usize::MAX);
        let length = left.min(target.len()).min(CALL_BYTES_MAX);
        let count = reach::read(process, address + self.within, &mut target[..length])?;
        self.within += count as u64;
        Ok(count)
    }
}
