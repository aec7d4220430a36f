//! The client of DPDK's telemetry against well-behaved programs and hostile ones.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use haul_forward::telemetry::{Error, Found, Telemetry, Wish, sockets};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType,
};

#[path = "../../../channel/tests/channel/slow.rs"]
mod slow;

use slow::slow;

const DEADLINE: Duration = Duration::from_millis(300);
/// Far more than any answer needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
const GREETING: &str = r#"{"version":"DPDK 22.11.11","pid":4711,"max_output_len":16384}"#;

fn listen(path: &Path) -> OwnedFd {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 64).unwrap();
    socket
}

/// Calls `act` with growing deadlines until a program answers in time. On a busy machine, a
/// greeting may take longer than [`DEADLINE`].
fn in_growing_time<T>(act: impl Fn(Duration) -> Result<T, Error>) -> T {
    let mut deadline = DEADLINE;
    loop {
        match act(deadline) {
            Ok(value) => return value,
            Err(Error::Silent { .. } | Error::NotFound { .. }) if deadline < PATIENCE => {}
            Err(error) => panic!("within {deadline:?}: {error}"),
        }
        deadline *= 2;
    }
}

/// A program that sends this greeting to every client.
fn greet_all(path: &Path, greeting: String) {
    let socket = listen(path);
    // The thread ends with the tests.
    thread::spawn(move || {
        while let Ok(client) = rustix::net::accept(&socket) {
            let _ = rustix::net::send(&client, greeting.as_bytes(), SendFlags::NOSIGNAL);
        }
    });
}

/// A program that serves one client. It sends the first of these packets at once and each other
/// packet after a command, and then closes the connection.
fn program(path: &Path, packets: Vec<Vec<u8>>) -> JoinHandle<Vec<String>> {
    let socket = listen(path);
    thread::spawn(move || {
        let client = rustix::net::accept(&socket).unwrap();
        let (mut asked, mut buffer) = (Vec::new(), [0; 2048]);
        for (index, packet) in packets.iter().enumerate() {
            if index > 0 {
                let (length, _) =
                    rustix::net::recv(&client, &mut buffer[..], RecvFlags::empty()).unwrap();
                if length == 0 {
                    return asked;
                }
                asked.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
            }
            let _ = rustix::net::send(&client, packet, SendFlags::NOSIGNAL);
        }
        asked
    })
}

fn socket_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("dpdk/rte/dpdk_telemetry.v2")
}

/// The result of one command, to which the program sends this answer.
fn asked(answer: Option<&[u8]>) -> Result<serde_json::Value, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(&folder);
    let packets = [Some(GREETING.as_bytes()), answer].into_iter().flatten();
    let served = program(&path, packets.map(<[u8]>::to_vec).collect());
    let mut dpdk = Telemetry::connect(&path, PATIENCE)?;
    let answer = dpdk.ask("/ethdev/stats,0");
    drop(dpdk);
    served.join().unwrap();
    answer
}

#[test]
fn well_behaved_program_answers_repeatedly() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(&folder);
    let answers =
        [GREETING, r#"{"/a":[0,1]}"#, r#"{"/b":null}"#, r#"{"/a":{"x":18446744073709551615}}"#];
    let served = program(&path, answers.iter().map(|text| text.as_bytes().to_vec()).collect());
    let mut dpdk = Telemetry::connect(&path, PATIENCE).unwrap();
    assert_eq!((dpdk.version(), dpdk.process()), ("DPDK 22.11.11", 4711));
    assert_eq!(dpdk.ask("/a").unwrap(), serde_json::json!([0, 1]));
    assert!(matches!(dpdk.ask("/b,9"), Err(Error::Refused { .. })));
    assert_eq!(dpdk.ask("/a,rx").unwrap()["x"], u64::MAX, "a refusal does not end the connection");
    drop(dpdk);
    assert_eq!(served.join().unwrap(), ["/a", "/b,9", "/a,rx"]);
}

#[test]
fn invalid_answers_are_distinguished() {
    let long = vec![b' '; 17_000];
    let (nonsense, half): (&[u8], &[u8]) = (b"hello", br#"{"/ethdev/stats":{"ipackets""#);
    for (answer, part) in [
        (Some(nonsense), "not JSON"),
        (Some(half), "ends early"),
        (Some(&long[..]), "17000 B"),
        (Some(br#"{"/info":{}}"#), "another command"),
        (None, "closed the connection"),
    ] {
        let message = asked(answer).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn missing_and_foreign_programs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(&folder);
    let message = Telemetry::connect(&path, DEADLINE).unwrap_err().to_string();
    assert!(message.contains("--no-telemetry"), "{message}");
    // A killed program leaves its socket.
    drop(listen(&path));
    let message = Telemetry::connect(&path, DEADLINE).unwrap_err().to_string();
    assert!(message.contains("has ended"), "{message}");
    for greeting in ["220 mail.example ESMTP", "{}", r#"{"version":"DPDK"}"#] {
        std::fs::remove_file(&path).unwrap();
        let served = program(&path, vec![greeting.as_bytes().to_vec()]);
        let error = Telemetry::connect(&path, PATIENCE).unwrap_err();
        assert!(matches!(error, Error::NotTelemetry { .. }), "{error}");
        served.join().unwrap();
    }
    let file = folder.path().join("file");
    std::fs::File::create(&file).unwrap().write_all(b"x").unwrap();
    assert!(matches!(Telemetry::connect(&file, DEADLINE), Err(Error::Connect { .. })));
}

#[test]
fn silent_program_does_not_block_connect() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(&folder);
    let _listening = listen(&path);
    let begun = Instant::now();
    let error = Telemetry::connect(&path, DEADLINE).unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    assert!(begun.elapsed() < PATIENCE);
}

#[test]
fn late_answer_is_never_mistaken_for_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(&folder);
    let socket = listen(&path);
    let (fails, failed) = mpsc::channel();
    let (answers, answered) = mpsc::channel();
    let served = thread::spawn(move || {
        let receive = |client: &OwnedFd| {
            rustix::net::recv(client, &mut [0; 64][..], RecvFlags::empty())
                .is_ok_and(|(length, _)| length > 0)
        };
        let client = loop {
            let client = rustix::net::accept(&socket).unwrap();
            let _ = rustix::net::send(&client, GREETING.as_bytes(), SendFlags::NOSIGNAL);
            // A client that received its greeting too late connects again.
            if receive(&client) {
                break client;
            }
        };
        failed.recv().unwrap();
        rustix::net::send(&client, br#"{"/a":1}"#, SendFlags::NOSIGNAL).unwrap();
        answers.send(()).unwrap();
        // The program closes the connection after the client does.
        while receive(&client) {}
    });
    let mut dpdk = in_growing_time(|deadline| Telemetry::connect(&path, deadline));
    assert!(matches!(dpdk.ask("/a,1"), Err(Error::Silent { .. })));
    fails.send(()).unwrap();
    answered.recv().unwrap();
    let error = dpdk.ask("/a,2").unwrap_err();
    assert!(matches!(error, Error::OutOfStep { .. }), "{error}");
    assert!(error.to_string().contains("/a,1"), "the first failure is reported: {error}");
    drop(dpdk);
    served.join().unwrap();
}

#[test]
fn invalid_command_is_not_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(&folder);
    let served = program(&path, vec![GREETING.into(), br#"{"/a":1}"#.to_vec()]);
    let mut dpdk = Telemetry::connect(&path, PATIENCE).unwrap();
    for bad in ["", "a", "/a\n", &format!("/{}", "a".repeat(1023))] {
        assert!(matches!(dpdk.ask(bad), Err(Error::Command { .. })), "{bad}");
    }
    assert_eq!(dpdk.ask("/a").unwrap(), 1);
    assert_eq!(served.join().unwrap(), ["/a"]);
}

#[test]
fn find_selects_program_by_prefix_or_process() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("dpdk");
    let (one, two) = (root.join("one/dpdk_telemetry.v2"), root.join("two/dpdk_telemetry.v2:1"));
    let greeting = |process: u32| {
        format!(r#"{{"version":"DPDK 25.11.0","pid":{process},"max_output_len":16384}}"#)
    };
    // Each program is asked three times: for any program, for its process ID, and for its prefix.
    greet_all(&one, greeting(7));
    greet_all(&two, greeting(8));
    std::fs::write(root.join("two/dpdk_telemetry.v2:x"), "").unwrap();
    std::fs::write(root.join("one/telemetry"), "").unwrap();
    let folders = [root.clone(), folder.path().join("nowhere")];
    let found = |path: &Path, prefix: &str| Found { path: path.into(), prefix: prefix.into() };
    assert_eq!(sockets(&folders), [found(&one, "one"), found(&two, "two")]);

    let find = |wish: &Wish| Telemetry::find_in(&folders, wish, PATIENCE);
    let message = find(&Wish::Any).unwrap_err().to_string();
    assert!(message.contains("process 7") && message.contains("--pid"), "{message}");
    assert_eq!(find(&Wish::Process(8)).unwrap().path(), two);
    assert_eq!(find(&Wish::Prefix("one".into())).unwrap().process(), 7);
    let message = find(&Wish::Process(9)).unwrap_err().to_string();
    assert!(message.contains("process 9") && message.contains("nowhere"), "{message}");
    assert!(matches!(find(&Wish::Prefix("three".into())), Err(Error::NotFound { .. })));
    assert!(matches!(
        Telemetry::find_in(&[], &Wish::Any, DEADLINE),
        Err(Error::NotFound { wanted: None, .. })
    ));
}

/// The client asks silent programs concurrently, and finds the program among them that answers.
#[test]
fn silent_programs_share_one_deadline() {
    const SILENT: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let [alone, beside] = ["alone", "beside"].map(|name| folder.path().join(name));
    let silent =
        |root: &Path, number: usize| listen(&root.join(format!("{number}/dpdk_telemetry.v2")));
    let _one = silent(&alone, 0);
    let _all: Vec<_> = (0..SILENT).map(|number| silent(&beside, number)).collect();
    let time = |root: &PathBuf| {
        let begun = Instant::now();
        let roots = std::slice::from_ref(root);
        let found = Telemetry::find_in(roots, &Wish::Any, DEADLINE).map(drop);
        assert!(matches!(found, Err(Error::Silent { .. } | Error::NotFound { .. })), "{found:?}");
        begun.elapsed()
    };
    // If the client asked the programs in sequence, many would take 40 times as long as one at
    // every try. Work of other programs may prolong a single try.
    let mut tries = Vec::new();
    let is_concurrent = (0..5).any(|_| {
        let (one, many) = (time(&alone), time(&beside));
        tries.push((one, many));
        many < one * 8
    });
    assert!(is_concurrent, "times for one program and for {SILENT}: {tries:?}");
    let path = beside.join("speaks/dpdk_telemetry.v2");
    greet_all(&path, GREETING.into());
    let roots = [beside];
    let found = in_growing_time(|deadline| Telemetry::find_in(&roots, &Wish::Any, deadline));
    assert_eq!((found.path(), found.left_alone()), (&*path, None));
}

/// Sends a packet with a descriptor; the sender keeps no copy of the descriptor.
fn hand_over(socket: &OwnedFd, packet: &[u8], file: OwnedFd) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
    let parts = [IoSlice::new(packet)];
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
}

#[test]
fn close_of_received_descriptor_does_not_block() {
    let Some((answered, _one)) = slow() else { return };
    let Some((left, _other)) = slow() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = socket_in(&folder);
    let socket = listen(&path);
    let serving = thread::spawn(move || {
        let client = rustix::net::accept(&socket).unwrap();
        rustix::net::send(&client, GREETING.as_bytes(), SendFlags::NOSIGNAL).unwrap();
        // One descriptor with an answer that arrives early, and one with a packet that is never
        // read.
        hand_over(&client, br#"{"/info":1}"#, answered);
        hand_over(&client, b"{}", left);
        client
    });
    let start = Instant::now();
    let mut dpdk = Telemetry::connect(&path, PATIENCE).unwrap();
    let _client = serving.join().unwrap();
    assert_eq!(dpdk.ask("/info").unwrap(), serde_json::json!(1));
    drop(dpdk);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}
