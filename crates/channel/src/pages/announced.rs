//! Pages of a view of sealed memory to which the receiver announces that it will write. haul
//! copies them at once, not one by one at the first write to each page.
//!
//! The first write to a page of a private view of a file causes a fault and a copy of 4 KiB,
//! however large the file's own pages are. Announced bytes are copied into huge pages of 2 MiB,
//! which then replace the view's pages; parts of a huge page are copied by one system call.
//! Measured on Zen 4 under KVM, kernel 6.18, for a tenth of a view of 256 MiB, in ms of processor
//! time. One warm copy of the whole view takes 24.5 ms:
//!
//! | | in one piece | in pieces of 256 KiB | of 64 KiB | one page of ten |
//! |---|---|---|---|---|
//! | a fault for each page | 20.4 to 21.1 | | | 19.3 to 21.0 |
//! | `MADV_POPULATE_WRITE` for each piece | 13.5 to 15.1 | 16.6 | 17.6 | 28.7 to 30.2 |
//! | as one call for 1024 of them, `process_madvise` | | | | 18.7 to 19.7 |
//! | new huge pages, filled and moved there | 4.6 to 5.1 | | | |
//! | the same, of memory that its host had taken back | 90 to 110 | | | |
//! | those of a message that is gone, see `spares` | 2.1 to 5.2 | | | |

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::LazyLock;

use haul_copy::Hint;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags};

use super::huge::{self, HUGE_BYTES};
use super::registry::{self, PAGE_BYTES, Replaced};
use super::spares;
use crate::shared::machine;
use haul_peer::memory;

/// A smaller part of a huge page is copied page by page: 190 of its 512 pages take as long as the
/// whole huge page.
const MOST_BYTES: usize = HUGE_BYTES / 2;
/// Fewer pages are copied at their first writes, because a call takes longer than a fault.
const POPULATED_BYTES_MIN: usize = 16 * PAGE_BYTES;

/// Bytes of huge pages that are copied before they replace the view's pages. Up to this many
/// bytes exist twice meanwhile. The number is a multiple of a huge page's size.
const STEP_BYTES: usize = 32 * HUGE_BYTES;

/// Copies those pages in a part of a mapping that are still a view. The caller owns the mapping
/// and has borrowed it uniquely. Returns the number of bytes copied. If the kernel cannot copy
/// pages, they stay as they are, and each is copied at its first write.
pub(crate) fn make_private(base: NonNull<u8>, part: Range<usize>) -> usize {
    let start = base.addr().get();
    let part = start + part.start..start + part.end;
    let mut copied = 0;
    for view in registry::views(&part) {
        let wanted = part.start.max(view.start)..part.end.min(view.end);
        let huge = huge_pages(&wanted, &view);
        let mut done = huge.start;
        while done < huge.end {
            let step = done..huge.end.min(done + STEP_BYTES);
            let Some(bytes) = copy_huge(base, &step) else { break };
            done += bytes;
        }
        copied += done - huge.start;
        copied += populate(base, wanted.start..huge.start.min(wanted.end));
        copied += populate(base, done.max(wanted.start)..wanted.end);
    }
    copied
}

/// The view's huge pages of which at least half is in `wanted`; an empty range if there are none.
fn huge_pages(wanted: &Range<usize>, view: &Range<usize>) -> Range<usize> {
    static ARE_GIVEN: LazyLock<bool> = LazyLock::new(machine::has_transparent_huge_pages);
    let mut first = wanted.start / HUGE_BYTES * HUGE_BYTES;
    let mut last = wanted.end.next_multiple_of(HUGE_BYTES);
    if first < view.start || (first + HUGE_BYTES).min(wanted.end) - wanted.start < MOST_BYTES {
        first += HUGE_BYTES;
    }
    if last > view.end || last < first + HUGE_BYTES || wanted.end - (last - HUGE_BYTES) < MOST_BYTES
    {
        last -= HUGE_BYTES;
    }
    if *ARE_GIVEN && first < last { first..last } else { wanted.start..wanted.start }
}

/// Replaces the first of these pages with huge pages of the same content. Returns the number of
/// bytes replaced.
fn copy_huge(base: NonNull<u8>, addresses: &Range<usize>) -> Option<usize> {
    let (new, length) = match spares::take(addresses.len()) {
        Some(spare) => spare,
        None => (new_pages(addresses.len())?, addresses.len()),
    };
    let view = base.with_addr(addresses.start.try_into().expect("nothing is mapped at zero"));
    for offset in (0..length).step_by(HUGE_BYTES) {
        copy_one(view, new, offset);
    }
    let flags = MremapFlags::MAYMOVE;
    let (from, to) = (new.as_ptr().cast(), view.as_ptr().cast());
    let replaced = Replaced::mark(view, length);
    // SAFETY: a mapping of this function, to which there is no reference, replaces pages that the
    // caller has borrowed uniquely, of the same length and the same content.
    let moved = unsafe { rustix::mm::mremap_fixed(from, length, length, flags, to) };
    if moved.is_err() {
        replaced.keep_mapped();
        // SAFETY: both mappings have this length; one belongs to the caller alone, the other to
        // this function.
        unsafe { Hint::Unknown.copy_raw(view.as_ptr(), new.as_ptr(), length) };
        memory::unmap(new, length);
        registry::note_private(addresses.start..addresses.start + length);
    } else {
        registry::note_huge(addresses.start..addresses.start + length);
    }
    Some(length)
}

/// Maps new memory, private and zeroed, with huge pages if there are any. The kernel allocates
/// memory at the first access.
fn new_pages(length: usize) -> Option<NonNull<u8>> {
    let address = std::ptr::without_provenance_mut(huge::aligned_address(length));
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an unused address affects no other memory.
    let new = unsafe { rustix::mm::mmap_anonymous(address, length, protection, MapFlags::PRIVATE) };
    let new = NonNull::new(new.ok()?.cast::<u8>())?;
    // SAFETY: advice about a mapping made here.
    let _ = unsafe { rustix::mm::madvise(new.as_ptr().cast(), length, Advice::LinuxHugepage) };
    Some(new)
}

/// Copies the huge page at this offset of a view to the same offset of new memory.
fn copy_one(view: NonNull<u8>, new: NonNull<u8>, offset: usize) {
    // SAFETY: inside the mapping, as the caller steps through its length.
    let to = unsafe { new.add(offset) }.as_ptr();
    // SAFETY: likewise.
    let from = unsafe { view.add(offset) }.as_ptr();
    // SAFETY: its first byte, which is writable. This write alone allocates the huge page,
    // because a copy that a page fault interrupts restarts slowly.
    unsafe { to.write_volatile(0) };
    // SAFETY: the bytes are inside the two mappings, which do not overlap. Only this function
    // refers to the new one, and only the caller, which has borrowed the view uniquely, can
    // change the view.
    unsafe { Hint::ReadSoon.copy_raw(to, from, HUGE_BYTES) };
}

/// Copies these pages with one call, if there are enough of them and the kernel has the call
/// (Linux 5.14). Returns the number of bytes copied.
fn populate(base: NonNull<u8>, addresses: Range<usize>) -> usize {
    let start = addresses.start / PAGE_BYTES * PAGE_BYTES;
    let end = addresses.end.next_multiple_of(PAGE_BYTES);
    if addresses.is_empty() || end - start < POPULATED_BYTES_MIN {
        return 0;
    }
    let address = base.with_addr(start.try_into().expect("nothing is mapped at zero"));
    // SAFETY: whole pages of a mapping that the caller has borrowed uniquely become private pages
    // with the same content.
    let populated = unsafe {
        rustix::mm::madvise(address.as_ptr().cast(), end - start, Advice::LinuxPopulateWrite)
    };
    if populated.is_err() {
        return 0;
    }
    registry::note_private(start..end);
    end - start
}
