//! What a child process prints: read while it runs, told when it fails.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How much of it is told, in bytes from the start: the reason stands there, and a usage or a
/// backtrace after it.
const TOLD_BYTES: usize = 400;

/// How long the rest of it is waited for. A child that has ended has written it; one that it
/// started (mpirun does) and that nobody has ended yet holds the pipe open for as long as it likes.
const REST: Duration = Duration::from_millis(200);

/// How often it is looked whether that was all.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The reading end.
#[derive(Debug)]
pub(crate) struct Printed {
    text: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Printed {
    /// The end to read, and the one that children write to. Reading ends when all of them have.
    ///
    /// # Errors
    /// No pipe can be made.
    pub(crate) fn new() -> io::Result<(Self, PipeWriter)> {
        let (output, input) = io::pipe()?;
        let text = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&text);
        let thread = thread::spawn(move || drain(output, &kept));
        Ok((Self { text, thread }, input))
    }

    /// The reason, with what the child printed behind it. To be called when the child has ended.
    pub(crate) fn told_with(&mut self, reason: String) -> String {
        let started = Instant::now();
        while !self.thread.is_finished() && started.elapsed() < REST {
            thread::sleep(LOOK_AGAIN);
        }
        let printed = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&printed);
        match text.trim() {
            "" => reason,
            text => format!("{reason} (it printed: {})", text.replace('\n', " / ")),
        }
    }
}

/// Reads until nobody writes any more, so that nobody waits for a reader; keeps what is told.
fn drain(mut output: PipeReader, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    // What cannot be read any more is not told: the task's own failure is.
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = TOLD_BYTES - kept.len();
        kept.extend_from_slice(&bytes[..count.min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_beginning_of_what_was_printed_is_told() {
        let (mut printed, mut input) = Printed::new().unwrap();
        // More than a pipe holds: the writer must not wait.
        input.write_all(b"usage:\n").unwrap();
        input.write_all(&[b'x'; 1 << 20]).unwrap();
        drop(input);
        let told = printed.told_with("it ended".to_owned());
        assert!(told.starts_with("it ended (it printed: usage: / xxx"), "{told}");
        assert!(told.len() < 2 * TOLD_BYTES, "{told}");
    }

    #[test]
    fn who_holds_the_pipe_open_holds_nobody_up() {
        let (mut printed, mut input) = Printed::new().unwrap();
        input.write_all(b"no such host").unwrap();
        let started = Instant::now();
        let told = printed.told_with("it ended".to_owned());
        assert_eq!(told, "it ended (it printed: no such host)");
        assert!(started.elapsed() < 50 * REST, "{:?}", started.elapsed());
        drop(input);
        assert_eq!(Printed::new().unwrap().0.told_with("why".to_owned()), "why");
    }
}
