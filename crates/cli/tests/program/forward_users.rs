//! The users that may be at the other ends of the sockets of `haul forward` and `haul pcie
//! watch`: the caller's user and root, unless others are allowed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::{attempts, option, tries, wait_to_listen};
use crate::{Ran, finish, haul, is_root, public_folder, run, unprivileged, wait_until};

/// Seconds of each try of a connection.
const TIMES: [f64; 3] = [1.5, 6.0, 20.0];

/// The user of processes that `unprivileged` starts.
const NOBODY: &str = "65534";

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn end(child: Child) -> Ran {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    finish(child)
}

/// Another user's program, and a folder in which every user may make sockets.
struct Others {
    _folder: tempfile::TempDir,
    program: PathBuf,
    shared: PathBuf,
}

impl Others {
    fn new(what: &str) -> Option<Self> {
        if !is_root() {
            eprintln!("SKIPPED: {what}: not running as root: run the tests as root");
            return None;
        }
        let (folder, program) = public_folder();
        let shared = folder.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        Some(Self { _folder: folder, program, shared })
    }

    /// The other user's forwarder, which listens at `path` with one end.
    fn forward(&self, port: &str, other: &str) -> Command {
        let words = ["forward", "--no-telemetry", "--port", other, "--port", port];
        unprivileged(&self.program, &words)
    }

    /// This user's server, which allows a user, and the other user's guest of it for this time.
    fn guest_of(&self, allowed: &str, time: Duration) -> (Ran, Ran) {
        let path = self.shared.join(format!("socket-{allowed}"));
        let port = format!("vhost:path={},server", path.display());
        let words = ["forward", "--no-telemetry", "--port", "gen:rate=10k", "--port", &port];
        let server = start(haul(&[&words[..], &["--allow-user", allowed]].concat()));
        wait_to_listen(&path);
        // The path exists from bind() on, and the umask's bits are added right after it.
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        wait_until("the socket is open to all users", || mode() == 0o666);
        let guest = format!("virtio:path={}", path.display());
        let mut command = self.forward(&guest, "sink");
        let guest = run(command.args(["--for", &option(time)])).expect(0);
        (end(server).expect(0), guest)
    }
}

fn forward(port: &str, other: &str, more: &[&str]) -> Ran {
    let words = ["forward", "--no-telemetry", "--port", other, "--port", port];
    run(&mut haul(&[&words[..], more].concat()))
}

#[test]
fn socket_of_another_user_gets_no_memory_and_no_packet() {
    let Some(others) = Others::new("another user's socket") else { return };
    for (own, theirs) in [("virtio", "vhost"), ("vhost", "virtio")] {
        let path = others.shared.join(own);
        let squatter =
            start(others.forward(&format!("{theirs}:path={},server", path.display()), "sink"));
        wait_to_listen(&path);
        let port = format!("{own}:path={}", path.display());
        let generator = "gen:rate=10k";
        let parts = ["has no link", "of user 65534", "user 0 is allowed", "--allow-user 65534"];
        tries(&TIMES, |time| {
            let ran = forward(&port, generator, &["--for", &option(time)]).expect(0);
            let is_refused = parts.iter().all(|part| ran.err.contains(part));
            if is_refused { Ok(()) } else { Err(format!("{ran:#?}")) }
        });
        tries(&TIMES, |time| {
            let more = ["--for", &option(time), "--allow-user", NOBODY];
            let ran = forward(&port, generator, &more).expect(0);
            let is_let_in = !ran.err.contains("has no link");
            if is_let_in { Ok(()) } else { Err(format!("{ran:#?}")) }
        });
        // The other user received packets only from the second run: its sink saw them.
        let got = end(squatter).expect(0);
        assert!(got.out.contains("sink0"), "{got:#?}");
    }
}

#[test]
fn socket_is_open_only_to_allowed_users() {
    let Some(others) = Others::new("another user's guest") else { return };
    for (allowed, is_let_in) in [(NOBODY, true), ("any", true), ("65533", false)] {
        tries(&TIMES, |time| {
            let (server, guest) = others.guest_of(allowed, time);
            let is_as_allowed = server.err.contains("of user 65534") != is_let_in
                && guest.out.contains("by the packets") == is_let_in;
            if is_as_allowed { Ok(()) } else { Err(format!("{allowed}: {server:#?} {guest:#?}")) }
        });
    }
}

#[test]
fn watch_skips_and_reports_programs_of_other_users() {
    let Some(others) = Others::new("another user's telemetry") else { return };
    let path = others.shared.join("dpdk/theirs/dpdk_telemetry.v2");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::set_permissions(path.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    let words = ["forward", "--port", "null:size=64", "--port", "null", "--telemetry"];
    let mut command = unprivileged(&others.program, &words);
    command.arg(&path);
    let theirs = start(command);
    wait_to_listen(&path);
    let watch = |more: &[&str]| {
        let words =
            ["pcie", "watch", "--for", "300ms", "--every", "100ms", "--json", "--nic", "ice"];
        let mut command = haul(&[&words[..], &["--link", "gen3x8"], more].concat());
        run(command.env("XDG_RUNTIME_DIR", &others.shared))
    };
    let process = theirs.id().to_string();
    let named = path.to_str().unwrap();
    for how in [["--file-prefix", "theirs"], ["--socket", named], ["--pid", &process]] {
        watch(&how).expect(1).says(&["of user 65534", "--allow-user 65534"]);
        watch(&[&how[..], &["--allow-user", NOBODY]].concat()).expect(0);
    }
    // If the caller also has a program, a note says that the other user's program was not
    // queried.
    let own = others.shared.join("haul/theirs/dpdk_telemetry.v2");
    fs::create_dir_all(own.parent().unwrap()).unwrap();
    let mut command = haul(&words);
    command.arg(&own);
    let mine = start(command);
    wait_to_listen(&own);
    watch(&["--file-prefix", "theirs"]).expect(0).says(&["1 socket of user 65534 left alone"]);
    end(mine).expect(0);
    end(theirs).expect(0);
}

/// Even if as many silent clients as possible are connected, a watcher is served.
#[test]
fn silent_clients_do_not_block_a_watcher() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let words = ["forward", "--port", "null:size=64", "--port", "null", "--telemetry"];
    let mut command = haul(&words);
    command.arg(&path);
    let forwarder = start(command);
    wait_to_listen(&path);
    let client = |_| {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        while rustix::net::connect(&socket, &address).is_err() {
            thread::sleep(Duration::from_millis(5));
        }
        socket
    };
    let words = ["pcie", "watch", "--for", "300ms", "--every", "100ms", "--json", "--nic", "ice"];
    // The forwarder may have no processor for as long as the watcher waits.
    attempts(0..3, |_| {
        let _silent: Vec<_> = (0..10).map(client).collect();
        let mut watch = haul(&[&words[..], &["--link", "gen3x8", "--socket"]].concat());
        let ran = run(watch.arg(&path));
        if ran.code == Some(0) { Ok(()) } else { Err(format!("{ran:#?}")) }
    });
    end(forwarder).expect(0);
}
