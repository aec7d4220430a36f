//! `haul forward` with captures and interfaces: every packet is passed on and counted, errors are
//! reported, and nothing is left behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use haul_model::Record;
use rustix::process::{Pid, Signal, kill_process};

use crate::forward::{has_testpmd, has_two_processors, turn};
use crate::network::with_pair;
use crate::{Ran, finish, haul, records_of, run, wait_until};

/// The samples of all records of this metric, port and direction.
fn counted(records: &[Record], metric: &str, port: &str, direction: &str) -> f64 {
    let is_it = |record: &&Record| {
        let is = |key: &str, value: &str| record.text(key).is_some_and(|own| own == value);
        record.metric == metric && is("port", port) && is("direction", direction)
    };
    records.iter().filter(is_it).map(|record| record.median().unwrap()).sum()
}

fn whole(records: &[Record], metric: &str) -> f64 {
    let of = records.iter().filter(|record| record.metric == metric);
    of.map(|record| record.median().unwrap()).sum()
}

fn between(ports: [&str; 2], more: &[&str]) -> Command {
    let ports = ["forward", "--json", "--port", ports[0], "--port", ports[1]];
    haul(&[&ports[..], more].concat())
}

fn forward(ports: [&str; 2], more: &[&str]) -> Ran {
    run(&mut between(ports, more))
}

fn start(ports: [&str; 2], more: &[&str]) -> Child {
    let mut command = between(ports, more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn captures_keep_every_packet_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (first, second) = (at("a.pcap"), at("b.pcapng"));
    let records =
        forward(["gen:size=60..1514:1,count=2000", &format!("pcap:out={first}")], &[]).expect(0);
    let records = records.records();
    assert_eq!(counted(&records, "packets", "pcap0", "tx"), 2000.0);
    // Two ports of one kind have different names.
    let ports = [format!("pcap:in={first}"), format!("pcap:out={second}")];
    let records = forward([&ports[0], &ports[1]], &[]).expect(0).records();
    assert_eq!(counted(&records, "packets", "pcap0", "rx"), 2000.0);
    assert_eq!(counted(&records, "packets", "pcap1", "tx"), 2000.0);
    let batches = records.iter().filter(|record| record.metric == "batches");
    assert!(batches.clone().count() > 2);
    for record in batches {
        for key in ["port", "queue", "direction", "size"] {
            assert!(record.parameters.contains_key(key), "{record:?}");
        }
    }
    let records = forward([&format!("pcap:in={second},loop=3"), "sink"], &[]).expect(0).records();
    assert_eq!(counted(&records, "packets", "sink0", "tx"), 6000.0);
    assert_eq!((whole(&records, "lost"), whole(&records, "duplicates")), (0.0, 4000.0));
    // A port must not write a file that the other port reads, under any name: the run would never
    // end.
    let other = at("other.pcap");
    std::os::unix::fs::symlink(&first, &other).unwrap();
    let (input, output) = (format!("pcap:in={first}"), format!("pcap:out={other}"));
    let before = fs::read(&first).unwrap();
    for ports in [[&*input, &*output], [&*output, &*input]] {
        forward(ports, &["--for", "1s"]).expect(2).says(&["other.pcap", "would be lost"]);
    }
    assert_eq!(fs::read(&first).unwrap(), before);
}

#[test]
fn damaged_capture_is_reported_or_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let name = path.display().to_string();
    forward(["gen:size=100,count=100", &format!("pcap:out={name}")], &[]).expect(0);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let ran = forward([&format!("pcap:in={name}"), "sink"], &[]).expect(0).says(&["cut 1"]);
    let records = ran.records();
    assert_eq!(counted(&records, "packets", "sink0", "tx"), 99.0);
    assert_eq!(counted(&records, "drops", "pcap0", "rx"), 1.0);
    let mut lie = bytes.clone();
    lie[24 + 8..24 + 12].copy_from_slice(&u32::MAX.to_le_bytes());
    for (bytes, parts) in [
        (lie, &["at byte 24", "128 MiB"][..]),
        (b"a text that is not a capture at all".to_vec(), &["does not begin as a pcap"]),
        (vec![], &["ends within its header"]),
    ] {
        fs::write(&path, bytes).unwrap();
        forward([&format!("pcap:in={name}"), "sink"], &[]).expect(1).says(parts);
    }
    let both = format!("pcap:in={name},out={name}");
    forward([&both, "sink"], &[]).expect(2).says(&["would be lost"]);
    forward(["pcap:in=/none/a.pcap", "sink"], &[]).expect(1).says(&["/none/a.pcap"]);
    forward(["pcap:in=a,rate=2G", "sink"], &[]).expect(2).says(&["1e9"]);
    let twice = format!("pcap:out={name}");
    forward([&twice, &twice], &[]).expect(1).says(&["another port writes it"]);
}

#[test]
fn failing_port_keeps_earlier_counts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let name = path.display().to_string();
    forward(["gen:size=1500,count=2000", &format!("pcap:out={name}")], &[]).expect(0);
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    // An impossible header after the last packet.
    bytes.extend([0xff; 16]);
    fs::write(&path, bytes).unwrap();
    let out = folder.path().join("out");
    let more = ["--out", out.to_str().unwrap()];
    let ran = forward([&format!("pcap:in={name}"), "sink"], &more).expect(1);
    let records = ran.records();
    for (port, direction) in [("pcap0", "rx"), ("sink0", "tx")] {
        assert_eq!(counted(&records, "packets", port, direction), 2000.0);
        assert_eq!(counted(&records, "bytes", port, direction), 3_000_000.0);
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("pcap0 rx, queue 0"));
    ran.says(&[&format!("at byte {end}"), "128 MiB", "2000 arrived, 0 lost"]);
}

/// An ARP request for 198.18.0.2, and one for 198.18.0.3.
fn questions() -> Vec<u8> {
    let mut file: Vec<u8> = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1_u32]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    for target in [2, 3] {
        let mut frame = vec![0xff; 6];
        frame.extend([2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 7]);
        frame.extend([198, 18, 0, 1, 0, 0, 0, 0, 0, 0, 198, 18, 0, target]);
        frame.resize(60, 0);
        file.extend([0, 0, 60, 60_u32].into_iter().flat_map(u32::to_le_bytes));
        file.extend(frame);
    }
    file
}

#[test]
fn echo_answers_its_address_and_drops_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("in.pcap"), questions()).unwrap();
    let name = |it: &str| at(it).display().to_string();
    let ports = [
        format!("pcap:in={},out={}", name("in.pcap"), name("answers.pcap")),
        format!("pcap:out={}", name("rest.pcap")),
    ];
    let echo = ["--action", "echo", "--address", "198.18.0.2"];
    let records = forward([&ports[0], &ports[1]], &echo).expect(0).records();
    assert_eq!(counted(&records, "packets", "pcap0", "tx"), 1.0);
    assert_eq!(counted(&records, "packets", "pcap1", "tx"), 1.0);
    // The answer follows the file's header and the packet's header.
    let answer = &fs::read(at("answers.pcap")).unwrap()[24 + 16..];
    assert_eq!(answer[..6], [2, 0, 0, 0, 0, 7]);
    assert_eq!(answer[20..22], [0, 2]);
    assert_eq!(answer[28..32], [198, 18, 0, 2]);
    assert_eq!(fs::read(at("rest.pcap")).unwrap()[40..], questions()[24 + 76 + 16..]);
    forward(["gen", "null"], &["--action", "echo"]).expect(2).says(&["--address"]);
    let no_echo = ["--address", "198.18.0.2"];
    forward(["gen", "null"], &no_echo).expect(2).says(&["--action echo"]);
    forward(["gen", "null"], &["--action", "echo", "--address", "1.2.3"]).expect(2);
}

/// Whether an interface in this thread's network has an XDP program.
fn has_program() -> bool {
    let output = Command::new("ip").args(["-d", "link"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("prog/xdp")
}

fn end(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[test]
fn packets_cross_linked_interfaces_and_nothing_is_left() {
    with_pair("a command at either end of a pair", || {
        for (here, there) in [("afxdp", "afpacket"), ("afpacket", "afxdp")] {
            let ports = [format!("{here}:interface=haul0"), format!("{there}:interface=haul1")];
            let folder = tempfile::tempdir().unwrap();
            let socket = folder.path().join("socket");
            let telemetry = ["--telemetry", socket.to_str().unwrap()];
            let outside = start([&ports[1], "sink"], &telemetry);
            // From here on it receives packets, and handles signals.
            wait_until("the receiver runs", || socket.exists());
            // As many packets as either ring holds, so neither side has to keep up.
            let mut inside = start(["gen:rate=5k,count=500", &ports[0]], &[]);
            wait_until("the generator ends", || inside.try_wait().unwrap().is_some());
            let inside = finish(inside).expect(0).records();
            let sent = counted(&inside, "packets", &format!("{here}0"), "tx");
            let lost = counted(&inside, "drops", &format!("{here}0"), "tx");
            assert_eq!(sent + lost, 500.0, "{inside:#?}");
            end(&outside, Signal::INT);
            let outside = finish(outside).expect(0).records();
            let came = counted(&outside, "packets", &format!("{there}0"), "rx");
            assert!(came <= sent, "{came} of {sent}");
            assert_eq!(counted(&outside, "packets", "sink0", "tx"), came);
            assert!(!has_program());
        }
        // One command with both ends: each packet makes one round.
        let both = ["afxdp:interface=haul0", "afpacket:interface=haul1"];
        let killed = start(both, &[]);
        wait_until("the interface has a program", has_program);
        end(&killed, Signal::KILL);
        let _ = finish(killed);
        wait_until("the interface has no program", || !has_program());
        let records = forward(both, &["--for", "200ms"]).expect(0).records();
        assert!(counted(&records, "batches", "afxdp0", "rx") > 0.0);
        assert!(!has_program());
        let same = ["afxdp:interface=haul0", "afxdp:interface=haul0"];
        forward(same, &["--for", "1s"]).expect(1).says(&["another program uses it"]);
        forward(["afpacket:interface=haul7", "sink"], &[]).expect(1).says(&["ip link show"]);
    });
}

#[test]
fn afxdp_definition_feeds_its_table() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: afxdp beside testpmd: no python3 on PATH: install python3");
        return;
    }
    if !has_testpmd() || !has_two_processors() {
        return;
    }
    with_pair("afxdp beside testpmd", || {
        let _turn = turn();
        let folder = tempfile::tempdir().unwrap();
        let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/definitions");
        let mut command = Command::new(definitions.join("forward-afxdp"));
        command.arg(folder.path()).args(["1", "64"]);
        // All tests share the kernel's pool.
        command.env("PAGES", "0").env("HAUL", env!("CARGO_BIN_EXE_haul"));
        let ran = run(&mut command).expect(0);
        assert!(ran.out.contains("| haul beside testpmd, 64 B | "), "{ran:#?}");
        let text = fs::read_to_string(folder.path().join("afxdp-own-64.jsonl")).unwrap();
        let records = records_of(haul_model::parse(&text).unwrap());
        for subject in ["haul", "testpmd"] {
            let own: Vec<_> = records.iter().filter(|it| it.subject == subject).collect();
            let [record] = own[..] else { panic!("{subject}: {records:#?}") };
            assert!(record.median().unwrap() > 0.0, "{record:#?}");
        }
    });
}
