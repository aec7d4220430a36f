//! `haul heap record`: runs a program under `libhaul_record.so`.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use haul_experiments::drive::Folder;

use super::left::{Left, Names, asked_for, longest, without_empty};
use crate::arguments::heap::Record as Arguments;
use crate::command::Command;
use crate::command::program::{self, Closed, End, PROGRAM_BYTES_MAX};
use crate::error::{Error, ProgramError};
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

/// The library that records.
const LIBRARY: &str = "libhaul_record.so";

pub(super) struct Record {
    library: PathBuf,
    out: PathBuf,
    names: Names,
    program: Vec<OsString>,
}

/// How the program ended, and the recorder's reports.
struct Ended {
    end: End,
    /// Numbers of the recorder's reports: see `tree` there.
    reported: Vec<u32>,
}

/// The recorder's number for a program with a malloc of its own. Smaller numbers are failures,
/// which end a trace.
const PASSED_BY: u32 = 10_003;

impl Record {
    /// Finds the library and a name for the trace.
    ///
    /// # Errors
    /// The library is missing, or the name exists already.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let library = program::library(LIBRARY, "haul-record")?;
        let out = match arguments.out_file {
            Some(out) if fs::symlink_metadata(&out).is_ok() => {
                return Err(ProgramError::TraceExists { path: out }.into());
            }
            Some(out) => out,
            None => program::free_name(&arguments.program[0], "trace"),
        };
        // The program may change its working folder, but the path of the trace must stay the
        // same.
        let out = std::path::absolute(&out).unwrap_or(out);
        let names = Names::of(&out);
        Ok(Self { library, out, names, program: arguments.program })
    }

    fn start(&self, reports: Option<&Folder>) -> Result<Child, Error> {
        let mut command = program::command(&self.program, &self.library);
        command.env("HAUL_RECORD", &self.out);
        // A separate run, even within another recording.
        command.env_remove("HAUL_RECORD_RUN").env_remove("HAUL_RECORD_TOLD");
        if let Some(reports) = reports {
            command.env("HAUL_RECORD_TOLD", reports.path());
        }
        let program = || self.program[0].clone();
        let started = command.spawn();
        Ok(started.map_err(|reason| ProgramError::Start { program: program(), reason })?)
    }

    /// Reports the traces. The trace of the requested program gets the requested name.
    fn report(&self, traces: &[Left], ended: &Ended) -> Result<(), Error> {
        let Some(main) = asked_for(traces, ended.end.process) else {
            let (program, why) = (self.program[0].clone(), ended.why_no_trace());
            return Err(ProgramError::NoTrace { program, why }.into());
        };
        let mut path = main.path.clone();
        if !self.names.have_process() && fs::rename(&path, &self.out).is_ok() {
            path.clone_from(&self.out);
        }
        let of = match main.process == ended.end.process {
            true => main.program.clone(),
            false => format!("{}, process {}, which it started", main.program, main.process),
        };
        terminal::say(&format!("haul: recorded {} ({of})", path.display()));
        let others = traces.iter().filter(|left| left.path != main.path);
        if let Some(longest) = longest(others) {
            terminal::say(&format!(
                "haul: {} other programs of the run have a trace each, named {}; the longest is {} ({})",
                traces.len() - 1,
                self.names.others().display(),
                longest.path.display(),
                longest.program
            ));
        }
        if let Some(hidden) = ended.hidden(main) {
            terminal::say(&format!("haul: {hidden}"));
        }
        terminal::say(&format!(
            "haul: inspect it with `haul heap info {}`, or replay it",
            path.display()
        ));
        Ok(())
    }
}

impl Command for Record {
    fn stops(&self) -> Stops {
        Stops::ByItself
    }

    fn outputs(&self) -> Outputs {
        Outputs { files: vec![self.out.clone()], ..Outputs::default() }
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        let before: Vec<PathBuf> = self.names.traces().into_iter().map(|left| left.path).collect();
        // Without a folder for the reports, each process prints its failure itself; the rest stays
        // the same.
        let reports = Folder::new("record").ok();
        let child = self.start(reports.as_ref())?;
        let end = program::wait(child, &self.program[0], || {})?;
        let reported = reports.as_ref().map_or_else(Vec::new, |folder| numbers(folder.path()));
        let ended = Ended { end, reported };
        let mut traces = self.names.traces();
        traces.retain(|left| !before.contains(&left.path));
        self.report(&without_empty(traces), &ended)?;
        match ended.end.code() {
            0 => Ok(()),
            code => Err(ProgramError::TracedFailed {
                program: self.program[0].clone(),
                is_whole: ended.reported.iter().all(|number| *number >= PASSED_BY),
                code,
            }
            .into()),
        }
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }

    /// However this command ends, the trace and the exit code are the program's.
    fn lasts_until_stopped(&self) -> bool {
        true
    }
}

impl Ended {
    /// Why there is no trace of the program.
    fn why_no_trace(&self) -> &'static str {
        if self.reported.contains(&PASSED_BY) {
            return "it has its own malloc, which precedes the recorder's";
        }
        if !self.reported.is_empty() {
            return "its trace could not be written";
        }
        match self.end.closed() {
            Some(Closed::Static) => "it is linked statically, so its malloc cannot be intercepted",
            Some(Closed::SetUserId) => {
                "it is set-user-id, and the dynamic linker ignores LD_PRELOAD for it"
            }
            None => "it allocated no memory, or removed LD_PRELOAD before it did",
        }
    }

    /// The memory of the program that is not in this trace, as far as haul can see it.
    fn hidden(&self, main: &Left) -> Option<String> {
        let file_name = self.end.file.as_ref().and_then(|file| file.file_name());
        let file_name = file_name.map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let is_last = main.process == self.end.process;
        if is_last
            && self.end.comm != main.program
            && program::is_of_a_file(&self.end.comm, &file_name)
        {
            return Some(format!(
                "warning: process {} went on as {}, which was not recorded: it was started without \
                 LD_PRELOAD, is linked statically or set-user-id, or has its own malloc",
                self.end.process, self.end.comm
            ));
        }
        let is_python = |name: &str| name.starts_with("python");
        if is_python(&main.program) || (is_last && is_python(&file_name)) {
            let is_off = env::var("PYTHONMALLOC").is_ok_and(|it| it.starts_with("malloc"));
            return (!is_off).then(|| {
                "note: Python allocates small objects in its own allocator (pymalloc), and those are not in \
                 the trace; to record all, set PYTHONMALLOC=malloc in the environment"
                    .to_owned()
            });
        }
        // haul itself contains the marks.
        let file =
            self.end.file.as_ref().filter(|file| env::current_exe().ok().as_ref() != Some(file))?;
        let bytes = haul_machine::file::read_limited(file, PROGRAM_BYTES_MAX).ok()?;
        let (name, _) = LINKED_IN.iter().find(|(_, mark)| has(&bytes, mark))?;
        is_last.then(|| {
            format!(
                "note: {file_name} has {name} linked in, and its allocations by the names of {name} are not in \
                 the trace; to record them, build it without {name}"
            )
        })
    }
}

/// Allocators that programs link in, and a text that only a program with the allocator contains.
const LINKED_IN: [(&str, &[u8]); 3] =
    [("jemalloc", b"<jemalloc>"), ("mimalloc", b"mimalloc: "), ("tcmalloc", b"tcmalloc: ")];

fn has(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|part| part == mark)
}

/// The recorder's reports, from the names of the files in this folder.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.rsplit_once('.')?.1.parse().ok()).collect()
}
