//! Messages on standard error: why DPDK's own heap serves a process, and misuse of blocks.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest number of misuses of the heap that are reported, because a program may make a
/// million wrong frees per second.
const MISUSES_MAX: u32 = 32;

static MISUSES: AtomicU32 = AtomicU32::new(0);

/// Prints one line on standard error.
pub(crate) fn print(text: std::fmt::Arguments<'_>) {
    let mut line = String::from("haul: rte_malloc: ");
    // Writing into a String cannot fail.
    let _ = writeln!(line, "{text}");
    // SAFETY: the pointer and the length are those of a live string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Reports a wrong free, realloc or validate by the function `caller`. A debugger can show the
/// place of the call.
pub(crate) fn report_misuse(caller: &str, problem: &dyn std::fmt::Display) {
    let reported = MISUSES.fetch_add(1, Ordering::Relaxed);
    if reported < MISUSES_MAX {
        print(format_args!("{caller}: {problem}"));
    } else if reported == MISUSES_MAX {
        print(format_args!("{MISUSES_MAX} misuses were reported; further ones are not"));
    }
}
