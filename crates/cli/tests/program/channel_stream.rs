//! `haul channel send` and `recv` in place of a pipe with pv: progress, waiting, and readers that
//! have enough; and `haul channel explain`.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::channel::{receiver, sender, start_receiver, text};
use crate::{finish, haul, run, run_with_input};

/// A producer that pauses for longer than the interval of progress lines.
fn feed_slowly(input: &mut impl Write) {
    for _ in 0..3 {
        input.write_all(text(1_000_000).as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(1100));
    }
}

#[test]
fn progress_without_terminal_prints_line_per_second() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let out = folder.path().join("out");
    let more = ["--out-file", out.to_str().unwrap(), "--progress", "always"];
    let receiving = receiver(&socket, &more);
    let mut command = sender(&socket, &["--progress", "always", "--size", "3000000"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sending = command.spawn().unwrap();
    feed_slowly(&mut sending.stdin.take().unwrap());
    let sent = finish(sending).expect(0);
    let line = sent.err.lines().find(|line| line.contains("left")).unwrap_or_default();
    assert!(line.contains("/s, ") && line.contains("%, 0:0"), "{sent:#?}");
    assert!(sent.err.contains("haul: sent 2.86 MiB in"), "{sent:#?}");
    let received = finish(receiving).expect(0);
    let line = received.err.lines().find(|line| line.contains("/s")).unwrap_or_default();
    assert!(!line.contains("left"), "the total is unknown: {received:#?}");
    assert!(received.err.contains("haul: received 2.86 MiB in"), "{received:#?}");
    // Progress was not requested.
    let receiving = receiver(&socket, &["--out-file", out.to_str().unwrap()]);
    assert_eq!(run_with_input(&mut sender(&socket, &[]), b"bytes").expect(0).err, "");
    assert_eq!(finish(receiving).expect(0).err, "");
    run(&mut sender(&socket, &["--progress", "often"])).expect(2);
}

#[test]
fn progress_on_terminal_is_bar_with_time_left() {
    let is_here = Command::new("script").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_here {
        eprintln!("SKIPPED: a bar on a terminal: no script on PATH: apt-get install bsdutils");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (socket, out) = (folder.path().join("socket"), folder.path().join("out"));
    let receiving = receiver(&socket, &["--out-file", out.to_str().unwrap()]);
    let fifo = folder.path().join("fifo");
    run(Command::new("mkfifo").arg(&fifo)).expect(0);
    let sending = format!(
        "HAUL_TUNING=off {} channel send {} --to {} --size 3000000",
        env!("CARGO_BIN_EXE_haul"),
        fifo.display(),
        socket.display()
    );
    let mut command = Command::new("script");
    command.args(["-qec", &sending, "/dev/null"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let mut input = fs::File::options().write(true).open(&fifo).unwrap();
    feed_slowly(&mut input);
    drop(input);
    let shown = finish(child).expect(0);
    assert!(shown.out.contains("ETA") && shown.out.contains("iB/s"), "{shown:#?}");
    assert!(shown.out.contains("haul: sent 2.86 MiB"), "{shown:#?}");
    finish(receiving).expect(0);
    assert_eq!(fs::metadata(&out).unwrap().len(), 3_000_000);
}

#[test]
fn sender_waits_for_receiver_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let start = Instant::now();
    run(&mut sender(&socket, &["--wait=0.3"])).expect(1).says(&["no receiver started", "--wait="]);
    assert!(start.elapsed() >= Duration::from_millis(300));
    // The socket of a killed receiver does not count as a receiver.
    let mut left = receiver(&socket, &[]);
    left.kill().unwrap();
    left.wait().unwrap();
    assert!(socket.exists());
    for wait in ["--wait", "--wait=60"] {
        let mut command = sender(&socket, &[wait]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut sending = command.spawn().unwrap();
        sending.stdin.take().unwrap().write_all(b"waited for").unwrap();
        thread::sleep(Duration::from_millis(200));
        assert!(sending.try_wait().unwrap().is_none(), "it waits");
        let receiving = start_receiver(&socket, &[]);
        assert_eq!(finish(receiving).expect(0).out, "waited for");
        finish(sending).expect(0);
    }
    run(&mut sender(&socket, &["--wait=-1"])).expect(2);
}

#[test]
fn closed_reader_is_not_reported_as_disk_error() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut receiving = receiver(&socket, &[]);
    let mut output = receiving.stdout.take().unwrap();
    let mut first = [0; 5];
    let feeding = {
        let mut sending = sender(&socket, &[]);
        thread::spawn(move || run_with_input(&mut sending, text(8_000_000).as_bytes()))
    };
    output.read_exact(&mut first).unwrap();
    drop(output);
    let mut err = String::new();
    receiving.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(receiving.wait().unwrap().code(), Some(1));
    assert!(err.contains("closed it after") && err.contains("head"), "{err}");
    assert!(!err.contains("make room"), "{err}");
    feeding.join().unwrap().expect(1);
}

#[test]
fn explain_names_mechanism_and_receiver_waits_on() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let to = socket.to_str().unwrap();
    let receiving = receiver(&socket, &["--trust"]);
    let ran = run(&mut haul(&["channel", "explain", "--sizes", "64,1MiB", "--to", to])).expect(0);
    assert!(ran.out.contains("64 B go by inline, because so short a message"), "{ran:#?}");
    assert!(ran.out.contains("1 MiB go by"), "{ran:#?}");
    assert!(ran.out.contains("no: the message is over 8 KiB"), "{ran:#?}");
    assert!(ran.out.contains("do not trust each other"), "{ran:#?}");
    let trusted = ["channel", "explain", "--sizes", "1MiB", "--to", to, "--trust"];
    let ran = run(&mut haul(&trusted)).expect(0);
    assert!(ran.out.contains("The two ends trust each other."), "{ran:#?}");
    let json = ["channel", "explain", "--sizes", "64,1MiB", "--to", to, "--json"];
    let records = run(&mut haul(&json)).expect(0).records();
    let of = |size: u64| records.iter().find(|r| r.parameters["size_bytes"] == size).unwrap();
    assert_eq!(of(64).subject, "haul:inline");
    assert_eq!(of(1 << 20).experiment, "channel.explain");
    run(&mut haul(&["channel", "explain", "--sizes", "0", "--to", to])).expect(2).says(&["0 B"]);
    // Three clients have disconnected; the receiver still waits.
    run_with_input(&mut sender(&socket, &[]), b"after all").expect(0);
    assert_eq!(finish(receiving).expect(0).out, "after all");
    run(&mut haul(&trusted)).expect(1).says(&["cannot connect to"]);
}
