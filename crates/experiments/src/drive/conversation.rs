//! An exchange of lines over a socket, with a time limit for every wait.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::mem;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// The longest time that one task, or the start of a driver, may take. A driver that hangs is
/// reported after this time.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The process ended.
    Ended,
    /// The process did not answer within this number of seconds.
    TooLong(u64),
    /// The socket failed.
    Failed(String),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("its process ended"),
            Self::TooLong(seconds) => write!(f, "no answer within {seconds} s"),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl From<io::Error> for Silence {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Ended,
            io::ErrorKind::WouldBlock => Self::TooLong(TIMEOUT.as_secs()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Serves a driver's conversation on standard input, a Unix socket.
///
/// # Errors
/// Standard input is not a socket, or the conversation fails.
pub(crate) fn serve(converse: impl FnOnce(Conversation) -> io::Result<()>) -> Result<(), Error> {
    let stream = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    let talk = stream.and_then(|stream| {
        stream.peer_addr()?;
        converse(Conversation::with_run(stream)?)
    });
    talk.map_err(|reason| Error::Conversation { reason })
}

/// One side of a conversation.
pub(crate) struct Conversation {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    /// The beginning of the next line, if the line did not arrive in one piece.
    begun: String,
}

impl Conversation {
    /// A run's side. No wait is longer than two minutes.
    ///
    /// # Errors
    /// The socket does not accept a timeout.
    pub(crate) fn with_driver(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Self::with_run(stream)
    }

    /// A driver's side. A wait lasts until a line arrives or the run ends.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(crate) fn with_run(stream: UnixStream) -> io::Result<Self> {
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { reader, writer: stream, begun: String::new() })
    }

    /// Sends a line.
    ///
    /// # Errors
    /// The other side has ended, or does not read.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Silence> {
        Ok(self.writer.write_all(format!("{line}\n").as_bytes())?)
    }

    /// The other side's next line, without its line break.
    ///
    /// # Errors
    /// The other side has ended, or does not answer.
    pub(crate) fn hear(&mut self) -> Result<String, Silence> {
        if self.reader.read_line(&mut self.begun)? == 0 {
            return Err(Silence::Ended);
        }
        let mut line = mem::take(&mut self.begun);
        line.truncate(line.trim_end_matches('\n').len());
        Ok(line)
    }

    /// Sends a message: a line of JSON.
    ///
    /// # Errors
    /// Those of [`say`](Self::say).
    pub(crate) fn say_message(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(message)?;
        self.say(&text).map_err(|silence| io::Error::other(silence.to_string()))
    }

    /// The other side's next message; `None` if the other side has closed the conversation.
    ///
    /// # Errors
    /// Those of [`hear`](Self::hear), except for a closed conversation. It is also an error if
    /// the line is not a message of this type.
    pub(crate) fn hear_message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.hear() {
            Ok(line) => Ok(Some(serde_json::from_str(&line)?)),
            Err(Silence::Ended) => Ok(None),
            Err(silence) => Err(io::Error::other(silence.to_string())),
        }
    }

    /// Like [`hear`](Self::hear), but waits for at most this time. The beginning of a line is
    /// kept for the next call. A socket that does not accept a timeout counts as closed.
    ///
    /// # Errors
    /// Those of [`hear`](Self::hear).
    pub(crate) fn hear_within(&mut self, timeout: Duration) -> Result<String, Silence> {
        self.writer.set_read_timeout(Some(timeout)).map_err(|_| Silence::Ended)?;
        self.hear()
    }

    /// Waits until the other side of this conversation or of `rival` answers or ends, and returns
    /// whether that of this one did.
    ///
    /// # Errors
    /// Neither does within the time of a task, or the wait fails.
    pub(crate) fn answers_before(&self, rival: &Self) -> Result<bool, Silence> {
        if [self, rival].iter().any(|one| !one.reader.buffer().is_empty()) {
            return Ok(!self.reader.buffer().is_empty());
        }
        let limit = Timespec { tv_sec: TIMEOUT.as_secs().cast_signed(), tv_nsec: 0 };
        let mut ready = [self, rival].map(|one| PollFd::new(&one.writer, PollFlags::IN));
        match retry_on_intr(|| poll(&mut ready, Some(&limit))) {
            Ok(0) => Err(Silence::TooLong(TIMEOUT.as_secs())),
            Ok(_) => Ok(!ready[0].revents().is_empty()),
            Err(error) => Err(Silence::Failed(error.to_string())),
        }
    }

    /// Waits until the other side says something or ends, or until this descriptor can be read, as
    /// that of a process that has ended. Returns whether the descriptor can be read.
    ///
    /// # Errors
    /// The wait fails.
    pub(crate) fn is_silent_until(&self, descriptor: &impl AsFd) -> io::Result<bool> {
        let mut ready =
            [PollFd::new(descriptor, PollFlags::IN), PollFd::new(&self.writer, PollFlags::IN)];
        retry_on_intr(|| poll(&mut ready, None))?;
        Ok(!ready[0].revents().is_empty())
    }

    /// Closes the conversation. A driver ends when it notices that.
    pub(crate) fn close(&self) {
        // The other side may have closed it already.
        let _ = self.writer.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_pass_in_both_directions_until_close() {
        let (run, driver) = UnixStream::pair().unwrap();
        let mut run = Conversation::with_driver(run).unwrap();
        let mut driver = Conversation::with_run(driver).unwrap();
        run.say("one").unwrap();
        run.say("").unwrap();
        assert_eq!((driver.hear(), driver.hear()), (Ok("one".into()), Ok(String::new())));
        let waited = run.hear_within(Duration::from_millis(1));
        assert_eq!(waited, Err(Silence::TooLong(TIMEOUT.as_secs())));
        // A later call returns the complete line if the line was incomplete when the time was
        // over.
        driver.writer.write_all(b"in ").unwrap();
        assert!(run.hear_within(Duration::from_millis(1)).is_err());
        driver.say("pieces").unwrap();
        assert_eq!(run.hear(), Ok("in pieces".into()));
        let (quiet, _still_open) = UnixStream::pair().unwrap();
        let quiet = Conversation::with_driver(quiet).unwrap();
        driver.say("first").unwrap();
        assert_eq!(run.answers_before(&quiet), Ok(true));
        assert_eq!(quiet.answers_before(&run), Ok(false));
        assert_eq!(run.hear(), Ok("first".into()));
        run.close();
        assert_eq!(driver.hear(), Err(Silence::Ended));
        assert_eq!(driver.say("late"), Err(Silence::Ended));
    }
}
