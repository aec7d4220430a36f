//! Lines on standard error.

use std::fmt::Write as _;

/// Prints one line.
pub(crate) fn print(text: std::fmt::Arguments<'_>) {
    let mut line = String::from("haul: rte_vhost: ");
    // Writing into a String cannot fail.
    let _ = writeln!(line, "{text}");
    // SAFETY: the pointer and the length are those of a live string.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}
