//! `haul channel send`.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use haul::channel::{Account, Channel, Error as Failed, Receiver, Sender, Settings};
use haul_model::Bytes;
use haul_model::experiment::name;

use super::took::Took;
use super::{LOOK, ended};
use crate::arguments::channel;
use crate::arguments::users::Allowed;
use crate::command::Command;
use crate::error::{Error, TransferError};
use crate::flow::Flow;
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// How long a message that does not move is left alone before the other end is listened to.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Send {
    arguments: channel::Send,
    took: Took,
}

impl Send {
    pub(super) fn new(arguments: channel::Send) -> Self {
        Self { arguments, took: Took::start() }
    }

    /// What is read, and how long it is where that is known.
    fn source(&self) -> Result<(Box<dyn Read>, Option<u64>), Error> {
        let said = self.arguments.size.map(|size| size.0);
        if self.arguments.file == Path::new("-") {
            return Ok((Box::new(io::stdin()), said));
        }
        let file = File::open(&self.arguments.file).map_err(|reason| self.unreadable(reason))?;
        let found = file.metadata().ok().filter(Metadata::is_file).map(|found| found.len());
        Ok((Box::new(file), said.or(found)))
    }

    /// The channel, waited for as long as `--wait` says while nobody listens there.
    fn connect(&self, settings: &Settings) -> Result<Channel, Error> {
        let (path, start) = (&self.arguments.to, Instant::now());
        loop {
            let error = match Channel::connect(path, settings) {
                Err(error) if self.arguments.wait.is_some() && is_nobody(&error) => error,
                result => return Ok(result?),
            };
            match self.arguments.wait.flatten() {
                Some(waited) if start.elapsed() >= waited => {
                    drop(error);
                    return Err(TransferError::NobodyCame { path: path.clone(), waited }.into());
                }
                _ => thread::sleep(AGAIN),
            }
        }
    }

    fn unreadable(&self, reason: io::Error) -> Error {
        Error::Haul(haul_machine::Error::Read { path: self.arguments.file.clone(), reason })
    }

    /// The next bytes of the source, as many as a message holds unless it ends.
    fn read(&self, source: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut length = 0;
        while length < buffer.len() {
            match source.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
                Err(reason) => return Err(self.unreadable(reason)),
            }
            // What a slow producer has given so far should not wait for the rest.
            if self.arguments.file == Path::new("-") {
                break;
            }
        }
        Ok(length)
    }
}

/// Between two looks for a receiver.
const AGAIN: Duration = Duration::from_millis(20);

/// Whether nobody listens there: there is no socket yet, or one that was left.
fn is_nobody(error: &Failed) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error, Failed::Socket { reason, .. } if [ConnectionRefused, NotFound].contains(&reason.kind()))
}

/// The other end, as far as it is heard of. A consumer behind it may be slow for as long as it
/// lives, as at a pipe; then the other end says now and then that its output waits. One that is
/// stopped says nothing.
struct Other {
    receiver: Receiver,
    /// When something was last heard of it.
    heard: Instant,
    limit: Duration,
    /// How much it has been given.
    done: u64,
}

impl Other {
    /// Sends a message, with as much patience as the other end asks for.
    fn take(&mut self, sender: &mut Sender, bytes: &[u8]) -> Result<Account, Error> {
        self.heard = Instant::now();
        let mut sending = match sender.start_send(bytes) {
            Ok(sending) => sending,
            Err(error) => return Err(self.gone(error)),
        };
        loop {
            match sending.wait(self.pause()) {
                Ok(true) => break,
                Ok(false) => self.listen()?,
                Err(error) => return Err(self.gone(error)),
            }
        }
        sending.finish().map_err(ended("send", self.done))
    }

    /// Why a message does not go out: one that nobody takes any more says it of the message alone,
    /// and not whether the other end closed in good order.
    fn gone(&mut self, error: Failed) -> Error {
        let is_gone = matches!(error, Failed::PeerGone { .. });
        let why = if is_gone && self.has_closed() { Failed::Closed } else { error };
        ended("send", self.done)(why)
    }

    /// Whether the other end closed in good order.
    fn has_closed(&mut self) -> bool {
        loop {
            match self.receiver.try_recv() {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(error) => return matches!(error, Failed::Closed),
            }
        }
    }

    /// Waits until the other end has everything.
    fn wait_for_end(&mut self) -> Result<(), Error> {
        self.heard = Instant::now();
        loop {
            match self.receiver.recv() {
                Ok(said) if said.is_empty() => return Ok(()),
                Ok(_) => self.heard = Instant::now(),
                Err(Failed::Deadline { size: Bytes(0), .. }) => self.check()?,
                Err(error) => return Err(ended("send", self.done)(error)),
            }
        }
    }

    /// Until it is to be listened to again.
    fn pause(&self) -> Duration {
        PAUSE.min(self.limit.saturating_sub(self.heard.elapsed()))
    }

    /// Hears what the other end has said.
    ///
    /// # Errors
    /// As [`check`](Self::check), and where it has gone.
    fn listen(&mut self) -> Result<(), Error> {
        while self.receiver.try_recv().map_err(ended("send", self.done))?.is_some() {
            self.heard = Instant::now();
        }
        self.check()
    }

    /// # Errors
    /// Nothing was heard for too long.
    fn check(&self) -> Result<(), Error> {
        let waited = self.heard.elapsed();
        if waited < self.limit {
            return Ok(());
        }
        let process = self.receiver.peer().process;
        Err(TransferError::Stalled { process, waited, limit: self.limit }.into())
    }
}

impl Command for Send {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.arguments.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let mut buffer = super::message()?;
        let (mut source, total) = self.source()?;
        let settings = Settings {
            deadline: self.arguments.deadline,
            wait: Some(LOOK),
            users: Allowed::users(&self.arguments.allow_user),
            trusts_peer: self.arguments.trust,
            mechanism: self.arguments.mechanism,
            ..Settings::default()
        };
        let (mut sender, receiver) = self.connect(&settings)?.split();
        let (heard, limit) = (Instant::now(), self.arguments.deadline);
        let mut other = Other { receiver, heard, limit, done: 0 };
        self.took = Took::start();
        let mut flow = Flow::new(self.arguments.progress, total);
        loop {
            let length = self.read(source.as_mut(), &mut buffer)?;
            let account = other.take(&mut sender, &buffer[..length])?;
            if length == 0 {
                break;
            }
            self.took.add(&account);
            flow.add(account.size_bytes);
            other.done = flow.done();
        }
        // Sent is not received: the other end may have no room, or nobody to give it to.
        other.wait_for_end()?;
        self.took.stop();
        if self.arguments.json {
            self.took.record(name::CHANNEL_SEND, journal)?;
        }
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if !self.arguments.json && self.arguments.progress.is_shown() && self.took.is_complete() {
            terminal::say(&self.took.line("sent"));
        }
        Ok(())
    }
}
