//! What a user is told, once each, on standard error: why the drop-in stands aside, and misuse.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many misuses of the heap are told before the drop-in falls silent: a program that frees
/// wrongly may do so a million times a second.
const MISUSES_MAX: u32 = 32;

static MISUSES: AtomicU32 = AtomicU32::new(0);

/// One line on standard error.
pub(crate) fn tell(text: std::fmt::Arguments<'_>) {
    let mut line = String::from("haul: rte_malloc: ");
    // Writing into a String cannot fail.
    let _ = writeln!(line, "{text}");
    // SAFETY: the pointer and the length are those of a live string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// A wrong free, realloc or validate, with the thread's backtrace left to a debugger.
pub(crate) fn misuse(what: &str, problem: &dyn std::fmt::Display) {
    let told = MISUSES.fetch_add(1, Ordering::Relaxed);
    if told < MISUSES_MAX {
        tell(format_args!("{what}: {problem}"));
    } else if told == MISUSES_MAX {
        tell(format_args!("{MISUSES_MAX} misuses were told; the following ones are not"));
    }
}
