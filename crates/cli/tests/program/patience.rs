//! Waits on a machine that other programs keep busy: a process may get its first processor time
//! only after seconds.

use std::fmt::Debug;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::wait_until;

/// The value of the first successful attempt. Each attempt gets the next of these times in seconds.
///
/// # Panics
/// All attempts failed; the message has the reason of each.
#[track_caller]
pub(crate) fn tries<T>(seconds: &[f64], attempt: impl FnMut(Duration) -> Result<T, String>) -> T {
    attempts(seconds.iter().map(|time| Duration::from_secs_f64(*time)), attempt)
}

/// As [`tries`], with other values than times.
#[track_caller]
pub(crate) fn attempts<I: Copy + Debug, T>(
    with: impl IntoIterator<Item = I>,
    mut attempt: impl FnMut(I) -> Result<T, String>,
) -> T {
    let mut reasons = Vec::new();
    for with in with {
        match attempt(with) {
            Ok(value) => return value,
            Err(reason) => {
                eprintln!("another attempt, because with {with:?}: {reason}");
                reasons.push(format!("with {with:?}: {reason}"));
            }
        }
    }
    panic!("every attempt failed:\n{}", reasons.join("\n"));
}

/// A time as the value of an option.
pub(crate) fn option(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// Reads the output of a running program up to the end of this text, and not further.
#[track_caller]
pub(crate) fn read_until(pipe: &mut (impl Read + AsFd), text: &str) {
    rustix::fs::fcntl_setfl(&*pipe, OFlags::NONBLOCK).unwrap();
    let mut bytes = Vec::new();
    wait_until(&format!("the program writes {text:?}"), || {
        while !bytes.ends_with(text.as_bytes()) {
            let mut byte = [0];
            match pipe.read(&mut byte) {
                Ok(0) => panic!("no {text:?} in {:?}", String::from_utf8_lossy(&bytes)),
                Ok(_) => bytes.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("cannot read the output: {error}"),
            }
        }
        true
    });
    rustix::fs::fcntl_setfl(&*pipe, OFlags::empty()).unwrap();
}

/// Waits until a process listens at a path; its socket appears a moment earlier.
pub(crate) fn wait_to_listen(socket: &Path) {
    const LISTENS: u32 = 1 << 16;
    let listens = |line: &str| {
        let fields: Vec<_> = line.split(' ').filter(|field| !field.is_empty()).collect();
        let flags = fields.get(3).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        flags.is_some_and(|flags| flags & LISTENS != 0) && fields.last() == socket.to_str().as_ref()
    };
    wait_until(&format!("a process listens at {}", socket.display()), || {
        fs::read_to_string("/proc/net/unix").unwrap().lines().any(listens)
    });
}
