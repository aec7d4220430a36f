//! Memory of the receiver that a trusted sender copies into directly: shared, mapped at both ends,
//! and warm, because it is reused.
//!
//! A pool belongs to the receiver and is made when the first message needs one. Leased memory
//! returns to the pool when its [`Buffer`](crate::Buffer) is dropped. A message for which no pool
//! has room gets a new pool. A new pool has no pages: the sender allocates them as it copies, so
//! a false length costs no memory. The peer maps each pool once, and unmaps it when it learns
//! that the pool was dropped.

use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_heap::guard::Guard;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags};

use super::registry::keep_mapped;
use crate::shared::error::Error;
use haul_peer::fork::Here;
use haul_peer::memory::{self, Sealed};

/// Leases begin and end at pages, so that each lease can be cut off alone.
const PAGE_BYTES: usize = 4096;
/// The size of a pool is a multiple of this size, a huge page, so that small messages share a
/// pool.
const POOL_BYTES_MIN: usize = 2 << 20;
/// For a receiver that keeps several messages at once, each new pool is twice as large, up to this
/// size, because making a pool costs more than a copy into it. A larger pool was made for one
/// message of its size.
const GROWN_BYTES_MAX: usize = 64 << 20;
/// Number of pools that the receiver keeps for reuse. The peer maps no more pools than this at
/// once.
pub(crate) const POOLS_MAX: usize = 4;
/// A large pool without a lease is kept for this many messages. That many messages can be in
/// transit, so a pool that is used now and then, among small messages, stays warm.
const IDLE_MESSAGES_MAX: u64 = crate::shared::layout::SLOTS;

/// A piece of shared memory, mapped here as long as a part of it is leased.
#[derive(Debug)]
pub(crate) struct Pool {
    /// A unique number. The number modulo [`POOLS_MAX`] is the pool's slot.
    pub(crate) number: u64,
    base: NonNull<u8>,
    size_bytes: usize,
    file: OwnedFd,
    /// `None` while the pool is being dropped, because the guard must end before the mapping.
    guard: Option<Guard>,
    /// Whether the peer has the pool.
    is_handed_over: AtomicBool,
    space: Mutex<Space>,
    /// The process that leases parts of the pool. A child of fork only maps the parts that were
    /// leased before.
    here: Here,
}

/// The free and the leased parts of a pool.
#[derive(Debug)]
struct Space {
    /// Offset and length of the free parts, in ascending order, never adjacent.
    free: Vec<(usize, usize)>,
    /// Offset and length of the leased parts. The leased parts occupy whole pages.
    leased: Vec<(usize, usize)>,
    /// The number of the last message with a lease of this pool.
    used: u64,
}

// SAFETY: the mapping belongs to this value; `lease` hands out each part once.
unsafe impl Send for Pool {}
// SAFETY: as above, under a lock.
unsafe impl Sync for Pool {}

impl Pool {
    fn create(number: u64, size_bytes: usize) -> Result<Self, Error> {
        let file = memory::create_file(size_bytes)?;
        memory::seal(&file, Sealed::Size)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let base = memory::map_file(file.as_fd(), size_bytes, protection, MapFlags::SHARED)?;
        let space = Space { free: vec![(0, size_bytes)], leased: Vec::new(), used: 0 };
        let (is_handed_over, space) = (AtomicBool::new(false), Mutex::new(space));
        let (guard, here) = (None, Here::now());
        let mut pool = Self { number, base, size_bytes, file, guard, is_handed_over, space, here };
        pool.guard = Some(memory::guarded(base, size_bytes, PAGE_BYTES)?);
        Ok(pool)
    }

    /// Whether a page of the pool was missing when it was accessed.
    pub(crate) fn is_broken(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_broken)
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over.load(Relaxed)
    }

    pub(crate) fn set_handed_over(&self) {
        self.is_handed_over.store(true, Relaxed);
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset of a target in the pool, if it is inside.
    fn offset_of(&self, target: &[u8]) -> Option<usize> {
        let offset = target.as_ptr().addr().checked_sub(self.base.as_ptr().addr())?;
        (offset < self.size_bytes && target.len() <= self.size_bytes - offset).then_some(offset)
    }

    /// The offset of a target that shares no page with other memory, so that its pages can be cut
    /// off: it begins at a page, and ends at a page or at the end of its lease.
    fn offset_of_pages(&self, target: &[u8]) -> Option<usize> {
        let offset = self.offset_of(target)?;
        let end = offset + target.len();
        let is_end = end.is_multiple_of(PAGE_BYTES)
            || self.space().leased.iter().any(|&(start, length)| start + length == end);
        (offset.is_multiple_of(PAGE_BYTES) && is_end).then_some(offset)
    }

    fn lease(self: &Arc<Self>, length: usize, message: u64) -> Option<Lease> {
        let pages = length.next_multiple_of(PAGE_BYTES);
        let mut space = self.space();
        let index = space.free.iter().position(|&(_, room)| room >= pages)?;
        let (offset, room) = space.free[index];
        if room == pages {
            space.free.remove(index);
        } else {
            space.free[index] = (offset + pages, room - pages);
        }
        space.leased.push((offset, length));
        space.used = message;
        Some(Lease { pool: Arc::clone(self), offset })
    }

    fn give_back(&self, offset: usize) {
        if !self.here.is_here() {
            return;
        }
        let mut space = self.space();
        let Some(lease) = space.leased.iter().position(|&(start, _)| start == offset) else {
            return;
        };
        let length = space.leased.swap_remove(lease).1.next_multiple_of(PAGE_BYTES);
        let free = &mut space.free;
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

    /// Whether the pool was made for one large message.
    fn is_large(&self) -> bool {
        self.size_bytes > GROWN_BYTES_MAX
    }

    /// Whether the pool is large and no part of it is leased.
    fn is_spare(&self) -> bool {
        self.is_large() && self.space().leased.is_empty()
    }

    /// Replaces the pages of a target that [`Pools::of`] found with private, zeroed pages, so
    /// that later writes of the peer to the pool do not reach them.
    pub(crate) fn cut_off(&self, target: &[u8]) -> Result<(), Error> {
        let Some(offset) = self.offset_of(target) else { return Ok(()) };
        let length = target.len().next_multiple_of(PAGE_BYTES);
        // SAFETY: inside the mapping, as the target is.
        let pages = unsafe { self.base.add(offset) };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let address = pages.as_ptr().cast();
        // SAFETY: whole pages of this pool's mapping, which belong to the target alone (the
        // remainder of the last page belongs to its lease and is unused) and which the owner lends
        // for this call; the new pages are readable and writable too.
        let mapped = unsafe { rustix::mm::mmap_anonymous(address, length, protection, flags) };
        mapped.map(drop).map_err(|reason| {
            keep_mapped(pages, length);
            Error::system("replace pages of the pool")(reason)
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.guard = None;
        memory::unmap(self.base, self.size_bytes);
    }
}

/// A part of a pool that belongs to one message.
#[derive(Debug)]
pub(crate) struct Lease {
    pool: Arc<Pool>,
    offset: usize,
}

impl Lease {
    pub(crate) fn base(&self) -> NonNull<u8> {
        // SAFETY: leases are inside the mapping.
        unsafe { self.pool.base.add(self.offset) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.give_back(self.offset);
    }
}

/// The pools of one receiver.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    slots: [Option<Arc<Pool>>; POOLS_MAX],
    /// The number of pools made.
    made: u64,
    /// The number of messages with a lease.
    messages: u64,
}

impl Pools {
    /// Memory for a message, from the smallest pool with room, otherwise from a new one.
    ///
    /// # Errors
    /// [`Error::System`] if there is no memory for a new pool.
    pub(crate) fn lease(&mut self, length: usize) -> Result<Lease, Error> {
        self.messages += 1;
        // Small messages do not use large pools, so that large pools become unused.
        let is_fit = |pool: &&Arc<Pool>| length > GROWN_BYTES_MAX || !pool.is_large();
        let mut pools: Vec<&Arc<Pool>> = self.slots.iter().flatten().filter(is_fit).collect();
        pools.sort_by_key(|pool| (pool.size_bytes, pool.number));
        if let Some(lease) = pools.iter().find_map(|pool| pool.lease(length, self.messages)) {
            self.drop_spare(IDLE_MESSAGES_MAX);
            return Ok(lease);
        }
        // No pool has room.
        self.drop_spare(0);
        let newest = self.slots.iter().flatten().max_by_key(|pool| pool.number);
        let doubled = newest.map_or(0, |pool| 2 * pool.size_bytes);
        let wanted = length.max(doubled.min(GROWN_BYTES_MAX));
        let size_bytes = wanted.checked_next_multiple_of(POOL_BYTES_MIN).unwrap_or(usize::MAX);
        // A pool is at most as large as the limit on file sizes, but at least as large as the
        // message.
        let limit = usize::try_from(memory::file_bytes_max()).unwrap_or(usize::MAX);
        let least = length.checked_next_multiple_of(PAGE_BYTES).unwrap_or(usize::MAX);
        let size_bytes = size_bytes.min(limit / PAGE_BYTES * PAGE_BYTES).max(least);
        // The pool that is replaced is dropped with its last lease.
        let used = |pool: &Option<Arc<Pool>>| pool.as_ref().map(|pool| pool.space().used);
        let slot = (0..POOLS_MAX).min_by_key(|slot| used(&self.slots[*slot])).unwrap_or(0);
        self.made += 1;
        let number = self.made * POOLS_MAX as u64 + slot as u64;
        let pool = Arc::new(Pool::create(number, size_bytes)?);
        let lease = pool.lease(length, self.messages);
        self.slots[slot] = Some(pool);
        Ok(lease.expect("a new pool has room for its first message"))
    }

    /// Drops large pools that have no lease and were not used for `messages_max` messages. At
    /// most one large pool without a lease is kept.
    fn drop_spare(&mut self, messages_max: u64) {
        let spare = |pool: &Option<Arc<Pool>>| pool.as_ref().is_some_and(|pool| pool.is_spare());
        let spare_used = |pool: &Arc<Pool>| pool.is_spare().then(|| pool.space().used);
        let newest = self.slots.iter().flatten().filter_map(spare_used).max();
        let oldest_kept = newest.unwrap_or(0).max((self.messages + 1).saturating_sub(messages_max));
        for slot in self.slots.iter_mut().filter(|slot| spare(slot)) {
            slot.take_if(|pool| pool.space().used < oldest_kept);
        }
    }

    /// The pool of a target and the target's offset, if the target shares no page with other
    /// memory.
    pub(crate) fn of(&self, target: &[u8]) -> Option<(&Arc<Pool>, usize)> {
        self.slots.iter().flatten().find_map(|pool| Some((pool, pool.offset_of_pages(target)?)))
    }

    /// The slots that hold a pool, as one bit per slot.
    pub(crate) fn kept(&self) -> u64 {
        let bits = self.slots.iter().enumerate();
        bits.map(|(slot, pool)| u64::from(pool.is_some()) << slot).sum()
    }

    /// Drops all pools; none is used again.
    pub(crate) fn retire(&mut self) {
        self.slots = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(pools: &Pools) -> Vec<usize> {
        pools.slots.iter().flatten().map(|pool| pool.size_bytes).collect()
    }

    fn bytes_of(lease: &Lease, length: usize) -> &[u8] {
        // SAFETY: bytes of the lease, which do not change while they are borrowed.
        unsafe { std::slice::from_raw_parts(lease.base().as_ptr(), length) }
    }

    #[test]
    fn returned_memory_can_be_leased_again_in_one_piece() {
        let mut pools = Pools::default();
        let size = POOL_BYTES_MIN;
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1]] {
            let mut leases: Vec<Option<Lease>> =
                (0..3).map(|_| Some(pools.lease(size / 4).unwrap())).collect();
            let offsets: Vec<usize> = leases.iter().flatten().map(|lease| lease.offset).collect();
            assert_eq!(offsets, [0, size / 4, size / 2]);
            for index in order {
                leases[index] = None;
            }
            drop(pools.lease(size).unwrap());
            assert_eq!(live(&pools), [size], "{order:?}");
        }
        let (one, other) = (pools.lease(size).unwrap(), pools.lease(1).unwrap());
        assert_ne!(one.pool.number, other.pool.number);
        assert_eq!((one.pool.size_bytes, other.pool.size_bytes), (size, 2 * size));
        assert_eq!(pools.kept(), 0b11);
    }

    #[test]
    fn unused_large_pools_are_dropped() {
        let mut pools = Pools::default();
        let (small, large) = (POOL_BYTES_MIN, 2 * GROWN_BYTES_MAX);
        drop(pools.lease(small).unwrap());
        for times in 1..=3 {
            drop(pools.lease(times * large).unwrap());
            assert_eq!(live(&pools), [small, times * large], "one at a time");
        }
        drop(pools.lease(large).unwrap());
        assert_eq!(live(&pools), [small, 3 * large], "an existing pool is reused");
        for _ in 1..IDLE_MESSAGES_MAX {
            drop(pools.lease(1).unwrap());
        }
        assert_eq!(live(&pools), [small, 3 * large]);
        drop(pools.lease(1).unwrap());
        assert_eq!((live(&pools), pools.kept()), (vec![small], 1));
        // Leased pools stay, and are dropped only after their leases end.
        let leases = [large, large].map(|length| pools.lease(length).unwrap());
        for _ in 0..=IDLE_MESSAGES_MAX {
            drop(pools.lease(1).unwrap());
        }
        assert_eq!(live(&pools), [small, large, large]);
        drop(leases);
        drop(pools.lease(1).unwrap());
        assert_eq!(live(&pools), [small]);
    }

    #[test]
    fn is_broken_reports_pool_whose_memory_was_removed() {
        let mut pools = Pools::default();
        let lease = pools.lease(POOL_BYTES_MIN).unwrap();
        assert_eq!((bytes_of(&lease, 1)[0], lease.pool.is_broken()), (0, false));
        let gone = rustix::fs::memfd_create(c"gone", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (base, rights) = (lease.base().as_ptr().cast(), ProtFlags::READ | ProtFlags::WRITE);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the pool's own mapping, whose users tolerate any bytes there.
        unsafe { rustix::mm::mmap(base, POOL_BYTES_MIN, rights, flags, &gone, 0) }.unwrap();
        assert_eq!(bytes_of(&lease, POOL_BYTES_MIN)[PAGE_BYTES], 0);
        assert!(lease.pool.is_broken());
    }

    #[test]
    fn new_pool_takes_no_memory() {
        let mut pools = Pools::default();
        let lease = pools.lease(GROWN_BYTES_MAX).unwrap();
        assert_eq!(rustix::fs::fstat(lease.pool.file()).unwrap().st_blocks, 0);
    }

    #[test]
    fn only_targets_with_unshared_pages_are_offered() {
        let mut pools = Pools::default();
        let length = 3 * PAGE_BYTES + 100;
        let lease = pools.lease(length).unwrap();
        let bytes = bytes_of(&lease, length);
        let is_offered = |range: std::ops::Range<usize>| pools.of(&bytes[range]).is_some();
        assert!(is_offered(0..length) && is_offered(PAGE_BYTES..length));
        assert!(is_offered(0..PAGE_BYTES) && is_offered(PAGE_BYTES..3 * PAGE_BYTES));
        assert!(!is_offered(0..100) && !is_offered(0..length - 1), "its last page is shared");
        assert!(!is_offered(1..PAGE_BYTES) && !is_offered(100..length), "its first page is");
        assert!(pools.of(&[0; PAGE_BYTES]).is_none());
    }

    #[test]
    fn later_writes_reach_only_pages_that_were_not_cut_off() {
        let mut pools = Pools::default();
        let lease = pools.lease(3 * PAGE_BYTES).unwrap();
        let pool = Arc::clone(&lease.pool);
        rustix::io::pwrite(pool.file(), &[7; 3 * PAGE_BYTES], 0).unwrap();
        let seen = || {
            let bytes = bytes_of(&lease, 3 * PAGE_BYTES);
            [0, PAGE_BYTES, 2 * PAGE_BYTES - 1, 2 * PAGE_BYTES].map(|at| bytes[at])
        };
        assert_eq!(seen(), [7; 4]);
        pool.cut_off(&bytes_of(&lease, 3 * PAGE_BYTES)[PAGE_BYTES..2 * PAGE_BYTES]).unwrap();
        rustix::io::pwrite(pool.file(), &[8; 3 * PAGE_BYTES], 0).unwrap();
        assert_eq!(seen(), [8, 0, 0, 8]);
    }
}
