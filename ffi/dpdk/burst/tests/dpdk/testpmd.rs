//! Debian's testpmd with the probe, and testpmd's prompt and telemetry.

use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use haul::telemetry::{Telemetry, Wish};
use serde_json::Value;

/// A time limit that is longer than any step of these tests takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PROMPT: &str = "testpmd> ";

/// Only one testpmd runs at a time, because all share the machine's processors.
static TURN: Mutex<()> = Mutex::new(());

/// A running testpmd.
pub(crate) struct Testpmd {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    prefix: String,
    _turn: MutexGuard<'static, ()>,
}

/// The counters of a queue, as the probe reports them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Histogram {
    pub(crate) polls: u64,
    pub(crate) empty: u64,
    pub(crate) packets: u64,
    pub(crate) bytes_sized: u64,
    pub(crate) packets_sized: u64,
    pub(crate) gaps: u64,
    /// Sizes and their bursts, in ascending order.
    pub(crate) batches: Vec<(u64, u64)>,
}

/// The library as users build it, in a folder that DPDK accepts: neither that folder nor one above
/// it may be writable by all users.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = scratch.parent().expect("target/tmp has a parent");
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--package", "haul-dpdk-burst"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_TARGET_DIR", target)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the release build failed");
        let homes = [Some(scratch.to_path_buf()), std::env::var_os("HOME").map(PathBuf::from)];
        let private = homes.into_iter().flatten().find(|folder| is_private(folder));
        let private =
            private.expect("a folder that is not writable by all users, nor one above it");
        let folder = private.join(format!("haul-burst-{}", std::process::id()));
        let _ = std::fs::DirBuilder::new().mode(0o700).create(&folder);
        let library = folder.join("libhaul_dpdk_burst.so");
        std::fs::copy(target.join("release/libhaul_dpdk_burst.so"), &library).unwrap();
        library
    })
}

fn is_private(folder: &Path) -> bool {
    folder.ancestors().all(|folder| {
        std::fs::metadata(folder).is_ok_and(|found| found.permissions().mode() & 0o002 == 0)
    })
}

/// Whether testpmd is installed. Prints the skip if testpmd is not installed.
pub(crate) fn is_here(what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join("dpdk-testpmd").is_file());
    if !found {
        eprintln!("SKIPPED: {what}: no dpdk-testpmd on PATH: apt-get install dpdk-dev");
    }
    found
}

impl Testpmd {
    /// Starts testpmd with these EAL and application options and waits for its prompt.
    pub(crate) fn start(eal: &[&str], own: &[&str]) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("haul-burst-{}-{number}", std::process::id());
        // Output is buffered by lines, so that earlier output arrives before the prompt.
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "dpdk-testpmd"]).args([
            "--no-pci",
            "--no-huge",
            "-m256",
            "--iova-mode=va",
        ]);
        command.arg(format!("--file-prefix={prefix}")).arg("-d").arg(library());
        command.args(eal).args(["--", "-i", "--total-num-mbufs=4096", "--no-flush-rx"]).args(own);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let input = child.stdin.take().expect("standard input is a pipe");
        let mut pipe = child.stdout.take().expect("standard output is a pipe");
        let (sender, output) = std::sync::mpsc::channel();
        // The thread ends with the program.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length) = pipe.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                if length == 0 || sender.send(text).is_err() {
                    break;
                }
            }
        });
        let mut testpmd = Self { child, input, output, prefix, _turn: turn };
        testpmd.answer();
        testpmd
    }

    /// The output of testpmd up to its next prompt.
    fn answer(&mut self) -> String {
        let (mut text, end) = (String::new(), Instant::now() + PATIENCE);
        while !text.ends_with(PROMPT) {
            match self.output.recv_timeout(Duration::from_millis(100)) {
                Ok(more) => text += &more,
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(error) => panic!("no prompt ({error}): {text}"),
            }
        }
        text
    }

    /// Types a line at the prompt and returns the answer.
    pub(crate) fn say(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap_or_else(|error| panic!("{line}: {error}"));
        self.answer()
    }

    pub(crate) fn telemetry(&self) -> Telemetry {
        Telemetry::find(&Wish::Prefix(self.prefix.clone()), PATIENCE).expect("it has telemetry")
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A killed testpmd does not remove its folders.
        for folder in haul::telemetry::folders() {
            let _ = std::fs::remove_dir_all(folder.join(&self.prefix));
        }
    }
}

/// The counters of a queue, which is given like `0,0,rx`.
pub(crate) fn histogram(telemetry: &mut Telemetry, queue: &str) -> Histogram {
    let command = format!("/haul/burst/histogram,{queue}");
    let answer = telemetry.ask(&command).expect("an answer");
    let number = |name: &str| answer[name].as_u64().unwrap_or_else(|| panic!("{name}: {answer}"));
    let mut pairs = numbers(&answer["batches"]);
    let mut page = answer.clone();
    while let Some(next) = page["next"].as_u64() {
        let command = format!("{command},{},{next}", number("moment"));
        page = telemetry.ask(&command).expect("a page");
        pairs.extend(numbers(&page["batches"]));
    }
    Histogram {
        polls: number("polls"),
        empty: number("empty"),
        packets: number("packets"),
        bytes_sized: number("bytes_sized"),
        packets_sized: number("packets_sized"),
        gaps: number("gaps"),
        batches: pairs.chunks(2).map(|pair| (pair[0], pair[1])).collect(),
    }
}

fn numbers(value: &Value) -> Vec<u64> {
    let values = value.as_array().expect("an array").iter();
    values.map(|value| value.as_u64().expect("a number")).collect()
}

/// Testpmd's own statistics (`set record-burst-stats on`) of one stream and direction: the number
/// of bursts, and the percentage of each size that testpmd prints.
pub(crate) fn own_statistics(text: &str, direction: &str) -> (u64, Vec<(u64, u64)>) {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(&format!("{direction}-bursts : ")))
        .unwrap_or_else(|| panic!("no {direction}-bursts in {text}"));
    let (bursts, shares) = line.split_once(' ').expect("a count and shares");
    let shares = shares.trim_matches(['[', ']', ' ']).split(" + ").filter_map(|share| {
        let (percent, size) = share.split_once("% of ")?;
        let size = size.strip_suffix(" pkts")?;
        Some((size.parse().ok()?, percent.parse().ok()?))
    });
    (bursts.parse().expect("a count"), shares.collect())
}
