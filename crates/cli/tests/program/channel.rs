//! `haul channel`: files and pipes between two processes, and ends that die.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::patience::{attempts, wait_to_listen};
use crate::{LIMIT, finish, haul, is_root, public_folder, run, run_with_input, unprivileged};

/// Starts `haul channel recv`. If a sender already waits, the receiver may end before its socket
/// is seen.
pub(super) fn start_receiver(socket: &Path, more: &[&str]) -> Child {
    let mut command = haul(&["channel", "recv", socket.to_str().unwrap()]);
    command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Starts `haul channel recv` and waits for its socket; no sender may be waiting for it.
pub(super) fn receiver(socket: &Path, more: &[&str]) -> Child {
    let child = start_receiver(socket, more);
    wait_to_listen(socket);
    child
}

pub(super) fn sender(socket: &Path, more: &[&str]) -> Command {
    let mut command = haul(&["channel", "send", "--to", socket.to_str().unwrap()]);
    command.args(more);
    command
}

pub(super) fn text(length: usize) -> String {
    (0..length).map(|index| char::from(b'a' + (index * 7 + index / 1000) as u8 % 26)).collect()
}

#[test]
fn list_names_every_mechanism() {
    let ran = run(&mut haul(&["channel", "list"])).expect(0);
    for name in ["inline", "ring", "staged", "pull", "sealed"] {
        assert!(ran.out.contains(name), "{ran:#?}");
    }
    let machine = run(&mut haul(&["channel", "list", "--json"])).expect(0).machine();
    assert!(machine.facts["channel_ring"].starts_with("yes"), "{machine:?}");
}

#[test]
fn file_arrives_by_every_mechanism() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    for (size, mechanism) in [(0, "ring"), (5, "ring"), (3_500_001, "ring"), (3_500_001, "pull")] {
        fs::write(&from, text(size)).unwrap();
        let socket = folder.path().join("socket");
        let out = to.to_str().unwrap();
        let receiving = receiver(&socket, &["--out-file", out, "--trust", "--json"]);
        let arguments = [from.to_str().unwrap(), "--trust", "--json", "--mechanism", mechanism];
        let sent = run(&mut sender(&socket, &arguments)).expect(0);
        let received = finish(receiving).expect(0);
        assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap(), "{size} {mechanism}");
        for (ran, experiment) in [(sent, "channel.send"), (received, "channel.recv")] {
            let records = ran.records();
            let time = records.iter().find(|record| record.metric == "time").unwrap();
            assert_eq!(time.experiment, experiment);
            assert_eq!(time.parameters["size_bytes"], size);
            if size > 0 {
                assert_eq!(time.subject, format!("haul:{mechanism}"));
            }
        }
        assert!(!socket.exists(), "the receiver did not remove its socket");
    }
}

#[test]
fn channel_replaces_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let receiving = receiver(&socket, &[]);
    let input = text(2_000_000);
    // A process must read the output, as with any pipe.
    let consumer = thread::spawn(move || finish(receiving));
    run_with_input(&mut sender(&socket, &[]), input.as_bytes()).expect(0);
    assert!(consumer.join().unwrap().expect(0).out == input);
}

#[test]
fn killed_sender_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, to) = (folder.path().join("socket"), folder.path().join("to"));
    let receiving = receiver(&socket, &["--out-file", to.to_str().unwrap()]);
    let mut command = sender(&socket, &[]);
    let mut sending =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = sending.stdin.take().unwrap();
    // This is more than the pipe holds, so the sender has connected once it is written.
    input.write_all(text(1_000_000).as_bytes()).unwrap();
    sending.kill().unwrap();
    sending.wait().unwrap();
    finish(receiving).expect(1).says(&["the other end died after", "start both ends again"]);
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn failing_receiver_fails_the_sender() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else {
        eprintln!("SKIPPED: a receiver without room: no file /dev/full: mount /dev");
        return;
    };
    let mut command = haul(&["channel", "recv", socket.to_str().unwrap()]);
    let receiving =
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    wait_to_listen(&socket);
    run_with_input(&mut sender(&socket, &[]), b"bytes").expect(1);
    let output = receiving.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("cannot write to standard output"), "{message}");
}

#[test]
fn errors_name_cause_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    run(&mut sender(&socket, &["/etc/hostname"]))
        .expect(1)
        .says(&["cannot connect to", "haul channel recv"]);
    run(&mut sender(&socket, &["/no/such/file"])).expect(1).says(&["cannot read /no/such/file"]);
    run(&mut sender(&socket, &["-", "--mechanism", "pigeon"])).expect(2).says(&["inline, ring"]);
    run(&mut haul(&["channel", "recv", "/no/such/folder/socket"]))
        .expect(1)
        .says(&["cannot bind the socket", "make the folder"]);
    run(&mut haul(&["channel", "recv", "x", "--json"])).expect(2);
}

fn left_in(folder: &Path) -> Vec<std::ffi::OsString> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// A sender whose input this test writes, and a receiver whose output it reads; a first message has
/// arrived.
fn begun(socket: &Path, deadline: &str) -> (Child, Child) {
    let mut receiving = receiver(socket, &[]);
    let mut command = sender(socket, &["--deadline", deadline]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sending = command.spawn().unwrap();
    sending.stdin.as_mut().unwrap().write_all(b"begun").unwrap();
    let mut bytes = [0; 5];
    receiving.stdout.as_mut().unwrap().read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"begun");
    (sending, receiving)
}

#[test]
fn stopped_receiver_ends_the_sender_at_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let (mut sending, receiving) = begun(&folder.path().join("socket"), "12");
    signal(&receiving, Signal::STOP);
    let mut input = sending.stdin.take().unwrap();
    // The ending sender closes the channel.
    let feeding = thread::spawn(move || input.write_all(text(40_000_000).as_bytes()));
    let process = format!("process {}", receiving.id());
    finish(sending).expect(1).says(&[&process, "read nothing", "--deadline"]);
    assert!(feeding.join().unwrap().is_err());
    signal(&receiving, Signal::CONT);
    finish(receiving).expect(1).says(&["connect again"]);
    assert!(left_in(folder.path()).is_empty());
}

#[test]
fn sender_waits_for_slow_reader() {
    // The receiver may have no processor for as long as its sender waits.
    attempts([4, 12], |deadline: u64| {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let (mut sending, receiving) = begun(&socket, &deadline.to_string());
        let mut input = sending.stdin.take().unwrap();
        let bytes = text(8_000_000);
        let expected = bytes.clone();
        let feeding = thread::spawn(move || input.write_all(bytes.as_bytes()));
        thread::sleep(Duration::from_secs(2 * deadline + 1));
        let receiving = thread::spawn(move || finish(receiving));
        let sent = finish(sending);
        let (received, fed) = (receiving.join().unwrap(), feeding.join().unwrap());
        let has_all = sent.code == Some(0) && received.code == Some(0) && fed.is_ok();
        assert!(!has_all || received.out == expected);
        if has_all { Ok(()) } else { Err(format!("{sent:#?} {}", received.err)) }
    });
}

#[test]
fn killed_receiver_leaves_no_file_and_next_reuses_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, to) = (folder.path().join("socket"), folder.path().join("to"));
    let out = ["--out-file", to.to_str().unwrap()];
    let mut receiving = receiver(&socket, &out);
    let mut command = sender(&socket, &[]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sending = command.spawn().unwrap();
    // This is more than the pipe holds, so a part has been received once it is written.
    sending.stdin.as_mut().unwrap().write_all(text(9_000_000).as_bytes()).unwrap();
    let live = run(&mut haul(&["channel", "recv", socket.to_str().unwrap()]));
    live.expect(1).says(&["another process has it", "name another path"]);
    receiving.kill().unwrap();
    receiving.wait().unwrap();
    drop(sending.stdin.take());
    finish(sending).expect(1).says(&["the other end died after"]);
    assert_eq!(left_in(folder.path()), ["socket"]);
    let mut command = haul(&["channel", "recv", socket.to_str().unwrap(), out[0], out[1]]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let receiving = command.spawn().unwrap();
    let start = Instant::now();
    while run_with_input(&mut sender(&socket, &[]), b"anew").code != Some(0) {
        assert!(start.elapsed() < LIMIT, "no process listens");
    }
    finish(receiving).expect(0);
    assert_eq!(fs::read(&to).unwrap(), b"anew");
    assert_eq!(left_in(folder.path()), ["to"]);
    // A file that is not a socket stays.
    let taken = run(&mut haul(&["channel", "recv", to.to_str().unwrap()]));
    taken.expect(1).says(&["not a socket"]);
    assert_eq!(fs::read(&to).unwrap(), b"anew");
}

/// The message names the bytes of the whole stream, not of its last message.
#[test]
fn sender_reports_bytes_received_before_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, from) = (folder.path().join("socket"), folder.path().join("from"));
    // All zeros, without pages.
    fs::File::create(&from).unwrap().set_len(2 << 30).unwrap();
    for is_killed in [true, false] {
        let mut receiving = receiver(&socket, &[]);
        let mut sending = sender(&socket, &[from.to_str().unwrap()]);
        let sending = sending.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = receiving.stdout.take().unwrap();
        let mut part = vec![0; 64 << 20];
        output.read_exact(&mut part).unwrap();
        if is_killed {
            receiving.kill().unwrap();
        } else {
            drop(output);
        }
        receiving.wait().unwrap();
        let ran = finish(sending).expect(1);
        // A receiver whose reader has gone ends at once, or closes first if it notices during a
        // write.
        let ends = ["the other end died after", "the other end closed before everything"];
        let ends = if is_killed { &ends[..1] } else { &ends[..] };
        assert!(ends.iter().any(|end| ran.err.contains(end)), "{ran:#?}");
        let (_, after) = ran.err.split_once(" after ").or(ran.err.split_once(", after ")).unwrap();
        let number: f64 = after.split(' ').next().unwrap().parse().unwrap();
        assert!(number >= 60.0 && after.contains("MiB"), "{ran:#?}");
        let _ = fs::remove_file(&socket);
    }
}

#[test]
fn transfer_is_limited_to_own_user() {
    let socket = Path::new("socket");
    run(&mut sender(socket, &["--allow-user", "no such user"]))
        .expect(2)
        .says(&["no user has this name", "getent passwd"]);
    if !is_root() {
        eprintln!("SKIPPED: another user's receiver: not running as root: run the tests as root");
        return;
    }
    let (folder, program) = public_folder();
    let shared = folder.path().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let socket = shared.join("socket");
    let listen = || {
        let mut command = unprivileged(&program, &["channel", "recv", socket.to_str().unwrap()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        wait_to_listen(&socket);
        child
    };
    let receiving = listen();
    run_with_input(&mut sender(&socket, &[]), b"secret").expect(1).says(&[
        "of user 65534",
        "user 0 is allowed",
        "--allow-user 65534",
    ]);
    assert_eq!(finish(receiving).expect(1).says(&["may not allow this user"]).out, "");
    for user in ["65534", "any"] {
        let receiving = listen();
        run_with_input(&mut sender(&socket, &["--allow-user", user]), b"for all").expect(0);
        assert_eq!(finish(receiving).expect(0).out, "for all");
    }
    // In the other direction: another user's sender is refused, and the receiver waits on.
    let receiving = receiver(&socket, &["--allow-user", "1", "--allow-user", "65533"]);
    thread::sleep(Duration::from_millis(50));
    let to = socket.to_str().unwrap();
    let mut command = unprivileged(&program, &["channel", "send", "--to", to]);
    run_with_input(&mut command, b"x").expect(1).says(&["may not allow this user"]);
    run_with_input(&mut sender(&socket, &[]), b"from root").expect(0);
    let received = finish(receiving).expect(0).says(&["warning", "of user 65534"]);
    assert_eq!(received.out, "from root");
}
