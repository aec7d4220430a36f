//! `haul channel recv`.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haul::channel::{self as library, Channel, Listener, Settings};
use haul::file::{Destination, destination, open_stream};

use super::MESSAGE_BYTES;
use super::took::Took;
use crate::arguments::channel;
use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::{self, STOP};
use crate::terminal;

/// How often a wait looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Recv {
    arguments: channel::Recv,
    took: Took,
}

impl Recv {
    pub(super) fn new(arguments: channel::Recv) -> Self {
        Self { arguments, took: Took::start() }
    }

    fn settings(&self) -> Settings {
        Settings {
            deadline: self.arguments.deadline,
            wait: Some(LOOK),
            trusts_peer: self.arguments.trust,
            size_max: MESSAGE_BYTES as u64,
            ..Settings::default()
        }
    }

    /// Everything up to the end mark. `false` where Ctrl-C came first.
    fn receive(&mut self, channel: &mut Channel, target: &mut Target) -> Result<bool, Error> {
        let mut buffer = vec![0; MESSAGE_BYTES];
        self.took = Took::start();
        loop {
            let Some(received) = unless_stopped(|| channel.recv_into(&mut buffer))? else {
                return Ok(false);
            };
            let length = received.size_bytes as usize;
            if length == 0 {
                return Ok(true);
            }
            target.write(&buffer[..length])?;
            self.took.add(&received);
        }
    }
}

impl Command for Recv {
    fn outputs(&self) -> Outputs {
        let files = self.arguments.out.iter().cloned().collect();
        Outputs { json: self.arguments.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        stop::watch()?;
        let settings = self.settings();
        let listener = Listener::bind(&self.arguments.socket)?;
        let Some(mut channel) = unless_stopped(|| listener.accept(&settings))? else {
            return Ok(());
        };
        let mut target = Target::open(self.arguments.out.as_deref())?;
        if !self.receive(&mut channel, &mut target)? {
            return Ok(());
        }
        target.finish()?;
        // The sender waits for this.
        channel.send(&[])?;
        self.took.stop();
        if self.arguments.json {
            self.took.record("channel.recv", journal)?;
        }
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if !self.arguments.json && io::stderr().is_terminal() && self.took.is_complete() {
            terminal::say(&self.took.line("received"));
        }
        Ok(())
    }
}

/// Waits again and again; `None` where Ctrl-C came.
fn unless_stopped<T>(
    mut wait: impl FnMut() -> Result<T, library::Error>,
) -> Result<Option<T>, Error> {
    while !STOP.load(Ordering::Relaxed) {
        match wait() {
            Ok(value) => return Ok(Some(value)),
            Err(library::Error::Deadline { done, size, limit, .. })
                if (done.0, size.0, limit) == (0, 0, LOOK) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Where the bytes go: standard output, a file that gets its name when it is whole, or a device or FIFO.
enum Target {
    Output(io::Stdout),
    Stream { file: File, path: PathBuf },
    File { file: File, temporary: PathBuf, path: PathBuf, is_whole: bool },
}

impl Target {
    fn open(out: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = out else { return Ok(Self::Output(io::stdout())) };
        let path = match destination(path)? {
            Destination::Stream(path) => {
                let file = open_stream(&path).map_err(|reason| unwritable(&path, reason))?;
                return Ok(Self::Stream { file, path });
            }
            Destination::File(path) => path,
        };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", process::id()));
        let file = File::options().write(true).create_new(true).open(&temporary);
        let file = file.map_err(|reason| unwritable(&path, reason))?;
        Ok(Self::File { file, temporary, path, is_whole: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match self {
            // A reader that is gone is no end like another: what is left of the stream is lost.
            Self::Output(output) => {
                output.write_all(bytes).and_then(|()| output.flush()).map_err(Error::Output)
            }
            Self::File { file, path, .. } | Self::Stream { file, path } => {
                file.write_all(bytes).map_err(|reason| unwritable(path, reason))
            }
        }
    }

    fn finish(&mut self) -> Result<(), Error> {
        let Self::File { temporary, path, is_whole, .. } = self else { return Ok(()) };
        fs::rename(&*temporary, &*path).map_err(|reason| unwritable(path, reason))?;
        *is_whole = true;
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Self::File { temporary, is_whole: false, .. } = self {
            // What is not whole is not kept.
            let _ = fs::remove_file(temporary);
        }
    }
}

fn unwritable(path: &Path, reason: io::Error) -> Error {
    Error::Haul(haul::Error::Write { path: path.into(), reason })
}
