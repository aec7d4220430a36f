//! `haul copy record`: runs a program under `libhaul_copy_record.so`.
//!
//! From the bottom up:
//!
//! - `room`: the file that the recorded processes write;
//! - `mappings`: the files that they have mapped;
//! - `summary`: what was recorded, for a person.

mod mappings;
mod room;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use haul_experiments::context;
use haul_model::stream::recording::{About, Recording};
use haul_model::stream::{Stream, TEXT_BYTES_MAX};

use self::mappings::Mappings;
use self::room::{Room, Settings};
use crate::arguments::copy_record::Record as Arguments;
use crate::command::program::{self, Closed, End};
use crate::command::{Command, this_machine};
use crate::error::{Error, ProgramError};
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

/// The library that records.
const LIBRARY: &str = "libhaul_copy_record.so";

pub(super) struct Record {
    library: PathBuf,
    out: Out,
    settings: Settings,
    about: String,
    program: Vec<OsString>,
}

/// Where streams go.
enum Out {
    /// That of the busiest thread.
    File(PathBuf),
    /// Those of all threads.
    Folder(PathBuf),
}

impl Record {
    /// Finds the library and a name for the stream.
    ///
    /// # Errors
    /// The library is missing, the name exists already, or the text is too long.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let library = program::library(LIBRARY, "haul-copy-record")?;
        let out = match (arguments.all, arguments.out_file) {
            (Some(folder), _) => Out::Folder(folder),
            (None, Some(file)) if fs::symlink_metadata(&file).is_ok() => {
                return Err(ProgramError::TraceExists { path: file }.into());
            }
            (None, Some(file)) => Out::File(file),
            (None, None) => Out::File(program::free_name(&arguments.program[0], "stream")),
        };
        let (calls, skip, sample) = (arguments.calls, arguments.skip, arguments.sample);
        let settings = Settings { calls, skip, sample, room: arguments.room };
        let mut about = arguments.about;
        while about.len() > TEXT_BYTES_MAX {
            about.pop();
        }
        Ok(Self { library, out, settings, about, program: arguments.program })
    }

    /// Runs the program to its end.
    fn record(&self, room: &Room) -> Result<(End, Mappings), Error> {
        let mut command = program::command(&self.program, &self.library);
        command.env("HAUL_COPY_RECORD", room.path());
        let program = || self.program[0].clone();
        let started = command.spawn();
        let child = started.map_err(|reason| ProgramError::Start { program: program(), reason })?;
        let mut mappings = Mappings::default();
        let end = program::wait(child, &self.program[0], || mappings.poll(room))?;
        Ok((end, mappings))
    }

    /// Writes the streams and reports them.
    fn write(
        &self,
        recording: &Recording<'_>,
        mappings: &Mappings,
        about: &About,
        busiest: usize,
    ) -> Result<(), Error> {
        let stream = |thread: usize| {
            let process = recording.threads[thread].process;
            let modules = mappings.of(process, &recording.processes[process]);
            recording.stream(thread, &modules, about)
        };
        let mut lines = Vec::new();
        let kept = match &self.out {
            Out::File(file) => {
                let stream = stream(busiest);
                write(file, &stream)?;
                lines.extend(summary::of_stream(&stream, &recording.threads[busiest], file));
                Some(busiest)
            }
            Out::Folder(folder) => {
                fs::create_dir_all(folder).map_err(Error::Output)?;
                let with_calls = |thread: &usize| !recording.threads[*thread].events.is_empty();
                for thread in (0..recording.threads.len()).filter(with_calls) {
                    let stream = stream(thread);
                    let file = folder.join(file_name(recording, thread));
                    write(&file, &stream)?;
                    if thread == busiest {
                        let of = &recording.threads[busiest];
                        lines.extend(summary::of_stream(&stream, of, &file));
                    }
                }
                None
            }
        };
        lines.extend(summary::left_out(recording, kept));
        lines.iter().for_each(|line| terminal::say(&format!("haul: {line}")));
        Ok(())
    }
}

/// `git-4711-0.stream`: the program, the process and the number of the thread.
fn file_name(recording: &Recording<'_>, thread: usize) -> String {
    let process = &recording.processes[recording.threads[thread].process];
    let (index, number) = (recording.threads[thread].process, recording.number(thread));
    let same = recording.processes[..index].iter().filter(|other| other.id == process.id).count();
    // A process that became another program has the same ID.
    let id = if same == 0 { format!("{}", process.id) } else { format!("{}.{same}", process.id) };
    format!("{}-{id}-{number}.stream", process.program.replace(char::is_whitespace, "_"))
}

fn write(path: &Path, stream: &Stream) -> Result<(), Error> {
    let bytes = stream.write()?;
    let exists = |reason: io::Error| match reason.kind() {
        io::ErrorKind::AlreadyExists => ProgramError::TraceExists { path: path.into() }.into(),
        _ => Error::Output(reason),
    };
    let mut file = fs::File::create_new(path).map_err(exists)?;
    file.write_all(&bytes).map_err(Error::Output)
}

/// Why there is no stream of the program.
fn why_nothing(end: &End) -> &'static str {
    match end.closed() {
        Some(Closed::Static) => "it is linked statically, so its copies cannot be intercepted",
        Some(Closed::SetUserId) => {
            "it is set-user-id, and the dynamic linker ignores LD_PRELOAD for it"
        }
        None => {
            "it called no copy function after its start (see --skip), or removed LD_PRELOAD before \
             it did"
        }
    }
}

impl Command for Record {
    fn stops(&self) -> Stops {
        Stops::ByItself
    }

    fn outputs(&self) -> Outputs {
        let files = match &self.out {
            Out::File(file) => vec![file.clone()],
            Out::Folder(_) => Vec::new(),
        };
        Outputs { files, ..Outputs::default() }
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        let about = self.about.clone();
        let about = About { about, time: context::now(), machine: this_machine().id };
        let room = Room::create(self.settings)?;
        let (end, mappings) = self.record(&room)?;
        let bytes = room.read().map_err(Error::Output)?;
        let recording = Recording::parse(&bytes)?;
        let with_calls = |thread: &usize| !recording.threads[*thread].events.is_empty();
        let Some(busiest) = recording.busiest().filter(with_calls) else {
            let program = self.program[0].clone();
            return Err(ProgramError::NoStream { program, why: why_nothing(&end) }.into());
        };
        self.write(&recording, &mappings, &about, busiest)?;
        match end.code() {
            0 => Ok(()),
            code => {
                let program = self.program[0].clone();
                Err(ProgramError::RecordedFailed { program, code }.into())
            }
        }
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }

    /// However this command ends, the stream and the exit code are the program's.
    fn lasts_until_stopped(&self) -> bool {
        true
    }
}
