//! Huge pages of dropped messages. The next announced bytes are copied into these pages.
//!
//! The kernel zeroes a new huge page first, which takes as long as the copy into it. Also, a
//! guest whose balloon reports free pages has returned the memory to its host, which allocates it
//! again at the first access. Measured on Zen 4 under KVM, kernel 6.18: 0.2 ms for 2 MiB that
//! were in use shortly before, 7.4 ms for 2 MiB that were free for some seconds.
//!
//! These pages belong to the process, because buffers outlive their channel. The pages return to
//! the system when the process drops its last receiver.

use std::ptr::NonNull;
use std::sync::MutexGuard;

use super::huge::HUGE_BYTES;
use haul_peer::fork::Lock;
use haul_peer::memory;

/// The largest number of bytes that are kept, the same limit as for a pool of `lease`: a tenth of
/// 640 MiB.
const KEPT_BYTES_MAX: usize = 64 << 20;

static SPARES: Lock<Spares> = Lock::new(Spares::new(), |_| ());

fn spares() -> MutexGuard<'static, Spares> {
    SPARES.lock()
}

/// Records one more receiver in the process.
pub(crate) fn add_receiver() {
    spares().receivers += 1;
}

/// Records one receiver less. If that was the last receiver, all kept memory is freed.
pub(crate) fn remove_receiver() {
    let gone = {
        let mut spares = spares();
        spares.receivers -= 1;
        if spares.receivers > 0 {
            return;
        }
        spares.bytes = 0;
        std::mem::take(&mut spares.ranges)
    };
    gone.into_iter().for_each(|(base, bytes)| memory::unmap(base, bytes));
}

/// Removes adjacent, whole huge pages from the spares and returns them: at most `bytes`. The
/// content of these pages is undefined. The caller must unmap the pages.
pub(crate) fn take(bytes: usize) -> Option<(NonNull<u8>, usize)> {
    spares().take(bytes)
}

/// Keeps whole huge pages, as many as there is room for, and unmaps the remainder. The pages must
/// be private and anonymous, they must belong to the caller, and no references to them may exist.
pub(crate) fn give(base: NonNull<u8>, bytes: usize) {
    let kept = {
        let mut spares = spares();
        let kept = bytes.min(spares.room());
        spares.give(base, kept);
        kept
    };
    if kept < bytes {
        // SAFETY: inside the mapping, as it is longer.
        let rest = unsafe { base.add(kept) };
        memory::unmap(rest, bytes - kept);
    }
}

#[derive(Debug)]
struct Spares {
    /// Mappings that belong to this value alone, and their lengths.
    ranges: Vec<(NonNull<u8>, usize)>,
    /// The sum of the lengths.
    bytes: usize,
    receivers: usize,
}

// SAFETY: the mappings belong to this value alone, and nothing refers into them.
unsafe impl Send for Spares {}

impl Spares {
    const fn new() -> Self {
        Self { ranges: Vec::new(), bytes: 0, receivers: 0 }
    }

    /// The number of bytes that there is room for: zero without a receiver.
    fn room(&self) -> usize {
        if self.receivers > 0 { KEPT_BYTES_MAX - self.bytes } else { 0 }
    }

    fn take(&mut self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let (base, has) = self.ranges.pop()?;
        let taken = has.min(bytes);
        if taken < has {
            // SAFETY: inside the mapping, as it is longer.
            let rest = unsafe { base.add(taken) };
            self.ranges.push((rest, has - taken));
        }
        self.bytes -= taken;
        Some((base, taken))
    }

    fn give(&mut self, base: NonNull<u8>, bytes: usize) {
        // The copy into the spares writes whole huge pages.
        assert!(
            (base.addr().get() | bytes).is_multiple_of(HUGE_BYTES),
            "{bytes} B at {base:p} are not whole huge pages"
        );
        if bytes > 0 {
            self.ranges.push((base, bytes));
            self.bytes += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::huge;

    /// Mapped memory of `count` huge pages.
    fn pages(count: usize) -> (NonNull<u8>, usize) {
        let bytes = count * HUGE_BYTES;
        let address = std::ptr::without_provenance_mut(huge::aligned_address(bytes));
        let (protection, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::PRIVATE);
        // SAFETY: a new mapping at an unused address affects no other memory.
        let base =
            unsafe { rustix::mm::mmap_anonymous(address, bytes, protection, flags) }.unwrap();
        (NonNull::new(base.cast()).unwrap(), bytes)
    }

    #[test]
    fn take_returns_given_pages_piece_by_piece() {
        let mut spares = Spares::new();
        assert_eq!(spares.take(HUGE_BYTES), None);
        let (base, bytes) = pages(3);
        spares.give(base, bytes);
        assert_eq!(spares.take(HUGE_BYTES), Some((base, HUGE_BYTES)));
        let (rest, left) = spares.take(5 * HUGE_BYTES).unwrap();
        assert_eq!((rest.addr().get(), left), (base.addr().get() + HUGE_BYTES, 2 * HUGE_BYTES));
        assert_eq!((spares.bytes, spares.take(HUGE_BYTES)), (0, None));
        memory::unmap(base, bytes);
    }

    #[test]
    fn give_keeps_limited_pages_and_none_without_receiver() {
        // The process's spares, which other tests share: pages of these tests may be among them.
        add_receiver();
        let (base, bytes) = pages(KEPT_BYTES_MAX / HUGE_BYTES + 3);
        give(base, bytes);
        assert!(spares().bytes <= KEPT_BYTES_MAX);
        remove_receiver();
        let mut alone = Spares::new();
        assert_eq!(alone.room(), 0, "there is no receiver");
        alone.receivers = 1;
        assert_eq!(alone.room(), KEPT_BYTES_MAX);
        let (base, bytes) = pages(1);
        alone.give(base, bytes);
        assert_eq!((alone.bytes, alone.room()), (HUGE_BYTES, KEPT_BYTES_MAX - HUGE_BYTES));
        memory::unmap(base, bytes);
    }

    #[test]
    #[should_panic(expected = "not whole huge pages")]
    fn give_refuses_part_of_huge_page() {
        Spares::new().give(NonNull::without_provenance(HUGE_BYTES.try_into().unwrap()), 4096);
    }
}
