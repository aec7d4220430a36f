//! Counts which slices have memory, and gives the memory of free slices back.
//!
//! A piece is 4 KiB of a slice. The word of a free slice counts how many of its pieces can be
//! resident. The word of a large block's last slice does the same. Slices that were written are
//! resident. If the kernel maps a page as one huge page, all its slices are resident. Each node
//! has a count of idle pieces: the pieces of free slices that can be resident. A request for a
//! large block checks this count. If the idle memory is more than a small part of the memory in
//! use, the request gives some of it back. It begins with the highest page, because the lowest
//! pages are reused first. So a heap is hardly larger than its blocks, in any order of
//! allocations and frees. A program that frees blocks and allocates the same blocks again makes
//! no system call.

use core::ops::Range;

use super::Memory;
use crate::layout::{PAGE_SLICES, SLICE};
use crate::protocol::page::Refused;
use crate::protocol::slice;
use crate::protocol::step::step;
use crate::protocol::word::{CacheId, PIECES, PageWord, Slice};
use crate::region::backing::Backing;
use crate::sync::Ordering::{Acquire, Relaxed};

/// The size of a piece in bytes.
const PIECE: usize = SLICE / PIECES as usize;

/// One in this many pieces in use may be idle: 2%.
const IDLE_PART: usize = 48;

/// This many pieces may always be idle: 256 KiB.
const IDLE_MIN: usize = (256 << 10) / PIECE;

/// If the memory in use is less than this many times the size of the current request, idle memory
/// of the request's size is allowed. So a program with one large block of changing size does not
/// give the block's memory back and request it again.
const FEW: usize = 8;

/// Freed slices make later requests give memory back. But their count is limited to one in this
/// many of the slices in use. So a program that frees all its blocks and allocates them again
/// does not give the memory back meanwhile. (Without this limit, 5,000 blocks of 262,145 B needed
/// 5,070 ns each, and with it 88 ns.)
const TURN_PART: u64 = 8;

/// A large block keeps the memory after its end, in its last slice, if this is at most one in
/// this many of its bytes: 4%. Giving the memory back would need a system call.
const TAIL_PART: usize = 24;

impl Memory {
    /// Ensures that the slices `run`, which `me` has claimed in ready pages, can be accessed, and
    /// counts them as used. `pieces` of their pieces can be resident. The slices become the last
    /// slices of a block of `bytes` bytes. If memory is missing, gives the slices back.
    pub(super) fn supply(
        &self,
        run: &Range<usize>,
        pieces: usize,
        bytes: usize,
        me: CacheId,
    ) -> Result<(), Refused> {
        if self.is_external() || run.is_empty() {
            return Ok(());
        }
        let pieces = pieces.saturating_sub(self.pool_pieces(run));
        self.count_used(run, pieces);
        if self.region.is_allocated() {
            let is_supplied = pieces == run.len() * PIECES as usize || self.allocate(run);
            if !is_supplied {
                self.give_back(run.clone(), me);
                return Err(Refused::Exhausted);
            }
            return Ok(());
        }
        let (last, needed) = (run.end - 1, pieces_in_last(bytes));
        if self.region.is_of_pool(last / PAGE_SLICES) {
            return Ok(());
        }
        let is_short = |pieces: u32| (pieces - needed) as usize * PIECE * TAIL_PART <= bytes;
        let resident = |index| slice::word(self.tables.slices(), index).resident();
        let first_page = run.start / PAGE_SLICES;
        if first_page != last / PAGE_SLICES && resident(run.start) == 0 {
            self.note_touched(first_page, run, true);
        }
        let had = resident(last);
        let is_whole = had == 0 && self.note_touched(last / PAGE_SLICES, run, is_short(PIECES));
        let had = if is_whole { PIECES } else { had };
        let mut has = had.max(needed);
        let end = last * SLICE + needed as usize * PIECE;
        if !is_whole && !is_short(has) && self.discard(end, (last + 1) * SLICE) {
            has = needed;
        }
        if has != had || is_whole {
            slice::set_resident(self.tables.slices(), last..last + 1, has);
        }
        Ok(())
    }

    /// If no part of a page is resident, the first access to its slices makes the kernel map a
    /// huge page. In this case, records that the whole page is resident, or makes the kernel map
    /// small pages if `may` is false. Returns whether the kernel will map the whole page.
    fn note_touched(&self, page: usize, run: &Range<usize>, may: bool) -> bool {
        let word = PageWord(self.tables.pages()[page].load(Acquire));
        let slices = self.tables.slices();
        let all = page * PAGE_SLICES..(page + 1) * PAGE_SLICES;
        let is_fresh = Backing::from_number(word.backing()) == Backing::Transparent
            && all.clone().all(|index| slice::word(slices, index).resident() == 0);
        if !is_fresh {
            return false;
        }
        let own = run.start.max(all.start)..run.end.min(all.end);
        // SAFETY: only this thread owns these slices, and they contain no data yet.
        if !may && unsafe { self.region.part(own.start * SLICE, own.len() * SLICE) } {
            return false;
        }
        self.note_resident(all.filter(|index| !run.contains(index)), |_| false);
        true
    }

    /// Records that the whole page that `me` is making ready is resident.
    pub(super) fn note_provided(&self, page: usize, me: CacheId) {
        if !self.is_external() {
            let all = page * PAGE_SLICES..(page + 1) * PAGE_SLICES;
            self.note_resident(all, |word| word == Slice::Claimed(me));
        }
    }

    /// Marks slices as resident if they are free or `own` returns true for them, and counts their
    /// pieces as idle.
    fn note_resident(&self, all: impl Iterator<Item = usize>, own: impl Fn(Slice) -> bool) {
        let slices = self.tables.slices();
        let (mut first, mut more) = (None, 0);
        for index in all {
            let word = slice::word(slices, index);
            let has_changed = (word.is_free() || own(word.decode()))
                && word.resident() < PIECES
                && slice::make_resident(&slices[index], word, PIECES);
            if has_changed {
                first = first.or(Some(index));
                let is_counted = !self.region.is_of_pool(index / PAGE_SLICES);
                more += if is_counted { (PIECES - word.resident()) as usize } else { 0 };
                step!("resident.note.between");
            }
        }
        if let Some(index) = first {
            self.count(index, 0, more as i64);
            // Otherwise no search finds the idle memory before a block in the page is freed.
            self.note_idle(index / PAGE_SLICES);
        }
    }

    /// Allocates memory in the file for all slices that may have no memory.
    fn allocate(&self, run: &Range<usize>) -> bool {
        let slices = self.tables.slices();
        let lacks = |index: &usize| {
            slice::word(slices, *index).resident() < PIECES
                && !self.region.is_of_pool(index / PAGE_SLICES)
        };
        let (Some(first), Some(last)) = (run.clone().find(lacks), run.clone().rev().find(lacks))
        else {
            return true;
        };
        let bytes = (last + 1 - first) * SLICE;
        let is_allocated = self.region.allocate(first * SLICE, bytes);
        if is_allocated {
            slice::set_resident(slices, first..last + 1, PIECES);
        }
        is_allocated
    }

    /// Records that a large block has grown within its last slice.
    pub(crate) fn note_grown(&self, last: usize, bytes: usize) {
        let slices = self.tables.slices();
        let (word, needed) = (slice::word(slices, last), pieces_in_last(bytes));
        if word.decode() == Slice::Tail && word.resident() < needed {
            slice::make_resident(&slices[last], word, needed);
        }
    }

    /// Gives idle memory of a node back. The idle memory that may stay is a part of the memory in
    /// use, and at least `kept` bytes. If little memory is in use, it is also at least the size
    /// of the `request` that was just served, in slices. Gives back at most about twice the size
    /// of the request, and nothing if no block was freed. If `kept` is not 0, entirely free pages
    /// keep their memory.
    pub(crate) fn relieve(&self, node: usize, me: CacheId, request: usize, kept: u64) {
        let (used, idle) = self.counted(node);
        let (used, request) = (used * PIECES as usize, request * PIECES as usize);
        let few = if used < FEW * request { request } else { 0 };
        let limit = (used / IDLE_PART).max(few).max(IDLE_MIN).max(kept as usize / PIECE);
        if idle <= limit || self.is_external() || !self.was_freed(node, used, request) {
            return;
        }
        let mut left = (idle - limit).min(2 * request + IDLE_MIN);
        let (pages, bitmap) = (self.used_pages(node), self.tables.idle());
        let (mut end, mut is_empty) = (pages.end, true);
        while left > 0 {
            let Some(page) = bitmap.last(pages.start, end) else { break };
            (end, is_empty) = (page, false);
            if bitmap.clear(page) {
                step!("resident.relieve.after_clear");
                left = left.saturating_sub(self.shed(page, me, kept > 0));
            }
        }
        if is_empty && kept == 0 {
            // The count is wrong, because a process died before it updated the count.
            self.count(pages.start * PAGE_SLICES, 0, -(idle as i64));
        }
    }

    /// Whether blocks were freed for which no request has given memory back yet. Deducts this
    /// request's size. `request` and the memory in use, `used`, are in pieces.
    fn was_freed(&self, node: usize, used: usize, request: usize) -> bool {
        let freed = &self.tables.nodes()[node].freed;
        let [used, request] = [used, request].map(|pieces| pieces as u64 / u64::from(PIECES));
        let left = freed.load(Relaxed).min(used / TURN_PART);
        freed.store(left.saturating_sub(request), Relaxed);
        left > 0
    }

    /// Records for [`Memory::relieve`] that a block's slices were freed.
    pub(crate) fn note_turn(&self, run: &Range<usize>) {
        let freed = &self.tables.nodes()[self.node_of(run.start)].freed;
        freed.store(freed.load(Relaxed).saturating_add(run.len() as u64), Relaxed);
    }

    /// Gives back the memory of a page's free slices, but not of an entirely free page if
    /// `keeps_pages`. Returns the number of pieces that were given back.
    fn shed(&self, page: usize, me: CacheId, keeps_pages: bool) -> usize {
        let (free, idle) = self.masks(page);
        if !self.is_page_ready(page) || self.region.is_of_pool(page) || (keeps_pages && free == !0)
        {
            return 0;
        }
        let (mut at, mut shed) = (0, 0);
        while at < PAGE_SLICES {
            let length = (free >> at).trailing_ones() as usize;
            let some = (idle >> at).trailing_zeros() as usize;
            if some < length {
                let head = page * PAGE_SLICES + at;
                shed += self.shed_run(head + some..head + length, me);
            }
            at += length + 1;
        }
        shed
    }

    fn shed_run(&self, run: Range<usize>, me: CacheId) -> usize {
        let slices = self.tables.slices();
        let Some(_held) = self.hold_hole(&run, me) else {
            // At least one of the slices is in use again.
            self.note_free(run);
            return 0;
        };
        step!("resident.shed.after_claim");
        let page = PageWord(self.tables.pages()[run.start / PAGE_SLICES].load(Acquire));
        let pieces = self.pieces_of(run.clone());
        self.count_used(&run, pieces);
        let is_mine = page.is_ready() && slice::is_claimed(slices, run.clone(), me);
        if is_mine {
            // The count is set before the memory is given back, because the next owner of the
            // slices requests the memory that the count does not include.
            slice::set_resident(slices, run.clone(), 0);
            step!("resident.shed.before_discard");
            if !self.part_untouched(page, &run) {
                self.discard(run.start * SLICE, run.end * SLICE);
            }
            step!("resident.shed.after_discard");
        }
        self.give_back(run, me);
        if is_mine { pieces } else { 0 }
    }

    /// If no part of a page is resident, makes the kernel map small pages for these slices, which
    /// the caller owns. Otherwise the first access would make the kernel map a huge page,
    /// including the memory that is being given back. Returns whether the kernel will map small
    /// pages.
    fn part_untouched(&self, page: PageWord, run: &Range<usize>) -> bool {
        Backing::from_number(page.backing()) == Backing::Transparent
            && self.region.is_untouched(run.start / PAGE_SLICES)
            // SAFETY: only this thread owns these slices, and they contain no data.
            && unsafe { self.region.part(run.start * SLICE, run.len() * SLICE) }
    }

    /// Gives back the memory between two offsets, which the caller owns. Returns false if the
    /// kernel refuses, for example because the memory is locked.
    fn discard(&self, start: usize, end: usize) -> bool {
        // SAFETY: this thread has claimed the slices, and no code needs their content.
        unsafe { self.region.discard(start, end) }
    }

    /// How many pieces count as idle once the slices `run` are free. The caller owns the slices.
    pub(crate) fn pieces_of(&self, run: Range<usize>) -> usize {
        slice::pieces(self.tables.slices(), run.clone()).saturating_sub(self.pool_pieces(&run))
    }

    /// How many pieces never count as idle, because memory of the pool is given back only in
    /// whole pages. The caller owns the slices.
    #[inline]
    pub(crate) fn pool_pieces(&self, run: &Range<usize>) -> usize {
        if self.region.has_pool() { self.pieces_in_pool(run) } else { 0 }
    }

    #[cold]
    fn pieces_in_pool(&self, run: &Range<usize>) -> usize {
        let is_of_pool = |page: &usize| self.region.is_of_pool(*page);
        let pages = run.start / PAGE_SLICES..run.end.div_ceil(PAGE_SLICES);
        // The pool's pages are the first pages of a node.
        let end = pages.start + pages.take_while(is_of_pool).count();
        let end = run.end.min(end * PAGE_SLICES);
        if end <= run.start { 0 } else { slice::pieces(self.tables.slices(), run.start..end) }
    }

    /// Counts slices that were free as used, and `pieces` of their pieces as no longer idle.
    pub(crate) fn count_used(&self, run: &Range<usize>, pieces: usize) {
        self.count(run.start, run.len() as i64, -(pieces as i64));
    }

    /// Counts slices as free, and `pieces` of their pieces as idle.
    pub(crate) fn count_freed(&self, run: &Range<usize>, pieces: usize) {
        self.count(run.start, -(run.len() as i64), pieces as i64);
    }

    fn count(&self, slice: usize, used: i64, idle: i64) {
        if self.is_external() {
            return;
        }
        let change = ((used as u64) << 32).wrapping_add(idle as u64);
        self.tables.nodes()[self.node_of(slice)].account.fetch_add(change, Relaxed);
    }

    /// A node's two counts: the slices in use, and the idle pieces. Threads update the counts a
    /// moment after they claim or free slices, so a stored count can be negative for a moment.
    fn counted(&self, node: usize) -> (usize, usize) {
        let account = self.tables.nodes()[node].account.load(Relaxed);
        let idle = account as u32 as i32;
        let used = account.wrapping_sub(i64::from(idle) as u64) >> 32;
        ((used as u32 as i32).max(0) as usize, idle.max(0) as usize)
    }

    /// Counts a node's slices again, because a process may have died before it updated the
    /// counts.
    pub(crate) fn recount(&self, node: usize) {
        let pages = self.used_pages(node);
        let slices = self.tables.slices();
        let (mut used, mut idle) = (0_i64, 0_i64);
        for index in pages.start * PAGE_SLICES..pages.end * PAGE_SLICES {
            let word = slice::word(slices, index);
            match word.is_free() {
                true => idle += self.pieces_of(index..index + 1) as i64,
                false => used += 1,
            }
        }
        let account = ((used as u64) << 32).wrapping_add(idle as u64);
        self.tables.nodes()[node].account.store(account, Relaxed);
    }
}

/// How many pieces a block of `bytes` bytes needs in its last slice.
const fn pieces_in_last(bytes: usize) -> u32 {
    let pieces = bytes.div_ceil(PIECE) as u32;
    if pieces == 0 { 1 } else { (pieces - 1) % PIECES + 1 }
}
