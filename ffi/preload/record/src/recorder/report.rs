//! What a person reads: why a trace ended, and why nothing is recorded.

use crate::file::{self, Failure};

pub(super) fn report(failure: Failure) {
    match failure {
        Failure::System(errno) => {
            let mut digits = [0; 10];
            let errno = file::decimal(errno.raw_os_error().unsigned_abs(), &mut digits);
            say(&[
                b"cannot write the trace that HAUL_RECORD names: errno ",
                errno,
                b"; the trace up to here is kept; make room, or name another file (reported once \
                  for all processes of a run)",
            ]);
        }
        Failure::Limit => {
            say(&[b"the trace has reached its limit; the trace up to here is kept; raise \
              HAUL_RECORD_LIMIT (bytes, default 4 GiB) or the process's file size limit"])
        }
        Failure::Replaced => {
            say(&[b"another file has the trace's name; nothing more is recorded; name a file in \
              HAUL_RECORD that no program moves or replaces"])
        }
        Failure::Cut => say(&[
            b"the trace was truncated while it was written; nothing more is recorded; name a file \
              in HAUL_RECORD that no program truncates",
        ]),
        Failure::Filtered => {}
    }
}

/// Writes one line to standard error and ignores errors.
pub(super) fn say(parts: &[&[u8]]) {
    let mut line = [0; 512];
    let mut length = 0;
    for part in [&b"haul_record: "[..]].iter().chain(parts).chain(&[&b"\n"[..]]) {
        for (place, byte) in line.iter_mut().skip(length).zip(*part) {
            *place = *byte;
        }
        length = (length + part.len()).min(line.len());
    }
    // SAFETY: descriptor 2 is standard error, open or not: a write to a closed descriptor fails.
    let stderr = unsafe { rustix::fd::BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(stderr, line.get(..length).unwrap_or_default());
}
