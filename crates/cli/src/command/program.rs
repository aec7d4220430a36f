//! A program that haul starts with a library of its own preloaded, and how it ends.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::error::{Error, ProgramError, code_of_signal};
use crate::stop::{self, STOP};

/// Time from Ctrl-C until the program is asked to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// Interval between two polls of the program.
const POLL: Duration = Duration::from_millis(5);

/// Length of a program's name in the kernel, in bytes (TASK_COMM_LEN less the zero).
const COMM_BYTES: usize = 15;

/// The largest program that is searched, in bytes: several times a browser.
pub(super) const PROGRAM_BYTES_MAX: u64 = 1 << 30;

/// How a program ended.
pub(super) struct End {
    pub(super) process: u32,
    status: ExitStatus,
    /// The name that the process had at its end.
    pub(super) comm: String,
    /// The executable that it ran last, if it was seen.
    pub(super) file: Option<PathBuf>,
}

/// Why a program cannot have a library preloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// It is linked statically.
    Static,
    /// It runs with another user's rights.
    SetUserId,
}

/// The command of a program with a library preloaded, before those of the environment.
pub(super) fn command(program: &[OsString], library: &Path) -> std::process::Command {
    let mut preload = of_either_class(library);
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut command = std::process::Command::new(&program[0]);
    command.args(&program[1..]).env("LD_PRELOAD", preload);
    command
}

/// The path to preload. If the library lies in a folder that the dynamic linker knows as `$LIB`,
/// and an installation has a library for 32-bit programs in theirs, the path works for both: a
/// 32-bit child would otherwise report that the library has the wrong class.
fn of_either_class(library: &Path) -> OsString {
    let whole = library.as_os_str().as_bytes();
    let (Some(folder), Some(name)) = (library.parent(), library.file_name()) else {
        return library.into();
    };
    for own in LIB {
        let Some(prefix) = folder.as_os_str().as_bytes().strip_suffix(own.as_bytes()) else {
            continue;
        };
        let prefix = Path::new(OsStr::from_bytes(prefix));
        if LIB_32.iter().any(|other| prefix.join(other).join(name).is_file())
            && !whole.contains(&b'$')
        {
            return prefix.join("$LIB").join(name).into();
        }
    }
    library.into()
}

/// The values of `$LIB` (ld.so(8)) in 64-bit programs, on Debian and elsewhere.
const LIB: [&str; 3] = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64"];

/// The values of `$LIB` in 32-bit programs.
const LIB_32: [&str; 3] = ["lib/i386-linux-gnu", "lib/arm-linux-gnueabihf", "lib"];

/// Path of a library: beside this program, as cargo builds the two, or in the `lib` beside the
/// `bin` of an installation. `package` builds it.
///
/// # Errors
/// There is none, or its path has a character that separates libraries in `LD_PRELOAD`.
pub(super) fn library(name: &'static str, package: &'static str) -> Result<PathBuf, ProgramError> {
    let folder = env::current_exe().ok().and_then(|program| Some(program.parent()?.to_owned()));
    let folder = folder.unwrap_or_default();
    let places = [
        "",
        "../lib/x86_64-linux-gnu",
        "../lib/aarch64-linux-gnu",
        "../lib64",
        "../lib",
        "../lib/haul",
    ]
    .map(|place| folder.join(place).join(name));
    let found = places.iter().find(|path| path.is_file());
    match found.map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())) {
        Some(path) if path.as_os_str().as_bytes().iter().any(|byte| b" :".contains(byte)) => {
            Err(ProgramError::PreloadPath { path })
        }
        Some(path) => Ok(path),
        None => Err(ProgramError::NoRecorder { folder, name, package }),
    }
}

/// `sort.trace` in this folder, or the first free name of `sort-2.trace` and so on.
pub(super) fn free_name(program: &OsStr, ending: &str) -> PathBuf {
    let program = Path::new(program).file_name().unwrap_or(OsStr::new("program"));
    let name = |number: u32| {
        let mut name = program.to_owned();
        name.push(match number {
            1 => format!(".{ending}"),
            _ => format!("-{number}.{ending}"),
        });
        PathBuf::from(name)
    };
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    (1..).map(name).find(is_free).unwrap_or_else(|| name(1))
}

/// Waits for the program, and calls `poll` in short intervals meanwhile. After Ctrl-C, which the
/// program has received as well, it waits for a limited time. After a second Ctrl-C, it does not
/// wait at all.
///
/// # Errors
/// The program cannot be waited for.
pub(super) fn wait(
    mut child: Child,
    program: &OsStr,
    mut poll: impl FnMut(),
) -> Result<End, Error> {
    let id = Pid::from_child(&child);
    let about = |name: &str| PathBuf::from(format!("/proc/{}/{name}", child.id()));
    let (file_of, comm_of) = (about("exe"), about("comm"));
    let (mut file, mut stopped, mut is_killed) = (None, None::<Instant>, false);
    // The child is polled before it is reaped, because the kernel shows its name only until then.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    while waitid(WaitId::Pid(id), options).is_ok_and(|status| status.is_none()) {
        file = fs::read_link(&file_of).ok().or(file);
        poll();
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
    let (process, status) = (child.id(), child.wait().map_err(Error::Output)?);
    Ok(End { process, status, comm, file: file.or_else(|| on_path(program)) })
}

impl End {
    /// The program's exit code, as a shell reports it.
    pub(super) fn code(&self) -> u8 {
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(1),
            (None, Some(signal)) => code_of_signal(signal),
            (None, None) => 1,
        }
    }

    /// Why the library was not preloaded, if its file shows that.
    pub(super) fn closed(&self) -> Option<Closed> {
        closed_file(self.file.as_ref()?)
    }
}

/// Why a library cannot be preloaded into this program, if its file shows that.
pub(super) fn closed(program: &OsStr) -> Option<Closed> {
    closed_file(&on_path(program)?)
}

fn closed_file(file: &Path) -> Option<Closed> {
    match haul_machine::file::read_limited(file, PROGRAM_BYTES_MAX) {
        Ok(bytes) if is_static(&bytes) => Some(Closed::Static),
        _ => is_set_user_id(file).then_some(Closed::SetUserId),
    }
}

/// Why the dynamic linker would not preload a file: it would print a message and go on without.
pub(super) fn library_fault(path: &Path) -> Option<String> {
    /// ELF's magic number, and the class of this program (ELF-64 object file format).
    const ELF_64: &[u8] = b"\x7fELF\x02";
    /// The linker separates the names of libraries at these.
    const SEPARATORS: &[u8] = b" :";
    if path.as_os_str().as_bytes().iter().any(|byte| SEPARATORS.contains(byte)) {
        return Some("LD_PRELOAD cannot name a path with a space or a colon; rename it".into());
    }
    match haul_machine::file::read_limited(path, PROGRAM_BYTES_MAX) {
        Ok(bytes) if bytes.starts_with(ELF_64) => None,
        Ok(_) => Some("it is not a shared library of 64 bits; name another".into()),
        Err(error) => Some(error.to_string()),
    }
}

/// Whether the name of a process is that of the file that it runs, and the process did not set it
/// itself. For a process that ended before it was inspected, only the name is known.
pub(super) fn is_of_a_file(comm: &str, file_name: &str) -> bool {
    short(file_name) == comm || on_path(OsStr::new(comm)).is_some()
}

/// A name as the kernel stores it.
fn short(name: &str) -> &str {
    name.get(..COMM_BYTES).unwrap_or(name)
}

/// Path of a program, as a shell finds it.
fn on_path(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(program.into());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
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
