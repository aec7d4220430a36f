//! SIGBUS, caught where another's memory is touched.
//!
//! A page of a mapped file is gone once the file is cut short, and a touch of it is a signal that
//! ends the process. Memory that cannot be sealed is mapped under a [`Guard`]: at the first such
//! signal in its range the handler puts private zeros in the place of the whole mapping and marks
//! the guard. The access that was interrupted goes on with the zeros, as if the other side had
//! written them, and whoever looks at [`Guard::is_broken`] after a burst gives the memory up.
//!
//! A signal outside every guard goes to the handler that was there before. A program that sets a
//! handler of its own later takes the guards away, unless it calls the one before it.

use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::error::Error;

/// Mappings that are guarded at once: 8 ports of 8 queues with 16 regions each, and as many again.
const GUARDS_MAX: usize = 2048;

/// A range of addresses; free where `end` is 0 and not taken.
struct Range {
    is_taken: AtomicBool,
    start: AtomicUsize,
    /// SYNC: range published: stored last, with the start before it.
    end: AtomicUsize,
    is_broken: AtomicBool,
}

static RANGES: [Range; GUARDS_MAX] = [const {
    Range {
        is_taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_broken: AtomicBool::new(false),
    }
}; GUARDS_MAX];

/// One more than the highest range that was ever taken: what the handler looks through.
static RANGES_USED: AtomicUsize = AtomicUsize::new(0);

/// What handled SIGBUS before, by `Box::into_raw`; lives as long as the process.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// A mapping whose pages may go. Dropped before the mapping is taken away.
#[derive(Debug)]
pub(crate) struct Guard {
    index: usize,
}

impl Guard {
    /// Guards a mapping of the caller's, to be read and written, whole pages of the file's kind.
    ///
    /// # Errors
    /// [`Error::System`] where all guards are in use, or the system takes no handler.
    pub(crate) fn new(start: usize, bytes: usize) -> Result<Self, Error> {
        install()?;
        let is_free = |range: &Range| !range.is_taken.swap(true, Ordering::Acquire);
        let Some(index) = RANGES.iter().position(is_free) else {
            let reason = std::io::Error::from_raw_os_error(libc::ENFILE);
            return Err(Error::System { attempt: "guard a peer's memory", reason });
        };
        RANGES_USED.fetch_max(index + 1, Ordering::Relaxed);
        let range = &RANGES[index];
        range.is_broken.store(false, Ordering::Relaxed);
        range.start.store(start, Ordering::Relaxed);
        // SYNC: range published.
        range.end.store(start + bytes, Ordering::Release);
        Ok(Self { index })
    }

    /// Whether pages of it were gone when they were touched: what stands there are zeros of this
    /// process's own.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        RANGES[self.index].is_broken.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let range = &RANGES[self.index];
        range.end.store(0, Ordering::Relaxed);
        range.is_taken.store(false, Ordering::Release);
    }
}

/// Sets the handler, once in a process.
fn install() -> Result<(), Error> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: all zeros are a valid value: no handler, no flags, an empty mask.
        let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
        action.sa_sigaction = handler as usize;
        // NODEFER, so that a second fault inside the handler of before ends the process.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: only the old action is asked for, into a place of its type.
        let asked = unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) };
        if asked != 0 {
            return;
        }
        // What handles it from here on finds the one before.
        BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
        // SAFETY: the handler calls what a handler may, and has the signature that SA_SIGINFO asks
        // for.
        let set = unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) };
        if set != 0 {
            BEFORE.store(ptr::null_mut(), Ordering::Release);
        }
    });
    if BEFORE.load(Ordering::Acquire).is_null() {
        let reason = std::io::Error::from_raw_os_error(libc::EINVAL);
        return Err(Error::System { attempt: "handle SIGBUS", reason });
    }
    Ok(())
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives the handler a valid description of the signal.
    let info_value = unsafe { &*info };
    // SAFETY: for SIGBUS the kernel sets the address, or 0 if a process sent the signal.
    let address = unsafe { info_value.si_addr() }.addr();
    if !replace(address) {
        pass_on(signal, info, context);
    }
}

/// Puts zeros in the place of the guarded mapping that the address lies in.
fn replace(address: usize) -> bool {
    let used = RANGES_USED.load(Ordering::Relaxed).min(GUARDS_MAX);
    for range in &RANGES[..used] {
        // SYNC: range published.
        let end = range.end.load(Ordering::Acquire);
        let start = range.start.load(Ordering::Relaxed);
        if end == 0 || address < start || address >= end {
            continue;
        }
        // SAFETY: there is always a place for the calling thread's error number.
        let error = unsafe { libc::__errno_location() };
        // SAFETY: the place is the thread's own.
        let error_before = unsafe { *error };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let place = ptr::without_provenance_mut(start);
        // SAFETY: replaces a mapping that a guard stands for, by one of the same range that can be
        // read and written like it; whoever uses it bears any bytes there.
        let mapped = unsafe { libc::mmap(place, end - start, protection, flags, -1, 0) };
        // SAFETY: as for reading it.
        unsafe { *error = error_before };
        if mapped == libc::MAP_FAILED {
            return false;
        }
        range.is_broken.store(true, Ordering::Relaxed);
        return true;
    }
    false
}

/// The signal is not of a guarded mapping: whoever handled it before does.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
    type PlainHandler = extern "C" fn(i32);
    let before = BEFORE.load(Ordering::Acquire);
    // SAFETY: null, or a box that is never freed.
    let Some(before) = (unsafe { before.as_ref() }) else { return };
    match before.sa_sigaction {
        // Its default is to end the process: the access is made again, and does.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: sets an action that was in force.
            unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: a handler with this flag has this signature, sigaction(2).
            let handler: Handler = unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: a handler without the flag has this one.
            let handler: PlainHandler = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}
