//! Notifies of the end of operations by a descriptor or a callback.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd};

use haul_rust::engine::{Bell, Failed, Ticket, Value};

use crate::argument::{give, take};
use crate::completion::haul_engine_result;
use crate::engine::{engine_of, haul_engine, status_of};
use crate::status::haul_status;

/// An eventfd that is readable once an operation has ended. One bell may serve any number of
/// operations and engines.
#[derive(Debug)]
pub struct haul_engine_bell {
    bell: Bell,
}

/// A function that haul_engine_run() calls with the result of an operation. result is valid during
/// the call only. The function may submit operations, wait, and call every other function of the
/// engine except haul_engine_close().
pub type haul_engine_callback = Option<
    unsafe extern "C" fn(
        context: *mut c_void,
        status: haul_status,
        result: *const haul_engine_result,
    ),
>;

/// Creates a bell and writes it to bell.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_SYSTEM. bell is written only on HAUL_OK.
///
/// # Safety
/// bell is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_bell_create(bell: *mut *mut haul_engine_bell) -> haul_status {
    // SAFETY: the caller's promise.
    unsafe { give(bell, || Ok(haul_engine_bell { bell: Bell::new()? })) }
}

/// Returns the descriptor to poll for reading, which the bell owns; -1 for NULL.
///
/// # Safety
/// bell is NULL or a bell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_bell_fd(bell: *const haul_engine_bell) -> c_int {
    // SAFETY: the caller's promise.
    let bell = unsafe { bell.as_ref() };
    bell.map_or(-1, |bell| bell.bell.as_fd().as_raw_fd())
}

/// Makes the descriptor of a bell unreadable, and returns how many operations have ended since the
/// last call; 0 for NULL. Makes one system call and never waits.
///
/// # Safety
/// bell is NULL or a bell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_bell_clear(bell: *const haul_engine_bell) -> u64 {
    // SAFETY: the caller's promise.
    let bell = unsafe { bell.as_ref() };
    bell.map_or(0, |bell| bell.bell.clear())
}

/// Frees a bell. Its descriptor is closed when no pending operation will ring it any more. bell may
/// be NULL.
///
/// # Safety
/// bell is NULL or a bell that the caller does not use again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_bell_free(bell: *mut haul_engine_bell) {
    // SAFETY: the caller's promise.
    unsafe { take(bell) };
}

/// Rings a bell when an operation has ended, at once if it has. The ticket stays valid. An
/// operation has one notification, the last one: a bell or a callback. In a child of fork, bells
/// and callbacks of the parent's operations are not notified unless the child waits for these
/// operations.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_TICKET.
///
/// # Safety
/// engine is NULL or an engine; bell is NULL or a bell.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_ring(
    engine: *const haul_engine,
    ticket: u64,
    bell: *const haul_engine_bell,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = unsafe { engine_of(engine) };
    // SAFETY: the caller's promise for bell.
    let bell = unsafe { bell.as_ref() }.ok_or(haul_status::HAUL_ERROR_NULL);
    match (engine, bell) {
        (Ok(engine), Ok(bell)) => status_of(engine.ordered.ring(Ticket::of(ticket), &bell.bell)),
        (Err(status), _) | (_, Err(status)) => status,
    }
}

/// Lets a later haul_engine_run() call callback with context and with the result of an operation,
/// which the callback takes instead of haul_engine_wait(). context may be NULL; it must stay valid
/// until the callback has run or the engine was closed. Replaces a bell or a callback of the
/// operation. If the result is taken otherwise before, the status is HAUL_ERROR_NO_TICKET.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_TICKET.
///
/// # Safety
/// engine is NULL or an engine; callback is NULL or a function that may be called with context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_call(
    engine: *const haul_engine,
    ticket: u64,
    callback: haul_engine_callback,
    context: *mut c_void,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = unsafe { engine_of(engine) };
    let (Ok(engine), Some(callback)) = (engine, callback) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    let context = Context(context);
    let run = move |result: Result<Value, Failed>| {
        let made = haul_engine_result::of(&result);
        // SAFETY: the caller of this function promised that this call is allowed.
        unsafe { callback(context.pointer(), status_of(result), &raw const made) };
    };
    status_of(engine.ordered.call(Ticket::of(ticket), &engine.callbacks, run))
}

/// Calls the callbacks of operations that have ended, at most at_most, and returns their number; 0
/// for NULL. Calls only those that were ready at the beginning, so a callback that submits again
/// does not keep this call busy. Never waits.
///
/// # Safety
/// engine is NULL or an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_run(engine: *const haul_engine, at_most: usize) -> usize {
    // SAFETY: the caller's promise.
    let engine = unsafe { engine.as_ref() };
    engine.map_or(0, |engine| engine.callbacks.run(at_most))
}

/// A pointer for a callback.
#[derive(Clone, Copy)]
struct Context(*mut c_void);

// SAFETY: only the callback uses the pointer, on the thread that calls `haul_engine_run`, which the
// program chooses.
unsafe impl Send for Context {}

impl Context {
    fn pointer(self) -> *mut c_void {
        self.0
    }
}
