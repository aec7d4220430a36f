//! `haul heap record`: runs a program under `libhaul_record.so`.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use haul_experiments::drive::Folder;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::left::{Left, Names, asked_for, longest, without_empty};
use crate::arguments::heap::Record as Arguments;
use crate::command::Command;
use crate::error::{Error, code_of_signal};
use crate::journal::{Journal, Outputs};
use crate::stop::{self, STOP, Stops};
use crate::terminal;

/// The library that records.
const LIBRARY: &str = "libhaul_record.so";

/// Time from Ctrl-C until the program is asked to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval between two polls of the program.
const POLL: Duration = Duration::from_millis(5);

/// Length of a program's name in the kernel, in bytes (TASK_COMM_LEN less the zero).
const COMM_BYTES: usize = 15;

pub(super) struct Record {
    library: PathBuf,
    out: PathBuf,
    names: Names,
    program: Vec<OsString>,
}

/// How the program ended.
struct Ended {
    process: u32,
    status: ExitStatus,
    /// The name that the process had at its end.
    comm: String,
    /// The executable that the process ran last, if haul saw it.
    file: Option<PathBuf>,
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
        let library = library()?;
        let out = match arguments.out_file {
            Some(out) if fs::symlink_metadata(&out).is_ok() => {
                return Err(Error::TraceExists { path: out });
            }
            Some(out) => out,
            None => free_name(&arguments.program[0]),
        };
        // The program may change its working folder, but the path of the trace must stay the
        // same.
        let out = std::path::absolute(&out).unwrap_or(out);
        let names = Names::of(&out);
        Ok(Self { library, out, names, program: arguments.program })
    }

    fn start(&self, reports: Option<&Folder>) -> Result<Child, Error> {
        let mut preload = self.library.clone().into_os_string();
        if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let mut command = std::process::Command::new(&self.program[0]);
        command.args(&self.program[1..]).env("LD_PRELOAD", preload).env("HAUL_RECORD", &self.out);
        // A separate run, even within another recording.
        command.env_remove("HAUL_RECORD_RUN").env_remove("HAUL_RECORD_TOLD");
        if let Some(reports) = reports {
            command.env("HAUL_RECORD_TOLD", reports.path());
        }
        command.spawn().map_err(|reason| Error::Start { program: self.program[0].clone(), reason })
    }

    /// Reports the traces. The trace of the requested program gets the requested name.
    fn report(&self, traces: &[Left], ended: &Ended) -> Result<(), Error> {
        let Some(main) = asked_for(traces, ended.process) else {
            let (program, why) = (self.program[0].clone(), ended.why_no_trace());
            return Err(Error::NoTrace { program, why });
        };
        let mut path = main.path.clone();
        if !self.names.have_process() && fs::rename(&path, &self.out).is_ok() {
            path.clone_from(&self.out);
        }
        let of = match main.process == ended.process {
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
        let mut ended = wait(self.start(reports.as_ref())?)?;
        ended.reported = reports.as_ref().map_or_else(Vec::new, |folder| numbers(folder.path()));
        ended.file = ended.file.or_else(|| on_path(&self.program[0]));
        let mut traces = self.names.traces();
        traces.retain(|left| !before.contains(&left.path));
        self.report(&without_empty(traces), &ended)?;
        match code(ended.status) {
            0 => Ok(()),
            code => Err(Error::ProgramFailed {
                program: self.program[0].clone(),
                is_whole: ended.reported.iter().all(|number| *number >= PASSED_BY),
                code,
            }),
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
        let file = self.file.as_ref();
        match file.map(|file| haul_machine::file::read_limited(file, PROGRAM_BYTES_MAX)) {
            Some(Ok(bytes)) if is_static(&bytes) => {
                "it is linked statically, so its malloc cannot be intercepted"
            }
            _ if file.is_some_and(|file| is_set_user_id(file)) => {
                "it is set-user-id, and the dynamic linker ignores LD_PRELOAD for it"
            }
            _ => "it allocated no memory, or removed LD_PRELOAD before it did",
        }
    }

    /// The memory of the program that is not in this trace, as far as haul can see it.
    fn hidden(&self, main: &Left) -> Option<String> {
        let file_name = self.file.as_ref().and_then(|file| file.file_name());
        let file_name = file_name.map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let is_last = main.process == self.process;
        if is_last && self.comm != main.program && is_of_a_file(&self.comm, &file_name) {
            return Some(format!(
                "warning: process {} went on as {}, which was not recorded: it was started without \
                 LD_PRELOAD, is linked statically or set-user-id, or has its own malloc",
                self.process, self.comm
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
            self.file.as_ref().filter(|file| env::current_exe().ok().as_ref() != Some(file))?;
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

/// The largest program that is searched, in bytes: several times the size of a browser.
const PROGRAM_BYTES_MAX: u64 = 1 << 30;

/// Allocators that programs link in, and a text that only a program with the allocator contains.
const LINKED_IN: [(&str, &[u8]); 3] =
    [("jemalloc", b"<jemalloc>"), ("mimalloc", b"mimalloc: "), ("tcmalloc", b"tcmalloc: ")];

fn has(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|part| part == mark)
}

/// Whether an ELF file of 64 bits names no dynamic linker (ELF-64 object file format: it has no
/// PT_INTERP).
fn is_static(bytes: &[u8]) -> bool {
    const PT_INTERP: [u8; 4] = 3_u32.to_le_bytes();
    let number = |at: usize, length: usize| -> Option<u64> {
        let field = bytes.get(at..at + length)?;
        Some(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let headers = || {
        let (start, size) = (number(32, 8)? as usize, number(54, 2)? as usize);
        Some((0..number(56, 2)? as usize).map(move |index| start + index * size))
    };
    let Some(mut headers) = headers().filter(|_| bytes.starts_with(b"\x7fELF\x02\x01")) else {
        return false;
    };
    !headers.any(|at| bytes.get(at..at + 4) == Some(&PT_INTERP[..]))
}

fn is_set_user_id(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    const SET_ID: u32 = 0o6000;
    fs::metadata(file).is_ok_and(|status| status.permissions().mode() & SET_ID != 0)
}

/// Whether the process has the name of the file that it runs, so that the process did not set its
/// name itself. For a process that ended before it was inspected, only the name is known.
fn is_of_a_file(comm: &str, file_name: &str) -> bool {
    short(file_name) == comm || on_path(OsStr::new(comm)).is_some()
}

/// A name as the kernel stores it.
fn short(name: &str) -> &str {
    name.get(..COMM_BYTES).unwrap_or(name)
}

/// Path of the library: beside this program, as cargo builds the two, or in the `lib` beside the
/// `bin` of an installation.
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

/// `sort.trace` in this folder, or the first free name of `sort-2.trace` and so on.
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

/// Waits for the program. After Ctrl-C, which the program has received as well, haul waits for a
/// limited time. After a second Ctrl-C, haul does not wait at all.
fn wait(mut child: Child) -> Result<Ended, Error> {
    let failed = |reason: io::Error| Error::Output(reason);
    let id = Pid::from_child(&child);
    let about = |name: &str| PathBuf::from(format!("/proc/{}/{name}", child.id()));
    let (file_of, comm_of) = (about("exe"), about("comm"));
    let (mut file, mut stopped, mut is_killed) = (None, None::<Instant>, false);
    // The child is polled before it is reaped, because the kernel shows its name only until then.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(id), options).is_ok_and(|status| status.is_none()) {
        file = fs::read_link(&file_of).ok().or(file);
        if stop::is_aborted() && !is_killed {
            is_killed = true;
            let _ = kill_process(id, Signal::KILL);
        } else if STOP.load(Ordering::Relaxed) {
            let since = *stopped.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                let _ = kill_process(id, Signal::TERM);
                stopped = Some(Instant::now());
            }
        }
        thread::sleep(POLL);
    }
    let comm = fs::read_to_string(comm_of).unwrap_or_default().trim_end().to_owned();
    let (process, status) = (child.id(), child.wait().map_err(failed)?);
    Ok(Ended { process, status, comm, file, reported: Vec::new() })
}

/// The recorder's reports, from the names of the files in this folder.
fn numbers(folder: &Path) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.rsplit_once('.')?.1.parse().ok()).collect()
}

/// Path of a program, as a shell finds it.
fn on_path(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The program's exit code, as a shell reports it.
fn code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(1),
        (None, Some(signal)) => code_of_signal(signal),
        (None, None) => 1,
    }
}
