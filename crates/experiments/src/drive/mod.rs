//! A process as a subject: its start, the conversation with it, and its end.
//!
//! A C library's `malloc` or one end of a channel belongs to a process, and can be compared with
//! others only in a separate process. A run starts such drivers and gives them tasks in sequence.
//! The run sends a line with each task and receives a line with the answer. When the run ends, it
//! ends its drivers.
//!
//! From the bottom up:
//!
//! - `folder`: a folder that belongs to a run;
//! - `printed`: the output of drivers, which is reported if one fails;
//! - `conversation`: an exchange of lines over a socket, with a time limit for every wait;
//! - `children`: the processes, from their start to their end;
//! - `compiler`: compiles a driver in C;
//! - `terminal`: a program that is controlled through a terminal;
//! - [`contained`]: a program that leaves no process behind.

mod children;
mod compiler;
pub mod contained;
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
pub(crate) use compiler::{compile, run};
pub(crate) use conversation::{Conversation, Silence, serve};
pub use folder::{Folder, remove_folders};
pub(crate) use printed::Printed;
pub(crate) use terminal::Terminal;

/// A program that serves as a driver.
#[derive(Clone, Debug)]
pub struct Program {
    /// The program's file.
    pub path: PathBuf,
    /// The program's arguments. The run appends further arguments.
    pub arguments: Vec<OsString>,
    /// Additional environment variables.
    pub environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// A program without arguments.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arguments: Vec::new(), environment: Vec::new() }
    }

    /// This program with these arguments.
    #[must_use]
    pub fn with(self, arguments: Vec<OsString>) -> Self {
        Self { arguments, ..self }
    }

    /// The command that starts the program, without the preloaded libraries of this process, and
    /// with its output in `printed`.
    pub(crate) fn command(&self, printed: &PipeWriter) -> io::Result<Command> {
        let mut command = self.command_without_printed();
        command.stderr(printed.try_clone()?);
        Ok(command)
    }

    /// The command that starts the program, for a caller that reads the output in another way.
    fn command_without_printed(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments);
        command.env_remove("LD_PRELOAD");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        // Only the run may receive Ctrl-C. The run then ends with the records so far, and ends
        // its drivers.
        command.process_group(0);
        command
    }
}
