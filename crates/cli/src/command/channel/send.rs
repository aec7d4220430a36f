//! `haul channel send`.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use haul::channel::{Account, Channel, Error as Failed, Receiver, Sender, Settings};
use haul_model::Bytes;
use haul_model::experiment::name;

use super::cost::Cost;
use super::{POLL, ended};
use crate::arguments::channel;
use crate::arguments::users::Allowed;
use crate::command::Command;
use crate::error::{Error, TransferError};
use crate::flow::Flow;
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// Time for which a message may make no progress before the other end's reports are read.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Send {
    arguments: channel::Send,
    cost: Cost,
}

impl Send {
    pub(super) fn new(arguments: channel::Send) -> Self {
        Self { arguments, cost: Cost::start() }
    }

    /// The input, with its length if that is known.
    fn source(&self) -> Result<(Box<dyn Read>, Option<u64>), Error> {
        let announced = self.arguments.size.map(|size| size.0);
        if self.arguments.file == Path::new("-") {
            return Ok((Box::new(io::stdin()), announced));
        }
        let file = File::open(&self.arguments.file).map_err(|reason| self.unreadable(reason))?;
        let found = file.metadata().ok().filter(Metadata::is_file).map(|found| found.len());
        Ok((Box::new(file), announced.or(found)))
    }

    /// The channel. While no receiver listens at the socket, waits as long as `--wait` allows.
    fn connect(&self, settings: &Settings) -> Result<Channel, Error> {
        let (path, start) = (&self.arguments.to, Instant::now());
        loop {
            let error = match Channel::connect(path, settings) {
                Err(error) if self.arguments.wait.is_some() && has_no_listener(&error) => error,
                result => return Ok(result?),
            };
            match self.arguments.wait.flatten() {
                Some(waited) if start.elapsed() >= waited => {
                    drop(error);
                    return Err(TransferError::NoReceiver { path: path.clone(), waited }.into());
                }
                _ => thread::sleep(INTERVAL),
            }
        }
    }

    fn unreadable(&self, reason: io::Error) -> Error {
        Error::Haul(haul_machine::Error::Read { path: self.arguments.file.clone(), reason })
    }

    /// The next bytes of the source: a full message unless the source ends.
    fn read(&self, source: &mut dyn Read, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut length = 0;
        while length < buffer.len() {
            match source.read(&mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
                Err(reason) => return Err(self.unreadable(reason)),
            }
            // Bytes from a slow producer are sent at once.
            if self.arguments.file == Path::new("-") {
                break;
            }
        }
        Ok(length)
    }
}

/// Interval between two attempts to find a receiver.
const INTERVAL: Duration = Duration::from_millis(20);

/// Whether no receiver listens at the socket: the socket does not exist yet, or is left over.
fn has_no_listener(error: &Failed) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error, Failed::Socket { reason, .. } if [ConnectionRefused, NotFound].contains(&reason.kind()))
}

/// The other end, and its last report. The reader of the other end's output may be slow for any
/// time, as with a pipe; the other end then reports regularly that its output is blocked. A
/// stopped end sends no report.
struct Other {
    receiver: Receiver,
    /// Time of the other end's last report.
    heard: Instant,
    limit: Duration,
    /// Bytes sent to the other end.
    done: u64,
}

impl Other {
    /// Sends a message, and waits as long as the other end reports.
    fn send(&mut self, sender: &mut Sender, bytes: &[u8]) -> Result<Account, Error> {
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

    /// The error for a message that cannot be sent. The sending side knows only that no peer reads
    /// the stream any more, not whether the other end closed in good order.
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

    /// Waits until the other end has received everything.
    fn wait_for_end(&mut self) -> Result<(), Error> {
        self.heard = Instant::now();
        loop {
            match self.receiver.recv() {
                Ok(report) if report.is_empty() => return Ok(()),
                Ok(_) => self.heard = Instant::now(),
                Err(Failed::Deadline { size: Bytes(0), .. }) => self.check()?,
                Err(error) => return Err(ended("send", self.done)(error)),
            }
        }
    }

    /// Time until this end reads the reports again.
    fn pause(&self) -> Duration {
        PAUSE.min(self.limit.saturating_sub(self.heard.elapsed()))
    }

    /// Reads the reports of the other end.
    ///
    /// # Errors
    /// The errors of [`check`](Self::check). Also an error if the other end has gone.
    fn listen(&mut self) -> Result<(), Error> {
        while self.receiver.try_recv().map_err(ended("send", self.done))?.is_some() {
            self.heard = Instant::now();
        }
        self.check()
    }

    /// # Errors
    ///
    /// There was no report for too long.
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
            wait: Some(POLL),
            users: Allowed::users(&self.arguments.allow_user),
            trusts_peer: self.arguments.trust,
            mechanism: self.arguments.mechanism,
            ..Settings::default()
        };
        let (mut sender, receiver) = self.connect(&settings)?.split();
        let (heard, limit) = (Instant::now(), self.arguments.deadline);
        let mut other = Other { receiver, heard, limit, done: 0 };
        self.cost = Cost::start();
        let mut flow = Flow::new(self.arguments.progress, total);
        loop {
            let length = self.read(source.as_mut(), &mut buffer)?;
            let account = other.send(&mut sender, &buffer[..length])?;
            if length == 0 {
                break;
            }
            self.cost.add(&account);
            flow.add(account.size_bytes);
            other.done = flow.done();
        }
        // The other end may not have received a sent message yet: it may have no room, or no
        // reader.
        other.wait_for_end()?;
        self.cost.stop();
        if self.arguments.json {
            self.cost.record(name::CHANNEL_SEND, journal)?;
        }
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if !self.arguments.json && self.arguments.progress.is_shown() && self.cost.is_complete() {
            terminal::say(&self.cost.line("sent"));
        }
        Ok(())
    }
}
