//! `sigaction` and related functions, under libc's names. The calls are forwarded to libc, except
//! that SIGBUS keeps the recorder's handler and stays unblocked in every thread: a fault in a
//! thread that blocks SIGBUS would end the process.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::ptr;

use haul_heap::guard::{self, Action};

use crate::real;

/// Returns the set without SIGBUS.
fn unblocked(set: libc::sigset_t) -> libc::sigset_t {
    let mut set = set;
    // SAFETY: the set is initialized, and the signal exists.
    unsafe { libc::sigdelset(&raw mut set, libc::SIGBUS) };
    set
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    if !guard::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { real::sigaction(number, new, old) };
    }
    // SAFETY: the caller's promise: the pointer is null, or an action.
    let new = unsafe { new.as_ref() };
    let new = new.map(|new| libc::sigaction { sa_mask: unblocked(new.sa_mask), ..*new });
    if number != libc::SIGBUS {
        let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the caller's promise for `old`; `new` is a local action or null.
        return unsafe { real::sigaction(number, new, old) };
    }
    let before = action_of(guard::kept());
    let status = new.map_or(0, keep);
    if status == 0 && !old.is_null() {
        // SAFETY: the caller's promise.
        unsafe { old.write(before) };
    }
    status
}

/// `SA_RESTORER` of x86's `asm/signal.h`. libc sets it by itself.
const SA_RESTORER: u64 = 0x0400_0000;

/// An action in libc's form, whose mask is longer than the kernel's.
fn action_of(Action { handler, flags, mask }: Action) -> libc::sigaction {
    // SAFETY: all zeros are a valid action: the default one, with an empty mask.
    let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    (action.sa_sigaction, action.sa_flags) = (handler, (flags & !SA_RESTORER) as u32 as c_int);
    for signal in 1..=u64::BITS {
        if mask >> (signal - 1) & 1 == 1 {
            // SAFETY: the set is initialized, and the signal exists.
            unsafe { libc::sigaddset(&raw mut action.sa_mask, signal as c_int) };
        }
    }
    action
}

/// Stores the program's new action. Returns 0, or -1 and sets `errno`.
fn keep(new: libc::sigaction) -> c_int {
    let is_in = |signal: &u32| {
        // SAFETY: the set is initialized, and the signal exists.
        unsafe { libc::sigismember(&raw const new.sa_mask, *signal as c_int) == 1 }
    };
    let mask = (1..=u64::BITS).filter(is_in).fold(0, |mask, signal| mask | 1 << (signal - 1));
    let (handler, flags) = (new.sa_sigaction, u64::from(new.sa_flags as u32));
    // SAFETY: the program is responsible for the action that it sets.
    match unsafe { guard::keep(Action { handler, flags, mask }) } {
        Ok(()) => 0,
        Err(errno) => {
            // SAFETY: the call has no conditions.
            let place = unsafe { libc::__errno_location() };
            // SAFETY: errno belongs to this thread.
            unsafe { place.write(errno.raw_os_error()) };
            -1
        }
    }
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    if number != libc::SIGBUS || !guard::is_on() {
        // SAFETY: the caller's promise.
        return unsafe { real::signal(number, handler) };
    }
    // SAFETY: all zeros are a valid action: the default one, with an empty mask.
    let mut new = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    // An interrupted call is restarted, like in glibc.
    (new.sa_sigaction, new.sa_flags) = (handler, libc::SA_RESTART);
    let before = guard::kept();
    if keep(new) == 0 { before.handler } else { libc::SIG_ERR }
}

/// Blocks the signals that the program requests, except SIGBUS.
fn masked(
    how: c_int,
    new: *const libc::sigset_t,
    real: impl FnOnce(*const libc::sigset_t) -> c_int,
) -> c_int {
    if !guard::is_on() || how == libc::SIG_UNBLOCK {
        return real(new);
    }
    // SAFETY: the caller's promise: the pointer is null, or a set.
    let new = unsafe { new.as_ref() }.map(|set| unblocked(*set));
    real(new.as_ref().map_or(ptr::null(), ptr::from_ref))
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    masked(how, new, |new| unsafe { real::sigprocmask(how, new, old) })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's promise.
    masked(how, new, |new| unsafe { real::pthread_sigmask(how, new, old) })
}
