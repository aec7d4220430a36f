//! The heaps under a DPDK program, one a socket, and what DPDK's functions mean for them. Whatever
//! a function here answers with "not ours" goes on to DPDK.

use core::ffi::{c_char, c_int};
use core::ptr::NonNull;
use std::time::Instant;

use haul_heap::{AllocError, Heap, Misuse, Request, Tag};

use crate::directory::Directory;
use crate::dpdk::{Functions, SOCKET_ANY};
use crate::extent::PAGE;
use crate::extents::{SocketExtents, Sparing};
use crate::leaving::Leave;
use crate::memory::SocketRange;
use crate::names::Names;
use crate::notice;
use crate::rest::{Rest, Rests};
use crate::wish::Wish;

/// The least alignment, in bytes: DPDK's cache line (`RTE_CACHE_LINE_SIZE` as Debian builds it).
const ALIGN_MIN: usize = if cfg!(target_arch = "aarch64") { 128 } else { 64 };

/// The largest block that a heap grows for, in bytes: its largest class. Larger ones are DPDK's,
/// unless memory lies idle here: what they cost is their memory, not the search, and a heap that
/// had grown for them would make the next request of DPDK pay for the clearing of all of it.
pub(crate) const GROWN_BYTES_MAX: usize = 256 << 10;

/// The largest block that is put into idle memory, in bytes: a quarter of the largest extent. While
/// it lives, the rest of its extent cannot go back to DPDK.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The least number that DPDK gives to a heap of the program's own memory (RTE_MAX_NUMA_NODES): 32
/// as Debian builds it, 4 in the smallest build.
const SOCKETS_EXTERNAL: c_int = 4;

/// One socket's heap.
pub(crate) struct SocketHeap {
    pub(crate) heap: Heap,
    pub(crate) range: SocketRange,
    pub(crate) extents: &'static SocketExtents,
    pub(crate) names: Names,
    pub(crate) rests: Rests,
}

/// All of it, from the time DPDK's memory is there.
pub(crate) struct Dropin {
    pub(crate) functions: &'static Functions,
    pub(crate) directory: &'static Directory,
    /// At least one.
    pub(crate) heaps: Vec<SocketHeap>,
    /// Whether DPDK tells sockets apart: not without huge pages.
    pub(crate) has_sockets: bool,
    pub(crate) is_primary: bool,
}

/// A block of a heap of ours.
pub(crate) struct Owned<'a> {
    owner: &'a SocketHeap,
    pointer: NonNull<u8>,
    bytes: usize,
}

/// What became of a pointer that a program brought.
pub(crate) enum Brought<T> {
    /// It is a block of ours.
    Ours(T),
    /// It lies in our memory and is no live block; that was told.
    Wrong,
    /// It is DPDK's.
    NotOurs,
}

impl Dropin {
    /// A block, or `None`: then DPDK is asked.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[inline]
    pub(crate) unsafe fn allocate(
        &self,
        name: *const c_char,
        Wish { bytes, align, socket }: Wish,
    ) -> Option<NonNull<u8>> {
        // A size of 0 wraps around; DPDK says no to it, and to alignments that are no power of two.
        if bytes.wrapping_sub(1) >= HELD_BYTES_MAX
            || align > PAGE
            || align & align.wrapping_sub(1) != 0
        {
            return None;
        }
        let align = align.max(ALIGN_MIN);
        let first = self.heap_of(socket)?;
        if bytes > GROWN_BYTES_MAX {
            // SAFETY: as the caller promises.
            return unsafe { first.allocate_held(name, bytes, align) };
        }
        // SAFETY: as the caller promises.
        let block = unsafe { first.allocate(name, bytes, align) };
        if block.is_some() || socket != SOCKET_ANY || self.heaps.len() == 1 {
            return block;
        }
        // SAFETY: as the caller promises.
        self.others(first).find_map(|each| unsafe { each.allocate(name, bytes, align) })
    }

    /// As [`Dropin::allocate`], for when DPDK has nothing either: heaps that rest are asked after
    /// all.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[cold]
    pub(crate) unsafe fn allocate_after_all(
        &self,
        name: *const c_char,
        Wish { bytes, align, socket }: Wish,
    ) -> Option<NonNull<u8>> {
        let align = align.max(ALIGN_MIN);
        let rests = || self.heaps.iter().map(|each| each.rests.of(bytes, align));
        if bytes.wrapping_sub(1) >= GROWN_BYTES_MAX || align > PAGE || rests().all(Rest::is_over) {
            return None;
        }
        let first = self.heap_of(socket)?;
        let others = (socket == SOCKET_ANY).then(|| self.others(first));
        // SAFETY: as the caller promises.
        core::iter::once(first).chain(others.into_iter().flatten()).find_map(|each| unsafe {
            let tag = each.names.tag(&each.heap, name);
            each.allocate_again(bytes, align, tag)
        })
    }

    fn others<'a>(&'a self, first: &'a SocketHeap) -> impl Iterator<Item = &'a SocketHeap> {
        self.heaps.iter().filter(|each| !core::ptr::eq(*each, first))
    }

    /// Says that this process leaves, if others stay, until what it returns is dropped.
    pub(crate) fn leave(&self) -> Vec<Leave<'_>> {
        self.heaps.iter().filter_map(|each| each.extents.leave()).collect()
    }

    /// The heap that serves a socket's number; the caller's own for any.
    #[inline]
    fn heap_of(&self, socket: c_int) -> Option<&SocketHeap> {
        let first = self.heaps.first()?;
        if socket == SOCKET_ANY {
            return Some(if self.heaps.len() == 1 { first } else { self.nearest(first) });
        }
        self.heaps.iter().find(|each| each.range.socket == socket)
    }

    /// Whether a request for a socket could be met from a heap's memory.
    pub(crate) fn has_heap_of(&self, socket: c_int) -> bool {
        let is_any = socket == SOCKET_ANY || (!self.has_sockets && socket < SOCKETS_EXTERNAL);
        is_any || self.heaps.iter().any(|each| each.range.socket == socket)
    }

    #[cold]
    fn nearest<'a>(&'a self, first: &'a SocketHeap) -> &'a SocketHeap {
        // SAFETY: the function reads a variable of the calling thread.
        let own = unsafe { (self.functions.rte_socket_id)() } as c_int;
        self.heaps.iter().find(|each| each.range.socket == own).unwrap_or(first)
    }

    /// Frees a block of ours.
    ///
    /// # Safety
    ///
    /// Nobody uses the block any more.
    #[inline]
    pub(crate) unsafe fn free(&self, pointer: NonNull<u8>) -> Brought<()> {
        // SAFETY: as the caller promises.
        self.bring("rte_free", pointer, |owner| unsafe { owner.heap.free(pointer) })
    }

    /// The block that begins at `pointer`, for `what` a function wants of it.
    pub(crate) fn find(&self, what: &str, pointer: NonNull<u8>) -> Brought<Owned<'_>> {
        self.bring(what, pointer, |owner| {
            // SAFETY: the heap is not in debug mode, in which alone anything of the block is read.
            let bytes = unsafe { owner.heap.usable_size(pointer) };
            bytes.map(|bytes| Owned { owner, pointer, bytes })
        })
    }

    /// Asks the heaps in whose range the pointer lies.
    #[inline]
    fn bring<'a, T>(
        &'a self,
        what: &str,
        pointer: NonNull<u8>,
        ask: impl Fn(&'a SocketHeap) -> Result<T, Misuse>,
    ) -> Brought<T> {
        let address = pointer.addr().get();
        for owner in &self.heaps {
            if !owner.range.contains(address) {
                continue;
            }
            match ask(owner) {
                Ok(answer) => return Brought::Ours(answer),
                Err(misuse) if self.is_misuse(owner, address) => {
                    notice::misuse(what, &misuse);
                    return Brought::Wrong;
                }
                Err(_) => {}
            }
        }
        Brought::NotOurs
    }

    /// Whether a pointer that is no live block lies in a heap's memory all the same, rather than in
    /// DPDK's beside it.
    #[cold]
    fn is_misuse(&self, owner: &SocketHeap, address: usize) -> bool {
        self.directory.covers(owner.range.socket, address)
    }

    /// Whether an address is in memory that a heap of ours was given.
    pub(crate) fn covers(&self, address: usize) -> bool {
        self.heaps.iter().any(|each| {
            each.range.contains(address) && self.directory.covers(each.range.socket, address)
        })
    }

    /// Names the primary process as who gets this one's blocks when it dies: to DPDK a block is the
    /// application's, whichever process allocated it.
    pub(crate) fn name_heir(&self) {
        for each in &self.heaps {
            each.heap.set_heir(Some(self.directory.primary()));
        }
    }

    /// Gives everything back to DPDK, at its end, whatever is live: the program may not touch it
    /// any more, and DPDK removes the files of those huge pages alone that are free. Not where a
    /// secondary process may use it. Nobody may call a heap from then on.
    pub(crate) fn give_all_back(&self) {
        // A child of fork has its parent's memory of DPDK's, in which the parent's heaps live.
        let is_own = self.directory.primary() == std::process::id();
        if !self.is_primary || !is_own || self.directory.had_secondary() {
            return;
        }
        let extents: Vec<_> = self.directory.extents().collect();
        for extent in extents {
            self.heaps[0].extents.free(extent.block);
        }
        Directory::free(self.functions);
    }

    /// Whether a pointer lies where the heaps may have memory.
    pub(crate) fn is_in_range(&self, pointer: NonNull<u8>) -> bool {
        self.heaps.iter().any(|each| each.range.contains(pointer.addr().get()))
    }

    /// Lays aside what the heaps do not use, so that [`Self::give_back`] finds it.
    #[cold]
    pub(crate) fn trim(&self) {
        self.heaps.iter().for_each(|each| _ = each.heap.trim());
    }

    /// Has extents that are idle go back to DPDK, which needs them for itself, until they come to
    /// `wanted` bytes: how many bytes went. DPDK clears each, so no more of them than needed.
    #[cold]
    pub(crate) fn give_back(&self, wanted: usize) -> usize {
        let give_one = || self.heaps.first().and_then(|heap| heap.extents.give_back_one());
        let given = self.directory.counter.give_back(self.is_primary, wanted, give_one);
        if given > 0 {
            // DPDK has some again to grow by.
            self.heaps.iter().for_each(SocketHeap::end_rest);
        }
        given
    }
}

impl SocketHeap {
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[inline]
    unsafe fn allocate(
        &self,
        name: *const c_char,
        bytes: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        if !self.rests.of(bytes, align).is_over() {
            return None;
        }
        // SAFETY: as the caller promises.
        let tag = unsafe { self.names.tag(&self.heap, name) };
        let block = self.heap.alloc(Request::new(bytes).aligned(align).tagged(tag));
        if block.is_err() {
            return self.allocate_again(bytes, align, tag);
        }
        block.ok()
    }

    /// Asks a heap once more that had nothing, by the clock: it rests if it has nothing now, and no
    /// longer if it has.
    #[cold]
    fn allocate_again(&self, bytes: usize, align: usize, tag: Tag) -> Option<NonNull<u8>> {
        let start = Instant::now();
        let block = self.heap.alloc(Request::new(bytes).aligned(align).tagged(tag));
        let rest = self.rests.of(bytes, align);
        match block {
            Err(AllocError::Exhausted) => rest.begin(start.elapsed()),
            _ => rest.end(),
        }
        block.ok()
    }

    /// Has the heap and DPDK asked again, where memory came free.
    fn end_rest(&self) {
        self.rests.end();
        self.extents.end_respite();
    }

    /// A large block, of memory that lies idle here: with the heap, or laid aside for DPDK, which
    /// would have to clear it first.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[cold]
    unsafe fn allocate_held(
        &self,
        name: *const c_char,
        bytes: usize,
        align: usize,
    ) -> Option<NonNull<u8>> {
        let held = |tag| self.heap.alloc_held(Request::new(bytes).aligned(align).tagged(tag)).ok();
        // SAFETY: as the caller promises.
        let block = unsafe { tagged(&self.heap, &self.names, name, held) };
        if block.is_some() || !self.extents.has_idle(bytes, align) {
            return block;
        }
        let _sparing = Sparing::begin();
        let laid_aside = |tag| self.heap.alloc(Request::new(bytes).aligned(align).tagged(tag)).ok();
        // SAFETY: as the caller promises.
        unsafe { tagged(&self.heap, &self.names, name, laid_aside) }
    }
}

/// A block that `heap` may not have, tagged by its type's name.
///
/// # Safety
///
/// `name` is NULL or a C string.
unsafe fn tagged(
    heap: &Heap,
    names: &Names,
    name: *const c_char,
    allocate: impl Fn(Tag) -> Option<NonNull<u8>>,
) -> Option<NonNull<u8>> {
    // SAFETY: as the caller promises.
    let tag = match unsafe { names.known(name) } {
        Some(tag) => tag,
        None => {
            // A tag stays for good, and there are few: none for what goes on to DPDK after all.
            let probe = allocate(Tag::NONE)?;
            // SAFETY: allocated just now, and nobody has it.
            unsafe { heap.free(probe) }.ok()?;
            // SAFETY: as the caller promises.
            unsafe { names.tag(heap, name) }
        }
    };
    allocate(tag)
}

impl SocketRange {
    fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.bytes
    }
}

impl Owned<'_> {
    /// What the block holds, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Whether the block is where a request for `socket` would be.
    pub(crate) fn is_on(&self, dropin: &Dropin, socket: c_int) -> bool {
        let own = self.owner.range.socket;
        socket == SOCKET_ANY || socket == own || (!dropin.has_sockets && socket < SOCKETS_EXTERNAL)
    }

    /// Resizes within the heap, moving if it must; `None` when it cannot, and nothing changed then.
    ///
    /// # Safety
    ///
    /// Nobody uses the block by its old pointer any more, if there is a new one.
    pub(crate) unsafe fn resize(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        if align > PAGE {
            return None;
        }
        let (heap, align) = (&self.owner.heap, align.max(ALIGN_MIN));
        if bytes > GROWN_BYTES_MAX {
            // SAFETY: as the caller promises; the block is live.
            let stays = unsafe { heap.resize(self.pointer, bytes, align) };
            return stays.is_ok_and(|stays| stays).then_some(self.pointer);
        }
        // SAFETY: as the caller promises; the block is live.
        unsafe { heap.realloc(self.pointer, bytes, align) }.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_heap::Node;

    #[test]
    fn only_a_block_that_is_held_takes_a_tag() {
        let heap = Heap::builder().limit(64 << 20).build().expect("a small heap is built");
        let names = Names::new();
        let held = |name: &core::ffi::CStr| {
            let held = |tag| heap.alloc_held(Request::new(1 << 20).tagged(tag)).ok();
            // SAFETY: a `CStr` is a C string.
            unsafe { tagged(&heap, &names, name.as_ptr(), held) }
        };
        for name in [c"a", c"b", c"c"] {
            assert_eq!(held(name), None, "nothing lies idle");
        }
        assert_eq!(heap.tag("first").number(), 1, "refused requests have tags");
        let idle = heap.alloc(Request::new(2 << 20)).expect("the heap is empty");
        // SAFETY: allocated just now, and nobody has it.
        unsafe { heap.free(idle) }.expect("it lives");
        assert!(held(c"second").is_some());
        assert_eq!(heap.tag("second").number(), 2);
        assert!(held(c"second").is_some() && held(c"third").is_none());
        assert_eq!(heap.stats(Node::ANY).live.blocks, 2);
        assert_eq!(heap.tag("fourth").number(), 3);
    }
}
