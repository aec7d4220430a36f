//! `haul engine fake`: runs a program with a fake DSA.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use haul_engine::dsa::fake::settings::SETTINGS_BYTES_MAX;
use haul_engine::dsa::fake::{Settings, tree};
use haul_experiments::drive::Folder;

use crate::arguments::engine::Fake as Arguments;
use crate::command::Command;
use crate::command::program::{self, Closed};
use crate::error::{Error, ProgramError};
use crate::journal::{Journal, Outputs};
use crate::stop::{STOP, Stops};
use crate::terminal;

/// The library that shows the fake to a program.
const LIBRARY: &str = "libhaul_engine_fake.so";

/// Interval between two polls for a signal.
const POLL: Duration = Duration::from_millis(20);

pub(super) struct Fake {
    library: PathBuf,
    settings: Settings,
    dir: Option<PathBuf>,
    program: Vec<OsString>,
}

/// The folder of a fake, which is removed with this value.
enum Place {
    Temporary(Folder),
    Named(PathBuf),
}

impl Fake {
    /// Reads the settings and finds the library.
    ///
    /// # Errors
    /// The settings are wrong or cannot be read, or the library is missing.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let library = program::library(LIBRARY, "haul-engine-fake")?;
        let mut text = String::new();
        if let Some(path) = &arguments.settings {
            let bytes = haul_machine::file::read_limited(path, SETTINGS_BYTES_MAX as u64)?;
            text = String::from_utf8_lossy(&bytes).into_owned();
            text.push('\n');
        }
        let mut add = |word: &str, values: &str| {
            let _ = writeln!(text, "{word} {}", values.replace(',', " "));
        };
        arguments.device.iter().for_each(|values| add("device", values));
        arguments.queue.iter().for_each(|values| add("queue", values));
        arguments.inject.iter().for_each(|values| add("inject", values));
        let settings = text.parse()?;
        Ok(Self { library, settings, dir: arguments.dir, program: arguments.program })
    }

    fn place(&self) -> Result<Place, Error> {
        let failed = |path: &Path, reason: io::Error| Error::Folder {
            path: path.into(),
            reason,
            remedy: "name a folder that does not exist yet, where this user may write",
        };
        let place = match &self.dir {
            Some(path) => {
                DirBuilder::new().mode(0o700).create(path).map_err(|why| failed(path, why))?;
                let whole = path.canonicalize().map_err(|why| failed(path, why))?;
                Place::Named(whole)
            }
            None => {
                let temporary = std::env::temp_dir();
                let folder = Folder::new("engine-fake").map_err(|why| failed(&temporary, why))?;
                Place::Temporary(folder)
            }
        };
        tree::write(place.path(), &self.settings).map_err(|why| failed(place.path(), why))?;
        Ok(place)
    }

    /// Runs the program to its end.
    fn run_program(&self, place: &Place) -> Result<(), Error> {
        let name = || self.program[0].clone();
        let mut command = program::command(&self.program, &self.library);
        command.env(tree::VARIABLE, place.path());
        let started = command.spawn();
        let child = started.map_err(|reason| ProgramError::Start { program: name(), reason })?;
        let end = program::wait(child, &self.program[0], || {})?;
        let why = match end.closed() {
            Some(Closed::Static) => Some("it is linked statically"),
            Some(Closed::SetUserId) => Some("it is set-user-id"),
            None => None,
        };
        if let Some(why) = why {
            let program = self.program[0].display();
            terminal::say(&format!("haul: {program} has not seen the fake, because {why}"));
        }
        match end.code() {
            0 => Ok(()),
            code => Err(ProgramError::FakedFailed { program: name(), code }.into()),
        }
    }

    /// Shows the fake until a signal arrives.
    fn show(&self, place: &Place) -> Result<(), Error> {
        let (folder, library) = (place.path().display(), self.library.display());
        terminal::print(&format!(
            "export {}={folder}\nexport LD_PRELOAD={library}",
            tree::VARIABLE
        ))?;
        terminal::say("haul: programs with these variables see the fake; Ctrl-C removes it");
        while !STOP.load(Ordering::Relaxed) {
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Command for Fake {
    fn stops(&self) -> Stops {
        if self.program.is_empty() { Stops::WithWhatThereIs } else { Stops::ByItself }
    }

    fn outputs(&self) -> Outputs {
        Outputs::default()
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        let place = self.place()?;
        if self.program.is_empty() { self.show(&place) } else { self.run_program(&place) }
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }

    fn lasts_until_stopped(&self) -> bool {
        true
    }
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Named(path) => path,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Named(path) = self {
            // What cannot be removed is this user's own and harms no later run.
            let _ = fs::remove_dir_all(path);
        }
    }
}
