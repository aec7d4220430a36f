//! `haul pcie watch` of a program that this test simulates: a telemetry socket with the probe's
//! answers.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use haul_model::{Kind, Record};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

use crate::patience::{option, tries};
use crate::{Ran, finish, haul, records_of, run, wait_until};

/// The simulated behaviour of the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plays {
    /// Answers every request.
    Well,
    /// Has no probe.
    WithoutProbe,
    /// Ends after this number of requests.
    Until(u64),
    /// Stops in the middle of a histogram.
    Half,
    /// Sends an invalid answer.
    Nonsense,
    /// Sends more bytes than it announced.
    Huge,
}

/// A program behind a socket in its own folder; it serves as long as the test runs.
struct Program {
    _folder: tempfile::TempDir,
    socket: PathBuf,
    counts: Arc<Counts>,
}

/// How often the program answered requests of two kinds.
#[derive(Default)]
struct Counts {
    histogram: AtomicU64,
    detach: AtomicU64,
}

impl Program {
    fn start(plays: Plays, driver: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("dpdk_telemetry.v2");
        let listener =
            rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
        rustix::net::listen(&listener, 4).unwrap();
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        thread::spawn(move || {
            while let Ok(client) = rustix::net::accept(&listener) {
                serve(&client, plays, driver, &counted);
            }
        });
        Self { _folder: folder, socket, counts }
    }

    fn watch(&self, more: &[&str]) -> Ran {
        let mut words = vec!["pcie", "watch", "--socket", self.socket.to_str().unwrap()];
        words.extend(more);
        run(&mut haul(&words))
    }
}

fn serve(client: &OwnedFd, plays: Plays, driver: &str, counts: &Counts) {
    let send = |text: &str| rustix::net::send(client, text.as_bytes(), SendFlags::NOSIGNAL).is_ok();
    send(r#"{"version":"DPDK 22.11.11","pid":4711,"max_output_len":16384}"#);
    let (mut buffer, mut asked, mut rounds) = ([0; 2048], 0, 0_u64);
    while let Ok((length @ 1.., _)) = rustix::net::recv(client, &mut buffer[..], RecvFlags::empty())
    {
        asked += 1;
        if plays == Plays::Until(asked) {
            return;
        }
        let command = String::from_utf8_lossy(&buffer[..length]).into_owned();
        let name = command.split(',').next().unwrap();
        let other = match plays {
            Plays::Nonsense => "[[[[1, {}]]]]".to_owned(),
            Plays::Huge => format!(r#"{{"x":"{}"}}"#, "a".repeat(100_000)),
            _ => String::new(),
        };
        if !other.is_empty() {
            send(&other);
            continue;
        }
        let value = match name {
            _ if plays == Plays::WithoutProbe => "null".to_owned(),
            "/haul/burst/attach" => r#"{"ports":1,"queues":2,"attached":2}"#.to_owned(),
            "/haul/burst/detach" => {
                counts.detach.fetch_add(1, Ordering::Relaxed);
                r#"{"queues":2,"waiting":0,"attached":0}"#.to_owned()
            }
            "/haul/burst/list" if rounds == 0 => {
                r#"{"attached":0,"gone":0,"queues":[]}"#.to_owned()
            }
            "/haul/burst/list" => {
                r#"{"attached":2,"gone":0,"queues":["0,0,rx","0,0,tx"]}"#.to_owned()
            }
            "/haul/burst/port" => format!(
                r#"{{"port":0,"name":"0000:99:00.0","driver":"{driver}","rx_mode":"Vector AVX2"}}"#
            ),
            "/haul/burst/histogram" if plays == Plays::Half && rounds > 40 => {
                send(r#"{"/haul/burst/histogram":{"batches":[0,5"#);
                continue;
            }
            "/haul/burst/histogram" => {
                counts.histogram.fetch_add(1, Ordering::Relaxed);
                histogram(rounds)
            }
            "/ethdev/stats" => {
                let packets = rounds * 1000;
                format!(
                    r#"{{"ipackets":{packets},"opackets":{packets},"ibytes":{b},"obytes":{b},"imissed":{rounds}}}"#,
                    b = packets * 64
                )
            }
            _ => "null".to_owned(),
        };
        rounds += 1;
        if !send(&format!(r#"{{"{name}":{value}}}"#)) {
            return;
        }
    }
}

/// Counters that grow with every request: as many empty polls as bursts of 4 and of 32.
fn histogram(rounds: u64) -> String {
    let count = rounds * 100;
    format!(
        r#"{{"batches":[0,{count},4,{count},32,{count}],"polls":{},"packets":{},"empty":{count},
        "larger_polls":0,"larger_packets":0,"packets_sized":{count},"bytes_sized":{},"gaps":{count},
        "gap_cycles":{},"cycles":{},"cycles_per_s":2000000000}}"#,
        3 * count,
        36 * count,
        128 * count,
        200 * count,
        rounds * 1_000_000
    )
    .replace('\n', "")
}

fn of<'a>(records: &'a [Record], metric: &str) -> Vec<&'a Record> {
    records.iter().filter(|record| record.metric == metric).collect()
}

#[test]
fn watch_records_histogram_and_estimate_by_driver() {
    // A watcher without processor time measures fewer intervals than it should.
    let (program, records) = tries(&[0.2, 1.0, 4.0], |every| {
        let program = Program::start(Plays::Well, "net_ice");
        let (time, every) = (option(3 * every), option(every));
        let ran = program.watch(&["--for", &time, "--every", &every, "--json"]).expect(0);
        let records = ran.records();
        let has_two = of(&records, "packets").iter().all(|record| record.samples.len() >= 2);
        if has_two { Ok((program, records)) } else { Err(format!("{records:#?}")) }
    });
    assert!(records.iter().all(|record| record.experiment == "pcie.burst"));
    let queues = of(&records, "packets");
    assert_eq!(queues.len(), 2, "{records:#?}");
    for record in queues {
        assert_eq!((record.kind, record.subject.as_str()), (Kind::Measured, "dpdk-22.11.11"));
        assert!((2..=3).contains(&record.samples.len()), "{:?}", record.samples);
        let parameter = |name: &str| &record.parameters[name];
        assert_eq!((parameter("queue"), parameter("device")), (&0.into(), &"0000:99:00.0".into()));
        assert_eq!(
            (parameter("packet_bytes"), parameter("gap_ns")),
            (&128.0.into(), &100.0.into())
        );
        assert_eq!(parameter("average_batch"), 18.0);
        let batches = parameter("batches").as_str().unwrap();
        let counts: Vec<&str> =
            batches.split(',').map(|pair| pair.split(':').nth(1).unwrap()).collect();
        assert!(batches.starts_with("0:") && counts[0] == counts[2], "{batches}");
    }
    for metric in ["inbound_read", "inbound_write", "outbound_write", "to_host", "to_device"] {
        let found = of(&records, metric);
        assert_eq!(found.len(), 1, "{metric}");
        assert_eq!((found[0].kind, &found[0].parameters["nic"]), (Kind::Modelled, &"ice".into()));
        assert_eq!(found[0].parameters["driver_rules"], "dpdk-22.11");
        assert!(found[0].samples.iter().all(|sample| *sample > 0.0), "{found:?}");
    }
    // The machine has no such device, so its link is unknown and not counted.
    let note = records[0].parameters["note"].as_str().unwrap();
    assert!(note.contains("--link") && note.contains("only the estimate"), "{note}");
    assert_eq!(program.counts.detach.load(Ordering::Relaxed), 1, "the probe was not detached");
}

#[test]
fn out_folder_gets_records_and_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("watched");
    // The page draws a line only through several intervals, and a watcher without processor time
    // measures one.
    let (ran, page) = tries(&[0.5, 2.0, 8.0], |time| {
        let program = Program::start(Plays::Well, "net_ice");
        let (time, out) = (option(time), out.to_str().unwrap());
        let ran = program.watch(&["--for", &time, "--every", "100ms", "--out", out]).expect(0);
        let page = fs::read_to_string(Path::new(out).join("watch.html")).unwrap();
        if page.contains("<polyline") { Ok((ran, page)) } else { Err(format!("{ran:#?}")) }
    });
    // Without a terminal, sentences report bursts, the estimate, and unknown values.
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "in bursts of 18",
        "ice with the rules of dpdk-22.11 in mode vector reads",
        "% to the host",
    ] {
        assert!(text.contains(part), "{part}: {ran:#?}");
    }
    assert!(text.contains("note: 0000:99:00.0: the link of the device"), "{ran:#?}");
    let records = haul_model::parse(&fs::read_to_string(out.join("watch.jsonl")).unwrap()).unwrap();
    assert_eq!(of(&records_of(records), "packets").len(), 2);
    for part in ["Bursts of a running program", "32 packets: 33", "no counter here"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn watch_estimates_only_for_a_nic() {
    let program = Program::start(Plays::Well, "net_null");
    let words = ["--for", "200ms", "--every", "100ms", "--json"];
    let records = program.watch(&words).expect(0).records();
    assert!(of(&records, "inbound_read").is_empty());
    assert!(records[0].parameters["note"].as_str().unwrap().contains("--nic"));
    let named = [&words[..], &["--nic", "ixgbe", "--mode", "bulk", "--link", "gen3x4"]].concat();
    let records = program.watch(&named).expect(0).records();
    let estimate = of(&records, "inbound_read")[0];
    assert_eq!(
        (&estimate.parameters["nic"], &estimate.parameters["mode"]),
        (&"ixgbe".into(), &"bulk".into())
    );
    assert_eq!(estimate.parameters["link"], "gen3x4");
}

#[test]
fn ended_program_keeps_its_records() {
    for (plays, part) in [(Plays::Until(40), "closed the connection"), (Plays::Half, "ends early")]
    {
        let program = Program::start(plays, "net_ice");
        let ran = program.watch(&["--for", "60s", "--every", "50ms", "--json"]).expect(1);
        assert!(!of(&ran.records(), "packets").is_empty(), "{ran:#?}");
        ran.says(&[part]);
    }
}

#[test]
fn watch_quotes_invalid_answer() {
    for (plays, part) in
        [(Plays::Nonsense, "[[[[1, {}]]]]"), (Plays::Huge, "100008 B, above the limit")]
    {
        let ran = Program::start(plays, "net_ice").watch(&["--for", "5s", "--json"]).expect(1);
        ran.says(&["/haul/burst/list", part]);
    }
}

#[test]
fn watch_names_remedy_for_missing_program_or_probe() {
    let program = Program::start(Plays::WithoutProbe, "net_ice");
    program.watch(&["--for", "1s"]).expect(1).says(&["-d libhaul_dpdk_burst.so"]);
    let nowhere = ["pcie", "watch", "--socket", "/nonexistent/dpdk_telemetry.v2", "--json"];
    run(&mut haul(&nowhere)).expect(1).says(&["cannot connect", "--no-telemetry"]);
    for (place, part) in
        [("/etc/passwd", "it is not a socket"), (&"x".repeat(300), "a shorter path")]
    {
        run(&mut haul(&["pcie", "watch", "--socket", place])).expect(1).says(&[part]);
    }
    run(&mut haul(&["pcie", "watch", "--file-prefix", "no-such-prefix"]))
        .expect(1)
        .says(&["no-such-prefix", "--socket"]);
    for (words, part) in [
        (&["--for", "0"][..], "50ms"),
        (&["--pid", "1", "--socket", "/x"], "cannot be used with"),
        (&["--nic", "quick"], "not a modelled NIC"),
        (&["--link", "gen9x8"], "generation"),
    ] {
        let words = [&["pcie", "watch"], words].concat();
        run(&mut haul(&words)).expect(2).says(&[part]);
    }
}

#[test]
fn interrupt_ends_watch_and_keeps_records() {
    let program = Program::start(Plays::Well, "net_ice");
    let socket: &Path = &program.socket;
    let mut command = haul(&["pcie", "watch", "--every", "50ms", "--json", "--socket"]);
    command.arg(socket).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let process = rustix::process::Pid::from_child(&child);
    // Two queues in each of several intervals.
    wait_until("the program was asked", || program.counts.histogram.load(Ordering::Relaxed) >= 10);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let ran = finish(child).expect(0);
    assert_eq!(of(&ran.records(), "packets").len(), 2);
    assert_eq!(program.counts.detach.load(Ordering::Relaxed), 1, "the probe was not detached");
}
