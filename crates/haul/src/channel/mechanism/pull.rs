//! `pull`: the receiver has the kernel copy straight out of the sender's memory, once.
//!
//! Only between ends that trust each other: a sender that lets its memory be read lets all of it be
//! read, and a sender can have the receiver's system call wait for pages that never come, which no
//! deadline ends. The slot holds a table of where the bytes stand; the receiver checks that it adds
//! up, copies piece by piece, and answers by taking the message. Where a piece is refused
//! (permission gone, pages gone) it says how far it came, and the rest goes through the ring.

use std::io;

use crate::channel::shared::lane::Lane;
use crate::channel::shared::layout::{HEADER_BYTES, INLINE_BYTES_MAX};
use crate::channel::shared::source::Source;
use crate::peer::reach;

/// Address and length: one entry of the table.
const ENTRY_BYTES: usize = 16;
/// Most entries that a slot holds.
pub(crate) const ENTRIES_MAX: usize = INLINE_BYTES_MAX / ENTRY_BYTES;
/// Bytes asked for in one system call: some 0.2 ms, so that the clock and the peer are looked at in
/// between, and 7 ms where the target is a new huge page that the host has to bring first. The
/// kernel's own limit is 0x7ffff000.
const CALL_BYTES_MAX: usize = 2 << 20;

/// Where the bytes of a message stand in the sender.
#[derive(Debug)]
pub(crate) struct Table {
    entries: Vec<(u64, u64)>,
    entry: usize,
    within: u64,
}

/// Writes the table into the message's slot and returns how many entries it has.
pub(crate) fn put(lane: &Lane, message: u64, source: &Source<'_>) -> u64 {
    let parts = source.parts().iter().filter(|part| !part.is_empty());
    let at = lane.slot(message) + HEADER_BYTES;
    let mut count = 0;
    for part in parts {
        let address = part.as_ptr().expose_provenance() as u64;
        for (place, word) in [(0, address), (8, part.len() as u64)] {
            let offset = at + count * ENTRY_BYTES + place;
            lane.link.region.word64(offset).store(word, std::sync::atomic::Ordering::Relaxed);
        }
        count += 1;
    }
    count as u64
}

/// Whether the table of a message of several parts fits into a slot.
pub(crate) fn fits(source: &Source<'_>) -> bool {
    source.parts().len() <= ENTRIES_MAX
}

impl Table {
    /// Reads the table of a message once; `None` where it does not add up to its length.
    pub(crate) fn take(lane: &Lane, message: u64, entries: u64, length: u64) -> Option<Self> {
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

    /// The next byte is the one at `offset` of the message.
    pub(crate) fn seek(&mut self, offset: u64) {
        (self.entry, self.within) = (0, offset);
        while let Some(&(_, bytes)) = self.entries.get(self.entry)
            && self.within >= bytes
        {
            (self.entry, self.within) = (self.entry + 1, self.within - bytes);
        }
    }

    /// Copies the next bytes to the start of `target` and says how many.
    ///
    /// # Errors
    /// What the kernel said; nothing was copied by this call.
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
