//! The path of a sampled call to the file.
//!
//! # Which calls are sampled
//!
//! Each call is some work: its size plus a constant. A thread counts the work of its calls down,
//! and samples the call in which the count passes a point. Points are at random distances with a
//! known mean, so a call of work `w` contains `w / mean` points on average, and a sample with `p`
//! points stands for `p * mean / w` calls like it. The estimates are therefore unbiased for calls
//! and for bytes. With a mean of 1, every call is sampled, and the numbers are exact.
//!
//! A point costs a sampled call some 150 ns, and every other call at most 0.7 ns.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use haul_kernels::Policy;
use haul_model::profile::layout::{
    ALIGNMENTS, PARTS_OF_A_CALL, THREADS, WORK_OF_A_CALL, class_of, distance_class_of, head, kind,
    site, thread,
};

use crate::sys::{self, ThreadWords};
use crate::{file, place};

const RELAXED: Ordering = Ordering::Relaxed;

/// The reference to this process's entry, in memory that the kernel sets to zeros in a forked
/// child; null if the kernel has no such memory.
static PROCESS: AtomicPtr<AtomicU32> = AtomicPtr::new(core::ptr::null_mut());

/// The process that began last. In a forked child, this is its parent.
static LAST: AtomicU32 = AtomicU32::new(0);

/// The reference of a process that is claiming its entry.
const CLAIMING: u32 = u32::MAX;

/// Claims an entry for this process and its program. Returns whether calls can be profiled. Only
/// the constructor calls it.
pub(crate) fn begin(is_from_file: bool) -> bool {
    place::begin();
    let memory = sys::memory_wiped_on_fork(size_of::<AtomicU32>());
    PROCESS.store(memory.map_or(core::ptr::null_mut(), <*mut u8>::cast), Ordering::Release);
    let reference = file::claim_process(sys::process_id(), 0);
    let mut program = MaybeUninit::<[u8; 64]>::uninit();
    let program = sys::read(c"/proc/self/comm", sys::zeroed(&mut program)).unwrap_or_default();
    file::describe(reference, program.trim_ascii_end(), Policy::current().isa.name(), is_from_file);
    LAST.store(reference, RELAXED);
    if let Some(process) = process() {
        process.store(reference, RELAXED);
    }
    true
}

fn process() -> Option<&'static AtomicU32> {
    // SAFETY: the pointer is null, or leads to a mapping that lasts as long as the process.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// The reference to this process's entry. A forked child claims one in its first sample.
fn current() -> u32 {
    let last = LAST.load(RELAXED);
    let Some(process) = process() else { return last };
    match process.compare_exchange(0, CLAIMING, RELAXED, RELAXED) {
        Err(CLAIMING) => last,
        Err(reference) => reference,
        Ok(_) => {
            let reference = file::claim_process(0, last);
            LAST.store(reference, RELAXED);
            process.store(reference, RELAXED);
            reference
        }
    }
}

/// The work of a call. No readable size reaches 2^63, so the sum does not wrap.
#[inline(always)]
fn work_of(size: usize) -> u64 {
    (size as u64).wrapping_add(WORK_OF_A_CALL)
}

/// A call that is sampled.
#[derive(Clone, Copy)]
struct Call {
    target: usize,
    /// 0 for memset.
    source: usize,
    size: usize,
    kind: u32,
    site: usize,
    work: u64,
}

/// Samples a call that is due.
pub(crate) fn sample(target: usize, source: usize, size: usize, kind: u32, site: usize) {
    let call = Call { target, source, size, kind, site, work: work_of(size).min(i64::MAX as u64) };
    let words = sys::thread_words();
    let points = points(words, call.work);
    if points > 0 {
        put(call, points, thread_of(words));
    }
}

/// The number of points in the work that was counted last. Sets the distance to the next point.
fn points(words: &ThreadWords, work: u64) -> u64 {
    let mean = mean_work();
    let mut random = words.random.load(RELAXED);
    let mut left = words.countdown.load(RELAXED);
    if random == 0 {
        // The thread's first call: its first point is anywhere in the first mean distance.
        let address = core::ptr::from_ref(words).addr() as u64;
        random = next(address ^ mean.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        left = 1_i64.wrapping_add((random % mean) as i64).wrapping_sub(work as i64);
    }
    let mut points = 0;
    if left <= 0 {
        random = next(random);
        let distance = mean / 2 + 1 + random % mean;
        left = left.wrapping_add(distance as i64);
        points = 1;
    }
    if left <= 0 {
        let more = left.unsigned_abs() / mean + 1;
        left = left.wrapping_add(more.wrapping_mul(mean) as i64);
        points += more;
    }
    words.random.store(random, RELAXED);
    words.countdown.store(left, RELAXED);
    points
}

/// The mean work between two samples, as the file says; limited, because another process may write
/// the file.
fn mean_work() -> u64 {
    file::long(head::WORK_PER_SAMPLE).map_or(1, |mean| mean.load(RELAXED).clamp(1, 1 << 40))
}

/// Xorshift (Marsaglia, "Xorshift RNGs", 2003), 64 bits.
fn next(mut random: u64) -> u64 {
    random ^= random << 13;
    random ^= random >> 7;
    random ^ random << 17
}

/// The offset of the thread's entry. A new thread, and the thread of a forked child, claim one.
fn thread_of(words: &ThreadWords) -> usize {
    let process = current();
    let entry = words.entry.load(RELAXED);
    let mut thread = entry as u32;
    // The lowest bit of the upper half marks an entry that was claimed, even if it is 0.
    let owner = process.wrapping_shl(1) | 1;
    if (entry >> 32) as u32 != owner {
        thread = file::claim_thread(process);
        words.entry.store(u64::from(owner) << 32 | u64::from(thread), RELAXED);
    }
    THREADS.entry(thread as usize)
}

/// Adds a sample to its thread and its call site.
fn put(call: Call, points: u64, thread: usize) {
    // Points times the mean distance are at most the work plus two distances, each at most 2^40.
    let covered = points.saturating_mul(mean_work());
    // At least the constant part: the compiler must see that it is not 0.
    let work = u128::from(call.work.max(1));
    let calls = (u128::from(covered) * u128::from(PARTS_OF_A_CALL) / work) as u64;
    let bytes = (u128::from(covered) * call.size as u128 / work) as u64;
    for (field, more) in [(thread::SAMPLES, 1), (thread::CALLS, calls), (thread::BYTES, bytes)] {
        file::add(thread + field, more);
    }
    let at = place::entry(call.site);
    let is_copy = call.kind <= kind::MEMMOVE;
    let class = class_of(call.size as u64);
    let aligned = |address: usize| (address.trailing_zeros() as usize).min(ALIGNMENTS - 1);
    for (field, more) in [(site::SAMPLES, 1), (site::CALLS, calls), (site::BYTES, bytes)] {
        file::add(at + field, more);
    }
    file::add(at + site::KINDS + 8 * (call.kind & 3) as usize, calls);
    file::add(at + site::CLASS_CALLS + 8 * class, calls);
    file::add(at + site::CLASS_BYTES + 8 * class, bytes);
    file::add(at + site::TARGETS + 8 * aligned(call.target), calls);
    if is_copy {
        let distance = call.target.abs_diff(call.source);
        if distance < call.size {
            file::add(at + site::OVERLAPS, calls);
        }
        file::add(at + site::DISTANCES + 8 * distance_class_of(distance as u64), calls);
        file::add(at + site::SOURCES + 8 * aligned(call.source), calls);
    }
}
