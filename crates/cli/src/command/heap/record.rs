//! `haul heap record`: runs a program under `libhaul_record.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use haul_model::trace::{HEADER_BYTES, Header};
use rustix::process::{Pid, Signal, kill_process};

use crate::arguments::heap::Record as Arguments;
use crate::command::Command;
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::{self, STOP};
use crate::terminal;

/// The library that records.
const LIBRARY: &str = "libhaul_record.so";

/// How long a program may go on after Ctrl-C, before it is asked to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks at the program.
const LOOK: Duration = Duration::from_millis(5);

pub(super) struct Record {
    library: PathBuf,
    out: PathBuf,
    program: Vec<OsString>,
}

impl Record {
    /// Finds the library and a name for the trace.
    ///
    /// # Errors
    /// There is no library, or the name is taken.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let library = library()?;
        let out = match arguments.out {
            Some(out) if fs::symlink_metadata(&out).is_ok() => {
                return Err(Error::TraceExists { path: out });
            }
            Some(out) => out,
            None => free_name(&arguments.program[0]),
        };
        // The program may change its folder; the trace stays where it was asked for.
        let out = std::path::absolute(&out).unwrap_or(out);
        Ok(Self { library, out, program: arguments.program })
    }

    fn start(&self) -> Result<Child, Error> {
        let mut preload = self.library.clone().into_os_string();
        if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        std::process::Command::new(&self.program[0])
            .args(&self.program[1..])
            .env("LD_PRELOAD", preload)
            .env("HAUL_RECORD", &self.out)
            .spawn()
            .map_err(|reason| Error::Start { program: self.program[0].clone(), reason })
    }

    /// The files of this run: a dot and a process follow the name that was asked for.
    fn traces(&self) -> Vec<PathBuf> {
        let folder = self.out.parent().unwrap_or(Path::new("."));
        let Some(name) = self.out.file_name() else { return Vec::new() };
        let mut start = name.to_owned();
        start.push(".");
        let is_own = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            let rest = name.strip_prefix(start.as_encoded_bytes());
            rest.is_some_and(|rest| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.'))
        };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut traces: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_own).collect();
        traces.sort();
        traces
    }

    /// Says which traces there are; a single one gets the name that was asked for.
    fn tell(&self, traces: &[PathBuf]) -> Result<(), Error> {
        let traces = match traces {
            [] => return Err(Error::NoTrace { program: self.program[0].clone() }),
            [one] => {
                let renamed = fs::rename(one, &self.out);
                vec![if renamed.is_ok() { self.out.clone() } else { one.clone() }]
            }
            several => several.to_vec(),
        };
        for trace in &traces {
            let program = program_of(trace).map_or_else(String::new, |name| format!(" ({name})"));
            terminal::say(&format!("haul: recorded {}{program}", trace.display()));
        }
        let first = traces[0].display();
        terminal::say(&format!("haul: look at it with `haul heap info {first}`, or replay it"));
        Ok(())
    }
}

impl Command for Record {
    fn outputs(&self) -> Outputs {
        Outputs { files: vec![self.out.clone()], ..Outputs::default() }
    }

    fn run(&mut self, _journal: &mut Journal) -> Result<(), Error> {
        let before = self.traces();
        stop::watch("keeping the trace, as soon as the program has ended")?;
        let ended = wait(self.start()?)?;
        let mut traces = self.traces();
        traces.retain(|trace| !before.contains(trace));
        self.tell(&traces)?;
        match code(ended) {
            0 => Ok(()),
            code => Err(Error::ProgramFailed { program: self.program[0].clone(), code }),
        }
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        Ok(())
    }
}

/// Where the library lies: beside this program, as cargo leaves the two, or in the `lib` beside the
/// `bin` that it was installed into.
fn library() -> Result<PathBuf, Error> {
    let folder = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let folder = folder.unwrap_or_default();
    let places =
        ["", "../lib", "../lib64", "../lib/haul"].map(|place| folder.join(place).join(LIBRARY));
    match places.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.canonicalize().unwrap_or_else(|_| path.clone())),
        None => Err(Error::NoRecorder { folder }),
    }
}

/// `sort.trace` in this folder, or the first of `sort.trace.2` and so on that nothing is called.
fn free_name(program: &OsStr) -> PathBuf {
    let program = Path::new(program).file_name().unwrap_or(OsStr::new("program"));
    let name = |number: u32| {
        let mut name = program.to_owned();
        name.push(if number == 1 { ".trace".into() } else { format!("-{number}.trace") });
        PathBuf::from(name)
    };
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    (1..).map(name).find(is_free).unwrap_or_else(|| name(1))
}

/// Waits for the program. After Ctrl-C, which the program has had as well, not for ever.
fn wait(mut child: Child) -> Result<ExitStatus, Error> {
    let failed = |reason: io::Error| Error::Output(reason);
    let mut stopped: Option<Instant> = None;
    loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Ok(status);
        }
        if STOP.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                let _ = kill_process(Pid::from_child(&child), Signal::TERM);
                stopped = Some(Instant::now());
            }
        }
        thread::sleep(LOOK);
    }
}

/// What a shell would say of it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(1)
}

fn program_of(trace: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    fs::File::open(trace).ok()?.take(HEADER_BYTES as u64).read_to_end(&mut bytes).ok()?;
    Header::parse(&bytes).ok().map(|header| header.program_name())
}
