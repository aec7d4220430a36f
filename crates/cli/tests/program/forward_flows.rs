//! `haul forward pvp` beyond its rates: cycles and ceilings, the flow whose load is set for any
//! switch, sweeps over sizes, and the remains of a stopped or killed run.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use haul_model::Record;
use rustix::process::{Signal, kill_process};

use crate::forward::{
    OPEN_VSWITCH, has_testpmd, has_two_processors, of, pid, processes_of, pvp, pvp_until, taps,
    turn, value,
};
use crate::{LIMIT, finish, haul, run, wait_until};

#[test]
fn cycles_of_a_packet_split_into_ring_copy_and_guest() {
    if !has_two_processors() {
        return;
    }
    // A guest that received nothing has no cycles of a packet.
    let has_cycles = |records: &[Record]| {
        ["cycles_ring", "cycles_guest"].iter().all(|name| of(records, name, &[]).len() == 3)
    };
    let ran = pvp_until(&["--sizes", "512", "--copy", "haul,none,empty"], has_cycles).expect(0);
    let records = ran.records();
    for copy in ["haul", "none", "empty"] {
        let this = [("copy", copy), ("size_bytes", "512")];
        assert!(value(&records, "cycles_ring", &this) > 0.0);
        assert!(value(&records, "cycles_guest", &this) > 0.0);
        assert!(value(&records, "guest_ceiling", &this) > 0.0);
        // The ring without a copy is the reference for the other copies.
        assert_eq!(of(&records, "cycles_copy", &this).len(), usize::from(copy != "none"));
        // Without numbers, lost packets cannot be identified.
        assert_eq!(of(&records, "lost", &this).is_empty(), copy != "haul");
    }
    ran.says(&[
        "copying nothing (the ceiling)",
        "copying no bytes of each (a ceiling)",
        "cycles at the ring (",
        "from any switch",
    ]);
}

#[test]
fn return_flow_sets_load_for_any_switch() {
    if !has_two_processors() {
        return;
    }
    let mut switches = vec!["haul"];
    if has_testpmd() {
        switches.push("testpmd");
    }
    if Path::new(OPEN_VSWITCH).exists() {
        switches.push("ovs");
    }
    let switch = switches.join(",");
    let flow = ["--flow", "return", "--sizes", "256", "--copy", "haul", "--switch", &switch];
    let search = ["--search", "pdr", "--set", "trial=100ms", "--set", "trial_sum=100ms"];
    let records = pvp(&[&flow[..], &search].concat()).expect(0).records();
    for subject in switches {
        let own = |metric: &str| {
            let all = of(&records, metric, &[("size_bytes", "256"), ("guest", "haul")]);
            all.into_iter().filter(|it| it.subject == subject).cloned().collect::<Vec<_>>()
        };
        let peak = own("rate_peak");
        assert_eq!(peak.len(), 1, "{subject}: {records:#?}");
        assert_eq!(peak[0].experiment, "forward.return");
        assert!(peak[0].median().unwrap() > 0.0, "{peak:#?}");
        // If other programs keep the machine busy, no load may hold.
        let (lower, upper) = (own("rate_pdr"), own("upper_pdr"));
        assert!(lower.len() <= 1 && lower.len() + upper.len() > 0, "{subject}: {records:#?}");
    }
}

#[test]
fn alternating_searches_have_a_ratio() {
    if !has_two_processors() {
        return;
    }
    let flow = ["--flow", "return", "--sizes", "64", "--copy", "haul,libc", "--set", "searches=2"];
    let search = ["--search", "pdr", "--set", "trial=100ms", "--set", "trial_sum=100ms"];
    let records = pvp(&[&flow[..], &search].concat()).expect(0).records();
    for copy in ["haul", "libc"] {
        let Some(record) = of(&records, "rate_pdr", &[("copy", copy)]).first().copied() else {
            // If other programs keep the machine busy, no load may hold.
            assert!(!of(&records, "upper_pdr", &[("copy", copy)]).is_empty(), "{records:#?}");
            continue;
        };
        assert!(record.samples.len() <= 2 && record.median().unwrap() > 0.0, "{record:#?}");
        let baseline = record.comparison.as_ref().map(|it| it.baseline.as_str());
        assert!(matches!(baseline, None | Some("libc")), "{record:#?}");
    }
}

#[test]
fn queue_pairs_have_histograms_and_one_ledger() {
    if !has_two_processors() {
        return;
    }
    for flow in ["pvp", "return"] {
        let arguments = ["--flow", flow, "--sizes", "64", "--copy", "haul", "--set", "queues=3"];
        let has_moved = |records: &[Record], queue: &str| {
            let batches = of(records, "batches", &[("queue", queue)]);
            batches.into_iter().any(|it| it.parameters["size"].as_u64() > Some(0))
        };
        let queues = ["0", "1", "2"];
        let have_moved = |records: &[Record]| queues.iter().all(|it| has_moved(records, it));
        let ran = pvp_until(&arguments, have_moved).expect(0);
        let records = ran.records();
        let rate = of(&records, "rate_peak", &[("queues", "3")])[0];
        assert!(rate.median().unwrap() > 0.0, "{rate:#?}");
        let threads = rate.parameters["threads"].as_u64().unwrap();
        assert!((1..=3).contains(&threads), "{rate:#?}");
        let ran = ran.says(&["64 B, 3 queues, "]);
        if threads < 3 {
            ran.says(&["3 queues share"]);
        }
        for queue in queues {
            assert!(has_moved(&records, queue), "{flow}, {queue}: {records:#?}");
        }
        if flow == "pvp" {
            assert_eq!(value(&records, "lost", &[("stage", "unaccounted")]), 0.0);
        }
    }
}

#[test]
fn sweep_measures_every_byte_and_is_drawn() {
    if !has_two_processors() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for (flow, range, sizes) in [
        ("enqueue", "60..70:1", (60..=70).collect::<Vec<_>>()),
        ("pvp", "64..256:96", vec![64, 160, 256]),
    ] {
        let sweep = ["--flow", flow, "--sweep", range, "--copy", "haul,none", "--out", out];
        let short = ["forward", "pvp", "--json", "--restarts", "1"];
        let ran = {
            let _turn = turn();
            run(&mut haul(&[&short[..], &sweep].concat())).expect(0)
        };
        let records = ran.records();
        for copy in ["haul", "none"] {
            let own = of(&records, "rate_peak", &[("copy", copy), ("flow", flow)]);
            let found: Vec<u64> =
                own.iter().map(|it| it.parameters["size_bytes"].as_u64().unwrap()).collect();
            assert_eq!(found, sizes);
            // Both sides may have had no processor while one of the sizes was measured.
            assert!(own.iter().any(|it| it.median().unwrap() > 0.0), "{records:#?}");
            for record in own {
                assert_eq!(record.experiment, "forward.sweep");
                assert!(record.parameters.contains_key("ring_size"), "{record:#?}");
            }
        }
        let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
        for holds in ["Packets of many sizes", "bytes of a packet", "Mpps"] {
            assert!(page.contains(holds), "{holds}");
        }
        ran.says(&[&format!("{flow}, {} sizes, copy haul: ", sizes.len())]);
    }
}

#[test]
fn pvp_refuses_conflicting_options() {
    for (arguments, parts) in [
        (&["--sweep", "70..60:1"][..], &["ends before it starts"][..]),
        (&["--sweep", "60..100:0"], &["step"]),
        (&["--sweep", "60..100"], &["write 60..100:1 ", "powers of two"]),
        (&["--sweep", "60..100+8"], &["write 60..100:8 "]),
        (&["--sweep", "59..64:1"], &["59 B", "60 B"]),
        (&["--sweep", "60..18446744073709551615:1"], &["65536 sizes"]),
        (&["--sweep", "60,18446744073709551615"], &["9 KiB"]),
        (&["--sweep", "60..64:1", "--sizes", "64"], &["--sizes"]),
        (&["--sweep", "60..64:1", "--search", "ndr"], &["--search"]),
        (&["--sweep", "60..64:1", "--flow", "loopback"], &["--sweep", "--flow enqueue"]),
        (&["--sweep", "60..64:1", "--switch", "haul,testpmd"], &["--sweep", "--switch haul"]),
        (&["--flow", "return", "--guest", "testpmd"], &["--guest testpmd", "name --guest haul"]),
        (&["--switch", "ovs", "--flow", "loopback"], &["--switch ovs", "--flow return"]),
        (&["--set", "queues=9"], &["queues=9", "from 1 to 8"]),
        (&["--set", "queues=2", "--guest", "testpmd"], &["queues of more than 1", "--guest haul"]),
        (
            &["--set", "queues=2", "--switch", "haul,ovs"],
            &["queues of more than 1", "--switch haul"],
        ),
        (
            &["--set", "queues=2", "--flow", "loopback"],
            &["queues of more than 1", "the other flows"],
        ),
        (
            &["--set", "queues=2", "--set", "source=null"],
            &["queues of more than 1", "source = gen"],
        ),
        (&["--set", "queues=2", "--copy", "haul,none"], &["queues of more than 1", "--copy"]),
        (&["--set", "guest_image=image"], &["guest_image", "--guest qemu"]),
        (&["--guest", "qemu", "--flow", "enqueue"], &["--flow", "--guest haul"]),
        (&["--guest", "qemu", "--set", "layout=split-vector"], &["layout", "split or packed"]),
        (&["--guest", "qemu", "--switch", "haul,ovs"], &["--switch ovs", "haul or testpmd"]),
        (&["--guest", "qemu", "--sweep", "60..64:1"], &["--sweep", "--sizes"]),
        (
            &["--guest", "qemu", "--copy", "haul,none"],
            &["--copy that copies nothing", "haul or libc"],
        ),
        (&["--set", "simd=100"], &["simd=100", "128, 256 or 512"]),
        (&["--queues", "2"], &["--queues"]),
        (&["--layout", "packed"], &["--layout"]),
        (
            &["--set", "queue=2"],
            &["queue=2", "guest_image, testpmd, simd, layout, buffers, queues, ovs_port, source"],
        ),
        (&["--set", "ovs_port=dpdk"], &["ovs_port=dpdk", "dpdkvhostuserclient"]),
        (&["--set", "ovs_port=dpdkvhostuserclient"], &["ovs_port", "--switch ovs"]),
        (&["--set", "trial=1s"], &["the setting trial", "--search"]),
        (&["--set", "searches=0"], &["searches=0", "from 1 to 1000"]),
    ] {
        run(&mut haul(&[&["forward", "pvp"], arguments].concat())).expect(2).says(parts);
    }
    let missing = ["forward", "pvp", "--settings", "/dev/null/none"];
    run(&mut haul(&missing)).expect(1).says(&["/dev/null/none"]);
}

#[test]
fn pvp_refuses_packets_that_need_more_buffers_than_a_layout_has() {
    for (arguments, parts) in [
        (
            &["--set", "layout=packed-vector", "--sizes", "2049"][..],
            &["above 2048 B", "mergeable"][..],
        ),
        (
            &[
                "--guest",
                "testpmd",
                "--set",
                "layout=split-vector",
                "--set",
                "buffers=several",
                "--sizes",
                "60,9000",
            ],
            &["buffers=several", "mergeable"],
        ),
        (&["--set", "buffers=one"], &["the setting buffers", "--guest testpmd"]),
        (
            &["--guest", "testpmd", "--set", "buffers=one", "--sizes", "64,2048"],
            &["the setting buffers", "above 2048 B"],
        ),
        (&["--set", "buffers=two"], &["buffers=two", "one or several"]),
        (&["--sizes", "9217"], &["60 B", "9 KiB"]),
    ] {
        run(&mut haul(&[&["forward", "pvp"], arguments].concat())).expect(2).says(parts);
    }
}

/// Starts a flow, kills it, and checks what it leaves: its processes end by themselves, its folder
/// is removed by the next run.
fn killed_and_cleaned_after(arguments: &[&str]) {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (before, long) = (taps(), ["forward", "pvp", "--sizes", "64", "--for", "60s"]);
    let mut command = haul(&[&long[..], arguments].concat());
    command.env("TMPDIR", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    let entries = || fs::read_dir(folder.path()).unwrap().flatten().map(|it| it.path());
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < LIMIT / 2, "{arguments:?}: {what}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    // From here on the switch exists.
    wait("its socket", &|| entries().any(|entry| entry.join("run/socket").exists()));
    kill_process(pid(&child), Signal::KILL).unwrap();
    assert_eq!(finish(child).code, None);
    wait("its processes to end", &|| processes_of(folder.path()).is_empty());
    wait("its bridge to go", &|| taps() == before);
    let left: Vec<_> = entries().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    let next = ["forward", "pvp", "--sizes", "64", "--for", "50ms", "--restarts", "1"];
    let mut next = haul(&[&next[..], &["--copy", "haul"]].concat());
    run(next.env("TMPDIR", folder.path())).expect(0);
    assert_eq!(entries().count(), 0, "{left:?}");
}

#[test]
fn next_run_removes_rest_of_killed_run() {
    if !has_two_processors() {
        return;
    }
    killed_and_cleaned_after(&["--copy", "haul"]);
    if Path::new(OPEN_VSWITCH).exists() {
        killed_and_cleaned_after(&["--switch", "ovs"]);
    } else {
        eprintln!(
            "SKIPPED: Open vSwitch of a run that is killed: no file {OPEN_VSWITCH}: \
             apt-get install openvswitch-switch-dpdk"
        );
    }
}

#[test]
fn stopped_or_killed_pvp_leaves_no_process() {
    let _turn = turn();
    if !has_two_processors() {
        return;
    }
    let is_there = has_testpmd();
    for (guest, signal) in
        [("haul", Signal::INT), ("haul", Signal::KILL), ("testpmd", Signal::KILL)]
    {
        if guest == "testpmd" && !is_there {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut command =
            haul(&["forward", "pvp", "--sizes", "64", "--for", "60s", "--guest", guest]);
        command.env("TMPDIR", folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let entries = || fs::read_dir(folder.path()).unwrap().flatten().map(|it| it.path());
        // From here on the switch exists, and haul handles the signal.
        wait_until("the switch exists", || entries().any(|it| it.join("run/socket").exists()));
        // On most machines, the guest exists after this time.
        thread::sleep(Duration::from_millis(500));
        kill_process(pid(&child), signal).unwrap();
        let ran = finish(child);
        assert_ne!(ran.code, Some(0), "{ran:#?}");
        wait_until("its processes end", || processes_of(folder.path()).is_empty());
        if signal == Signal::INT {
            assert_eq!(entries().count(), 0);
        }
    }
}

#[test]
fn summary_makes_table_of_flows() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: the table of flows: no python3 on PATH: install python3");
        return;
    }
    let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
    let record = bench.join("record/2026-11-25-emerald-rapids-2cpu-forward");
    let mut table = Command::new(bench.join("definitions/forward-targets"));
    table.args(["enqueue-64", "pvp-512"].map(|name| record.join(format!("{name}.jsonl.gz"))));
    let ran = run(&mut table).expect(0);
    for row in ["| enqueue, 64 B, split | testpmd 22.11.11 | ", "| pvp, 512 B, split | testpmd "] {
        assert!(ran.out.contains(row) && ran.out.contains("met"), "{row}: {}", ran.out);
    }
    // The ratio to a subject that was not the baseline of the run.
    let mut ratios = Command::new(bench.join("definitions/forward-ratios"));
    let ran = run(ratios.arg("haul:haul").arg(record.join("pvp-512.jsonl.gz"))).expect(0);
    for row in ["| 512 B | haul:haul | 13.4 | 1.00 | ", "| 512 B | testpmd | 7.42 | 0.55 | "] {
        assert!(ran.out.contains(row), "{row}: {}", ran.out);
    }
    // The ratios in turns.
    let record = bench.join("record/2026-11-28-emerald-rapids-2cpu-forward-turns");
    let mut turns = Command::new(bench.join("definitions/forward-turns-table"));
    turns.args(["turns-64", "testpmd-enqueue"].map(|name| record.join(format!("{name}.jsonl.gz"))));
    let ran = run(&mut turns).expect(0);
    for row in ["| size | ovs split | testpmd split |", "| 512 B | - | 1.89 (1.72-2.10) |"] {
        assert!(ran.out.contains(row), "{row}: {}", ran.out);
    }
}
