//! DPDK programs with the drop-in and without.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::machine::{is_here, skip};

/// A time limit that is longer than any program of these tests needs on a busy machine of two
/// cores.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one wait lasts. A wait never counts for longer, even if the tests and the programs were
/// stopped meanwhile (a freezer, a paused virtual machine), because the programs could not run
/// then.
const WAIT: Duration = Duration::from_millis(200);

/// The remainder of [`PATIENCE`].
struct Patience {
    left: Duration,
    last: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { left: PATIENCE, last: Instant::now() }
    }

    /// Subtracts the time since the last call. Returns whether some time is left.
    fn is_left(&mut self) -> bool {
        let now = Instant::now();
        self.left = self.left.saturating_sub((now - self.last).min(WAIT));
        self.last = now;
        !self.left.is_zero()
    }
}

/// Whether the drop-in is preloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preload {
    Yes,
    No,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) is_success: bool,
    /// Standard output, then standard error.
    pub(crate) text: String,
}

/// The library as users build it.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target =
            Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
        // With the features of the whole build, as scripts/install builds it, so that what both
        // need is compiled once.
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--lib", "-p", "haul-dpdk-heap", "-p", "haul-cli"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_TARGET_DIR", target)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the release build failed");
        target.join("release/libhaul_rte_malloc.so")
    })
}

/// Compiles one of the C programs beside this file. If DPDK's headers are missing, prints the
/// skip and returns `None`.
pub(crate) fn compile(what: &str, name: &str) -> Option<PathBuf> {
    if !is_here("pkg-config") {
        skip(what, "no pkg-config on PATH", "apt-get install pkg-config");
        return None;
    }
    if !is_here("cc") {
        skip(what, "no cc on PATH", "apt-get install gcc");
        return None;
    }
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
    let flags = flags.expect("pkg-config runs");
    if !flags.status.success() {
        skip(what, "no package libdpdk", "apt-get install libdpdk-dev");
        return None;
    }
    let flags = String::from_utf8(flags.stdout).expect("flags are text");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dpdk").join(format!("{name}.c"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-Wno-alloc-size-larger-than", "-o"]);
    compiler.arg(&program).arg(source).args(flags.split_whitespace());
    assert!(compiler.status().expect("cc runs").success(), "{name}.c does not compile");
    Some(program)
}

/// The command of a program, with the library preloaded or not.
pub(crate) fn command(program: impl AsRef<Path>, preload: Preload) -> Command {
    let mut command = Command::new(program.as_ref());
    if preload == Preload::Yes {
        command.env("LD_PRELOAD", library()).env("HAUL_RTE_MALLOC", "tell");
    }
    command
}

/// Runs a program to its end, with `input` on its standard input.
pub(crate) fn run(command: &mut Command, input: &str) -> Outcome {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ended without reading its input prints the reason itself.
        let _ = stdin.write_all(input.as_bytes());
    }
    finish(child)
}

/// The resources that a program used from its start to its end.
#[derive(Debug)]
pub(crate) struct Cost {
    seconds: f64,
    /// The program's peak resident memory.
    resident_kib: i64,
}

impl Cost {
    /// Runs a program that ends by itself, with `input` on its standard input.
    pub(crate) fn of(command: &mut Command, input: &str) -> Self {
        #[expect(clippy::zombie_processes, reason = "wait4 waits and returns the resource usage")]
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if let Some(mut stdin) = child.stdin.take() {
            let _ = stdin.write_all(input.as_bytes());
        }
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        let (process, mut status) = (child.id() as libc::pid_t, 0);
        // SAFETY: both are local variables, and no other thread waits for this child.
        let ended = unsafe { libc::wait4(process, &raw mut status, 0, usage.as_mut_ptr()) };
        assert!(ended == process && status == 0, "{command:?}: {status}");
        // SAFETY: zero is a valid value of every field, and the call has written them.
        let usage = unsafe { usage.assume_init() };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        // The time is processor time, which includes the kernel's work to populate memory and
        // excludes other programs.
        let seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
        Self { seconds, resident_kib: usage.ru_maxrss }
    }

    pub(crate) fn time(&self) -> f64 {
        self.seconds
    }

    pub(crate) fn memory(&self) -> f64 {
        self.resident_kib as f64
    }
}

/// Waits for a program's end and reads its output meanwhile.
pub(crate) fn finish(mut child: Child) -> Outcome {
    fn read(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut text);
            }
            String::from_utf8_lossy(&text).into_owned()
        })
    }
    let (output, errors) = (read(child.stdout.take()), read(child.stderr.take()));
    let is_success = wait(&mut child);
    let text =
        [output, errors].map(|reader| reader.join().expect("a reader never panics")).concat();
    Outcome { is_success, text }
}

/// Waits for a program. Returns whether the program succeeds in time, and kills it if it does not
/// end in time.
pub(crate) fn wait(child: &mut Child) -> bool {
    let mut patience = Patience::new();
    while patience.is_left() {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return status.success();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    false
}

/// A program that exchanges lines with the test.
pub(crate) struct Dialogue {
    pub(crate) child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Dialogue {
    pub(crate) fn start(command: Command) -> Self {
        Self::with(command, Some(Stdio::inherit()))
    }

    /// Like [`Dialogue::start`], but the lines include those on standard error.
    pub(crate) fn start_with_errors(command: Command) -> Self {
        Self::with(command, None)
    }

    fn with(mut command: Command, errors: Option<Stdio>) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let errors = errors.unwrap_or_else(|| writer.try_clone().expect("a descriptor").into());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(writer)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        // The program holds the only writing ends of the pipe, so that its output ends with it.
        drop(command);
        let input = child.stdin.take().expect("standard input is a pipe");
        let output = BufReader::new(reader);
        let (sender, lines) = std::sync::mpsc::channel();
        // The thread ends with the program.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, input, lines }
    }

    /// The next line, or the error if no line arrives in time.
    pub(crate) fn line(&mut self) -> String {
        let mut patience = Patience::new();
        loop {
            match self.lines.recv_timeout(WAIT) {
                Ok(line) => return line,
                Err(RecvTimeoutError::Timeout) if patience.is_left() => {}
                Err(error) => return error.to_string(),
            }
        }
    }

    /// All lines up to the line `last`.
    pub(crate) fn lines_to(&mut self, last: &str) -> String {
        let (mut text, mut patience) = (String::new(), Patience::new());
        while !text.lines().any(|line| line == last) {
            match self.lines.recv_timeout(WAIT) {
                Ok(line) => text += &format!("{line}\n"),
                Err(RecvTimeoutError::Timeout) if patience.is_left() => {}
                Err(error) => panic!("no line {last} ({error}):\n{text}"),
            }
        }
        text
    }

    /// Waits for the program's end. Returns whether the program succeeded, and all lines that no
    /// call has returned.
    pub(crate) fn finish(mut self) -> Outcome {
        let is_success = wait(&mut self.child);
        let text = self.lines.iter().map(|line| line + "\n").collect();
        Outcome { is_success, text }
    }

    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap_or_else(|error| panic!("{line}: {error}"));
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }
}

impl Drop for Dialogue {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
