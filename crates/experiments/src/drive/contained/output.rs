//! What a program prints. A thread reads it while the program runs, so that the program never waits
//! for a reader.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of bytes that are kept, from the end of the output.
pub(crate) const KEPT_BYTES: usize = 1 << 20;

/// The longest wait for the rest of the output of a program that has ended. A process that is not
/// yet ended may keep the pipe open.
const REST: Duration = Duration::from_millis(500);

/// The time between two checks whether the output is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The reading end of a program's output.
#[derive(Debug)]
pub(crate) struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Output {
    /// The reading end of a pipe, and the end to which the program writes.
    ///
    /// # Errors
    /// The pipe or the thread cannot be made.
    pub(super) fn new() -> io::Result<(Self, PipeWriter)> {
        let (output, input) = io::pipe()?;
        let kept = Arc::new(Mutex::new(Vec::new()));
        let filled = Arc::clone(&kept);
        let thread = thread::Builder::new().name("output".into()).stack_size(256 << 10);
        let thread = thread.spawn(move || drain(output, &filled))?;
        Ok((Self { kept, thread }, input))
    }

    /// The output so far, of a longer output at least the last [`KEPT_BYTES`]. U+FFFD replaces
    /// bytes that are not UTF-8.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&lock(&self.kept)).into_owned()
    }

    /// The number of bytes that are kept now. It changes when something is printed, until
    /// [`KEPT_BYTES`] are reached.
    pub(crate) fn length(&self) -> usize {
        lock(&self.kept).len()
    }

    /// Waits for the rest of the output of a program that has ended.
    pub(super) fn close(&self) {
        let started = Instant::now();
        while !self.thread.is_finished() && started.elapsed() < REST {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

fn lock(kept: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads until no process can write any more. Keeps the end of the output.
fn drain(mut output: PipeReader, kept: &Mutex<Vec<u8>>) {
    let mut bytes = vec![0; 64 << 10];
    // A read error is not reported, because the program's own failure is.
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        let mut kept = lock(kept);
        kept.extend_from_slice(&bytes[..count]);
        // Twice the kept bytes, so that each byte is moved once at most.
        if kept.len() > 2 * KEPT_BYTES {
            let surplus = kept.len() - KEPT_BYTES;
            kept.drain(..surplus);
        }
    }
}
