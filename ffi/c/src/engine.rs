//! Opens and closes copy engines, and finds conflicts with their pending operations.

use std::ffi::{CString, c_char, c_void};

use haul_rust::engine::{
    Callbacks, Error, Failed, Ordered, Outcome, Queue, Refusal, Settings, Trouble,
};

use crate::argument::{give, put, take, text_of};
use crate::status::haul_status;

/// A queue of operations in front of an engine, which does them while the caller computes.
/// Operations that overlap, if one of them writes, run in the order in which they were submitted;
/// the others in any order. Any number of threads may use an engine at the same time. After a fork
/// the child may use its copy too; the CPU then does the operations that were pending at the fork,
/// in the child's memory.
#[derive(Debug)]
pub struct haul_engine {
    // Dropped first: it waits for the operations.
    pub(crate) ordered: Ordered,
    pub(crate) callbacks: Callbacks,
    name: CString,
}

/// The CPU does not finish what the engine could not do: see flags in haul_engine_options.
pub const HAUL_ENGINE_REPORT_FAULTS: u32 = 1;

/// Pending operations read some of the range.
pub const HAUL_ENGINE_READS: u32 = 1;
/// Pending operations write some of the range.
pub const HAUL_ENGINE_WRITES: u32 = 2;

/// Options of an engine. All zeros select the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_engine_options {
    /// The CPU does operations of fewer bytes at once. The engines auto and inline ignore it.
    pub cpu_below: u64,
    /// The largest number of operations that the engine has at the same time, at most 65,536;
    /// 0: 128. The CPU does further ones at once.
    pub entries: u32,
    /// HAUL_ENGINE_REPORT_FAULTS or 0. Without the flag, the CPU finishes the operations that a
    /// device could not, so that an address that is not mapped is a SIGSEGV. With it, a result says
    /// what is missing, so that an address that is not mapped is an error, if a device accessed it.
    pub flags: u32,
}

const _: () = assert!(size_of::<haul_engine_options>() == 16);

impl haul_engine_options {
    fn settings(&self) -> Result<Settings, haul_status> {
        if self.flags & !HAUL_ENGINE_REPORT_FAULTS != 0 {
            return Err(haul_status::HAUL_ERROR_ARGUMENT);
        }
        let default = Settings::default();
        Ok(Settings {
            entries: if self.entries == 0 { default.entries } else { self.entries as usize },
            cpu_below: usize::try_from(self.cpu_below).unwrap_or(usize::MAX),
            finishes_on_cpu: self.flags & HAUL_ENGINE_REPORT_FAULTS == 0,
            ..default
        })
    }
}

/// Opens the engine of this name and writes it to engine: "inline", the calling thread; "worker", a
/// helper thread; "auto", one of both by the size; "dsa", the first queue of Intel's Data
/// Streaming Accelerators that this process may use; or "dsa:wq0.1", that queue. The command
/// `haul engine list` prints the names. options may be NULL. A helper thread sleeps while no
/// operation is pending.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_ENGINE;
/// HAUL_ERROR_SYSTEM. engine is written only on HAUL_OK.
///
/// # Safety
/// name is NULL or a string; options is NULL or readable; engine is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_open(
    name: *const c_char,
    options: *const haul_engine_options,
    engine: *mut *mut haul_engine,
) -> haul_status {
    // SAFETY: the caller's promise for name.
    let name = unsafe { text_of(name) };
    // SAFETY: the caller's promise for options.
    let options = unsafe { options.as_ref() };
    let settings = options.map_or(Ok(Settings::default()), haul_engine_options::settings);
    let open = || {
        let queue = Queue::by_name_with(name?, settings?)?;
        let name = CString::new(&*queue.facts().name).unwrap_or_default();
        Ok(haul_engine { ordered: Ordered::new(&queue), callbacks: Callbacks::new(), name })
    };
    // SAFETY: the caller's promise for engine.
    unsafe { give(engine, open) }
}

/// Returns the engine's name; "dsa" opens an engine with a name such as "dsa:wq0.1". Returns NULL
/// for NULL. The text lives as long as the engine.
///
/// # Safety
/// engine is NULL or an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_name(engine: *const haul_engine) -> *const c_char {
    // SAFETY: the caller's promise.
    let engine = unsafe { engine.as_ref() };
    engine.map_or(std::ptr::null(), |engine| engine.name.as_ptr())
}

/// Writes to conflicts what operations that have not ended do with length bytes at address:
/// HAUL_ENGINE_READS | HAUL_ENGINE_WRITES, or 0. A program may read the range if none of them
/// writes it, and write it if the result is 0. First checks once whether the operations that it
/// finds have ended. address may have any value.
///
/// Takes O(log n) steps for n ranges of operations that have not ended, and a lock.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL. conflicts is written only on HAUL_OK.
///
/// # Safety
/// engine is NULL or an engine; conflicts is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_conflicts(
    engine: *const haul_engine,
    address: *const c_void,
    length: usize,
    conflicts: *mut u32,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = unsafe { engine_of(engine) };
    let find = || {
        let found = engine?.ordered.conflicts(address.cast(), length);
        let reads = if found.reads { HAUL_ENGINE_READS } else { 0 };
        Ok(reads | if found.writes { HAUL_ENGINE_WRITES } else { 0 })
    };
    // SAFETY: the caller's promise for conflicts.
    unsafe { put(conflicts, find) }
}

/// A status that a device reported for operations which it neither did nor stopped at a page.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_engine_trouble {
    /// How often the device reported it.
    pub count: u64,
    /// The status.
    pub status: u32,
    /// Always 0.
    pub reserved: u32,
    /// The cause and what a person can do about it, as text.
    pub text: [c_char; HAUL_ENGINE_TROUBLE_SIZE],
}

/// The size of a text in haul_engine_trouble, with the NUL at its end. A longer text is cut.
pub const HAUL_ENGINE_TROUBLE_SIZE: usize = 240;

const _: () = assert!(size_of::<haul_engine_trouble>() == 256);

impl haul_engine_trouble {
    fn of(trouble: &Trouble) -> Self {
        let mut text = [0; HAUL_ENGINE_TROUBLE_SIZE];
        let said = format!("{}; {}", trouble.cause, trouble.remedy);
        // The last byte stays NUL.
        for (to, byte) in text[..HAUL_ENGINE_TROUBLE_SIZE - 1].iter_mut().zip(said.bytes()) {
            *to = c_char::from_ne_bytes([byte]);
        }
        Self { count: trouble.count, status: trouble.status.into(), reserved: 0, text }
    }
}

/// Writes to count how many different statuses the engine's device has reported besides successes
/// and page faults, and the first capacity of them to troubles, which may be NULL if capacity is 0.
/// The CPU finishes these operations, so that their results do not show it. An engine of software
/// has none. Allocates.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL. The outputs are written only on HAUL_OK.
///
/// # Safety
/// engine is NULL or an engine; troubles is NULL or has capacity writable elements; count is NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_troubles(
    engine: *const haul_engine,
    troubles: *mut haul_engine_trouble,
    capacity: usize,
    count: *mut usize,
) -> haul_status {
    // SAFETY: the caller's promise for engine.
    let engine = unsafe { engine_of(engine) };
    let list = || {
        let found = engine?.ordered.troubles();
        if capacity > 0 && troubles.is_null() {
            return Err(haul_status::HAUL_ERROR_NULL);
        }
        for (number, trouble) in found.iter().take(capacity).enumerate() {
            // SAFETY: the element is below the capacity, so it is inside of the caller's array.
            let element = unsafe { troubles.add(number) };
            // SAFETY: the caller's promise: the element is writable.
            unsafe { element.write(haul_engine_trouble::of(trouble)) };
        }
        Ok(found.len())
    };
    // SAFETY: the caller's promise for count.
    unsafe { put(count, list) }
}

/// Waits for every operation that was submitted before. Their tickets stay valid.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; or the first failure, since the last call, of an operation
/// that was submitted without a ticket or forgotten: HAUL_ERROR_PARTIAL, HAUL_ERROR_REFUSED or
/// HAUL_ERROR_ENGINE_GONE.
///
/// # Safety
/// engine is NULL or an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_drain(engine: *const haul_engine) -> haul_status {
    // SAFETY: the caller's promise.
    match unsafe { engine_of(engine) } {
        Ok(engine) => status_of(engine.ordered.drain()),
        Err(status) => status,
    }
}

/// Waits for every operation and closes the engine. Callbacks that have not run are not called:
/// haul_engine_drain() and then haul_engine_run() call them. Waits for ever if a broken device does
/// not let itself be closed, because it may still write to memory. engine may be NULL.
///
/// # Safety
/// engine is NULL or an engine that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_engine_close(engine: *mut haul_engine) {
    // SAFETY: the caller's promise.
    unsafe { take(engine) };
}

/// The engine behind a pointer from C.
///
/// # Safety
/// `engine` is NULL or an engine that lives for `'a`.
pub(crate) unsafe fn engine_of<'a>(
    engine: *const haul_engine,
) -> Result<&'a haul_engine, haul_status> {
    // SAFETY: the caller's promise.
    unsafe { engine.as_ref() }.ok_or(haul_status::HAUL_ERROR_NULL)
}

/// The status of a call that the engine did, or refused.
pub(crate) fn status_of<T>(result: Result<T, Failed>) -> haul_status {
    result.map_or_else(Into::into, |_| haul_status::HAUL_OK)
}

impl From<Error> for haul_status {
    fn from(error: Error) -> Self {
        match error {
            Error::Missing { .. } => Self::HAUL_ERROR_NO_ENGINE,
            Error::Setting { .. } => Self::HAUL_ERROR_ARGUMENT,
            _ => Self::HAUL_ERROR_SYSTEM,
        }
    }
}

impl From<Failed> for haul_status {
    fn from(failed: Failed) -> Self {
        match failed.outcome {
            Outcome::Done(_) => Self::HAUL_OK,
            Outcome::Partial { .. } => Self::HAUL_ERROR_PARTIAL,
            Outcome::Refused(Refusal::BadRange) => Self::HAUL_ERROR_ARGUMENT,
            Outcome::Refused(Refusal::NoTicket) => Self::HAUL_ERROR_NO_TICKET,
            Outcome::Refused(_) => Self::HAUL_ERROR_REFUSED,
            Outcome::Gone => Self::HAUL_ERROR_ENGINE_GONE,
            _ => Self::HAUL_ERROR_INTERNAL,
        }
    }
}
