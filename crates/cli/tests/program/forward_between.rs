//! `haul forward` between two ports, by one command or by two connected ones: counts, pace, the
//! page, and queue pairs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use haul_model::Record;
use rustix::process::{Signal, kill_process};

use crate::forward::{has_two_processors, of, pid, turn, value};
use crate::patience::{option, tries};
use crate::signals::is_ended_by;
use crate::{Ran, finish, haul, run, wait_until};

#[test]
fn forward_counts_every_packet_by_burst() {
    let _turn = turn();
    let ports = ["--port", "gen:size=64,count=100000", "--port", "sink"];
    let ran = run(&mut haul(&[&["forward", "--json"][..], &ports].concat())).expect(0);
    ran.machine();
    let records = ran.records();
    assert!(records.iter().all(|it| it.experiment == "forward.burst" && it.subject == "haul"));
    for (port, direction) in [("gen0", "rx"), ("sink0", "tx")] {
        let this = [("port", port), ("queue", "0"), ("direction", direction)];
        assert_eq!(value(&records, "packets", &this), 100_000.0);
        assert_eq!(value(&records, "bytes", &this), 6_400_000.0);
        let batches = of(&records, "batches", &this);
        let sum: f64 = batches
            .iter()
            .map(|it| it.median().unwrap() * it.parameters["size"].as_f64().unwrap())
            .sum();
        assert_eq!(sum, 100_000.0);
        assert!(batches.iter().all(|it| it.parameters["size"].as_u64().unwrap() <= 32));
    }
    assert_eq!(value(&records, "made", &[]), 100_000.0);
    for metric in ["lost", "reordered", "duplicates"] {
        assert_eq!(value(&records, metric, &[]), 0.0);
    }
    assert!(value(&records, "latency", &[("quantile", "0.5")]) > 0.0);
    assert!(of(&records, "drops", &[]).is_empty());
    ran.says(&["100000 arrived, 0 lost", "packets of a rx call"]);
}

#[test]
fn paced_generator_keeps_its_rate() {
    let _turn = turn();
    let ports = ["--port", "gen:size=imix,rate=20k,flows=3", "--port", "sink"];
    // On a machine that other programs share, a generator without processor time is late.
    tries(&[1.0, 1.0, 2.0, 4.0, 8.0], |time| {
        let words = ["forward", "--for", &option(time), "--action", "macswap", "--json"];
        let records = run(&mut haul(&[&words[..], &ports].concat())).expect(0).records();
        assert_eq!(value(&records, "lost", &[]), 0.0);
        let rate = value(&records, "made", &[]) / time.as_secs_f64();
        if (10_000.0..=30_000.0).contains(&rate) { Ok(()) } else { Err(format!("{rate}/s")) }
    });
}

/// Signals a forwarder twice, this time after it began to serve its counters, with its workers at
/// work and its signals handed over.
fn forward_signalled(signal: Signal, time: &[&str], after: Duration) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let ports = ["forward", "--json", "--port", "gen", "--port", "sink"];
    let mut command = haul(&[&ports[..], time, &["--telemetry"]].concat());
    command.arg(&socket).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_until("the forwarder runs", || socket.exists());
    thread::sleep(after);
    kill_process(pid(&child), signal).unwrap();
    // GNU timeout signals the program, and then its group: one request.
    kill_process(pid(&child), signal).unwrap();
    finish(child)
}

/// With `--for`, a signal interrupts the run. Without `--for`, a signal is the usual end of the
/// run.
#[test]
fn signal_ends_forward_with_right_counts() {
    let _turn = turn();
    for (signal, time, code) in [
        (Signal::INT, &[][..], 0),
        (Signal::TERM, &[], 0),
        (Signal::HUP, &[], 0),
        (Signal::QUIT, &["--for", "1m"], 128 + 3),
        (Signal::INT, &["--for", "1m"], 128 + 2),
    ] {
        if !is_ended_by(signal) {
            continue;
        }
        // On a busy machine, the worker may have made no packet yet, and the second signal may be
        // so late that it aborts.
        let ran = tries(&[0.3, 1.0, 4.0], |after| {
            let ran = forward_signalled(signal, time, after);
            let made = of(&ran.records(), "made", &[]).iter().find_map(|it| it.median());
            let has_counts = ran.code == Some(code) && made > Some(0.0);
            if has_counts { Ok(ran) } else { Err(format!("{ran:#?}")) }
        });
        let ran = ran.says(&["interrupted"]);
        assert_eq!(ran.err.contains("kept "), code != 0, "{ran:#?}");
        let records = ran.records();
        let made = value(&records, "made", &[]);
        assert_eq!(value(&records, "packets", &[("port", "sink0"), ("direction", "tx")]), made);
        assert_eq!(value(&records, "lost", &[]), 0.0);
    }
}

#[test]
fn page_shows_the_histogram() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let arguments =
        ["forward", "--port", "null:size=64", "--port", "null", "--for", "200ms", "--out", out];
    let ran = run(&mut haul(&arguments)).expect(0);
    assert!(ran.out.contains("null1") && ran.out.contains("report.html"), "{ran:#?}");
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("How many packets a call moves") && page.contains("null0 rx, queue 0"));
    let records = fs::read_to_string(folder.path().join("forward.jsonl")).unwrap();
    assert!(haul_model::parse(&records).unwrap().len() > 5);
}

#[test]
fn two_commands_form_switch_and_guest() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm.sock");
    let (host, guest) = (
        format!("vhost:path={},server", socket.display()),
        format!("virtio:path={}", socket.display()),
    );
    let start = |ports: [&str; 2], time: Duration| {
        let mut command = haul(&["forward", "--json", "--for", &option(time)]);
        command.args(["--port", ports[0], "--port", ports[1]]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // On a busy machine, one of both may start when the other one ends.
    let (outside, inside, came) = tries(&[2.0, 6.0, 18.0], |time| {
        let switch = start(["gen:rate=10k", &host], 2 * time);
        let inside = finish(start([&guest, "sink"], time)).expect(0).records();
        let outside = finish(switch).expect(0).records();
        let came = value(&inside, "packets", &[("port", "sink0"), ("direction", "tx")]);
        if came > 0.0 { Ok((outside, inside, came)) } else { Err("no packet".to_owned()) }
    });
    assert_eq!(value(&inside, "packets", &[("port", "virtio0"), ("direction", "rx")]), came);
    let sent = value(&outside, "packets", &[("port", "vhost0"), ("direction", "tx")]);
    assert!(sent >= came, "{sent} {came}");
    // There was no peer before the guest started, and after it ended.
    let this = [("port", "vhost0"), ("direction", "tx"), ("reason", "no_link")];
    assert!(value(&outside, "drops", &this) > 0.0);
    assert!(!socket.exists());
}

/// A helper thread copies packets to the guest.
#[test]
fn engine_copies_packets_to_guest() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm.sock");
    let host = format!("vhost:path={},server", socket.display());
    let guest = format!("virtio:path={}", socket.display());
    let start = |ports: [&str; 2], more: &[&str]| {
        let mut command = haul(&["forward", "--json", "--port", ports[0], "--port", ports[1]]);
        command.args(more).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // Bursts of two packets and more are long enough.
    let packets = ["gen:size=9000,rate=200k", &host];
    // On a busy machine, the guest may connect late, or have no processor time in the moment in
    // which the switch waits for it at the end.
    let (outside, inside) = tries(&[3.0, 6.0, 12.0], |time| {
        let switch = start(packets, &["--for", &option(time), "--engine", "worker"]);
        // The guest outlives the switch.
        let inside = start([&guest, "sink"], &["--for", "4m"]);
        let outside = finish(switch).expect(0).records();
        kill_process(pid(&inside), Signal::INT).unwrap();
        let inside = finish(inside);
        let sent = value(&outside, "packets", &[("port", "vhost0"), ("direction", "tx")]);
        let arrived = of(&inside.records(), "packets", &[("port", "sink0"), ("direction", "tx")])
            .iter()
            .find_map(|it| it.median());
        // At the end of the session, the guest may leave a ring of packets unread.
        assert!(arrived.is_none_or(|arrived| arrived + 256.0 >= sent), "{sent} sent: {inside:#?}");
        let has_all = sent > 0.0 && arrived == Some(sent);
        if has_all { Ok((outside, inside)) } else { Err(format!("{sent} sent: {inside:#?}")) }
    });
    assert!(outside.iter().all(|record| record.parameters["engine"] == "worker"));
    assert_eq!(value(&inside.expect(128 + 2).records(), "reordered", &[]), 0.0);
}

/// A guest of two queue pairs at a device of one queue pair: both commands report why no packet
/// passes.
#[test]
fn forward_reports_lack_of_queue_pairs() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm.sock");
    let start = |port: String| {
        let mut command = haul(&["forward", "--for", "1m", "--port", &port, "--port", "null"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut host = start(format!("vhost:path={},server", socket.display()));
    let mut guest = start(format!("virtio:path={},queues=2", socket.display()));
    for (child, reason) in [
        (&mut guest, "virtio0 has no link: the back end has 1 of the 2 requested queue pairs"),
        (&mut host, "vhost0 has no link: the last front end disconnected after this port"),
    ] {
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let found = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(reason)));
        assert!(found.is_some(), "it ended without {reason:?}");
    }
    for (child, reason) in [(guest, "virtio0: the back end has 1 of"), (host, "vhost0: the last")] {
        kill_process(pid(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(reason), "{text}");
    }
}

/// The counts of a port's queue pairs, in the order of their numbers.
fn each_queue(records: &[Record], metric: &str, port: &str, direction: &str) -> Vec<f64> {
    let number = |queue: usize| {
        let queue = queue.to_string();
        let this = [("port", port), ("queue", &*queue), ("direction", direction)];
        let found = of(records, metric, &this);
        (!found.is_empty()).then(|| found.iter().map(|it| it.median().unwrap()).sum::<f64>())
    };
    (0..).map_while(number).collect()
}

/// A switch and a guest of two queue pairs: two workers in each, on separate processors; or one
/// worker that spreads flows over both.
#[test]
fn queue_pairs_have_a_worker_each_or_share_one() {
    if !has_two_processors() {
        return;
    }
    let _turn = turn();
    let cpus: Vec<String> =
        haul_measure::sys::affinity().iter().take(2).map(ToString::to_string).collect();
    let (both, one) = (cpus.join(","), cpus[0].clone());
    for (outside, inside, layout, workers) in [(&both, &both, "", 2), (&one, &both, ",packed", 1)] {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("vm.sock");
        let (host, guest) = (
            format!("vhost:path={},server,queues=2", socket.display()),
            format!("virtio:path={},queues=2{layout}", socket.display()),
        );
        let start = |ports: [&str; 2], cpus: &str, more: &[&str]| {
            let mut command = haul(&["forward", "--json", "--cpu", cpus]);
            command.args(["--port", ports[0], "--port", ports[1]]).args(more);
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        // On a busy machine, one of both may start when the other one ends.
        let (outside, inside, came) = tries(&[2.0, 6.0, 18.0], |time| {
            let packets = ["gen:rate=20k,flows=64", &host];
            let switch = start(packets, outside, &["--for", &option(2 * time)]);
            let guest = start([&guest, "sink"], inside, &["--for", &option(time)]);
            let inside = finish(guest).expect(0).records();
            let outside = finish(switch).expect(0).records();
            let came = each_queue(&inside, "packets", "virtio0", "rx");
            // Each queue pair had at least a fifth of the packets.
            let all = came.iter().sum::<f64>();
            let have_share = came.len() == 2 && came.iter().all(|packets| *packets > all / 5.0);
            if have_share { Ok((outside, inside, came)) } else { Err(format!("{came:?}")) }
        });
        let sent = each_queue(&outside, "packets", "vhost0", "tx");
        assert_eq!(sent.len(), 2, "{outside:#?}");
        // The received packets were checked.
        let (all_came, all_sent) = (came.iter().sum::<f64>(), sent.iter().sum::<f64>());
        assert!(all_sent >= all_came, "{came:?} {sent:?}");
        let checked = each_queue(&inside, "packets", "sink0", "tx");
        assert_eq!(checked.iter().sum::<f64>(), all_came);
        assert_eq!(value(&inside, "duplicates", &[]), 0.0);
        let made = each_queue(&outside, "packets", "gen0", "rx");
        assert_eq!(made.len(), workers);
        let drops = each_queue(&outside, "drops", "vhost0", "tx").iter().sum::<f64>();
        assert_eq!(made.iter().sum::<f64>(), all_sent + drops, "{outside:#?}");
    }
}
