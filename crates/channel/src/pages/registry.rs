//! The mappings that haul made for messages in this process: private memory (anonymous, or a view
//! of sealed memory), or memory that a sender gave up. One [`Buffer`](crate::Buffer) owns each.
//! Haul replaces pages only inside these mappings: it must not unmap the memory behind a caller's
//! own slice.

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

/// The page size of every machine that haul is built for. If the kernel's pages are larger, it
/// refuses to replace pages of this size.
pub(crate) const PAGE_BYTES: usize = 4096;

/// A mapping: its length; the addresses that are views of sealed memory, with pages that are
/// copied at the first write; and the addresses of huge pages that replaced such views.
#[derive(Debug)]
struct Mapping {
    length: usize,
    views: Ranges,
    huge: Ranges,
}

/// The mappings, by their start addresses.
static OWN: Lock<BTreeMap<usize, Mapping>> = Lock::new(BTreeMap::new(), |_| ());

fn own() -> MutexGuard<'static, BTreeMap<usize, Mapping>> {
    OWN.lock()
}

pub(crate) fn register(base: NonNull<u8>, length: usize) {
    let (views, huge) = (Ranges::default(), Ranges::default());
    own().insert(base.as_ptr().addr(), Mapping { length, views, huge });
}

/// Removes a mapping. Returns the addresses of the mapping's huge pages that replaced views.
/// Returns only whole huge pages: if a part of a huge page was replaced since, the remainder is
/// no longer a huge page.
pub(crate) fn forget(base: NonNull<u8>) -> Vec<Range<usize>> {
    let start = base.as_ptr().addr();
    let Some(mapping) = own().remove(&start) else { return Vec::new() };
    let noted = mapping.huge.around(&(start..start + mapping.length));
    let whole = |range: Range<usize>| {
        range.start.next_multiple_of(HUGE_BYTES)..range.end / HUGE_BYTES * HUGE_BYTES
    };
    noted.into_iter().map(whole).filter(|range| range.start < range.end).collect()
}

/// Whether a target begins at a page and is entirely inside one of haul's mappings.
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

/// Records that these addresses of a mapping are a view of sealed memory from now on.
pub(crate) fn note_view(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| {
        mapping.huge.cut(&addresses);
        mapping.views.add(addresses.clone());
    });
}

/// Records that these addresses of a mapping are private pages from now on.
pub(crate) fn note_private(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| {
        mapping.views.cut(&addresses);
        mapping.huge.cut(&addresses);
    });
}

/// Records that these addresses are whole, private huge pages that replaced a view.
pub(crate) fn note_huge(addresses: Range<usize>) {
    with_mapping(addresses.start, |_, mapping| {
        mapping.views.cut(&addresses);
        mapping.huge.add(addresses.clone());
    });
}

/// All views of sealed memory that contain any of these addresses of a mapping. Each view is
/// returned in full.
pub(crate) fn views(addresses: &Range<usize>) -> Vec<Range<usize>> {
    with_mapping(addresses.start, |_, mapping| mapping.views.around(addresses)).unwrap_or_default()
}

/// Calls `act` with the mapping that begins at this address or before.
fn with_mapping<T>(start: usize, act: impl FnOnce(usize, &mut Mapping) -> T) -> Option<T> {
    let mut own = own();
    own.range_mut(..=start).next_back().map(|(base, mapping)| act(*base, mapping))
}

/// Haul's own pages that a call is about to replace. The content of these pages is undefined.
///
/// Older kernels unmap the target and may fail afterwards (mremap(2): before 6.17; mmap(2):
/// before 6.12). Another thread may map memory there in that moment, and the new memory could not
/// be distinguished from the old pages. So the pages are marked. If the mark still exists after a
/// failed call, all pages still exist, because the kernel unmaps all of them or none. Otherwise
/// the pages are gone.
#[derive(Debug)]
#[must_use]
pub(crate) struct Replaced {
    start: NonNull<u8>,
    length: usize,
    mark: [u32; 2],
}

impl Replaced {
    /// Marks pages of the caller's own mapping. The pages lose their content, and no other
    /// process may write to the first page.
    pub(crate) fn mark(start: NonNull<u8>, length: usize) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mark = SEED.hash_one(COUNT.fetch_add(1, Relaxed));
        let mark = [mark as u32, (mark >> 32) as u32];
        if !is_there(start) {
            // Without this advice, the mark would allocate a huge page, which would be dropped at
            // once: marking and replacing would take 61 us instead of 12 on Zen 4 under KVM, and
            // up to 27 ms if the host holds that memory. SAFETY: advice about the first page of
            // the caller's mapping; its content stays.
            let _ = unsafe {
                rustix::mm::madvise(start.as_ptr().cast(), PAGE_BYTES, Advice::LinuxNoHugepage)
            };
        }
        // SAFETY: the first bytes of the caller's pages, which are readable, writable and aligned.
        unsafe { start.cast::<[u32; 2]>().write_volatile(mark) };
        Self { start, length, mark }
    }

    /// After a failed call, makes sure that haul's own pages are mapped there. Aborts if that is
    /// impossible, because nothing sound is left to do.
    pub(crate) fn keep_mapped(self) {
        match map_what_is_free(self.start, self.length) {
            Ok(()) => {}
            Err(Errno::EXIST) if self.are_there() => {}
            _ => std::process::abort(),
        }
    }

    /// Whether the mark is still there. The kernel does the check, because the address may be
    /// unmapped: a futex call with a timeout of zero compares the word with the expected value.
    fn are_there(&self) -> bool {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let says = |index: usize, expected: u32| loop {
            let word = self.start.as_ptr().wrapping_add(index * size_of::<u32>());
            // SAFETY: the kernel reads the word, or reports that the address is unmapped; it
            // changes nothing, and the time is a valid structure that outlives the call.
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

/// Whether the page at an address of the caller's mapping is allocated.
fn is_there(start: NonNull<u8>) -> bool {
    let mut state = 0;
    // SAFETY: queries one page and writes one byte, which is valid.
    let result = unsafe { libc::mincore(start.as_ptr().cast(), PAGE_BYTES, &raw mut state) };
    result == 0 && state & 1 != 0
}

/// Like [`Replaced::keep_mapped`], for pages without a mark: another process may write to them,
/// and could overwrite a mark. This function therefore assumes that existing pages are the old
/// ones.
pub(crate) fn keep_mapped(start: NonNull<u8>, length: usize) {
    match map_what_is_free(start, length) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(_) => std::process::abort(),
    }
}

/// Maps new pages if the addresses are unmapped.
///
/// # Errors
/// [`Errno::EXIST`] if pages are mapped there; another error if there is no memory.
fn map_what_is_free(start: NonNull<u8>, length: usize) -> Result<(), Errno> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let address = start.as_ptr().cast();
    // SAFETY: the call replaces no mapping, so it affects only addresses that were haul's and are
    // unmapped.
    let there = unsafe { rustix::mm::mmap_anonymous(address, length, protection, flags) }?;
    // Kernels before 4.17 do not know the flag, and map elsewhere.
    if there == address { Ok(()) } else { Err(Errno::NOMEM) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_peer::memory;

    #[test]
    fn keep_mapped_maps_missing_pages_and_keeps_existing_ones() {
        let length = 3 * PAGE_BYTES;
        let mut buffer = crate::pages::buffer::Buffer::new(64 << 10).unwrap();
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
    fn mark_allocates_no_huge_page_and_keeps_existing_ones() {
        for is_there_before in [false, true] {
            let mut buffer = crate::pages::buffer::Buffer::new(4 * HUGE_BYTES).unwrap();
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
    fn mapping_of_another_thread_does_not_count_as_marked() {
        let length = 3 * PAGE_BYTES;
        let mut buffer = crate::pages::buffer::Buffer::new(64 << 10).unwrap();
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
