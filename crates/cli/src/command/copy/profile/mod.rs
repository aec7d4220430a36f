//! `haul copy profile`: runs a program under `libhaul_copy.so` and makes records of its profile.
//!
//! From the bottom up:
//!
//! - `room`: the file that the profiled processes map;
//! - `cost`: the time of the calls, with libc's functions and with haul's;
//! - `lost`: the processes without the library;
//! - `symbols`: the functions of call sites;
//! - `summary`: the profile, for a person.

mod cost;
mod lost;
mod room;
mod summary;
mod symbols;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use haul_machine::sys::Sys;
use haul_model::Record;
use haul_model::experiment::{key, name};
use haul_model::profile::{Profile as Content, layout, records};

use self::lost::Lost;
use self::room::Room;
use self::symbols::Symbols;
use super::LIBRARY;
use crate::arguments::copy_preload::Profile as Arguments;
use crate::command::program::{self, Closed, End};
use crate::command::{Command, record};
use crate::error::{Error, ProgramError};
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

/// What no preloaded library sees.
const NOT_SEEN: &str = "copies that the compiler inlined, calls within libc, copies of other \
    libraries' own (rte_memcpy, a JIT's, Go's), and programs without the library";

pub(super) struct Profile {
    library: Option<PathBuf>,
    out: Option<PathBuf>,
    every: u64,
    from: Vec<PathBuf>,
    json: bool,
    program: Vec<OsString>,
}

/// What is known of a run beside its profile.
#[derive(Default)]
struct Around {
    /// The processes without the library.
    lost: Option<String>,
    /// The processor time of the program and of the children that it waited for.
    cpu_s: Option<f64>,
}

impl Profile {
    /// Finds the library, and checks the name for the records.
    ///
    /// # Errors
    /// The library is missing, or the name exists already.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let Arguments { out_file: out, every, from, json, program } = arguments;
        let library = match program.is_empty() {
            true => None,
            false => Some(program::library(LIBRARY, "haul-copy-preload")?),
        };
        if let Some(path) = out.as_ref().filter(|path| fs::symlink_metadata(path).is_ok()) {
            return Err(ProgramError::TraceExists { path: path.clone() }.into());
        }
        Ok(Self { library, out, every: every.0.max(1), from, json, program })
    }

    /// Runs the program to its end.
    fn profile(&self, library: &Path, room: &Room) -> Result<(End, Around), Error> {
        let sys = Sys::new();
        let before = sys.ended_children_seconds();
        let mut command = program::command(&self.program, library);
        command.env("HAUL_COPY_PROFILE", room.path());
        let program = || self.program[0].clone();
        let started = command.spawn();
        let child = started.map_err(|reason| ProgramError::Start { program: program(), reason })?;
        let (id, mut lost) = (child.id(), Lost::default());
        let end = program::wait(child, &self.program[0], || lost.poll(id))?;
        let cpu_s = sys.ended_children_seconds().zip(before).map(|(after, before)| after - before);
        Ok((end, Around { lost: lost.names(), cpu_s }))
    }

    /// The records of a profile, and the lines for a person.
    fn records(&self, path: &Path, around: &Around) -> Result<Option<Vec<Record>>, Error> {
        let bytes = haul_machine::file::read_limited(path, layout::FILE_BYTES as u64)?;
        let content = Content::parse(&bytes)?;
        let Some(first) = content.processes.first() else { return Ok(None) };
        let symbols = RefCell::new(Symbols::default());
        let symbol = |site: &_| symbols.borrow_mut().of(site);
        let mut all = records::records(&content, &first.program, symbol);
        let without = around.lost.as_ref().map(|names| format!("; not profiled: {names}"));
        let note = format!("not seen: {NOT_SEEN}{}", without.unwrap_or_default());
        if let Some(record) = all.first_mut() {
            record.parameters.insert(key::NOTE.into(), note.into());
        }
        let all = cost::on(all, around.cpu_s)?;
        let lines = summary::lines(&content, &all, around.lost.as_deref());
        lines.iter().for_each(|line| terminal::say(&format!("haul: {line}")));
        Ok(Some(all))
    }

    fn keep(&self, records: Vec<Record>, journal: &mut Journal) -> Result<(), Error> {
        record(name::COPY_PROFILE, records, journal)?;
        let Some(out) = &self.out else { return Ok(()) };
        let text: String =
            journal.lines().iter().map(|line| format!("{}\n", line.to_json())).collect();
        haul_machine::file::write_atomically(out, text.as_bytes())?;
        terminal::say(&format!(
            "haul: wrote {}; draw it with `haul report {}`",
            out.display(),
            out.display()
        ));
        Ok(())
    }
}

/// Why the profile is empty.
fn why_nothing(end: &End) -> &'static str {
    match end.closed() {
        Some(Closed::Static) => "it is linked statically, so its copies cannot be intercepted",
        Some(Closed::SetUserId) => {
            "it is set-user-id, and the dynamic linker ignores LD_PRELOAD for it"
        }
        None => {
            "it runs under a filter of system calls, removed LD_PRELOAD, or is not of glibc (musl)"
        }
    }
}

impl Command for Profile {
    fn stops(&self) -> Stops {
        if self.program.is_empty() { Stops::AtOnce } else { Stops::ByItself }
    }

    fn outputs(&self) -> Outputs {
        let files = self.out.iter().cloned().collect();
        Outputs { json: self.json, files, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let Some(library) = self.library.as_ref() else {
            let mut all = Vec::new();
            for path in &self.from {
                all.extend(self.records(path, &Around::default())?.unwrap_or_default());
            }
            return self.keep(all, journal);
        };
        let room = Room::create(self.out.as_deref(), self.every)?;
        let ended = self.profile(library, &room);
        let (end, around) = ended.inspect_err(|_| room.remove())?;
        let program = self.program[0].clone();
        let Some(records) = self.records(room.path(), &around)? else {
            room.remove();
            return Err(ProgramError::NoProfile { program, why: why_nothing(&end) }.into());
        };
        self.keep(records, journal)?;
        room.remove();
        match end.code() {
            0 => Ok(()),
            code => Err(ProgramError::RecordedFailed { program, code }.into()),
        }
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }

    /// However this command ends, the profile and the exit code are the program's.
    fn lasts_until_stopped(&self) -> bool {
        !self.program.is_empty()
    }
}
