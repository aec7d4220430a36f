//! Pages of a view of sealed memory that the receiver says it will write to: copied now, at once,
//! and not one by one as each is first touched.
//!
//! A page of a private view of a file is copied by a fault as it is first written to, 4 KiB each,
//! however large the file's own pages are. Told ahead, the copy goes into huge pages, 2 MiB each,
//! which then take the place of the view's; parts of such are copied by one system call. Measured
//! on Zen 4 under KVM, kernel 6.18, a tenth of a view of 256 MiB, one warm copy of which takes 24.5
//! ms, in ms of processor time:
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

/// Less of a huge page than this is copied page by page: 190 of its 512 pages take as long as all
/// of it.
const MOST_BYTES: usize = HUGE_BYTES / 2;
/// Fewer pages than this are left to their faults: a call takes longer than one of them.
const POPULATED_BYTES_MIN: usize = 16 * PAGE_BYTES;

/// Huge pages that are copied before the first of them are moved: what is there twice until then. A
/// multiple of a huge page.
const STEP_BYTES: usize = 32 * HUGE_BYTES;

/// Copies what is still a view in this part of a mapping that belongs to the caller alone, who has
/// it borrowed uniquely. Returns the bytes that were copied; where the kernel cannot, the pages
/// stay as they are, and each is copied as it is written to.
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

/// The huge pages of a view of which most is wanted; none where there are none.
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

/// Puts huge pages with the same content in the place of the first of these; says of how many
/// bytes.
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
    // SAFETY: a mapping that is this function's, to which there is no reference, takes the place of
    // pages that the caller has borrowed uniquely, of the same length and the same content.
    let moved = unsafe { rustix::mm::mremap_fixed(from, length, length, flags, to) };
    if moved.is_err() {
        replaced.keep_mapped();
        // SAFETY: both are mapped, of this length, and the caller's and this function's alone.
        unsafe { haul_copy::copy_hinted_raw(view.as_ptr(), new.as_ptr(), length, Hint::Unknown) };
        memory::unmap(new, length);
        registry::note_private(addresses.start..addresses.start + length);
    } else {
        registry::note_huge(addresses.start..addresses.start + length);
    }
    Some(length)
}

/// Huge pages, if there are any: private, zeroed, of addresses alone until they are touched.
fn new_pages(length: usize) -> Option<NonNull<u8>> {
    let address = std::ptr::without_provenance_mut(huge::aligned_address(length));
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping where the kernel finds that nothing is touches nothing that exists.
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
    // SAFETY: the first byte of it, which is writable. Touched by itself, it brings the huge page:
    // a copy that runs into the fault starts again slowly.
    unsafe { to.write_volatile(0) };
    // SAFETY: so many bytes of either mapping, which do not overlap; nobody else has the new one,
    // and the view's are constant but for what the caller writes, who has them borrowed uniquely.
    unsafe { haul_copy::copy_hinted_raw(to, from, HUGE_BYTES, Hint::ReadSoon) };
}

/// Copies these pages by one call, where that is worth it and the kernel has it (Linux 5.14).
/// Returns the bytes that were copied.
fn populate(base: NonNull<u8>, addresses: Range<usize>) -> usize {
    let start = addresses.start / PAGE_BYTES * PAGE_BYTES;
    let end = addresses.end.next_multiple_of(PAGE_BYTES);
    if addresses.is_empty() || end - start < POPULATED_BYTES_MIN {
        return 0;
    }
    let address = base.with_addr(start.try_into().expect("nothing is mapped at zero"));
    // SAFETY: whole pages of a mapping that the caller has borrowed uniquely get pages of their
    // own; what they hold stays.
    let populated = unsafe {
        rustix::mm::madvise(address.as_ptr().cast(), end - start, Advice::LinuxPopulateWrite)
    };
    if populated.is_err() {
        return 0;
    }
    registry::note_private(start..end);
    end - start
}
