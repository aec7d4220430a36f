//! Sizes above 4 GiB, where a 32-bit count would wrap.
//!
//! # Idea
//!
//! Neither source nor target needs that much memory: most parts of both map the same 16 MiB again
//! and again. Only the windows that are checked have separate memory: the start, the end, and
//! both sides of 2 GiB and 4 GiB.

use core::slice;

use crate::support::oracle::{self, UNTOUCHED, first_difference};
use crate::support::subjects::{Copier, copiers, fillers};

const GIB: usize = 1 << 30;

/// The unit of mapping, in bytes.
const CHUNK: usize = 16 << 20;

/// The number of chunks in a mapping: enough for a chunk beyond 4 GiB that has neighbours on both
/// sides.
const CHUNKS: usize = 4 * GIB / CHUNK + 3;

/// Chunks with separate memory.
const WINDOWS: [usize; 6] =
    [0, 2 * GIB / CHUNK - 1, 2 * GIB / CHUNK, 4 * GIB / CHUNK - 1, 4 * GIB / CHUNK, CHUNKS - 1];

/// A chunk that shares its memory with all chunks that are not windows.
const SHARED: usize = 100;

/// Bytes at the edges of the shared chunk that a shifted copy may take from a neighbouring window.
const EDGE: usize = 4096;

/// `CHUNKS` adjacent chunks between two inaccessible chunks. The memory of seven chunks backs all
/// of them.
struct Folded {
    reserved: *mut u8,
    file: libc::c_int,
}

impl Folded {
    const BYTES: usize = CHUNKS * CHUNK;

    fn new() -> Self {
        // SAFETY: the name is a C string, and there are no flags.
        let file = unsafe { libc::memfd_create(c"haul-test".as_ptr(), 0) };
        assert!(file >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        let held = (WINDOWS.len() + 1) * CHUNK;
        // SAFETY: the descriptor is that of the file just created.
        assert_eq!(unsafe { libc::ftruncate(file, held as libc::off_t) }, 0);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let bytes = Self::BYTES + 2 * CHUNK;
        // SAFETY: a new mapping at an address that the system chooses.
        let reserved =
            unsafe { libc::mmap(core::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(reserved, libc::MAP_FAILED, "reserving {bytes} bytes of address space");
        let folded = Self { reserved: reserved.cast(), file };
        (0..CHUNKS).for_each(|chunk| folded.map(chunk));
        folded
    }

    fn map(&self, chunk: usize) {
        let place = WINDOWS.iter().position(|&window| window == chunk).map_or(0, |at| at + 1);
        // SAFETY: a chunk of the reserved range.
        let mapped = unsafe {
            libc::mmap(
                self.start().wrapping_add(chunk * CHUNK).cast(),
                CHUNK,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                self.file,
                (place * CHUNK) as libc::off_t,
            )
        };
        assert_ne!(mapped, libc::MAP_FAILED, "mapping chunk {chunk}");
    }

    fn start(&self) -> *mut u8 {
        self.reserved.wrapping_add(CHUNK)
    }

    fn bytes(&self, first: usize, length: usize) -> &[u8] {
        assert!(first + length <= Self::BYTES);
        // SAFETY: inside the mapping, which is not written while it is borrowed.
        unsafe { slice::from_raw_parts(self.start().add(first), length) }
    }

    /// Every chunk with separate memory, and the shared one, as slices.
    fn for_each_chunk(&mut self, mut action: impl FnMut(usize, &mut [u8])) {
        for chunk in WINDOWS.into_iter().chain([SHARED]) {
            let start = self.start().wrapping_add(chunk * CHUNK);
            // SAFETY: one chunk of the mapping, borrowed mutably as a whole.
            action(chunk, unsafe { slice::from_raw_parts_mut(start, CHUNK) });
        }
    }
}

impl Drop for Folded {
    fn drop(&mut self) {
        // SAFETY: `new` created the mapping and the file, and nothing refers to them any more.
        unsafe {
            libc::munmap(self.reserved.cast(), Self::BYTES + 2 * CHUNK);
            libc::close(self.file);
        }
    }
}

/// The part of a chunk whose bytes follow from a transfer to `to..end` alone.
fn checked_range(chunk: usize, to: usize, end: usize) -> core::ops::Range<usize> {
    let edge = if chunk == SHARED { EDGE } else { 0 };
    (chunk * CHUNK + edge).max(to)..((chunk + 1) * CHUNK - edge).min(end)
}

fn check_copy(copier: &Copier, source: &Folded, target: &mut Folded) {
    target.for_each_chunk(|_, bytes| bytes.fill(UNTOUCHED));
    // The source ends at the guarded chunk. The target does not end there, so that an extra byte
    // is detected.
    let (from, to) = (77, 5);
    let length = Folded::BYTES - from;
    // SAFETY: both lie inside their mappings.
    let returned = unsafe {
        (copier.call)(target.start().add(to), source.start().add(from).cast_const(), length)
    };
    assert_eq!(returned, target.start().wrapping_add(to));
    for chunk in WINDOWS.into_iter().chain([SHARED]) {
        let range = checked_range(chunk, to, to + length);
        let copied = target.bytes(range.start, range.len());
        let wanted = source.bytes(range.start - to + from, range.len());
        let wrong = first_difference(copied, wanted).map(|index| range.start - to + index);
        assert_eq!(wrong, None, "{} of {length} bytes: wrong from this byte on", copier.name);
    }
    let (before, after) = (target.bytes(0, to), target.bytes(to + length, from - to));
    assert_eq!(oracle::first_touched(before), None, "{} wrote before the target", copier.name);
    assert_eq!(oracle::first_touched(after), None, "{} wrote past the target", copier.name);
}

/// Whether the function is tested. At this size, the excluded entries of the dispatch are the
/// same function as a tested entry.
fn is_tried(name: &str) -> bool {
    !["raw::memmove", "c::memcpy", "c::memmove", "copy", "fill", "hinted unknown"].contains(&name)
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes in debug mode: cargo test --release")]
fn copies_past_4_gib_are_right() {
    let (mut source, mut target) = (Folded::new(), Folded::new());
    source.for_each_chunk(|chunk, bytes| oracle::paint(bytes, chunk as u64));
    for copier in copiers().iter().filter(|copier| is_tried(copier.name)) {
        check_copy(copier, &source, &mut target);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes in debug mode: cargo test --release")]
fn fills_past_4_gib_are_right() {
    let mut target = Folded::new();
    let (first, length) = (5, Folded::BYTES - 5 - 3);
    for filler in fillers().iter().filter(|filler| is_tried(filler.name)) {
        target.for_each_chunk(|_, bytes| bytes.fill(UNTOUCHED));
        // SAFETY: inside the mapping.
        let returned = unsafe { (filler.call)(target.start().add(first), 0xc3, length) };
        assert_eq!(returned, target.start().wrapping_add(first));
        for chunk in WINDOWS.into_iter().chain([SHARED]) {
            let range = checked_range(chunk, first, first + length);
            let filled = target.bytes(range.start, range.len());
            let wrong = oracle::first_other(filled, 0xc3);
            assert_eq!(wrong.map(|at| range.start + at), None, "{}", filler.name);
        }
        let outside = [target.bytes(0, first), target.bytes(first + length, 3)].concat();
        assert_eq!(oracle::first_touched(&outside), None, "{} wrote outside", filler.name);
    }
}

/// The free memory in MiB that the test requires. Overlapping ranges need memory for every byte;
/// some 1000 MiB remain for other processes.
const OVERLAP_MIB: usize = 5200;

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes in debug mode: cargo test --release")]
fn overlapping_moves_past_4_gib_are_right() {
    if free_mib() < OVERLAP_MIB {
        eprintln!(
            "SKIPPED: overlapping pieces past 4 GiB: less than {OVERLAP_MIB} MiB of free memory: \
             run it on a larger machine"
        );
        return;
    }
    /// The number of words of 8 bytes that are moved, and the distance in words.
    const WORDS: usize = 4 * GIB / 8 + 1000;
    const BY: usize = 9;
    let value = |index: usize| (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut words: Vec<u64> = (0..WORDS + BY).map(value).collect();
    let start = words.as_mut_ptr();
    // SAFETY: inside the vector.
    unsafe { haul_copy::memmove(start.add(BY).cast(), start.cast(), WORDS * 8) };
    let wrong = (0..WORDS).find(|&index| words[index + BY] != value(index));
    assert_eq!(wrong, None, "moved up");
    assert!((0..BY).all(|index| words[index] == value(index)), "wrote below the target");
    // Back again. The move up has left all words where they are now expected, except the first
    // words. SAFETY: inside the vector.
    unsafe { haul_copy::memmove(start.cast(), start.add(BY).cast(), WORDS * 8) };
    let wrong = (0..WORDS).find(|&index| words[index] != value(index));
    assert_eq!(wrong, None, "moved down");
    assert!((WORDS..WORDS + BY).all(|index| words[index] == value(index - BY)), "wrote above");
}

/// The available memory in MiB, or the memory that the control group allows, if that is less.
fn free_mib() -> usize {
    let number = |path| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let available = available.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    let group = number("/sys/fs/cgroup/memory.max")
        .zip(number("/sys/fs/cgroup/memory.current"))
        .map_or(usize::MAX, |(most, current)| most.saturating_sub(current) >> 20);
    available.map_or(0, |kib: usize| kib >> 10).min(group)
}
