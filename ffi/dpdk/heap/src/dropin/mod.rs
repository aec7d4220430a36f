//! The heaps under a DPDK program, one per socket, and DPDK's functions implemented with these
//! heaps. A call that no heap serves goes to DPDK.
//!
//! From the bottom up:
//!
//! - `socket_heap`: the heap of one socket;
//! - `owned`: a block of one of the heaps.

mod owned;
mod socket_heap;

use core::ffi::{c_char, c_int};
use core::ptr::NonNull;

use haul_heap::Misuse;

use crate::backoff::Backoff;
use crate::directory::Directory;
use crate::dpdk::{Functions, SOCKET_ANY};
use crate::extent::PAGE;
use crate::leaving::Leave;
use crate::notice;
use crate::request::Request;

pub(crate) use owned::Owned;
pub(crate) use socket_heap::SocketHeap;

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
        self.is_any(socket) || self.heaps.iter().any(|each| each.range.socket == socket)
    }

    /// Whether every heap can serve a request for a socket.
    fn is_any(&self, socket: c_int) -> bool {
        socket == SOCKET_ANY || (!self.has_sockets && socket < SOCKETS_EXTERNAL)
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
