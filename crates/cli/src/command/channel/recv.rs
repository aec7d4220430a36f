//! `haul channel recv`.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use haul::channel::{self as library, Channel, Listener, Receiver, Sender, Settings};
use haul_machine::file::{Destination, Whole, destination, open_stream};
use haul_model::Bytes;
use haul_model::experiment::name;

use super::cost::Cost;
use super::{MESSAGE_BYTES, POLL, ended};
use crate::arguments::channel;
use crate::arguments::users::Allowed;
use crate::command::Command;
use crate::error::{Error, TransferError};
use crate::flow::Flow;
use crate::journal::{Journal, Outputs};
use crate::stop::{STOP, Stops};
use crate::terminal;

/// Interval at which the sender is informed that the output is blocked.
const BEAT: Duration = Duration::from_secs(1);

pub(super) struct Recv {
    arguments: channel::Recv,
    cost: Cost,
}

impl Recv {
    pub(super) fn new(arguments: channel::Recv) -> Self {
        Self { arguments, cost: Cost::start() }
    }

    fn settings(&self) -> Settings {
        Settings {
            deadline: self.arguments.deadline,
            wait: Some(POLL),
            users: Allowed::users(&self.arguments.allow_user),
            trusts_peer: self.arguments.trust,
            size_max: MESSAGE_BYTES as u64,
            ..Settings::default()
        }
    }

    /// Receives everything up to the end mark. Returns false if Ctrl-C came first.
    fn receive(
        &mut self,
        receiver: &mut Receiver,
        buffer: &mut [u8],
        (target, reporter): (&mut Target, &Reporter),
    ) -> Result<bool, Error> {
        self.cost = Cost::start();
        let mut flow = Flow::new(self.arguments.progress, self.arguments.size.map(|size| size.0));
        loop {
            let received = unless_stopped(flow.done(), || receiver.recv_into(buffer))?;
            let Some(received) = received else { return Ok(false) };
            let length = received.size_bytes as usize;
            if length == 0 {
                return Ok(true);
            }
            let written = reporter.while_output_waits(|| target.write(&buffer[..length]));
            written.map_err(|failed| failed.after(flow.done()))?;
            self.cost.add(&received);
            flow.add(received.size_bytes);
        }
    }

    /// The channel of a sender that has data to send. A sender that disconnects without a message,
    /// as `haul channel explain` does, does not end the wait. `None` if Ctrl-C came first.
    fn ends(listener: &Listener, settings: &Settings) -> Result<Option<(Sender, Receiver)>, Error> {
        loop {
            let Some(channel) = unless_stopped(0, || accept(listener, settings))? else {
                return Ok(None);
            };
            let (sender, mut receiver) = channel.split();
            match unless_stopped(0, || receiver.wait_length()) {
                Ok(Some(_)) => return Ok(Some((sender, receiver))),
                Ok(None) => return Ok(None),
                Err(Error::Transfer(TransferError::Ended { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Command for Recv {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let files = self.arguments.out_file.iter().cloned().collect();
        Outputs { json: self.arguments.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let mut buffer = super::message()?;
        let settings = self.settings();
        let listener = Listener::bind_for(&self.arguments.socket, &settings.users)?;
        let Some((sender, mut receiver)) = Self::ends(&listener, &settings)? else {
            return Ok(());
        };
        let mut target = Target::open(self.arguments.out_file.as_deref())?;
        let reporter = Reporter::new(sender);
        if !self.receive(&mut receiver, &mut buffer, (&mut target, &reporter))? {
            return Ok(());
        }
        reporter.while_output_waits(|| target.finish())?;
        reporter.report_end()?;
        self.cost.stop();
        if self.arguments.json {
            self.cost.record(name::CHANNEL_RECV, journal)?;
        }
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if !self.arguments.json && self.arguments.progress.is_shown() && self.cost.is_complete() {
            terminal::say(&self.cost.line("received"));
        }
        Ok(())
    }

    fn kept(&self, _journal: &Journal) -> String {
        match &self.arguments.out_file {
            Some(path) => {
                format!("the transfer was interrupted, and {} is unchanged", path.display())
            }
            None => "the transfer was interrupted: standard output has only a part of it".into(),
        }
    }
}

/// The next channel of a user that may send. Warns about channels of other users and keeps
/// waiting.
fn accept(listener: &Listener, settings: &Settings) -> Result<Channel, library::Error> {
    loop {
        match listener.accept(settings) {
            Err(error @ library::Error::OtherUser { .. }) => {
                terminal::say(&format!("haul: warning: {error}"));
            }
            result => return result,
        }
    }
}

/// Reports to the sender: every second while the output is blocked, and once at the end.
struct Reporter {
    shared: Arc<Shared>,
    #[expect(dead_code, reason = "dropping it ends the reporting thread")]
    stop: mpsc::Sender<()>,
}

struct Shared {
    sender: Mutex<Sender>,
    is_waiting: AtomicBool,
}

impl Reporter {
    fn new(sender: Sender) -> Self {
        let shared = Shared { sender: Mutex::new(sender), is_waiting: AtomicBool::new(false) };
        let shared = Arc::new(shared);
        let (stop, stopped) = mpsc::channel();
        let reporting = Arc::clone(&shared);
        let report = move || {
            while stopped.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                if reporting.is_waiting.load(Ordering::Relaxed) {
                    // A sender that does not read is waiting for its own input, and needs no
                    // report.
                    let _ = reporting.sender().send(b".");
                }
            }
        };
        let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(report);
        if let Err(reason) = started {
            terminal::say(&format!(
                "haul: warning: cannot start a thread: {reason}; a sender gives up if the output is blocked for \
                 longer than its --deadline; raise the limit (ulimit -u, ulimit -v)"
            ));
        }
        Self { shared, stop }
    }

    /// Runs `act`, which may have to wait for the reader of the output.
    fn while_output_waits<T>(&self, act: impl FnOnce() -> T) -> T {
        self.shared.is_waiting.store(true, Ordering::Relaxed);
        let done = act();
        self.shared.is_waiting.store(false, Ordering::Relaxed);
        done
    }

    /// Reports that everything is stored; the sender waits for this report.
    fn report_end(&self) -> Result<(), Error> {
        unless_stopped(0, || self.shared.sender().send(&[])).map(drop)
    }
}

impl Shared {
    fn sender(&self) -> MutexGuard<'_, Sender> {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stack of the reporting thread, which does almost nothing: a small stack fits under a limit of
/// the address space.
const STACK_BYTES: usize = 256 << 10;

/// Repeats a wait after `after_bytes` of the stream; `None` if Ctrl-C came.
fn unless_stopped<T>(
    after_bytes: u64,
    mut wait: impl FnMut() -> Result<T, library::Error>,
) -> Result<Option<T>, Error> {
    while !STOP.load(Ordering::Relaxed) {
        match wait() {
            Ok(value) => return Ok(Some(value)),
            Err(library::Error::Deadline { done, size, limit, .. })
                if (done.0, size.0, limit) == (0, 0, POLL) => {}
            Err(error) => return Err(ended("receive", after_bytes)(error)),
        }
    }
    Ok(None)
}

/// The destination of the bytes: standard output, a file that gets its name when it is complete, or
/// a device or FIFO.
enum Target {
    Output(io::Stdout),
    Stream { file: File, path: PathBuf },
    File(Option<Whole>),
}

impl Target {
    fn open(out: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = out else {
            return terminal::output().map(Self::Output).map_err(Error::Output);
        };
        match destination(path)? {
            Destination::Stream(path) => {
                let file = open_stream(&path).map_err(|reason| unwritable(&path, reason))?;
                Ok(Self::Stream { file, path })
            }
            Destination::File(path) => Ok(Self::File(Some(Whole::create(&path)?))),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Unwritten> {
        let gone = |reason: &io::Error| reason.kind() == io::ErrorKind::BrokenPipe;
        match self {
            Self::Output(output) => {
                let written = output.write_all(bytes).and_then(|()| output.flush());
                written.map_err(|reason| match gone(&reason) {
                    true => Unwritten::ReaderGone("standard output".into()),
                    false => Unwritten::Failed(Error::Output(reason)),
                })
            }
            Self::Stream { file, path } => {
                file.write_all(bytes).map_err(|reason| match gone(&reason) {
                    true => Unwritten::ReaderGone(path.display().to_string()),
                    false => Unwritten::Failed(unwritable(path, reason)),
                })
            }
            Self::File(whole) => match whole {
                Some(whole) => whole.write(bytes).map_err(|error| Unwritten::Failed(error.into())),
                None => Ok(()),
            },
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::File(whole) => Ok(whole.take().map_or(Ok(()), Whole::finish)?),
            Self::Output(_) | Self::Stream { .. } => Ok(()),
        }
    }
}

/// Why bytes were not written.
enum Unwritten {
    /// The reader of this output has closed it, so the rest of the stream is lost. The cause is
    /// not a full disk.
    ReaderGone(String),
    Failed(Error),
}

impl Unwritten {
    fn after(self, done: u64) -> Error {
        match self {
            Self::ReaderGone(target) => {
                TransferError::ConsumerGone { target, done: Bytes(done) }.into()
            }
            Self::Failed(error) => error,
        }
    }
}

fn unwritable(path: &Path, reason: io::Error) -> Error {
    Error::Haul(haul_machine::Error::Write { path: path.into(), reason })
}
