//! The copy control unit: it translates a copy's addresses, splits the copy at pages, and keeps the
//! table of pending copies against which loads and stores are checked.

use crate::configuration::{Configuration, Cycle, TlbSettings};
use crate::memory::{Copy, Kind, Tag};

/// A part of a copy that lies in one page of the source and in one page of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The copy's number.
    pub copy: u32,
    /// First byte read.
    pub source: u64,
    /// First byte written.
    pub target: u64,
    /// The size of the piece in bytes.
    pub bytes: u64,
}

/// An entry of the pending copy table.
#[derive(Clone, Debug)]
pub struct Pending {
    /// The copy's number, also its transaction in the trace.
    pub number: u32,
    /// The copy.
    pub copy: Copy,
    /// The cycle in which the copy arrived.
    pub began: Cycle,
    /// The number of pieces that the copy was split into.
    pub pieces: u32,
    /// The number of pieces whose announcement was acknowledged.
    pub acknowledged: u32,
    /// The number of pieces that are complete.
    pub complete: u32,
    /// Whether the copy's `ecpy` has received permission to retire.
    pub retired: bool,
    /// The lines that the copy reads, and the lines that it writes: first byte and the byte after
    /// the last.
    source_lines: (u64, u64),
    target_lines: (u64, u64),
}

/// The copy control unit.
pub struct Control {
    pages: Pages,
    line_bytes: u64,
    entries_max: usize,
    pending: Vec<Pending>,
}

impl Control {
    /// An idle unit.
    #[must_use]
    pub fn new(configuration: &Configuration) -> Self {
        Self {
            pages: Pages::new(&configuration.core.tlb),
            line_bytes: configuration.memory.line_bytes,
            entries_max: configuration.engine.pending_entries as usize,
            pending: Vec::new(),
        }
    }

    /// Whether the table has room.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.pending.len() < self.entries_max
    }

    /// Whether no copy is pending.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Enters a copy of at least one byte and appends its pieces to `pieces`. Returns the number of
    /// page walks.
    pub fn enter(
        &mut self,
        number: u32,
        now: Cycle,
        copy: Copy,
        pieces: &mut std::collections::VecDeque<Piece>,
    ) -> u32 {
        let page = self.pages.page_bytes;
        let (mut done, mut count, mut walks) = (0, 0, 0);
        while done < copy.bytes {
            let (source, target) = (copy.source + done, copy.target + done);
            let bytes = (copy.bytes - done).min(page - source % page).min(page - target % page);
            walks += u32::from(self.pages.walk(source)) + u32::from(self.pages.walk(target));
            pieces.push_back(Piece { copy: number, source, target, bytes });
            done += bytes;
            count += 1;
        }
        let line_bytes = self.line_bytes;
        let lines = |first: u64| {
            let end = (first + copy.bytes).next_multiple_of(line_bytes);
            (first / line_bytes * line_bytes, end)
        };
        self.pending.push(Pending {
            source_lines: lines(copy.source),
            target_lines: lines(copy.target),
            number,
            copy,
            began: now,
            pieces: count,
            acknowledged: 0,
            complete: 0,
            retired: false,
        });
        walks
    }

    /// Whether an access must wait for a pending copy: any access to lines of its target, or a
    /// store to lines of its source.
    #[inline]
    #[must_use]
    pub fn blocks(&self, kind: Kind, address: u64, bytes: u64) -> bool {
        // This is called for every load and store, so it avoids divisions.
        let end = address + bytes;
        let touches = |(low, high): (u64, u64)| address < high && low < end;
        self.pending.iter().any(|entry| {
            touches(entry.target_lines) || (kind == Kind::Store && touches(entry.source_lines))
        })
    }

    /// Whether a copy must wait for a pending one: the copy reads lines that the pending copy
    /// writes, or writes lines that the pending copy reads or writes. A single engine keeps its
    /// copies in order by itself.
    #[must_use]
    pub fn conflicts(&self, copy: &Copy) -> bool {
        let lines = |first: u64, bytes: u64| {
            first / self.line_bytes..(first + bytes).div_ceil(self.line_bytes)
        };
        let meet =
            |a: std::ops::Range<u64>, b: std::ops::Range<u64>| a.start < b.end && b.start < a.end;
        let (source, target) = (lines(copy.source, copy.bytes), lines(copy.target, copy.bytes));
        self.pending.iter().any(|entry| {
            let written = lines(entry.copy.target, entry.copy.bytes);
            let read = lines(entry.copy.source, entry.copy.bytes);
            meet(source.clone(), written.clone())
                || meet(target.clone(), written)
                || meet(target.clone(), read)
        })
    }

    /// The entry of a pending copy.
    pub fn entry(&mut self, number: u32) -> &mut Pending {
        let found = self.pending.iter_mut().find(|entry| entry.number == number);
        found.expect("a piece belongs to a pending copy")
    }

    /// Removes a complete copy once the final broadcast has been seen.
    pub fn release(&mut self, number: u32) -> Pending {
        let place = self.pending.iter().position(|entry| entry.number == number);
        self.pending.remove(place.expect("a copy is released once"))
    }

    /// The tag of a copy's `ecpy` on the first call; `None` afterwards.
    pub fn retire(&mut self, number: u32) -> Option<Tag> {
        let entry = self.entry(number);
        let first = !std::mem::replace(&mut entry.retired, true);
        first.then_some(entry.copy.tag)
    }
}

/// The pages whose translations the unit caches, the least recently used first.
struct Pages {
    page_bytes: u64,
    entries_max: usize,
    pages: Vec<u64>,
}

impl Pages {
    fn new(settings: &TlbSettings) -> Self {
        let entries_max = settings.entries as usize;
        Self { page_bytes: settings.page_bytes, entries_max, pages: Vec::new() }
    }

    /// Translates an address. Returns whether the translation needed a page walk.
    fn walk(&mut self, address: u64) -> bool {
        let page = address / self.page_bytes;
        let found = self.pages.iter().position(|each| *each == page);
        match found {
            Some(place) => {
                self.pages.remove(place);
            }
            None if self.pages.len() == self.entries_max => {
                self.pages.remove(0);
            }
            None => {}
        }
        self.pages.push(page);
        found.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn copy(source: u64, target: u64, bytes: u64) -> Copy {
        Copy { source, target, bytes, tag: Tag(0) }
    }

    #[test]
    fn copy_is_split_at_page_ends_of_source_and_target() {
        let mut control = Control::new(&Configuration::default());
        let mut pieces = VecDeque::new();
        let walks = control.enter(9, 0, copy(4096 - 100, 32768 - 50, 4096), &mut pieces);
        let bytes: Vec<u64> = pieces.iter().map(|piece| piece.bytes).collect();
        assert_eq!(bytes, [50, 50, 4096 - 100]);
        assert_eq!(pieces.iter().map(|piece| piece.bytes).sum::<u64>(), 4096);
        assert_eq!(walks, 4, "two pages on each side");
        let walks = control.enter(10, 0, copy(4096, 32768, 64), &mut pieces);
        assert_eq!(walks, 0);
    }

    #[test]
    fn load_waits_for_target_and_store_for_source_and_target() {
        let mut control = Control::new(&Configuration::default());
        control.enter(1, 0, copy(1000, 5000, 100), &mut VecDeque::new());
        let blocks = |kind, address| control.blocks(kind, address, 8);
        assert!(blocks(Kind::Load, 5050) && blocks(Kind::Store, 5050));
        assert!(blocks(Kind::Load, 4992) && !blocks(Kind::Load, 4984), "whole lines");
        assert!(!blocks(Kind::Load, 1050) && blocks(Kind::Store, 1050));
        assert!(!blocks(Kind::Store, 1_100_000));
    }
}
