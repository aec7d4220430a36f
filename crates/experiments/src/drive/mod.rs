//! A process as a subject: how it is started, what is said, and how it ends.
//!
//! Whatever is the process's own, a C library's `malloc` or one end of a channel, can only be
//! compared from outside. A run starts such drivers, has each do one task after the other, a line
//! there and a line back, and ends them with itself.
//!
//! From the bottom up:
//!
//! - `folder`: a folder of a run's own, where processes meet;
//! - `printed`: what drivers print, told where one fails;
//! - `conversation`: lines over a socket, with an end to every wait;
//! - `children`: the processes, from their start to their end;
//! - `terminal`: a program that is used at a terminal.

mod children;
mod conversation;
mod folder;
mod printed;
mod terminal;

use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

pub(crate) use children::Children;
pub(crate) use conversation::{Conversation, Silence, serve};
pub use folder::{Folder, remove_folders};
pub(crate) use printed::Printed;
pub(crate) use terminal::Terminal;

/// A program that serves as a driver.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// Its arguments. What a run has to say to it comes behind them.
    pub arguments: Vec<OsString>,
    /// What it is told by its environment.
    pub environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// A program without arguments.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// The same with these arguments.
    #[must_use]
    pub fn with(self, arguments: Vec<OsString>) -> Self {
        Self { arguments, ..self }
    }

    /// How it is started: with nothing of this process's preloaded, and what it prints into
    /// `printed`.
    pub(crate) fn command(&self, printed: &PipeWriter) -> io::Result<Command> {
        let mut command = self.command_without_printed();
        command.stderr(printed.try_clone()?);
        Ok(command)
    }

    /// The same for whoever takes what it prints in another way.
    fn command_without_printed(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command.env_remove("LD_PRELOAD");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // Ctrl-C is the run's: it ends with what it has, and its drivers with it.
        command.process_group(0);
        command
    }
}
