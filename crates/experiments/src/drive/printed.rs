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
const REST: Duration = Duration::from_secs(2);

/// The time between two checks whether the output is complete.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The number of kept bytes of marked lines, and of one line. Later lines are not kept.
const MARKED_BYTES: usize = 64 << 10;
const LINE_BYTES: usize = 4 << 10;

/// The reading end of the pipe for the output.
#[derive(Debug)]
pub(crate) struct Printed {
    kept: Arc<Mutex<Kept>>,
    thread: JoinHandle<()>,
}

/// What is kept of the output: its beginning, and the lines that begin with a mark.
#[derive(Debug, Default)]
struct Kept {
    beginning: Vec<u8>,
    mark: Option<&'static str>,
    /// The beginning of the line that the process is writing.
    line: Vec<u8>,
    marked: Vec<u8>,
}

impl Printed {
    /// Returns the reading end of a pipe, and the end to which children write. Reading ends when
    /// all children have closed their end.
    ///
    /// # Errors
    /// The pipe cannot be made.
    pub(crate) fn new() -> io::Result<(Self, PipeWriter)> {
        Self::keeping(Kept::default())
    }

    /// Like [`Printed::new`], and also keeps the lines that begin with this mark.
    ///
    /// # Errors
    /// The pipe cannot be made.
    pub(crate) fn with_mark(mark: &'static str) -> io::Result<(Self, PipeWriter)> {
        Self::keeping(Kept { mark: Some(mark), ..Kept::default() })
    }

    fn keeping(kept: Kept) -> io::Result<(Self, PipeWriter)> {
        let (output, input) = io::pipe()?;
        let kept = Arc::new(Mutex::new(kept));
        let own = Arc::clone(&kept);
        let thread = thread::spawn(move || drain(output, &own));
        Ok((Self { kept, thread }, input))
    }

    /// Returns the lines that begin with the mark. The child must have ended.
    pub(crate) fn marked(&self) -> String {
        self.await_rest();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept.marked).into_owned()
    }

    /// Returns the reason, followed by the child's output. The child must have ended.
    pub(crate) fn with_output(&mut self, reason: String) -> String {
        self.await_rest();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept.beginning);
        match text.trim() {
            "" => reason,
            text => format!("{reason} (it printed: {})", text.replace('\n', " / ")),
        }
    }

    fn await_rest(&self) {
        let started = Instant::now();
        while !self.thread.is_finished() && started.elapsed() < REST {
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let room = REPORTED_BYTES - self.beginning.len();
        self.beginning.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let Some(mark) = self.mark else { return };
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES - self.line.len();
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            if !piece.ends_with(b"\n") {
                continue;
            }
            let is_kept = self.marked.len() + self.line.len() <= MARKED_BYTES;
            if is_kept && self.line.starts_with(mark.as_bytes()) && self.line.ends_with(b"\n") {
                self.marked.append(&mut self.line);
            }
            self.line.clear();
        }
    }
}

/// Reads until no process can write any more, so that no writer waits for a reader.
fn drain(mut output: PipeReader, kept: &Mutex<Kept>) {
    let mut bytes = [0; 4096];
    // A read error is not reported, because the task's own failure is reported.
    while let Ok(count @ 1..) = output.read(&mut bytes) {
        kept.lock().unwrap_or_else(PoisonError::into_inner).add(&bytes[..count]);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Waits until the thread, which may have no processor for seconds, has read enough.
    #[track_caller]
    fn until(printed: &Printed, is_read: impl Fn(&Printed) -> bool) {
        let started = Instant::now();
        while !is_read(printed) {
            assert!(started.elapsed() < Duration::from_secs(60), "{printed:?}");
            thread::sleep(POLL_INTERVAL);
        }
    }

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
    fn marked_lines_are_kept_behind_a_flood() {
        let (printed, mut input) = Printed::with_mark("own: ").unwrap();
        input.write_all(&[b'x'; 1 << 20]).unwrap();
        input.write_all(b"own: no line of its own\now").unwrap();
        input.write_all(b"n: one\nother: two\nown: three\nown: ").unwrap();
        // A line that is too long is not kept, and does not hide the next one.
        input.write_all(&[b'y'; 2 * LINE_BYTES]).unwrap();
        input.write_all(b"\nown: four\nown: cut off").unwrap();
        drop(input);
        until(&printed, |it| it.thread.is_finished());
        assert_eq!(printed.marked(), "own: one\nown: three\nown: four\n");
        let (flooded, mut input) = Printed::with_mark("own: ").unwrap();
        input.write_all(&b"own: again\n".repeat(MARKED_BYTES)).unwrap();
        drop(input);
        assert!((1..=MARKED_BYTES).contains(&flooded.marked().len()));
    }

    #[test]
    fn process_that_holds_pipe_open_delays_nothing() {
        let (mut printed, mut input) = Printed::new().unwrap();
        input.write_all(b"no such host").unwrap();
        until(&printed, |it| it.kept.lock().unwrap().beginning == b"no such host");
        let started = Instant::now();
        let reason = printed.with_output("it ended".to_owned());
        assert_eq!(reason, "it ended (it printed: no such host)");
        assert!(started.elapsed() < REST + Duration::from_secs(30), "{:?}", started.elapsed());
        drop(input);
        assert_eq!(Printed::new().unwrap().0.with_output("why".to_owned()), "why");
    }
}
