//! Two processes, the two ends, as their run sees them: started, asked, and ended with it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::protocol::{Reply, Request, Side, Task, Took};
use crate::error::Error;
use crate::printed::Printed;

/// The longest that a task may take: who hangs is told, not waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// The longest that a pair takes to start: mpirun takes a second.
const PATIENCE_TO_START: Duration = Duration::from_secs(30);

/// The longest that a pair takes to end, before it is killed.
const PATIENCE_TO_END: Duration = Duration::from_secs(3);

/// How long an end may take to tell why it failed, once the other has.
const PATIENCE_FOR_MORE: Duration = Duration::from_millis(500);

/// What is said of an end that says nothing itself.
const ENDED: &str = "its process ended";
const NO_ANSWER: &str = "no answer";

/// How often a run looks whether a driver has come.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How far ahead the moment is at which both ends begin: they have read the line by then.
const LEAD_NS: u64 = 300_000;

/// How the two ends of a pair are started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments. Behind them come the path of the run's socket and, where each end is
    /// started by itself, `A` or `B`.
    pub arguments: Vec<OsString>,
    /// What it is told by its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether the program starts both ends, as mpirun does.
    pub starts_both: bool,
}

/// A folder of this run's own, removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

/// A pair that runs.
pub(super) struct Pair {
    name: String,
    children: Vec<Child>,
    a: End,
    b: End,
    printed: Printed,
    /// Removed when the pair is.
    _folder: Folder,
    /// What is driven, in which version.
    pub(super) version: String,
}

/// The conversation with one end.
struct End {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
    version: String,
}

impl Folder {
    /// A new folder for this user alone, where temporary files go.
    pub(super) fn new() -> io::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    fn within(parent: &Path) -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("haul-channel.{}.{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by a process of the same number that was killed: its owner's to clean.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left in a folder for temporary files is its owner's to clean.
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Pair {
    /// Starts both ends, on these processors.
    ///
    /// # Errors
    /// [`Error::Driver`]: one of them did not start, or does not come; [`Error::Folder`]: they have
    /// nowhere to meet.
    pub(super) fn start(name: &str, launch: &Launch, cpus: &[usize]) -> Result<Self, Error> {
        let failed = |reason: io::Error| Error::Driver {
            peer: name.to_owned(),
            attempt: format!("start {}", launch.program.display()),
            reason: reason.to_string(),
        };
        let nowhere = |reason: io::Error| Error::Folder {
            peer: name.to_owned(),
            folder: std::env::temp_dir(),
            reason,
        };
        let folder = Folder::new().map_err(nowhere)?;
        let control = folder.path().join("control");
        let listener = UnixListener::bind(&control).map_err(nowhere)?;
        listener.set_nonblocking(true).map_err(nowhere)?;
        let (mut printed, input) = Printed::new().map_err(failed)?;
        let mut children = spawn(launch, &control, input).map_err(failed)?;
        let met = meet(&listener, &mut children);
        let (a, b) = match met {
            Ok(ends) => ends,
            Err(reason) => {
                end(&mut children);
                return Err(failed(io::Error::other(printed.told_with(reason))));
            }
        };
        let version = a.version.clone();
        let name = name.to_owned();
        let mut pair = Self { name, children, a, b, printed, _folder: folder, version };
        let pinned = pair.both(&Request::Pin(cpus.to_vec()));
        pinned.map_err(|reason| pair.error("run on its processors", reason))?;
        Ok(pair)
    }

    /// Has both ends do a task; what A and B took.
    ///
    /// # Errors
    /// [`Error::Driver`]: it failed, one of them ended or hangs, or B has other bytes than were
    /// sent. The pair is of no use any more.
    pub(super) fn perform(&mut self, task: &Task) -> Result<(Took, Took), Error> {
        let done = self.both(&Request::Prepare(task.clone())).and_then(|_| {
            let start_ns = haul_measure::sys::monotonic_ns() + LEAD_NS;
            match self.both(&Request::Go(start_ns))? {
                (Reply::Done(a), Reply::Done(b)) => Ok((a, b)),
                _ => Err("it answers out of turn".to_owned()),
            }
        });
        let attempt = format!("move {} B {} times by {}", task.size, task.count, task.way);
        done.map_err(|reason| self.error(&attempt, reason))
    }

    /// The same to both, who answer as they are done.
    fn both(&mut self, request: &Request) -> Result<(Reply, Reply), String> {
        self.a.say(request)?;
        self.b.say(request)?;
        match self.a.hear() {
            Ok(a) => Ok((a, self.b.hear()?)),
            Err(reason) => Err(self.b.told_with(reason)),
        }
    }

    /// Ends both, and tells with the reason what they printed.
    fn error(&mut self, attempt: &str, reason: String) -> Error {
        self.close();
        let reason = self.printed.told_with(reason);
        Error::Driver { peer: self.name.clone(), attempt: attempt.to_owned(), reason }
    }

    /// Ends both. Closed, the conversation is over: mpirun and its ends, and what shares memory by
    /// name (iceoryx2), clean up behind them, which nobody does who is told to end by a signal.
    fn close(&mut self) {
        let _ = self.a.writer.shutdown(std::net::Shutdown::Both);
        let _ = self.b.writer.shutdown(std::net::Shutdown::Both);
        await_end(&mut self.children);
        end(&mut self.children);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.close();
    }
}

impl End {
    fn say(&mut self, request: &Request) -> Result<(), String> {
        let told = self.writer.write_all(format!("{request}\n").as_bytes());
        told.map_err(|_| ENDED.to_owned())
    }

    fn hear(&mut self) -> Result<Reply, String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => Err(ENDED.to_owned()),
            Ok(_) => match line.parse()? {
                Reply::Failed(reason) => Err(reason),
                reply => Ok(reply),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(format!("{NO_ANSWER} within {} s", PATIENCE.as_secs()))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The other end's reason, with this one's behind it where it has failed as well: who has no
    /// descriptor left to listen is why nobody can connect.
    fn told_with(&mut self, reason: String) -> String {
        // A socket that takes no timeout is one that has nothing more to say.
        let is_bounded = self.writer.set_read_timeout(Some(PATIENCE_FOR_MORE)).is_ok();
        match is_bounded.then(|| self.hear()) {
            Some(Err(own)) if own != ENDED && !own.starts_with(NO_ANSWER) && own != reason => {
                format!("{reason}; the other end: {own}")
            }
            _ => reason,
        }
    }
}

/// Starts the processes. Where each end is started by itself, standard output of one is standard
/// input of the other, both ways.
fn spawn(launch: &Launch, control: &Path, printed: io::PipeWriter) -> io::Result<Vec<Child>> {
    let command = || -> io::Result<Command> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.arguments).arg(control);
        command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
        command.env_remove("LD_PRELOAD").stderr(printed.try_clone()?);
        // Ctrl-C is the run's: it ends with what it has, and its drivers with it.
        command.process_group(0);
        Ok(command)
    };
    if launch.starts_both {
        let mut both = command()?;
        both.stdin(Stdio::null()).stdout(printed.try_clone()?);
        return Ok(vec![both.spawn()?]);
    }
    let ((from_a, to_b), (from_b, to_a)) = (io::pipe()?, io::pipe()?);
    let mut children = Vec::new();
    for (side, input, output) in [(Side::A, from_b, to_b), (Side::B, from_a, to_a)] {
        let mut one = command()?;
        one.arg(side.to_string());
        one.stdin(Stdio::from(OwnedFd::from(input))).stdout(OwnedFd::from(output));
        match one.spawn() {
            Ok(child) => children.push(child),
            Err(error) => {
                end(&mut children);
                return Err(error);
            }
        }
    }
    Ok(children)
}

/// Waits until both ends have said which they are.
fn meet(listener: &UnixListener, children: &mut [Child]) -> Result<(End, End), String> {
    let started = Instant::now();
    let (mut a, mut b) = (None, None);
    while a.is_none() || b.is_none() {
        match listener.accept() {
            Ok((stream, _)) => {
                let (side, end) = greet(stream).map_err(|error| error.to_string())?;
                let place = if side == Side::A { &mut a } else { &mut b };
                if place.replace(end).is_some() {
                    return Err(format!("two processes say that they are {side}"));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !children.iter_mut().all(is_running) {
                    return Err("its process ended".to_owned());
                }
                if started.elapsed() > PATIENCE_TO_START {
                    return Err(format!("not there within {} s", PATIENCE_TO_START.as_secs()));
                }
                std::thread::sleep(LOOK_AGAIN);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    a.zip(b).ok_or_else(|| "an end is missing".to_owned())
}

fn greet(stream: UnixStream) -> io::Result<(Side, End)> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    match line.parse() {
        Ok(Reply::Hello(side, version)) => Ok((side, End { reader, writer: stream, version })),
        _ => Err(io::Error::other(format!("it greets with {line:?}"))),
    }
}

fn is_running(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(None))
}

/// Ends them: at first by asking, for mpirun then ends what it has started.
fn end(children: &mut [Child]) {
    for child in &mut *children {
        let process = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(process) = process.filter(|_| is_running(child)) {
            // It may end by itself in this moment: then there is nobody to ask.
            let _ = kill_process(process, Signal::TERM);
        }
    }
    await_end(children);
    for child in children {
        // As above; its status is nobody's business.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Gives them time to end by themselves, and to take along what they have made.
fn await_end(children: &mut [Child]) {
    let started = Instant::now();
    while children.iter_mut().any(is_running) && started.elapsed() < PATIENCE_TO_END {
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_left_by_a_killed_run_is_passed_over() {
        let parent = tempfile::tempdir().unwrap();
        for number in 0..200 {
            let name = format!("haul-channel.{}.{number}", std::process::id());
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let folder = Folder::within(parent.path()).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(Folder::within(&parent.path().join("absent")).is_err());
    }
}
