//! `prctl` and `syscall`, under libc's names. All calls reach the kernel unchanged. Before a filter
//! of system calls begins, the recorder stops making any.

use core::ffi::{c_int, c_long, c_ulong};

use crate::{filter, sys};

/// Makes the request, and resumes normal operation if the kernel refused it.
fn filtering(ask: impl FnOnce() -> i64) -> i64 {
    filter::begin();
    let answer = ask();
    if answer < 0 {
        filter::refused();
    }
    answer
}

/// Whether a call requests a filter. A call without a filter program only tests whether filters are
/// supported.
fn is_filter(mode: c_ulong, program: c_ulong) -> bool {
    mode == c_ulong::from(libc::SECCOMP_MODE_STRICT)
        || (mode == c_ulong::from(libc::SECCOMP_MODE_FILTER) && program != 0)
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
    let is_request = option == libc::PR_SET_SECCOMP && is_filter(a, b);
    sys::with_errno(if is_request { filtering(ask) } else { ask() }) as c_int
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
    let is_set = a == c_ulong::from(libc::SECCOMP_SET_MODE_STRICT)
        || (a == c_ulong::from(libc::SECCOMP_SET_MODE_FILTER) && c != 0);
    let by_prctl = a == libc::PR_SET_SECCOMP as c_ulong && is_filter(b, c);
    let is_request = match number {
        libc::SYS_seccomp => is_set,
        libc::SYS_prctl => by_prctl,
        _ => false,
    };
    sys::with_errno(if is_request { filtering(ask) } else { ask() })
}
