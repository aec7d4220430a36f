//! Programs that lock all their memory (mlockall), like DPDK's: only the used part of a heap may
//! become resident, not the memory for its whole limit. Each case runs in a forked child, because
//! the lock affects the whole process. The child may not call malloc.

mod support;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use haul_heap::{Builder, EXTENT_BYTES, Extents, External, Heap, Pages, Request};

use support::child::{in_child, statm_bytes};

const MIB: i64 = 1 << 20;

/// The limit of the heaps in this file: their metadata alone would be 250 MiB.
const LIMIT: u64 = 3 << 30;

/// How many bytes the lock may make resident: the test program, and the stacks of its threads.
const SLACK: i64 = 64 * MIB;

/// How many blocks of 1 MiB a child uses.
const BLOCKS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Before,
    After,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Private,
    Unnamed,
    Attached,
    /// In memory of the test, with the metadata in an area of the test.
    External,
}

/// The first kernel version with guard pages, at which a lock stops populating a mapping: 6.13
/// for private memory, 6.15 for files (madvise(2), MADV_GUARD_INSTALL).
const GUARDS_SINCE: [u32; 2] = [6, 15];

fn is_kernel_old() -> bool {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = text.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    let ours: [u32; 2] = [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)];
    ours < GUARDS_SINCE
}

/// The memory of the heap's file, in bytes.
fn file_bytes(heap: &Heap) -> i64 {
    use std::os::fd::AsRawFd;
    let Some(file) = heap.fd() else { return 0 };
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the structure has room for the result.
    unsafe { libc::fstat(file.as_raw_fd(), status.as_mut_ptr()) };
    // SAFETY: every field is an integer, and zero is a value of it.
    unsafe { status.assume_init() }.st_blocks * 512
}

/// The resident memory of this process, in bytes.
fn resident_bytes() -> i64 {
    statm_bytes(1) as i64
}

fn lock_all() -> bool {
    // SAFETY: the call changes the resident memory of this child only.
    unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) == 0 }
}

fn build(builder: Builder, kind: Kind) -> Option<[Option<Heap>; 2]> {
    Some(match kind {
        Kind::Private => [builder.build().ok(), None],
        Kind::External => [external(builder), None],
        Kind::Unnamed => [builder.shared_fd().ok(), None],
        Kind::Attached => {
            let first = builder.shared_fd().ok()?;
            let second = builder.attach_fd(first.fd()?).ok()?;
            [Some(second), Some(first)]
        }
    })
}

/// A provider that hands out a child's own memory, from the first page on.
struct Provider {
    base: AtomicUsize,
    given: AtomicUsize,
}

// SAFETY: the pages belong to a mapping that stays, and each page is handed out once.
unsafe impl Extents for Provider {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let bytes = bytes.next_multiple_of(EXTENT_BYTES);
        let start = self.base.load(Relaxed) + self.given.fetch_add(bytes, Relaxed);
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the pages are in the child's reservation, and have no user yet.
        unsafe { libc::mprotect(start, bytes, libc::PROT_READ | libc::PROT_WRITE) };
        Some((NonNull::new(start.cast())?, bytes))
    }

    fn give_back(&self, _start: NonNull<u8>, _bytes: usize) -> bool {
        false
    }
}

fn map(bytes: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses an address where nothing is mapped.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    // SAFETY: just mapped; the mapping has no access, so an earlier lock of all memory has not
    // populated it.
    unsafe { libc::munlock(start, bytes) };
    NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED)
}

fn external(builder: Builder) -> Option<Heap> {
    static PROVIDER: Provider = Provider { base: AtomicUsize::new(0), given: AtomicUsize::new(0) };
    let bytes = LIMIT as usize;
    let base = map(bytes + EXTENT_BYTES)?;
    let start = base.as_ptr().expose_provenance().next_multiple_of(EXTENT_BYTES);
    PROVIDER.base.store(start, Relaxed);
    let metadata_bytes = External::metadata_bytes(start, bytes, 4096).ok()?;
    let area = map(metadata_bytes)?;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the range was just mapped and is not in use yet.
    unsafe { libc::mprotect(area.as_ptr().cast(), metadata_bytes, protection) };
    let base = NonNull::new(std::ptr::with_exposed_provenance_mut(start))?;
    let metadata = Some((area, metadata_bytes));
    // SAFETY: the range and the metadata were just mapped, contain only zeros, and stay mapped.
    unsafe { builder.external(External { base, bytes, extents: &PROVIDER, metadata }) }.ok()
}

/// Writes to blocks of 1 MiB and of 64 B, and frees them. Returns whether all blocks were
/// allocated.
fn use_some(heap: &Heap) -> bool {
    let mut blocks = [None; 2 * BLOCKS];
    for (index, slot) in blocks.iter_mut().enumerate() {
        let bytes = if index % 2 == 0 { 1 << 20 } else { 64 };
        let Ok(block) = heap.alloc(Request::new(bytes)) else { return false };
        // SAFETY: just allocated with this size.
        unsafe { block.write_bytes(1, bytes) };
        *slot = Some(block);
    }
    // SAFETY: allocated above, and not used again.
    blocks.into_iter().flatten().all(|block| unsafe { heap.free(block) }.is_ok())
}

/// Returns 0 if only used memory becomes resident; else the number of the failed step.
fn failed_step(builder: Builder, kind: Kind, when: When) -> i32 {
    if when == When::Before && !lock_all() {
        return 1;
    }
    let before = resident_bytes();
    let Some([Some(heap), _other]) = build(builder, kind) else { return 2 };
    if when == When::After && !lock_all() {
        return 3;
    }
    let is_small =
        |used| resident_bytes() - before < SLACK + used && file_bytes(&heap) < SLACK + used;
    if !is_small(0) {
        return 4;
    }
    if !use_some(&heap) {
        return 5;
    }
    let used = BLOCKS as i64 * MIB;
    if resident_bytes() - before < used {
        6
    } else if is_small(2 * used) {
        0
    } else {
        7
    }
}

fn check(kind: Kind, pages: Pages) {
    // SAFETY: the call only returns a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: mlockall of a process with a heap: not running as root: run as root");
        return;
    }
    if is_kernel_old() {
        eprintln!(
            "SKIPPED: mlockall of a process with a heap: no Linux 6.15: run on that kernel or a newer one"
        );
        return;
    }
    let builder = Heap::builder().limit(LIMIT).nodes(1).pages(pages);
    for when in [When::Before, When::After] {
        let status = in_child(|| failed_step(builder, kind, when));
        assert_eq!(status, 0, "{kind:?}, locked {when:?} the heap was built");
    }
}

#[test]
fn locked_private_heap_is_resident_as_far_as_used() {
    check(Kind::Private, Pages::Plain);
    check(Kind::Private, Pages::Transparent);
}

#[test]
fn locked_shared_heap_is_resident_as_far_as_used() {
    check(Kind::Unnamed, Pages::Plain);
    check(Kind::Unnamed, Pages::Transparent);
}

#[test]
fn locked_attached_heap_is_resident_as_far_as_used() {
    check(Kind::Attached, Pages::Plain);
}

#[test]
fn locked_external_heap_is_resident_as_far_as_used() {
    check(Kind::External, Pages::Auto);
}
