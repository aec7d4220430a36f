//! Which pages of this process haul has mapped for messages: private, anonymous or a view of sealed
//! memory, or memory that a sender gave up; each mapping owned by one
//! [`Buffer`](crate::Buffer). Into these, and into no others, pages can be placed: what a
//! caller has behind a slice of its own is not haul's to unmap.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{LazyLock, MutexGuard};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::huge::HUGE_BYTES;
use super::ranges::Ranges;
use haul_peer::fork::Lock;

/// The page of every machine that haul is built for; where pages are larger nothing is placed,
/// because the kernel refuses it.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A mapping: its length, and the addresses in it that are views of sealed memory, where a page
/// that is written to is copied first, or huge pages that came in the place of such.
#[derive(Debug)]
struct Mapping {
    length: usize,
    views: Ranges,
    huge: Ranges,
}

/// Each mapping by its start.
static OWN: Lock<BTreeMap<usize, Mapping>> = Lock::new(BTreeMap::new(), |_| ());

fn own() -> MutexGuard<'static, BTreeMap<usize, Mapping>> {
    OWN.lock()
}

pub(crate) fn register(base: NonNull<u8>, length: usize) {
    let (views, huge) = (Ranges::default(), Ranges::default());
    own().insert(base.as_ptr().addr(), Mapping { length, views, huge });
}

/// A mapping is no longer haul's; says which of its addresses are huge pages that came in the place
/// of views: whole ones. Of some a part may have been replaced since, and what is left is none.
pub(crate) fn forget(base: NonNull<u8>) -> Vec<Range<usize>> {
    let start = base.as_ptr().addr();
    let Some(mapping) = own().remove(&start) else { return Vec::new() };
    let noted = mapping.huge.around(&(start..start + mapping.length));
    let whole = |range: Range<usize>| {
        range.start.next_multiple_of(HUGE_BYTES)..range.end / HUGE_BYTES * HUGE_BYTES
    };
    noted.into_iter().map(whole).filter(|range| range.start < range.end).collect()
}

/// Whether a target begins at a page and stands wholly inside one such mapping.
pub(crate) fn are_own(target: &[u8]) -> bool {
    let start = target.as_ptr().addr();
    if !start.is_multiple_of(PAGE_BYTES) || target.len() < PAGE_BYTES {
        return false;
    }
    with_mapping(start, |base, mapping| {
        let offset = start - base;
        offset < mapping.length && target.len() <= mapping.length - offset
    })
    .unwrap_or(false)
}

/// These addresses of a mapping are a view of sealed memory from now on.
pub(crate) fn note_view(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| {
        mapping.huge.cut(&addresses);
        mapping.views.add(addresses.clone());
    });
}

/// These addresses of a mapping are pages of this process alone from now on.
pub(crate) fn note_private(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| {
        mapping.views.cut(&addresses);
        mapping.huge.cut(&addresses);
    });
}

/// These are huge pages of this process alone, in the place of a view: whole ones.
pub(crate) fn note_huge(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| {
        mapping.views.cut(&addresses);
        mapping.huge.add(addresses.clone());
    });
}

/// Which of these addresses of a mapping are views of sealed memory, and how far each view reaches.
pub(crate) fn views(addresses: &Range<usize>) -> Vec<Range<usize>> {
    with_mapping(addresses.start, |_, mapping| mapping.views.around(addresses)).unwrap_or_default()
}

/// What is done with the mapping that begins at this address or before.
fn with_mapping<T>(start: usize, act: impl FnOnce(usize, &mut Mapping) -> T) -> Option<T> {
    let mut own = own();
    own.range_mut(..=start).next_back().map(|(base, mapping)| act(*base, mapping))
}

/// Pages of haul's own that a call is about to put others in the place of. What they hold is
/// nothing.
///
/// Kernels unmap the target and may fail afterwards (mremap(2): before 6.17; mmap(2): before 6.12).
/// What another thread maps in that moment can come to be there, and nobody could tell it from what
/// was there before. So the pages are marked: as a call fails, either the mark is there, and with
/// it all of them, for the kernel unmaps all or none; or they have gone.
#[derive(Debug)]
#[must_use]
pub(crate) struct Replaced {
    start: NonNull<u8>,
    length: usize,
    mark: [u32; 2],
}

impl Replaced {
    /// Marks the pages of a mapping of the caller's own, of which nothing is kept and nobody else
    /// writes to the first.
    pub(crate) fn mark(start: NonNull<u8>, length: usize) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mark = SEED.hash_one(COUNT.fetch_add(1, Relaxed));
        let mark = [mark as u32, (mark >> 32) as u32];
        if !is_there(start) {
            // Else the mark would bring a huge page, to be thrown away at once: 61 us of marking
            // and placing instead of 12 on Zen 4 under KVM, and up to 27 ms where the host has that
            // memory. SAFETY: advice about the first page of a mapping of the caller's; what it
            // holds stays.
            let _ = unsafe {
                rustix::mm::madvise(start.as_ptr().cast(), PAGE_BYTES, Advice::LinuxNoHugepage)
            };
        }
        // SAFETY: the first bytes of pages that are the caller's, readable and writable, aligned as
        // pages are.
        unsafe { start.cast::<[u32; 2]>().write_volatile(mark) };
        Self { start, length, mark }
    }

    /// After the call failed: sees to it that pages of haul's own are mapped there. Where they
    /// cannot be had, nothing sound is left to do.
    pub(crate) fn keep_mapped(self) {
        match map_what_is_free(self.start, self.length) {
            Ok(()) => {}
            Err(Errno::EXIST) if self.are_there() => {}
            _ => std::process::abort(),
        }
    }

    /// Whether the mark is. Asked of the kernel, which can look where nothing may be mapped: a
    /// futex whose word is as expected is waited for, and for no time at all.
    fn are_there(&self) -> bool {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let says = |index: usize, expected: u32| loop {
            let word = self.start.as_ptr().wrapping_add(index * size_of::<u32>());
            // SAFETY: the kernel looks at the word, or says that nothing is there; it changes
            // nothing, and the time is a valid structure that outlives the call.
            let waited = unsafe {
                libc::syscall(libc::SYS_futex, word, operation, expected, &raw const none)
            };
            let error = io::Error::last_os_error().raw_os_error();
            if waited == 0 || error != Some(libc::EINTR) {
                return waited == -1 && error == Some(libc::ETIMEDOUT);
            }
        };
        self.mark.iter().enumerate().all(|(index, expected)| says(index, *expected))
    }
}

/// Whether an address of the caller's own has a page by now.
fn is_there(start: NonNull<u8>) -> bool {
    let mut state = 0;
    // SAFETY: asks of one page, and writes one byte, which is there.
    let result = unsafe { libc::mincore(start.as_ptr().cast(), PAGE_BYTES, &raw mut state) };
    result == 0 && state & 1 != 0
}

/// As [`Replaced::keep_mapped`], for pages that another process writes to, so that no mark need
/// stay: believes that what is there is what was.
pub(crate) fn keep_mapped(start: NonNull<u8>, length: usize) {
    match map_what_is_free(start, length) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => std::process::abort(),
    }
}

/// Maps new pages where there are none.
///
/// # Errors
/// [`Errno::EXIST`] where there are some; else there is no memory.
fn map_what_is_free(start: NonNull<u8>, length: usize) -> Result<(), Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let address = start.as_ptr().cast();
    // SAFETY: nothing that is mapped is replaced, so this touches only what was haul's and has
    // gone.
    let there = unsafe { rustix::mm::mmap_anonymous(address, length, protection, flags) }?;
    // Kernels before 4.17 do not know the flag, and map elsewhere.
    if there == address { Ok(()) } else { Err(Errno::NOMEM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_peer::memory;

    #[test]
    fn what_was_unmapped_is_there_again_and_what_was_not_stays() {
        let length = 3 * PAGE_BYTES;
        let mut buffer = super::super::buffer::Buffer::new(64 << 10).unwrap();
        buffer.fill(7);
        let start = NonNull::new(buffer.as_mut_ptr()).unwrap();
        keep_mapped(start, length);
        assert!(buffer.iter().all(|byte| *byte == 7));
        Replaced::mark(start, length).keep_mapped();
        assert!(buffer[8..].iter().all(|byte| *byte == 7));
        for is_marked in [false, true] {
            let replaced = Replaced::mark(start, length);
            memory::unmap(start, length);
            if is_marked {
                replaced.keep_mapped()
            } else {
                keep_mapped(start, length)
            }
            assert!(buffer[..length].iter().all(|byte| *byte == 0));
            assert!(buffer[length..].iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn a_mark_brings_no_huge_page_and_leaves_those_that_are_there() {
        for is_there_before in [false, true] {
            let mut buffer = super::super::buffer::Buffer::new(4 * HUGE_BYTES).unwrap();
            let offset =
                buffer.as_ptr().addr().next_multiple_of(HUGE_BYTES) - buffer.as_ptr().addr();
            let start = NonNull::new(buffer[offset..].as_mut_ptr()).unwrap();
            if is_there_before {
                buffer[offset] = 1;
            }
            let behind = start.map_addr(|address| address.checked_add(PAGE_BYTES).unwrap());
            let was_behind = is_there(behind);
            assert!(!is_there(start) || is_there_before);
            let replaced = Replaced::mark(start, HUGE_BYTES);
            assert!(is_there(start) && replaced.are_there());
            assert_eq!(is_there(behind), was_behind, "{is_there_before}");
            replaced.keep_mapped();
            assert!(buffer[offset + 8..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn what_another_thread_mapped_meanwhile_is_not_taken_for_ones_own() {
        let length = 3 * PAGE_BYTES;
        let mut buffer = super::super::buffer::Buffer::new(64 << 10).unwrap();
        let start = NonNull::new(buffer.as_mut_ptr()).unwrap();
        let replaced = Replaced::mark(start, length);
        assert!(replaced.are_there());
        memory::unmap(start, length);
        assert!(!replaced.are_there());
        let last = start.map_addr(|address| address.checked_add(2 * PAGE_BYTES).unwrap());
        for others in [last, start] {
            map_what_is_free(others, PAGE_BYTES).unwrap();
            assert_eq!(map_what_is_free(start, length), Err(Errno::EXIST));
            assert!(!replaced.are_there(), "{others:?}");
        }
        memory::unmap(start, PAGE_BYTES);
        memory::unmap(last, PAGE_BYTES);
        map_what_is_free(start, length).unwrap();
    }
}
