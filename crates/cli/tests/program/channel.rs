//! `haul channel`: files and pipes between two processes, and ends that go.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{LIMIT, finish, haul, run, run_with_input};

/// Starts `haul channel recv` and waits for its socket.
fn receiver(socket: &Path, more: &[&str]) -> Child {
    let mut command = haul(&["channel", "recv", socket.to_str().unwrap()]);
    command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let start = Instant::now();
    while !socket.exists() {
        assert!(start.elapsed() < LIMIT, "no socket");
        thread::sleep(Duration::from_millis(5));
    }
    child
}

fn sender(socket: &Path, more: &[&str]) -> Command {
    let mut command = haul(&["channel", "send", "--to", socket.to_str().unwrap()]);
    command.args(more);
    command
}

fn text(length: usize) -> String {
    (0..length).map(|index| char::from(b'a' + (index * 7 + index / 1000) as u8 % 26)).collect()
}

#[test]
fn the_list_names_every_mechanism() {
    let ran = run(&mut haul(&["channel", "list"])).expect(0);
    for name in ["inline", "ring", "staged", "pull", "sealed"] {
        assert!(ran.out.contains(name), "{ran:#?}");
    }
    let machine = run(&mut haul(&["channel", "list", "--json"])).expect(0).machine();
    assert!(machine.facts["channel_ring"].starts_with("yes"), "{machine:?}");
}

#[test]
fn a_file_arrives_by_every_mechanism() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    for (size, mechanism) in [(0, "ring"), (5, "ring"), (3_500_001, "ring"), (3_500_001, "pull")] {
        fs::write(&from, text(size)).unwrap();
        let socket = folder.path().join("socket");
        let out = to.to_str().unwrap();
        let receiving = receiver(&socket, &["--out", out, "--trust", "--json"]);
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
        assert!(!socket.exists(), "the socket goes with the receiver");
    }
}

#[test]
fn it_stands_where_a_pipe_stood() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let receiving = receiver(&socket, &[]);
    let input = text(2_000_000);
    // Somebody must read what comes out, as at any pipe.
    let consumer = thread::spawn(move || finish(receiving));
    run_with_input(&mut sender(&socket, &[]), input.as_bytes()).expect(0);
    assert!(consumer.join().unwrap().expect(0).out == input);
}

#[test]
fn a_sender_that_is_killed_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let (socket, to) = (folder.path().join("socket"), folder.path().join("to"));
    let receiving = receiver(&socket, &["--out", to.to_str().unwrap()]);
    let mut command = sender(&socket, &[]);
    let mut sending =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = sending.stdin.take().unwrap();
    // More than the pipe holds: the sender has connected once this is written.
    input.write_all(text(1_000_000).as_bytes()).unwrap();
    sending.kill().unwrap();
    sending.wait().unwrap();
    finish(receiving).expect(1).says(&["the peer went", "connect anew"]);
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_receiver_that_cannot_write_fails_the_sender_too() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else {
        eprintln!("SKIPPED: a receiver without room: no file /dev/full: mount /dev");
        return;
    };
    let mut command = haul(&["channel", "recv", socket.to_str().unwrap()]);
    let receiving =
        command.stdin(Stdio::null()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    while !socket.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    run_with_input(&mut sender(&socket, &[]), b"bytes").expect(1);
    let output = receiving.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot write to standard output"), "{said}");
}

#[test]
fn what_is_wrong_is_said() {
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
