//! `haul forward` as a source of `haul pcie watch`: one program observes the other from outside.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_model::{Kind, Record};
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::{option, tries, wait_to_listen};
use crate::{Ran, finish, haul, run, wait_until};

/// Longest time that a busy machine may need until a program has its socket.
const PATIENCE: Duration = Duration::from_secs(30);

/// A forwarder that runs until it is ended.
struct Forwarder {
    child: Child,
    socket: PathBuf,
    runtime: PathBuf,
}

impl Forwarder {
    /// Starts a forwarder with a runtime folder, and waits for its socket.
    fn start(runtime: &Path, ports: [&str; 2], socket: Option<&Path>) -> Self {
        let mut command = haul(&["forward", "--json", "--port", ports[0], "--port", ports[1]]);
        command.env("XDG_RUNTIME_DIR", runtime);
        if let Some(socket) = socket {
            command.arg("--telemetry").arg(socket);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let default = home(runtime).join(format!("haul/forward-{}/dpdk_telemetry.v2", child.id()));
        let socket = socket.map_or(default, Path::to_path_buf);
        let begun = Instant::now();
        while !socket.exists() {
            assert!(child.try_wait().unwrap().is_none(), "{:#?}", finish(child));
            assert!(begun.elapsed() < PATIENCE, "no socket at {}", socket.display());
            thread::sleep(Duration::from_millis(5));
        }
        wait_to_listen(&socket);
        Self { child, socket, runtime: runtime.to_path_buf() }
    }

    fn watch(&self, time: Duration, words: &[&str]) -> Ran {
        let time = option(time);
        let words = [&["pcie", "watch", "--for", &time, "--every", "100ms", "--json"], words];
        run(haul(&words.concat()).env("XDG_RUNTIME_DIR", &self.runtime))
    }

    fn end(self, signal: Signal) -> Ran {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        finish(self.child)
    }
}

/// The folder of the sockets: root's runtime folder, or the user's.
fn home(runtime: &Path) -> PathBuf {
    match rustix::process::geteuid().is_root() {
        true => "/var/run".into(),
        false => runtime.into(),
    }
}

fn of<'a>(records: &'a [Record], subject: &str, metric: &str) -> Vec<&'a Record> {
    records.iter().filter(|it| it.subject.starts_with(subject) && it.metric == metric).collect()
}

#[test]
fn watch_shows_bursts_and_link_of_modelled_nic() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let nic = "nic:model=igb,option=82576,driver=dpdk-22.11,link=gen2x4,mps=128,rate=100k,group=4";
    let forwarder = Forwarder::start(folder.path(), [nic, "null"], Some(&socket));
    // On a busy machine, the forwarder may have no processor time while it is watched.
    let records = tries(&[0.3, 1.0, 4.0, 16.0], |time| {
        let ran = forwarder.watch(time, &["--socket", socket.to_str().unwrap()]).expect(0);
        let records = ran.records();
        let has_packets = |it: &Record| it.parameters["packets_counted"].as_u64() > Some(0);
        let queues = of(&records, "haul-", "packets");
        let has_all = queues.len() == 4 && has_packets(queues[0]) && has_packets(queues[3]);
        if has_all { Ok(records) } else { Err(format!("{records:#?}")) }
    });
    assert!(records.iter().all(|record| record.experiment == "pcie.burst"));
    let queues = of(&records, "haul-", "packets");
    let names: Vec<String> = queues
        .iter()
        .map(|it| format!("{} {}", it.parameters["device"], it.parameters["direction"]))
        .collect();
    let all = [r#""nic0" "rx""#, r#""nic0" "tx""#, r#""null0" "rx""#, r#""null0" "tx""#];
    assert_eq!(names, all);
    for received in [queues[0], queues[3]] {
        assert_eq!(received.kind, Kind::Measured);
        let packets = received.parameters["packets_counted"].as_u64().unwrap();
        let batches = received.parameters["batches"].as_str().unwrap();
        let pairs = batches.split(',').map(|pair| pair.split_once(':').unwrap());
        let sum: u64 =
            pairs.map(|(a, b)| a.parse::<u64>().unwrap() * b.parse::<u64>().unwrap()).sum();
        assert!(packets > 0 && sum == packets, "{received:#?}");
        assert_eq!(received.parameters["packet_bytes"], 64.0);
    }
    for metric in ["inbound_read", "inbound_write", "outbound_write"] {
        // By the rules of the modelled NIC, each port in turn.
        for subject in ["haul", "modelled-nic"] {
            let found = of(&records, subject, metric);
            assert_eq!((found.len(), found[0].kind), (1, Kind::Modelled), "{subject} {metric}");
            assert!(found[0].samples.iter().sum::<f64>() > 0.0, "{found:#?}");
        }
        let estimate = of(&records, "haul", metric)[0];
        let rules = ["nic", "driver_rules", "link"].map(|name| &estimate.parameters[name]);
        assert_eq!(rules, ["igb", "dpdk-22.11", "gen2x4"]);
        assert_eq!(estimate.parameters["mps_bytes"], 128);
    }
    let ran = forwarder.end(Signal::INT).expect(0);
    assert!(!socket.exists(), "{ran:#?}");
}

#[test]
fn forwarder_is_found_automatically_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["null:size=64", "null"];
    let first = Forwarder::start(folder.path(), ports, None);
    let process = first.child.id().to_string();
    let found = |name: &[&str], what: (&str, &str), count: usize| {
        // On a busy machine, the forwarder may have no processor time while it is watched.
        tries(&[0.3, 1.0, 4.0, 16.0], |time| {
            let records = first.watch(time, name).expect(0).records();
            let has_all = of(&records, what.0, what.1).len() == count;
            if has_all { Ok(records) } else { Err(format!("{records:#?}")) }
        })
    };
    let records = found(&["--pid", &process], ("haul-", "packets"), 4);
    let note = records[0].parameters["note"].as_str().unwrap();
    assert!(note.contains("haul_null") && note.contains("--nic"), "{note}");
    let prefix = format!("forward-{process}");
    found(&["--file-prefix", &prefix, "--nic", "ice"], ("haul", "inbound_read"), 2);
    // A killed forwarder leaves its socket, which does not count as a program. The next forwarder
    // removes the socket; that forwarder may belong to a test that runs at the same time.
    let (left, runtime) = (first.socket.clone(), first.runtime.clone());
    first.end(Signal::KILL);
    let mut gone = haul(&["pcie", "watch", "--for", "1s", "--file-prefix", &prefix]);
    run(gone.env("XDG_RUNTIME_DIR", &runtime)).expect(1).says(&["start"]);
    let second = Forwarder::start(folder.path(), ports, None);
    wait_until("the socket is removed", || !left.exists() && !left.parent().unwrap().exists());
    let own = second.socket.clone();
    second.end(Signal::TERM).expect(0);
    assert!(!own.exists() && !own.parent().unwrap().exists());
}

/// The forwarder is started like a service, so that only the forwarder knows the folder of its
/// socket.
#[test]
fn forwarder_with_private_runtime_folder_is_found_by_process_and_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = haul(&["forward", "--json", "--port", "nic:model=ice,rate=1M"]);
    // The forwarder ends by itself if this test fails.
    command.args(["--port", "null", "--for", "4m"]).env("RUNTIME_DIRECTORY", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let prefix = format!("forward-{}", child.id());
    let socket = folder.path().join("haul").join(&prefix).join("dpdk_telemetry.v2");
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < PATIENCE, "no socket at {}", socket.display());
        thread::sleep(Duration::from_millis(5));
    }
    wait_to_listen(&socket);
    let process = child.id().to_string();
    for words in [["--pid", &process], ["--file-prefix", &prefix]] {
        tries(&[0.3, 1.0, 4.0, 16.0], |time| {
            let mut command = haul(&["pcie", "watch", "--for", &option(time), "--json"]);
            command.args(words).env_remove("XDG_RUNTIME_DIR").env_remove("RUNTIME_DIRECTORY");
            let records = run(&mut command).expect(0).records();
            let has_one = of(&records, "haul", "to_host").len() == 1;
            if has_one { Ok(()) } else { Err(format!("{words:?}: {records:#?}")) }
        });
    }
    // The watcher gets the folder through its own variable, as if both belonged to one service.
    tries(&[0.3, 1.0, 4.0, 16.0], |time| {
        let mut command = haul(&["pcie", "watch", "--for", &option(time)]);
        command.args(["--file-prefix", &prefix]).env("RUNTIME_DIRECTORY", folder.path());
        let ran = run(&mut command).expect(0);
        let has_estimate = ran.out.contains("by the estimate, ice");
        if has_estimate { Ok(()) } else { Err(format!("{ran:#?}")) }
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    finish(child).expect(128 + 2);
    assert!(!socket.exists());
    let mut gone = haul(&["pcie", "watch", "--pid", &process, "--for", "1s"]);
    run(&mut gone).expect(1).says(&[&format!("with process {process}"), "no process has"]);
}

#[test]
fn impossible_telemetry_socket_is_an_error_unless_turned_off() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["forward", "--port", "null:size=64", "--port", "null", "--for", "10ms"];
    let taken = folder.path().join("file");
    std::fs::write(&taken, "a file").unwrap();
    for path in
        [folder.path().join("none/socket"), taken.clone(), folder.path().join("x".repeat(120))]
    {
        let ran = run(haul(&words).arg("--telemetry").arg(&path));
        ran.expect(1).says(&["cannot serve telemetry at", "--no-telemetry"]);
    }
    assert_eq!(std::fs::read(&taken).unwrap(), b"a file");
    let both = [&words[..], &["--no-telemetry", "--telemetry", "x"]].concat();
    run(&mut haul(&both)).expect(2).says(&["cannot be used with"]);
    // Without a folder for the socket there is no message.
    let mut command = haul(&[&words[..], &["--json"]].concat());
    run(command.env_remove("XDG_RUNTIME_DIR")).expect(0);
    let mut command = haul(&[&words[..], &["--no-telemetry"]].concat());
    run(command.env("XDG_RUNTIME_DIR", folder.path())).expect(0);
    assert!(!folder.path().join("haul").exists());
}
