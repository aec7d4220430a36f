//! Memory of the receiver's that a trusted sender copies straight into: shared, mapped at both
//! ends, and warm, as it is used again and again.
//!
//! A pool belongs to the receiver and is made as the first message asks for one. What was leased
//! goes back as its [`Buffer`](super::Buffer) is dropped; a message for which no pool has room gets
//! a new one. The peer maps each pool once.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, MremapFlags, ProtFlags};

use super::error::Error;
use super::pages::keep_mapped;
use super::region::{self, SIZE_SEALS};

/// Leases begin and end at pages, so that they can be cut off one by one.
const PAGE_BYTES: usize = 4096;
/// Pools are multiples of this, a huge page: small messages share one.
const POOL_BYTES_MIN: usize = 2 << 20;
/// A receiver that keeps several messages at once gets pools for more and more of them, up to this:
/// making one costs more than a copy into it.
const GROWN_BYTES_MAX: usize = 64 << 20;
/// Pools that are kept to be used again; the peer maps no more at once.
pub(super) const POOLS_MAX: usize = 4;

/// One piece of shared memory, mapped here as long as anything in it is leased.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) number: u64,
    base: NonNull<u8>,
    size_bytes: usize,
    file: OwnedFd,
    /// The peer has it.
    is_handed_over: AtomicBool,
    /// Offset and length of what is not leased, in order, never adjacent.
    free: Mutex<Vec<(usize, usize)>>,
}

// SAFETY: the mapping belongs to this value; its parts are handed out once each, by `lease`.
unsafe impl Send for Pool {}
// SAFETY: as above, under a lock.
unsafe impl Sync for Pool {}

impl Pool {
    fn create(number: u64, size_bytes: usize) -> Result<Self, Error> {
        let file = region::create_file(size_bytes)?;
        rustix::fs::fcntl_add_seals(&file, SIZE_SEALS).map_err(Error::system("seal memory"))?;
        region::reserve(file.as_fd(), 0, size_bytes)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        let base = region::map_file(file.as_fd(), size_bytes, protection, flags)?;
        let free = Mutex::new(vec![(0, size_bytes)]);
        Ok(Self { number, base, size_bytes, file, is_handed_over: AtomicBool::new(false), free })
    }

    pub(super) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Relaxed)
    }

    pub(super) fn set_handed_over(&self) {
        self.is_handed_over.store(true, Relaxed);
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where a target stands in it, if it does.
    pub(super) fn offset_of(&self, target: &[u8]) -> Option<usize> {
        let offset = target.as_ptr().addr().checked_sub(self.base.as_ptr().addr())?;
        (offset < self.size_bytes && target.len() <= self.size_bytes - offset).then_some(offset)
    }

    fn lease(self: &Arc<Self>, length: usize) -> Option<Lease> {
        let length = length.next_multiple_of(PAGE_BYTES);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.iter().position(|&(_, room)| room >= length)?;
        let (offset, room) = free[index];
        if room == length {
            free.remove(index);
        } else {
            free[index] = (offset + length, room - length);
        }
        Some(Lease { pool: Arc::clone(self), offset, length })
    }

    fn give_back(&self, offset: usize, length: usize) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.partition_point(|&(start, _)| start < offset);
        free.insert(index, (offset, length));
        if let Some(&(next, room)) = free.get(index + 1)
            && offset + length == next
        {
            free[index].1 += room;
            free.remove(index + 1);
        }
        if let Some(before) = index.checked_sub(1)
            && free[before].0 + free[before].1 == offset
        {
            free[before].1 += free[index].1;
            free.remove(index);
        }
    }

    /// Puts private copies of the pages of a target in their place, so that nothing that the peer
    /// still writes to the pool gets there.
    pub(super) fn cut_off(&self, target: &[u8]) -> Result<(), Error> {
        let Some(offset) = self.offset_of(target) else { return Ok(()) };
        let start = offset / PAGE_BYTES * PAGE_BYTES;
        let length = (offset + target.len()).next_multiple_of(PAGE_BYTES) - start;
        // SAFETY: inside the mapping, as the target is.
        let pages = unsafe { self.base.add(start) };
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let copy =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), length, protection, flags) };
        let copy = copy.map_err(Error::system("have memory in the place of the pool's"))?;
        // SAFETY: `length` bytes at both; the new mapping is nobody else's yet.
        unsafe { haul_copy::raw::memcpy(copy.cast(), pages.as_ptr(), length) };
        let move_there = MremapFlags::MAYMOVE;
        let target = pages.as_ptr().cast();
        let failed = |error| {
            keep_mapped(pages, length);
            Error::system("put memory in the place of the pool's")(error)
        };
        // SAFETY: the whole new mapping takes the place of pages of this pool's mapping, which
        // belong to a lease whose owner lends them for this call; their bytes are the same.
        let moved = unsafe { rustix::mm::mremap_fixed(copy, length, length, move_there, target) };
        moved.map(drop).map_err(failed)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        region::unmap(self.base, self.size_bytes);
    }
}

/// A part of a pool that belongs to one message.
#[derive(Debug)]
pub(super) struct Lease {
    pool: Arc<Pool>,
    offset: usize,
    length: usize,
}

impl Lease {
    pub(super) fn base(&self) -> NonNull<u8> {
        // SAFETY: leases are inside the mapping.
        unsafe { self.pool.base.add(self.offset) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.give_back(self.offset, self.length);
    }
}

/// The pools of one receiver.
#[derive(Debug, Default)]
pub(super) struct Pools {
    live: VecDeque<Arc<Pool>>,
    made: u64,
}

impl Pools {
    /// Memory for a message, of a pool that has room, else of a new one.
    ///
    /// # Errors
    /// [`Error::System`] where there is no memory for a new pool.
    pub(super) fn lease(&mut self, length: usize) -> Result<Lease, Error> {
        if let Some(lease) = self.live.iter().find_map(|pool| pool.lease(length)) {
            return Ok(lease);
        }
        let doubled = self.live.back().map_or(0, |pool| 2 * pool.size_bytes);
        let wanted = length.max(doubled.min(GROWN_BYTES_MAX));
        let size_bytes = wanted.checked_next_multiple_of(POOL_BYTES_MIN).unwrap_or(usize::MAX);
        self.made += 1;
        let pool = Arc::new(Pool::create(self.made, size_bytes)?);
        let lease = pool.lease(length);
        self.live.push_back(pool);
        if self.live.len() > POOLS_MAX {
            // What is leased of it lives on.
            self.live.pop_front();
        }
        Ok(lease.expect("a new pool has room for what it was made for"))
    }

    /// The pool that a target stands in.
    pub(super) fn of(&self, target: &[u8]) -> Option<(&Arc<Pool>, usize)> {
        self.live.iter().find_map(|pool| Some((pool, pool.offset_of(target)?)))
    }

    /// No pool is used again.
    pub(super) fn retire(&mut self) {
        self.live.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_back_can_be_leased_again_in_one_piece() {
        let mut pools = Pools::default();
        let size = POOL_BYTES_MIN;
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            let mut leases: Vec<Option<Lease>> =
                (0..3).map(|_| Some(pools.lease(size / 4).unwrap())).collect();
            let places: Vec<usize> = leases.iter().flatten().map(|lease| lease.offset).collect();
            assert_eq!(places, [0, size / 4, size / 2]);
            for index in order {
                leases[index] = None;
            }
            drop(pools.lease(size).unwrap());
            assert_eq!(pools.live.len(), 1, "{order:?}");
        }
        let (one, other) = (pools.lease(size).unwrap(), pools.lease(1).unwrap());
        assert_eq!((one.pool.number, other.pool.number), (1, 2));
        assert_eq!((one.pool.size_bytes, other.pool.size_bytes), (size, 2 * size));
    }

    #[test]
    fn pages_that_were_cut_off_keep_their_bytes_and_see_nothing_new() {
        let mut pools = Pools::default();
        let lease = pools.lease(3 * PAGE_BYTES).unwrap();
        let pool = Arc::clone(&lease.pool);
        rustix::io::pwrite(pool.file(), &[7; 3 * PAGE_BYTES], 0).unwrap();
        // SAFETY: three leased pages.
        let bytes = unsafe { std::slice::from_raw_parts(lease.base().as_ptr(), 3 * PAGE_BYTES) };
        pool.cut_off(&bytes[PAGE_BYTES..PAGE_BYTES + 1]).unwrap();
        rustix::io::pwrite(pool.file(), &[8; 3 * PAGE_BYTES], 0).unwrap();
        let seen = [0, PAGE_BYTES, 2 * PAGE_BYTES - 1, 2 * PAGE_BYTES].map(|at| bytes[at]);
        assert_eq!(seen, [8, 7, 7, 8]);
    }
}
