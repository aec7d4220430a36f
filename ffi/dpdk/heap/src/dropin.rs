//! The heaps under a DPDK program, one per socket, and DPDK's functions implemented with these
//! heaps. A call that no heap serves goes to DPDK.

use core::ffi::{c_char, c_int};
use core::ptr::NonNull;
use std::time::Instant;

use haul_heap::{AllocError, Heap, Misuse, Tag};

use crate::backoff::{Backoff, Backoffs};
use crate::directory::Directory;
use crate::dpdk::{Functions, SOCKET_ANY};
use crate::extent::PAGE;
use crate::extents::{NoGrowth, SocketExtents};
use crate::leaving::Leave;
use crate::memory::SocketRange;
use crate::names::Names;
use crate::notice;
use crate::request::Request;

/// The least alignment, in bytes: DPDK's cache line (`RTE_CACHE_LINE_SIZE` as Debian builds it).
const ALIGN_MIN: usize = if cfg!(target_arch = "aarch64") { 128 } else { 64 };

/// The largest block for which a heap grows, in bytes: its largest class. DPDK serves larger
/// blocks, unless a heap has idle memory for them. For larger blocks, the cost is the memory and
/// not the search. If a heap grew for them, the next request to DPDK would have to clear all of
/// that memory.
pub(crate) const GROWN_BYTES_MAX: usize = 256 << 10;

/// The largest block that a heap serves from idle memory, in bytes: a quarter of the largest
/// extent. While the block lives, the rest of its extent cannot be returned to DPDK.
const HELD_BYTES_MAX: usize = 16 << 20;

/// The lowest socket number that DPDK assigns to a heap of the program's own memory
/// (RTE_MAX_NUMA_NODES). The number is 32 in Debian's build and 4 in the smallest build.
const SOCKETS_EXTERNAL: c_int = 4;

/// The heap of one socket.
pub(crate) struct SocketHeap {
    pub(crate) heap: Heap,
    pub(crate) range: SocketRange,
    pub(crate) extents: &'static SocketExtents,
    pub(crate) names: Names,
    pub(crate) backoffs: Backoffs,
}

/// All heaps, from the time at which DPDK's memory exists.
pub(crate) struct Dropin {
    pub(crate) functions: &'static Functions,
    pub(crate) directory: &'static Directory,
    /// The heaps, at least one.
    pub(crate) heaps: Vec<SocketHeap>,
    /// Whether DPDK distinguishes sockets, which it does only with huge pages.
    pub(crate) has_sockets: bool,
    pub(crate) is_primary: bool,
}

/// A block of one of the heaps.
pub(crate) struct Owned<'a> {
    owner: &'a SocketHeap,
    pointer: NonNull<u8>,
    bytes: usize,
}

/// The result of looking up a program's pointer.
pub(crate) enum Lookup<T> {
    /// The pointer is a block of a heap.
    Ours(T),
    /// The pointer is in a heap's memory but is not a live block. The misuse was reported.
    Misuse,
    /// The pointer belongs to DPDK.
    NotOurs,
}

impl Dropin {
    /// Allocates a block. If this returns `None`, the caller asks DPDK.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[inline]
    pub(crate) unsafe fn allocate(
        &self,
        name: *const c_char,
        Request { bytes, align, socket }: Request,
    ) -> Option<NonNull<u8>> {
        // A size of 0 wraps around. DPDK refuses this size, and an alignment that is not a power
        // of two.
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

    /// Like [`Dropin::allocate`], after DPDK has refused: also asks the heaps that are in
    /// back-off.
    ///
    /// # Safety
    ///
    /// `name` is NULL or a C string.
    #[cold]
    pub(crate) unsafe fn allocate_in_backoff(
        &self,
        name: *const c_char,
        Request { bytes, align, socket }: Request,
    ) -> Option<NonNull<u8>> {
        let align = align.max(ALIGN_MIN);
        let backoffs = || self.heaps.iter().map(|each| each.backoffs.of(bytes, align));
        if bytes.wrapping_sub(1) >= GROWN_BYTES_MAX
            || align > PAGE
            || backoffs().all(Backoff::is_over)
        {
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

    /// Announces that this process leaves while others stay, until the returned guards are dropped.
    pub(crate) fn leave(&self) -> Vec<Leave<'_>> {
        self.heaps.iter().filter_map(|each| each.extents.leave()).collect()
    }

    /// The heap of a socket; for any socket, the heap of the caller's socket.
    #[inline]
    fn heap_of(&self, socket: c_int) -> Option<&SocketHeap> {
        let first = self.heaps.first()?;
        if socket == SOCKET_ANY {
            return Some(if self.heaps.len() == 1 { first } else { self.nearest(first) });
        }
        self.heaps.iter().find(|each| each.range.socket == socket)
    }

    /// Whether a heap's memory could serve a request for a socket.
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

    /// Frees a block of a heap.
    ///
    /// # Safety
    ///
    /// No thread uses the block any more.
    #[inline]
    pub(crate) unsafe fn free(&self, pointer: NonNull<u8>) -> Lookup<()> {
        // SAFETY: as the caller promises.
        self.look_up("rte_free", pointer, |owner| unsafe { owner.heap.free(pointer) })
    }

    /// The block that begins at `pointer`. A misuse is reported with the name of the function
    /// `caller`.
    pub(crate) fn find(&self, caller: &str, pointer: NonNull<u8>) -> Lookup<Owned<'_>> {
        self.look_up(caller, pointer, |owner| {
            // SAFETY: the call reads the block only in debug mode, and the heap is not in this
            // mode.
            let bytes = unsafe { owner.heap.usable_size(pointer) };
            bytes.map(|bytes| Owned { owner, pointer, bytes })
        })
    }

    /// Asks the heaps whose range contains the pointer.
    #[inline]
    fn look_up<'a, T>(
        &'a self,
        caller: &str,
        pointer: NonNull<u8>,
        ask: impl Fn(&'a SocketHeap) -> Result<T, Misuse>,
    ) -> Lookup<T> {
        let address = pointer.addr().get();
        for owner in &self.heaps {
            if !owner.range.contains(address) {
                continue;
            }
            match ask(owner) {
                Ok(answer) => return Lookup::Ours(answer),
                Err(misuse) if self.is_misuse(owner, address) => {
                    notice::report_misuse(caller, &misuse);
                    return Lookup::Misuse;
                }
                Err(_) => {}
            }
        }
        Lookup::NotOurs
    }

    /// Whether a pointer that is not a live block lies in a heap's memory, and not in DPDK's
    /// memory next to it.
    #[cold]
    fn is_misuse(&self, owner: &SocketHeap, address: usize) -> bool {
        self.directory.covers(owner.range.socket, address)
    }

    /// Whether an address lies in an extent of one of the heaps.
    pub(crate) fn covers(&self, address: usize) -> bool {
        self.heaps.iter().any(|each| {
            each.range.contains(address) && self.directory.covers(each.range.socket, address)
        })
    }

    /// Makes the primary process the heir of this process's blocks, because for DPDK a block
    /// belongs to the application, no matter which process allocated it.
    pub(crate) fn name_heir(&self) {
        for each in &self.heaps {
            each.heap.set_heir(Some(self.directory.primary()));
        }
    }

    /// Returns all memory to DPDK when DPDK ends, live blocks included. The program must not use
    /// the blocks after that, and DPDK removes only the files of free huge pages. Does nothing if
    /// a secondary process may use the memory. No thread may call a heap afterwards.
    pub(crate) fn return_all(&self) {
        // A child of fork shares DPDK's memory with its parent, whose heaps are in it.
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

    /// Whether a pointer lies in the address range of a heap.
    pub(crate) fn is_in_range(&self, pointer: NonNull<u8>) -> bool {
        self.heaps.iter().any(|each| each.range.contains(pointer.addr().get()))
    }

    /// Marks the unused pages of the heaps as idle, so that [`Self::give_back`] finds them.
    #[cold]
    pub(crate) fn trim(&self) {
        self.heaps.iter().for_each(|each| _ = each.heap.trim());
    }

    /// Gives idle extents of at least `wanted` bytes back to DPDK, which needs the memory itself.
    /// Returns the number of bytes in these extents. The heaps give back no more extents than
    /// needed, because DPDK clears each one.
    #[cold]
    pub(crate) fn give_back(&self, wanted: usize) -> usize {
        let give_one = || self.heaps.first().and_then(|heap| heap.extents.give_back_one());
        let given = self.directory.mailbox.give_back(self.is_primary, wanted, give_one);
        if given > 0 {
            // DPDK has memory again with which the heaps can grow.
            self.heaps.iter().for_each(SocketHeap::end_backoff);
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
        if !self.backoffs.of(bytes, align).is_over() {
            return None;
        }
        // SAFETY: as the caller promises.
        let tag = unsafe { self.names.tag(&self.heap, name) };
        let block = self.heap.alloc(haul_heap::Request::new(bytes).aligned(align).tagged(tag));
        if block.is_err() {
            return self.allocate_again(bytes, align, tag);
        }
        block.ok()
    }

    /// Asks an exhausted heap once more and measures the time. If the heap refuses again, its
    /// back-off begins; otherwise the back-off ends.
    #[cold]
    fn allocate_again(&self, bytes: usize, align: usize, tag: Tag) -> Option<NonNull<u8>> {
        let start = Instant::now();
        let block = self.heap.alloc(haul_heap::Request::new(bytes).aligned(align).tagged(tag));
        let backoff = self.backoffs.of(bytes, align);
        match block {
            Err(AllocError::Exhausted) => backoff.begin(start.elapsed()),
            _ => backoff.end(),
        }
        block.ok()
    }

    /// Ends the back-offs of the heap and of DPDK, after memory became free.
    fn end_backoff(&self) {
        self.backoffs.end();
        self.extents.end_backoff();
    }

    /// Allocates a large block from idle memory of the heap, or from idle pages that could be
    /// returned to DPDK. DPDK would have to clear these pages first.
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
        let held = |tag| {
            self.heap.alloc_held(haul_heap::Request::new(bytes).aligned(align).tagged(tag)).ok()
        };
        // SAFETY: as the caller promises.
        let block = unsafe { tagged(&self.heap, &self.names, name, held) };
        if block.is_some() || !self.extents.has_idle(bytes, align) {
            return block;
        }
        let _no_growth = NoGrowth::begin();
        let idle =
            |tag| self.heap.alloc(haul_heap::Request::new(bytes).aligned(align).tagged(tag)).ok();
        // SAFETY: as the caller promises.
        unsafe { tagged(&self.heap, &self.names, name, idle) }
    }
}

/// Allocates a block with the tag of its type's name. `heap` may refuse the block.
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
            // Tags are few and permanent, so no tag is used up for a block that DPDK serves in
            // the end.
            let probe = allocate(Tag::NONE)?;
            // SAFETY: allocated just now, and no other thread has it.
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
    /// The size of the block in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Whether the block is on the socket that a request for `socket` names.
    pub(crate) fn is_on(&self, dropin: &Dropin, socket: c_int) -> bool {
        let own = self.owner.range.socket;
        socket == SOCKET_ANY || socket == own || (!dropin.has_sockets && socket < SOCKETS_EXTERNAL)
    }

    /// Resizes the block within the heap, and moves it if necessary. On failure returns `None` and
    /// changes nothing.
    ///
    /// # Safety
    ///
    /// If a new pointer is returned, no thread uses the old pointer afterwards.
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
    fn refused_block_takes_no_tag() {
        let heap = Heap::builder().limit(64 << 20).build().expect("a small heap is built");
        let names = Names::new();
        let held = |name: &core::ffi::CStr| {
            let held = |tag| heap.alloc_held(haul_heap::Request::new(1 << 20).tagged(tag)).ok();
            // SAFETY: a `CStr` is a C string.
            unsafe { tagged(&heap, &names, name.as_ptr(), held) }
        };
        for name in [c"a", c"b", c"c"] {
            assert_eq!(held(name), None, "the heap has no idle memory");
        }
        assert_eq!(heap.tag("first").number(), 1, "refused requests have tags");
        let idle = heap.alloc(haul_heap::Request::new(2 << 20)).expect("the heap is empty");
        // SAFETY: allocated just now, and no other thread has it.
        unsafe { heap.free(idle) }.expect("it lives");
        assert!(held(c"second").is_some());
        assert_eq!(heap.tag("second").number(), 2);
        assert!(held(c"second").is_some() && held(c"third").is_none());
        assert_eq!(heap.stats(Node::ANY).live.blocks, 2);
        assert_eq!(heap.tag("fourth").number(), 3);
    }
}
