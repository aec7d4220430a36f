//! A program that is controlled through a terminal. The program reads commands from standard
//! input. The program's output goes to a terminal, so that the C library writes every line at
//! once.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::{Children, Program, Silence};

/// The largest number of bytes of a program's output that are kept. Later output is not searched,
/// so a wait for later output ends at its time limit.
const KEPT_BYTES: usize = 4 << 20;

/// The longest wait for the last output of a program that has ended. A process that the program
/// started may keep the terminal open.
const REST: Duration = Duration::from_millis(200);

/// A program that runs at a terminal.
pub(crate) struct Terminal {
    children: Children,
    input: Option<ChildStdin>,
    process: u32,
    heard: Arc<Heard>,
    /// The bytes that were returned so far.
    position: usize,
}

/// The output so far.
#[derive(Default)]
struct Heard {
    text: Mutex<Text>,
    more: Condvar,
}

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    is_over: bool,
}

impl Terminal {
    /// Starts the program.
    ///
    /// # Errors
    /// The program cannot be started, or the system has no terminal.
    pub(crate) fn start(program: &Program) -> io::Result<Self> {
        let (reader, writer) = terminal()?;
        let mut command = program.command_without_printed();
        command.stdin(Stdio::piped()).stdout(writer.try_clone()?).stderr(writer);
        let mut child = command.spawn()?;
        // This closes the command's descriptors of the terminal. If they stayed open, reading
        // would not end with the program.
        drop(command);
        let (input, process) = (child.stdin.take(), child.id());
        let mut children = Children::new();
        children.push(child);
        let heard = Arc::new(Heard::default());
        let kept = Arc::clone(&heard);
        thread::spawn(move || keep(reader, &kept));
        Ok(Self { children, input, process, heard, position: 0 })
    }

    /// The program's process ID.
    pub(crate) fn process(&self) -> u32 {
        self.process
    }

    /// Sends a line.
    ///
    /// # Errors
    /// The program has ended.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Silence> {
        let input = self.input.as_mut().ok_or(Silence::Ended)?;
        Ok(input.write_all(format!("{line}\n").as_bytes())?)
    }

    /// The output since the last call, up to and including this mark.
    ///
    /// # Errors
    /// The program ended, did not print the mark in this time, or printed more bytes before the
    /// mark than are kept.
    pub(crate) fn hear_until(&mut self, mark: &str, timeout: Duration) -> Result<String, Silence> {
        let started = Instant::now();
        let mut text = self.heard.lock();
        // Each byte is searched only once, so that a new line does not cost a search from the
        // start.
        let mut searched = self.position;
        loop {
            let new = &text.bytes[searched..];
            let found = new.windows(mark.len()).position(|window| window == mark.as_bytes());
            if let Some(found) = found {
                let end = searched + found + mark.len();
                let heard = String::from_utf8_lossy(&text.bytes[self.position..end]).into_owned();
                self.position = end;
                return Ok(heard);
            }
            if text.bytes.len() == KEPT_BYTES {
                return Err(Silence::TooLong(started.elapsed().as_secs()));
            }
            // A part of the mark may have arrived.
            searched = searched.max((text.bytes.len() + 1).saturating_sub(mark.len()));
            let Some(left) = timeout.checked_sub(started.elapsed()) else {
                return Err(Silence::TooLong(timeout.as_secs()));
            };
            if text.is_over {
                return Err(Silence::Ended);
            }
            let waited = self.heard.more.wait_timeout(text, left);
            text = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// All output so far.
    pub(crate) fn everything(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().bytes).into_owned()
    }

    /// Sends the last lines, closes the program's input, and waits until the program ends. Kills
    /// the program if it has not ended after this time.
    pub(crate) fn end(&mut self, lines: &[&str], timeout: Duration) {
        for line in lines {
            // A program that has ended cannot read the line.
            let _ = self.say(line);
        }
        self.input = None;
        self.heard.await_end(timeout);
        self.children.end();
        self.heard.await_end(REST);
    }
}

impl Heard {
    fn lock(&self) -> MutexGuard<'_, Text> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no process has the terminal open, for at most this time.
    fn await_end(&self, timeout: Duration) {
        let started = Instant::now();
        let mut text = self.lock();
        while let Some(left) = timeout.checked_sub(started.elapsed()).filter(|_| !text.is_over) {
            let waited = self.more.wait_timeout(text, left);
            text = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The two ends of a terminal: the first end reads the output that a process writes to the
/// second.
fn terminal() -> io::Result<(File, File)> {
    let control = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&control)?;
    unlockpt(&control)?;
    let name = ptsname(&control, Vec::new())?;
    let name = name.to_str().map_err(io::Error::other)?;
    let flags = OFlags::NOCTTY.bits().cast_signed();
    let end = OpenOptions::new().read(true).write(true).custom_flags(flags).open(name)?;
    Ok((File::from(control), end))
}

/// Reads and keeps the output. Ends when no process has the terminal open, because reading then
/// fails with EIO.
fn keep(mut reader: File, heard: &Heard) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = reader.read(&mut bytes) {
        let mut text = heard.lock();
        let room = KEPT_BYTES - text.bytes.len();
        text.bytes.extend_from_slice(&bytes[..count.min(room)]);
        heard.more.notify_all();
    }
    heard.lock().is_over = true;
    heard.more.notify_all();
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn shell(script: &str) -> Terminal {
        let program = Program::new("/bin/sh").with(vec!["-c".into(), script.into()]);
        Terminal::start(&program).unwrap()
    }

    #[test]
    fn terminal_passes_lines_in_both_directions() {
        let mut echo = shell("test -t 1 && while read line; do echo \"> $line\"; done; echo over");
        echo.say("one").unwrap();
        assert_eq!(echo.hear_until("one", 60 * SECOND), Ok("> one".into()));
        echo.say("two").unwrap();
        let two = echo.hear_until("two", 60 * SECOND).unwrap();
        assert!(two.trim_start().starts_with("> two"), "{two:?}");
        assert_eq!(echo.hear_until("three", SECOND / 100), Err(Silence::TooLong(0)));
        echo.end(&["last"], 60 * SECOND);
        assert!(echo.everything().contains("> last"));
        assert!(echo.everything().trim_end().ends_with("over"), "{:?}", echo.everything());
        assert_eq!(echo.say("late"), Err(Silence::Ended));
    }

    #[test]
    fn program_that_ends_or_floods_is_an_error() {
        let mut short = shell("echo gone");
        assert_eq!(short.hear_until("mark", 60 * SECOND), Err(Silence::Ended));
        let mut flood = shell("yes | head -c 8000000; echo mark");
        assert!(flood.hear_until("mark", 60 * SECOND).is_err());
        assert_eq!(flood.everything().len(), KEPT_BYTES);
    }

    #[test]
    fn drop_ends_program() {
        let endless = shell("sleep 1000");
        let path = format!("/proc/{}", endless.process());
        assert!(std::path::Path::new(&path).exists());
        drop(endless);
        assert!(!std::path::Path::new(&path).exists());
    }
}
