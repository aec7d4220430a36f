//! Debian's testpmd as switch, which returns the packets of one vhost port, and testpmd's prompt.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A time limit that is longer than any step needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PROMPT: &str = "testpmd> ";

/// Only one testpmd runs at a time, because all share the machine's processors.
static TURN: Mutex<()> = Mutex::new(());

/// Waits until no other test runs a testpmd, and keeps others from it.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How testpmd is started.
pub(crate) struct Preload(Option<&'static str>);

impl Preload {
    /// With the library, which reports what it does.
    pub(crate) const TELL: Self = Self(Some("tell"));
    /// With the library, which serves in turns with DPDK.
    pub(crate) const TURNS: Self = Self(Some("turns"));
    /// With the library, which leaves everything to DPDK.
    pub(crate) const OFF: Self = Self(Some("off"));
    /// Without the library.
    pub(crate) const NONE: Self = Self(None);

    /// Sets a program's environment.
    pub(crate) fn set(&self, command: &mut Command) {
        if let Self(Some(mode)) = self {
            command.env("LD_PRELOAD", library()).env("HAUL_RTE_VHOST", mode);
        }
    }
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
            .args(["build", "--release", "--lib", "-p", "haul-dpdk-vhost", "-p", "haul-cli"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("CARGO_TARGET_DIR", target)
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the release build failed");
        target.join("release/libhaul_rte_vhost.so")
    })
}

/// Reports a skip.
pub(crate) fn skip(what: &str, why: &str, remedy: &str) {
    eprintln!("SKIPPED: {what}: {why}: {remedy}");
}

/// Whether a program of this name is installed.
pub(crate) fn has(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(tool).is_file())
}

/// Whether testpmd is installed. Prints the skip if testpmd is not installed.
pub(crate) fn is_here(what: &str) -> bool {
    let found = has("dpdk-testpmd");
    if !found {
        skip(what, "no dpdk-testpmd on PATH", "apt-get install dpdk-dev");
    }
    found
}

/// A running testpmd.
pub(crate) struct Testpmd {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    /// The output so far.
    text: String,
    folder: TempDir,
    socket: PathBuf,
    prefix: String,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// Starts a testpmd without devices of the machine, and with `device`.
fn start(folder: TempDir, device: &str, own: &[&str], preload: &Preload) -> Testpmd {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let prefix = format!("haul-vhost-{}-{number}", std::process::id());
    // Output is buffered by lines, so that earlier output arrives before the prompt.
    let mut command = Command::new("stdbuf");
    command.args(["-oL", "dpdk-testpmd"]);
    // Both logical cores may run on every processor, because the test shares them.
    command.args(["--no-pci", "--no-huge", "-m256", "--iova-mode=va", "--lcores=(0,1)@(0-1)"]);
    command.arg(format!("--file-prefix={prefix}")).arg(format!("--vdev={device}"));
    command.args(["--", "-i", "--total-num-mbufs=4096", "--no-flush-rx"]).args(own);
    preload.set(&mut command);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let errors = writer.try_clone().expect("a descriptor");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(writer)
        .stderr(errors)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    drop(command);
    let input = child.stdin.take();
    let (sender, output) = channel();
    // The thread ends with the program.
    std::thread::spawn(move || {
        let (mut reader, mut buffer) = (reader, [0; 4096]);
        while let Ok(length) = reader.read(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if length == 0 || sender.send(text).is_err() {
                break;
            }
        }
    });
    let (text, socket) = (String::new(), folder.path().join("vm"));
    Testpmd { child, input, output, text, folder, socket, prefix, _turn: None }
}

impl Testpmd {
    /// Starts testpmd, which returns each packet to its guest.
    pub(crate) fn start(preload: &Preload) -> Self {
        Self::start_with(preload, "", &[])
    }

    /// Starts testpmd with more options of the device, such as `,tso=1`, and of its own.
    pub(crate) fn start_with(preload: &Preload, options: &str, own: &[&str]) -> Self {
        let turn = turn();
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("vm").display().to_string();
        let device = format!("net_vhost0,iface={socket},queues=1{options}");
        let own = [&["--forward-mode=io"], own].concat();
        let mut testpmd = start(folder, &device, &own, preload);
        testpmd._turn = Some(turn);
        testpmd.answer();
        testpmd.say("start");
        testpmd
    }

    /// The socket, on which testpmd listens.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Runs a guest, testpmd that sends packets, and kills it while it sends and some of its
    /// packets have arrived.
    pub(crate) fn run_guest_until_killed(&mut self) {
        let folder = tempfile::tempdir().expect("a folder");
        let device = format!("virtio_user0,path={},queues=1", self.socket.display());
        let own = ["--forward-mode=txonly"];
        let mut guest = start(folder, &device, &own, &Preload::NONE);
        guest.answer();
        self.say("clear port xstats 0");
        guest.say("start");
        let end = Instant::now() + PATIENCE;
        while self.counters()["rx_q0_good_packets"] == 0 {
            assert!(Instant::now() < end, "no packet of the guest arrives");
            std::thread::sleep(Duration::from_millis(50));
        }
        // Dropping it kills it.
    }

    /// The output of testpmd up to its next prompt.
    fn answer(&mut self) -> String {
        let (start, end) = (self.text.len(), Instant::now() + PATIENCE);
        // Lines on standard error may follow the prompt.
        while !self.text[start..].contains(PROMPT) {
            self.read(end);
        }
        self.text[start..].into()
    }

    fn read(&mut self, end: Instant) {
        match self.output.recv_timeout(Duration::from_millis(100)) {
            Ok(more) => self.text += &more,
            Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
            Err(error) => panic!("no prompt ({error}): {}", self.text),
        }
    }

    /// Types a line at the prompt and returns the answer.
    pub(crate) fn say(&mut self, line: &str) -> String {
        let input = self.input.as_mut().expect("it has an input");
        writeln!(input, "{line}").unwrap_or_else(|error| panic!("{line}: {error}"));
        self.answer()
    }

    /// The counters of the port by their names.
    pub(crate) fn counters(&mut self) -> BTreeMap<String, u64> {
        let counter = |line: &str| {
            let (name, value) = line.trim().rsplit_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let (start, end) = (self.text.len(), Instant::now() + PATIENCE);
        // An event of the port prints a prompt as well, so that the answer may come behind it.
        self.say("show port xstats 0");
        while !self.text[start..].contains("tx_q0_guest_notifications: ") {
            self.read(end);
        }
        let text = &self.text[start..];
        text.lines().filter_map(counter).collect()
    }

    /// Ends testpmd, and returns its whole output.
    pub(crate) fn quit(mut self) -> String {
        let input = self.input.as_mut().expect("it has an input");
        writeln!(input, "quit").expect("it listens");
        self.input = None;
        let end = Instant::now() + PATIENCE;
        while let Ok(more) = self.output.recv_timeout(end.saturating_duration_since(Instant::now()))
        {
            self.text += &more;
        }
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {}", self.text);
        std::mem::take(&mut self.text)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A killed testpmd does not remove its folder.
        for folder in ["/var/run/dpdk", "/tmp/dpdk"] {
            let _ = std::fs::remove_dir_all(Path::new(folder).join(&self.prefix));
        }
        let _ = self.folder.path();
    }
}
