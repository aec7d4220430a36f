//! `haul copy run`: becomes a program with `libhaul_copy.so` preloaded.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;

use super::LIBRARY;
use crate::arguments::copy_preload::Run as Arguments;
use crate::command::{Command, program};
use crate::error::{Error, ProgramError};
use crate::journal::{Journal, Outputs};

pub(super) struct Run {
    library: PathBuf,
    program: Vec<OsString>,
}

impl Run {
    /// Finds the library.
    ///
    /// # Errors
    /// The library is missing, or its path cannot be preloaded.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let library = program::library(LIBRARY, "haul-copy-preload")?;
        Ok(Self { library, program: arguments.program })
    }
}

impl Command for Run {
    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        let mut command = program::command(&self.program, &self.library);
        command.env_remove("HAUL_COPY_PROFILE");
        let reason = command.exec();
        Err(ProgramError::Start { program: self.program[0].clone(), reason }.into())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }
}
