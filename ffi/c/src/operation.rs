//! Submits operations to an engine.
//!
//! Every function checks addresses and lengths before it submits, so that a null or wrapped range
//! is an error and not a SIGSEGV of another thread.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;

use haul_rust::engine::{Operation, Pair, Region, Request, Ticket};

use crate::argument::put;
use crate::copy::{haul_hint_from_c, hint};
use crate::engine::{engine_of, haul_engine, status_of};
use crate::status::haul_status;

/// A range of memory in a list of haul_engine_lists().
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_engine_region {
    /// The first byte; may be NULL if length is 0.
    pub start: *mut c_void,
    /// The number of bytes.
    pub length: usize,
}

// The layout of the two types is the same.
const _: () = assert!(size_of::<haul_engine_region>() == size_of::<Region>());
const _: () = assert!(offset_of!(haul_engine_region, start) == offset_of!(Region, start));
const _: () = assert!(offset_of!(haul_engine_region, length) == offset_of!(Region, length));

/// A copy of haul_engine_batch(): length bytes from source to target.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_engine_pair {
    /// Where the bytes go; may be NULL if length is 0.
    pub target: *mut c_void,
    /// Where the bytes come from; may be NULL if length is 0.
    pub source: *const c_void,
    /// The number of bytes.
    pub length: usize,
}

// The layout of the two types is the same.
const _: () = assert!(size_of::<haul_engine_pair>() == size_of::<Pair>());
const _: () = assert!(offset_of!(haul_engine_pair, target) == offset_of!(Pair, target));
const _: () = assert!(offset_of!(haul_engine_pair, source) == offset_of!(Pair, source));
const _: () = assert!(offset_of!(haul_engine_pair, length) == offset_of!(Pair, length));

/// Submits a copy of n bytes from source to target, which may overlap, as in memmove, and writes
/// its ticket, which is never 0, to ticket. The hint is that of haul_memcpy_hinted().
///
/// Until an operation has ended, the program must not write its sources, nor access its targets;
/// other operations of the same engine may do so. An operation that overlaps earlier ones waits for
/// them in the engine, not in this call. Only if it overlaps 64 or more does this call wait for
/// some of them. If the engine does not take an operation that nothing overlaps, the CPU does it in
/// this call.
///
/// Each ticket must be passed to haul_engine_wait(), haul_engine_forget() or haul_engine_call(),
/// because the engine keeps a result until then. ticket may be NULL; then the result is not kept,
/// and haul_engine_drain() returns the first failure. Takes O(log n + k) steps for n ranges of
/// operations that have not ended, k of which overlap, and a lock.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT for a range that wraps around or is longer
/// than PTRDIFF_MAX. After an error nothing was submitted, and ticket is not written.
///
/// # Safety
/// engine is NULL or an engine; source is readable and target writable for n bytes until the
/// operation has ended; ticket is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_copy(
    engine: *const haul_engine,
    target: *mut c_void,
    source: *const c_void,
    n: usize,
    hint: haul_hint_from_c,
    ticket: *mut u64,
) -> haul_status {
    let operation = Operation::Copy { target: target.cast(), source: source.cast(), length: n };
    // SAFETY: the caller's promises.
    unsafe { submit(engine, operation, hint, &[target, source], ticket) }
}

/// Submits a fill: sets n bytes at target to the low 8 bits of byte. Otherwise like
/// haul_engine_copy().
///
/// # Safety
/// engine is NULL or an engine; target is writable for n bytes until the operation has ended;
/// ticket is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_fill(
    engine: *const haul_engine,
    target: *mut c_void,
    byte: c_int,
    n: usize,
    hint: haul_hint_from_c,
    ticket: *mut u64,
) -> haul_status {
    let [byte, ..] = byte.to_le_bytes();
    let operation = Operation::Fill { target: target.cast(), byte, length: n };
    // SAFETY: the caller's promises.
    unsafe { submit(engine, operation, hint, &[target], ticket) }
}

/// Submits a comparison of n bytes at left and at right. The result contains the index of the first
/// byte that differs. Otherwise like haul_engine_copy().
///
/// # Safety
/// engine is NULL or an engine; left and right are readable for n bytes until the operation has
/// ended; ticket is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_compare(
    engine: *const haul_engine,
    left: *const c_void,
    right: *const c_void,
    n: usize,
    ticket: *mut u64,
) -> haul_status {
    let operation = Operation::Compare { left: left.cast(), right: right.cast(), length: n };
    // SAFETY: the caller's promises.
    unsafe { submit(engine, operation, NO_HINT, &[left, right], ticket) }
}

/// Submits a CRC-32C (the checksum of iSCSI and ext4) of n bytes at source. start is the CRC-32C of
/// the bytes before them, 0 at the beginning. The result contains the checksum. Otherwise like
/// haul_engine_copy().
///
/// # Safety
/// engine is NULL or an engine; source is readable for n bytes until the operation has ended;
/// ticket is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_crc32c(
    engine: *const haul_engine,
    source: *const c_void,
    n: usize,
    start: u32,
    ticket: *mut u64,
) -> haul_status {
    let operation = Operation::Crc32c { source: source.cast(), length: n, seed: start };
    // SAFETY: the caller's promises.
    unsafe { submit(engine, operation, NO_HINT, &[source], ticket) }
}

/// Submits a copy that also computes the CRC-32C of the bytes, as haul_engine_crc32c() does. Source
/// and target must not overlap. Otherwise like haul_engine_copy().
///
/// Returns the codes of haul_engine_copy(), and HAUL_ERROR_ARGUMENT also for an overlap.
///
/// # Safety
/// engine is NULL or an engine; source is readable and target writable for n bytes until the
/// operation has ended; ticket is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_copy_crc32c(
    engine: *const haul_engine,
    target: *mut c_void,
    source: *const c_void,
    n: usize,
    start: u32,
    hint: haul_hint_from_c,
    ticket: *mut u64,
) -> haul_status {
    let (to, from) = (target.cast(), source.cast());
    let operation = Operation::CopyCrc32c { target: to, source: from, length: n, seed: start };
    // SAFETY: the caller's promises.
    unsafe { submit(engine, operation, hint, &[target, source], ticket) }
}

/// Submits a gather and scatter: copies the bytes of all sources, in order, to the targets, in
/// order. The sums of the lengths of both lists must be equal, and a target must not overlap a
/// source or another target. The lists themselves must not be changed or freed before the operation
/// has ended. Otherwise like haul_engine_copy().
///
/// Returns the codes of haul_engine_copy(), and HAUL_ERROR_ARGUMENT also for sums that differ and
/// for an overlap.
///
/// # Safety
/// engine is NULL or an engine; targets and sources are NULL or have as many readable elements as
/// the counts say; sources are readable and targets writable until the operation has ended; ticket
/// is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_lists(
    engine: *const haul_engine,
    targets: *const haul_engine_region,
    target_count: usize,
    sources: *const haul_engine_region,
    source_count: usize,
    hint: haul_hint_from_c,
    ticket: *mut u64,
) -> haul_status {
    for (list, count) in [(targets, target_count), (sources, source_count)] {
        if let Err(status) = check_list(list, count) {
            return status;
        }
    }
    let (targets, sources) = (targets.cast(), sources.cast());
    let operation = Operation::Lists { targets, target_count, sources, source_count };
    // SAFETY: the caller's promises, and both lists are aligned and short enough.
    unsafe { submit(engine, operation, hint, &[], ticket) }
}

/// Submits a batch: does count copies as one operation with one completion, in any order. A target
/// must not overlap a source or another target. The list itself must not be changed or freed before
/// the operation has ended. Otherwise like haul_engine_copy(). An engine without batches walks the
/// list.
///
/// Returns the codes of haul_engine_copy(), and HAUL_ERROR_ARGUMENT also for an overlap and for a
/// sum of lengths above PTRDIFF_MAX.
///
/// # Safety
/// engine is NULL or an engine; pairs is NULL or has count readable elements; sources are readable
/// and targets writable until the operation has ended; ticket is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_batch(
    engine: *const haul_engine,
    pairs: *const haul_engine_pair,
    count: usize,
    hint: haul_hint_from_c,
    ticket: *mut u64,
) -> haul_status {
    if let Err(status) = check_list(pairs, count) {
        return status;
    }
    let operation = Operation::Batch { pairs: pairs.cast(), count };
    // SAFETY: the caller's promises, and the list is aligned and short enough.
    unsafe { submit(engine, operation, hint, &[], ticket) }
}

/// Whether a list of this many elements can be read, as far as its address and length say.
fn check_list<T>(list: *const T, count: usize) -> Result<(), haul_status> {
    if count > 0 && list.is_null() {
        return Err(haul_status::HAUL_ERROR_NULL);
    }
    let is_short = count <= isize::MAX as usize / size_of::<T>();
    if count > 0 && !(is_short && list.is_aligned()) {
        return Err(haul_status::HAUL_ERROR_ARGUMENT);
    }
    Ok(())
}

/// The hint of an operation without a target.
const NO_HINT: haul_hint_from_c = 0;

/// Submits an operation over ranges that begin at `starts`.
///
/// # Safety
/// As for [`haul_engine_copy`]; lists are readable.
unsafe fn submit(
    engine: *const haul_engine,
    operation: Operation,
    number: haul_hint_from_c,
    starts: &[*const c_void],
    ticket: *mut u64,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = match unsafe { engine_of(engine) } {
        Ok(engine) => engine,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for lists.
    let length = unsafe { operation.length() };
    if length > 0 && starts.iter().any(|start| start.is_null()) {
        return haul_status::HAUL_ERROR_NULL;
    }
    let request = Request { operation, hint: hint(number) };
    if ticket.is_null() {
        // SAFETY: the caller's promise for the memory.
        return status_of(unsafe { engine.ordered.submit_unasked(request) });
    }
    // SAFETY: the caller's promise for the memory.
    let submitted = unsafe { engine.ordered.submit(request) };
    // SAFETY: the caller's promise for ticket.
    unsafe { put(ticket, || Ok(submitted.map(Ticket::number)?)) }
}
