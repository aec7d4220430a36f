//! Polls and waits for operations of an engine, and takes their results.

use std::time::Duration;

use haul_rust::engine::{Access, Failed, Outcome, Refusal, Ticket, Value};

use crate::argument::put;
use crate::engine::{engine_of, haul_engine, status_of};
use crate::status::haul_status;

/// The access to an address that failed. New kinds are added at the end; no kind changes its
/// number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_engine_access {
    /// None failed.
    HAUL_ENGINE_ACCESS_NONE = 0,
    /// The engine read a source.
    HAUL_ENGINE_ACCESS_READ = 1,
    /// The engine wrote a target.
    HAUL_ENGINE_ACCESS_WRITE = 2,
}

/// What an operation computed, or what is missing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_engine_result {
    /// After HAUL_OK for a comparison: the index of the first byte that differs; UINT64_MAX if all
    /// bytes are equal, and in every other result.
    pub difference: u64,
    /// After HAUL_ERROR_PARTIAL: exactly this many bytes are done, from the beginning; else 0.
    pub bytes_done: u64,
    /// After HAUL_ERROR_PARTIAL: the address that could not be accessed; else 0.
    pub address: u64,
    /// After HAUL_ERROR_PARTIAL: the haul_engine_access that failed; else HAUL_ENGINE_ACCESS_NONE.
    pub access: u32,
    /// After HAUL_OK for an operation with a CRC-32C: the CRC-32C; else 0.
    pub crc32c: u32,
    /// After HAUL_ERROR_REFUSED: the status that the device reported, if it reported one; else 0.
    pub device_status: u32,
    /// Always 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<haul_engine_result>() == 40);

impl haul_engine_result {
    pub(crate) fn of(result: &Result<Value, Failed>) -> Self {
        use haul_engine_access::{HAUL_ENGINE_ACCESS_READ, HAUL_ENGINE_ACCESS_WRITE};
        let mut made = Self {
            difference: u64::MAX,
            bytes_done: 0,
            address: 0,
            access: 0,
            crc32c: 0,
            device_status: 0,
            reserved: 0,
        };
        let outcome = match result {
            Ok(value) => Outcome::Done(*value),
            Err(failed) => failed.outcome,
        };
        match outcome {
            Outcome::Done(Value::Crc32c(crc)) => made.crc32c = crc,
            Outcome::Done(Value::Difference(Some(index))) => made.difference = index as u64,
            Outcome::Partial { bytes_done, address, access } => {
                (made.bytes_done, made.address) = (bytes_done as u64, address as u64);
                made.access = match access {
                    Access::Read => HAUL_ENGINE_ACCESS_READ,
                    Access::Write => HAUL_ENGINE_ACCESS_WRITE,
                } as u32;
            }
            Outcome::Refused(Refusal::Status(status)) => made.device_status = status.into(),
            _ => {}
        }
        made
    }
}

/// Writes to is_done whether an operation has ended. Never waits.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_TICKET. is_done is written only on HAUL_OK.
///
/// # Safety
/// engine is NULL or an engine; is_done is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_is_done(
    engine: *const haul_engine,
    ticket: u64,
    is_done: *mut bool,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = unsafe { engine_of(engine) };
    // SAFETY: the caller's promise for is_done.
    unsafe { put(is_done, || Ok(engine?.ordered.is_done(Ticket::of(ticket))?)) }
}

/// Writes to bytes the number of bytes at the beginning of the target that are written already, so
/// that the caller may read them. Never waits.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_TICKET. bytes is written only on HAUL_OK.
///
/// # Safety
/// engine is NULL or an engine; bytes is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_bytes_done(
    engine: *const haul_engine,
    ticket: u64,
    bytes: *mut usize,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = unsafe { engine_of(engine) };
    // SAFETY: the caller's promise for bytes.
    unsafe { put(bytes, || Ok(engine?.ordered.bytes_done(Ticket::of(ticket))?)) }
}

/// Waits for the end of an operation and takes its result, after which the ticket is not valid. The
/// thread takes part in the operation if it can, then polls, then sleeps. A signal does not end the
/// wait. result may be NULL; it is written if the operation has ended, also after a failure.
///
/// Returns HAUL_OK if all of the operation is done; HAUL_ERROR_PARTIAL, HAUL_ERROR_REFUSED or
/// HAUL_ERROR_ENGINE_GONE if not, which only an engine with HAUL_ENGINE_REPORT_FAULTS returns,
/// except HAUL_ERROR_ENGINE_GONE in a child of fork, for an overlapping copy that a thread of the
/// parent was doing at the fork; HAUL_ERROR_NULL; HAUL_ERROR_NO_TICKET.
///
/// # Safety
/// engine is NULL or an engine; result is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_wait(
    engine: *const haul_engine,
    ticket: u64,
    result: *mut haul_engine_result,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    match unsafe { engine_of(engine) } {
        // SAFETY: the caller's promise for result.
        Ok(engine) => unsafe { report(engine.ordered.wait(Ticket::of(ticket)), result) },
        Err(status) => status,
    }
}

/// Like haul_engine_wait(), but waits at most time_ns nanoseconds: 0 takes the result if the
/// operation has ended.
///
/// Returns the codes of haul_engine_wait(), and HAUL_ERROR_PENDING if the time is over; then the
/// ticket remains valid.
///
/// # Safety
/// engine is NULL or an engine; result is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_wait_for(
    engine: *const haul_engine,
    ticket: u64,
    time_ns: u64,
    result: *mut haul_engine_result,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = match unsafe { engine_of(engine) } {
        Ok(engine) => engine,
        Err(status) => return status,
    };
    match engine.ordered.wait_for(Ticket::of(ticket), Duration::from_nanos(time_ns)) {
        // SAFETY: the caller's promise for result.
        Some(ended) => unsafe { report(ended, result) },
        None => haul_status::HAUL_ERROR_PENDING,
    }
}

/// Gives up the result of an operation, which goes on. haul_engine_drain() returns its failure.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_TICKET.
///
/// # Safety
/// engine is NULL or an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_forget(
    engine: *const haul_engine,
    ticket: u64,
) -> haul_status {
    // SAFETY: the caller's promise.
    match unsafe { engine_of(engine) } {
        Ok(engine) => status_of(engine.ordered.forget(Ticket::of(ticket))),
        Err(status) => status,
    }
}

/// Writes the result of an operation that has ended to `target`, unless that is NULL.
///
/// # Safety
/// `target` is NULL or writable.
unsafe fn report(result: Result<Value, Failed>, target: *mut haul_engine_result) -> haul_status {
    let made = haul_engine_result::of(&result);
    let status = status_of(result);
    if status != haul_status::HAUL_ERROR_NO_TICKET && !target.is_null() {
        // SAFETY: the caller's promise.
        let _ = unsafe { put(target, || Ok(made)) };
    }
    status
}
