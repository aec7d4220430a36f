//! What a child process prints: read while it runs, told when it fails.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::thread::{self, JoinHandle};

/// How much of it is told, in bytes from the start: the reason stands there, and a usage or a
/// backtrace after it.
const TOLD_BYTES: usize = 400;

/// The reading end.
#[derive(Debug)]
pub(crate) struct Printed(Option<JoinHandle<Vec<u8>>>);

impl Printed {
    /// The end to read, and the one that children write to. Reading ends when all of them have.
    ///
    /// # Errors
    /// No pipe can be made.
    pub(crate) fn new() -> io::Result<(Self, PipeWriter)> {
        let (output, input) = io::pipe()?;
        Ok((Self(Some(thread::spawn(move || drain(output)))), input))
    }

    /// The reason, with what the child printed behind it. To be called when the child has ended.
    pub(crate) fn told_with(&mut self, reason: String) -> String {
        let printed = self.0.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(&printed[..printed.len().min(TOLD_BYTES)]);
        match text.trim() {
            "" => reason,
            text => format!("{reason} (it printed: {})", text.replace('\n', " / ")),
        }
    }
}

/// Reads until the child ends, so that it never waits for a reader.
fn drain(mut output: PipeReader) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What cannot be read any more is not told: the task's own failure is.
    let _ = output.read_to_end(&mut bytes);
    bytes
}
