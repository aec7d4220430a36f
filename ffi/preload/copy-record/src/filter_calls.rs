//! `prctl` and `syscall`, under libc's names. All calls reach the kernel unchanged. Before a filter
//! of system calls begins, the recorder stops making any. The recording ends where a thread may no
//! longer read the processor's counter: the strict mode of seccomp forbids that too.

use core::ffi::{c_int, c_long, c_ulong};

use crate::recording::Recording;
use crate::{filter, sys};

/// What a request changes for the recorder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Request {
    /// Nothing.
    None,
    /// The thread may no longer make every system call.
    Filter,
    /// It may no longer read the processor's counter either.
    NoCounter,
}

/// Makes the request, and resumes normal operation if the kernel refused it.
fn ask_for(request: Request, ask: impl FnOnce() -> i64) -> c_long {
    if request == Request::None {
        return sys::with_errno(ask());
    }
    filter::begin();
    let answer = ask();
    if answer < 0 {
        filter::refused();
    } else if request == Request::NoCounter {
        Recording::stop();
    }
    sys::with_errno(answer)
}

/// The request of a call of `prctl`. A call without a filter program only tests whether filters are
/// supported.
fn of_prctl(option: c_ulong, a: c_ulong, b: c_ulong) -> Request {
    match option as c_int {
        libc::PR_SET_SECCOMP if a == c_ulong::from(libc::SECCOMP_MODE_STRICT) => Request::NoCounter,
        libc::PR_SET_SECCOMP if a == c_ulong::from(libc::SECCOMP_MODE_FILTER) && b != 0 => {
            Request::Filter
        }
        libc::PR_SET_TSC if a == libc::PR_TSC_SIGSEGV as c_ulong => Request::NoCounter,
        _ => Request::None,
    }
}

/// The request of a call of `seccomp`.
fn of_seccomp(operation: c_ulong, program: c_ulong) -> Request {
    if operation == c_ulong::from(libc::SECCOMP_SET_MODE_STRICT) {
        return Request::NoCounter;
    }
    let is_set = operation == c_ulong::from(libc::SECCOMP_SET_MODE_FILTER) && program != 0;
    if is_set { Request::Filter } else { Request::None }
}

/// # Safety
/// The obligations of libc's function. That function has a variable number of arguments, which
/// 64-bit Linux passes like those of this function. Arguments that a caller omitted are not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    let arguments = [i64::from(option) as u64, a, b, c, d, 0];
    // SAFETY: the caller's promise.
    let ask = || unsafe { sys::call(libc::SYS_prctl, arguments) };
    ask_for(of_prctl(option as c_ulong, a, b), ask) as c_int
}

/// # Safety
/// The obligations of libc's function, like [`prctl`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
    e: c_ulong,
    f: c_ulong,
) -> c_long {
    // SAFETY: the caller's promise.
    let ask = || unsafe { sys::call(number, [a, b, c, d, e, f]) };
    let request = match number {
        libc::SYS_seccomp => of_seccomp(a, c),
        libc::SYS_prctl => of_prctl(a, b, c),
        _ => Request::None,
    };
    ask_for(request, ask)
}
