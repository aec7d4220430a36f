//! The output of a child process. A thread reads the output while the process runs. The output is
//! reported if the process fails.

use std::io::{self, PipeReader, PipeWriter, Read};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The number of reported bytes, from the start of the output: a program prints the reason first,
/// and a usage text or a backtrace after it.
const REPORTED_BYTES: usize = 400;

/// The longest wait for the rest of the output. A child that has ended has written all of its
/// output. A process that the child started (as mpirun does) and that still runs keeps the pipe
/// open.
const REST: Duration = Duration::from_millis(200);

/// The time between two checks whether the output is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The reading end of the pipe for the output.
#[derive(Debug)]
pub(crate) struct Printed {
    text: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Printed {
    /// Returns the reading end of a pipe, and the end to which children write. Reading ends when
    /// all children have closed their end.
    ///
    /// # Errors
    /// The pipe cannot be made.
    pub(crate) fn new() -> io::Result<(Self, PipeWriter)> {
        let (output, input) = io::pipe()?;
        let text = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&text);
        let thread = thread::spawn(move || drain(output, &kept));
        Ok((Self { text, thread }, input))
    }

    /// Returns the reason, followed by the child's output. The child must have ended.
    pub(crate) fn with_output(&mut self, reason: String) -> String {
        let started = Instant::now();
        while !self.thread.is_finished() && started.elapsed() < REST {
            thread::sleep(POLL_INTERVAL);
        }
        let printed = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&printed);
        match text.trim() {
            "" => reason,
            text => format!("{reason} (it printed: {})", text.replace('\n', " / ")),
        }
    }
}

/// Reads until no process can write any more, so that no writer waits for a reader. Keeps the
/// reported bytes.
fn drain(mut output: PipeReader, kept: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 4096];
    // A read error is not reported, because the task's own failure is reported.
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let room = REPORTED_BYTES - kept.len();
        kept.extend_from_slice(&bytes[..count.min(room)]);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn reason_has_beginning_of_output() {
        let (mut printed, mut input) = Printed::new().unwrap();
        // The output is larger than a pipe's buffer: the writing process must not wait.
        input.write_all(b"usage:\n").unwrap();
        input.write_all(&[b'x'; 1 << 20]).unwrap();
        drop(input);
        let reason = printed.with_output("it ended".to_owned());
        assert!(reason.starts_with("it ended (it printed: usage: / xxx"), "{reason}");
        assert!(reason.len() < 2 * REPORTED_BYTES, "{reason}");
    }

    #[test]
    fn process_that_holds_pipe_open_delays_nothing() {
        let (mut printed, mut input) = Printed::new().unwrap();
        input.write_all(b"no such host").unwrap();
        let started = Instant::now();
        let reason = printed.with_output("it ended".to_owned());
        assert_eq!(reason, "it ended (it printed: no such host)");
        assert!(started.elapsed() < 50 * REST, "{:?}", started.elapsed());
        drop(input);
        assert_eq!(Printed::new().unwrap().0.with_output("why".to_owned()), "why");
    }
}
