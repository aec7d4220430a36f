//! `prctl` and `syscall`, under libc's names. All calls are forwarded unchanged. Before a filter of
//! system calls begins, the recorder maps its reserve.

use core::ffi::{c_int, c_long, c_ulong};

use crate::recorder::Recorder;
use crate::{filter, real};

/// SECCOMP_FILTER_FLAG_TSYNC_ESRCH of `linux/seccomp.h`.
const TSYNC_ESRCH: c_ulong = 1 << 4;

/// Maps the reserve, makes the request, and resumes normal operation if the kernel refused it.
fn filtering<T: PartialEq + From<i8>>(is_strict: bool, ask: impl FnOnce() -> T) -> T {
    Recorder::reserve();
    filter::begin();
    let answer = ask();
    if answer == T::from(-1) {
        filter::refused();
    } else if is_strict {
        Recorder::stop();
    }
    answer
}

/// Converts the result of `seccomp` to -1 on failure. If `seccomp` could not install a filter in
/// all threads, its result is the ID of a thread, unless the caller requested an error.
fn answered(answer: c_long, flags: c_ulong) -> c_long {
    let is_for_all = flags & libc::SECCOMP_FILTER_FLAG_TSYNC != 0;
    let says_so = flags & TSYNC_ESRCH != 0;
    if answer > 0 && is_for_all && !says_so { -1 } else { answer }
}

/// Whether a call requests a filter. A call without a filter program only tests whether filters are
/// supported.
fn is_filter(mode: c_ulong, filter: c_ulong) -> bool {
    mode == c_ulong::from(libc::SECCOMP_MODE_STRICT)
        || (mode == c_ulong::from(libc::SECCOMP_MODE_FILTER) && filter != 0)
}

/// # Safety
/// The obligations of libc's function. libc's function has a variable number of arguments, which
/// 64-bit Linux passes like the arguments of this function. Arguments that a caller omitted are
/// not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(
    option: c_int,
    a: c_ulong,
    b: c_ulong,
    c: c_ulong,
    d: c_ulong,
) -> c_int {
    // SAFETY: the caller's promise.
    let ask = || unsafe { real::prctl(option, a, b, c, d) };
    if option == libc::PR_SET_SECCOMP && is_filter(a, b) {
        filtering(a == c_ulong::from(libc::SECCOMP_MODE_STRICT), ask)
    } else {
        ask()
    }
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
    let ask = || unsafe { real::syscall(number, a, b, c, d, e, f) };
    let is_strict = a == c_ulong::from(libc::SECCOMP_SET_MODE_STRICT);
    let is_set = is_strict || (a == c_ulong::from(libc::SECCOMP_SET_MODE_FILTER) && c != 0);
    let by_prctl = a == libc::PR_SET_SECCOMP as c_ulong && is_filter(b, c);
    match number {
        libc::SYS_seccomp if is_set => {
            let mut answer = 0;
            filtering(is_strict, || {
                answer = ask();
                answered(answer, b)
            });
            answer
        }
        libc::SYS_prctl if by_prctl => {
            filtering(b == c_ulong::from(libc::SECCOMP_MODE_STRICT), ask)
        }
        _ => ask(),
    }
}
