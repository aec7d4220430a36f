//! Lines over a socket, with an end to every wait.

use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::mem;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// The longest that one task or start may take: a driver that hangs is told of, not waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The process ended.
    Ended,
    /// It said nothing for so many seconds.
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
            io::ErrorKind::WouldBlock => Self::TooLong(PATIENCE.as_secs()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Has a driver's conversation on standard input, a Unix socket.
///
/// # Errors
/// Standard input is no socket, or the conversation fails.
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
    /// What has come of the next line, where it did not come in one piece.
    begun: String,
}

impl Conversation {
    /// A run's side: no wait is longer than two minutes.
    ///
    /// # Errors
    /// The socket takes no timeout.
    pub(crate) fn with_driver(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Self::with_run(stream)
    }

    /// A driver's side: it waits for as long as its run lives.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(crate) fn with_run(stream: UnixStream) -> io::Result<Self> {
        let reader = BufReader::new(stream.try_clone()?);
        Ok(Self { reader, writer: stream, begun: String::new() })
    }

    /// Says a line.
    ///
    /// # Errors
    /// The other side is gone, or takes nothing.
    pub(crate) fn say(&mut self, line: &str) -> Result<(), Silence> {
        Ok(self.writer.write_all(format!("{line}\n").as_bytes())?)
    }

    /// The other side's next line, without its end.
    ///
    /// # Errors
    /// The other side is gone, or says nothing.
    pub(crate) fn hear(&mut self) -> Result<String, Silence> {
        if self.reader.read_line(&mut self.begun)? == 0 {
            return Err(Silence::Ended);
        }
        let mut line = mem::take(&mut self.begun);
        line.truncate(line.trim_end_matches('\n').len());
        Ok(line)
    }

    /// Says a message: a line of JSON.
    ///
    /// # Errors
    /// As [`say`](Self::say).
    pub(crate) fn say_message(&mut self, message: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(message)?;
        self.say(&text).map_err(|silence| io::Error::other(silence.to_string()))
    }

    /// The other side's next message; `None` where it has closed.
    ///
    /// # Errors
    /// As [`hear`](Self::hear), but for that; or the line is no such message.
    pub(crate) fn hear_message<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        match self.hear() {
            Ok(line) => Ok(Some(serde_json::from_str(&line)?)),
            Err(Silence::Ended) => Ok(None),
            Err(silence) => Err(io::Error::other(silence.to_string())),
        }
    }

    /// As [`hear`](Self::hear), for at most so long; the beginning of a line is kept for the next
    /// time. A socket that takes no timeout is one that has
    /// nothing more to say.
    ///
    /// # Errors
    /// As [`hear`](Self::hear).
    pub(crate) fn hear_within(&mut self, patience: Duration) -> Result<String, Silence> {
        self.writer.set_read_timeout(Some(patience)).map_err(|_| Silence::Ended)?;
        self.hear()
    }

    /// There is nothing more to say: a driver ends when it learns of that.
    pub(crate) fn close(&self) {
        // Closed by the other side it is closed as well.
        let _ = self.writer.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_both_ways_until_a_side_closes() {
        let (run, driver) = UnixStream::pair().unwrap();
        let mut run = Conversation::with_driver(run).unwrap();
        let mut driver = Conversation::with_run(driver).unwrap();
        run.say("one").unwrap();
        run.say("").unwrap();
        assert_eq!((driver.hear(), driver.hear()), (Ok("one".into()), Ok(String::new())));
        let waited = run.hear_within(Duration::from_millis(1));
        assert_eq!(waited, Err(Silence::TooLong(PATIENCE.as_secs())));
        // A line that is under way when the time is over comes whole.
        driver.writer.write_all(b"in ").unwrap();
        assert!(run.hear_within(Duration::from_millis(1)).is_err());
        driver.say("pieces").unwrap();
        assert_eq!(run.hear(), Ok("in pieces".into()));
        run.close();
        assert_eq!(driver.hear(), Err(Silence::Ended));
        assert_eq!(driver.say("late"), Err(Silence::Ended));
    }
}
