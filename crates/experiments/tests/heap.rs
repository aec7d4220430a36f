//! Every heap test in a tiny form: tests that measure for seconds run here in milliseconds, so
//! that they keep working. This program also serves as the driver: its test `drives` serves the
//! conversation of a run.

mod support;

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use haul_experiments::drive::Program;
use haul_experiments::heap::{
    Bench, Extent, Found, Peer, Shape, Test, baseline_first, check_shape, driver,
};
use haul_experiments::{Error, Experiment};
use haul_model::Record;

use support::measured;

/// The environment variable that is set for the drivers that these tests start.
const DRIVES: &str = "HAUL_TEST_DRIVES_A_HEAP";

#[test]
fn drives() {
    if env::var_os(DRIVES).is_some() {
        driver::serve().unwrap();
    }
}

fn this_program() -> Program {
    Program {
        path: env::current_exe().unwrap(),
        arguments: ["drives", "--exact", "--nocapture"].map(Into::into).into(),
        environment: vec![(DRIVES.into(), "1".into())],
    }
}

fn libc() -> Found {
    Peer::Libc.find().unwrap()
}

fn bench(test: Test, heaps: Vec<Found>) -> Bench {
    let shape = Shape { size: 64, align: 16 };
    Bench {
        test,
        extent: Extent { rounds: 2, count: 50, delay_ns: 100, ..test.extent(shape) },
        threads: if test == Test::Remote { 2 } else { 1 },
        shared: false,
        pool: false,
        grow_ahead_bytes: test.grow_ahead_bytes(),
        ready_bytes: 0,
        engine: "auto".to_owned(),
        heaps,
        driver: this_program(),
        budget: Duration::from_millis(5),
        seed: 1,
    }
}

fn measure(config: &Bench) -> (Result<(), Error>, Vec<Record>, Vec<String>) {
    measured(|context| config.measure(context))
}

fn records(config: &Bench) -> Vec<Record> {
    let (done, found, warnings) = measure(config);
    done.unwrap();
    assert_eq!(warnings, [""; 0]);
    found
}

/// Metrics of a subject, with their rounds.
fn metrics(records: &[Record], subject: &str) -> Vec<(String, Option<u64>)> {
    let of = records.iter().filter(|record| record.subject == subject);
    of.map(|record| {
        let round = record.count("round");
        (record.metric.clone(), round)
    })
    .collect()
}

/// haul, and libc as its baseline.
fn usual() -> Vec<Found> {
    baseline_first(vec![Found { peer: Peer::Haul, library: None }, libc()])
}

#[test]
fn growth_gives_time_per_round_and_footprint() {
    let found = records(&bench(Test::Growth, usual()));
    for subject in ["libc", "haul"] {
        let expected = [
            ("alloc_time", Some(1)),
            ("alloc_time", Some(2)),
            ("growth", None),
            ("footprint", None),
        ];
        let expected: Vec<_> = expected.map(|(metric, round)| (metric.to_owned(), round)).into();
        assert_eq!(metrics(&found, subject), expected);
    }
    for record in &found {
        assert_eq!(record.experiment, "heap.growth");
        assert_eq!(record.parameters["size_bytes"], 64);
        assert_eq!(record.parameters["align_bytes"], 16);
        assert_eq!(record.unit, if record.metric == "alloc_time" { "ns" } else { "ratio" });
        assert_eq!(record.comparison.as_ref().unwrap().baseline, "libc");
        assert!(record.samples.iter().all(|&sample| sample > 0.0), "{record:?}");
    }
}

#[test]
fn every_test_gives_its_figures_on_threads_and_shared_heap() {
    for test in Test::ALL {
        let config = bench(test, usual());
        let found = records(&config);
        assert!(found.iter().all(|record| record.experiment == test.experiment()));
        let of_haul = metrics(&found, "haul");
        assert_eq!(of_haul.len(), metrics(&found, "libc").len(), "{}", test.name());
        let on_threads = Bench { threads: 4, shared: true, ..config };
        let found = records(&on_threads);
        assert_eq!(metrics(&found, "haul"), of_haul, "{}", test.name());
        assert!(found.iter().all(|record| record.parameters["threads"] == 4));
        assert!(found.iter().all(|record| record.parameters["shared"] == true));
    }
}

#[test]
fn every_installed_peer_takes_part() {
    for peer in Peer::ALL {
        let found = match peer.find() {
            Ok(found) => found,
            Err(Error::PeerMissing { peer, library, package }) => {
                eprintln!(
                    "SKIPPED: {peer} as a peer: no library {library}: apt-get install {package}"
                );
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        for test in [Test::Growth, Test::Realloc, Test::Bulk] {
            let found = records(&bench(test, vec![libc(), found.clone()]));
            let of_peer = found.iter().filter(|record| record.subject == peer.name());
            let versions: Vec<_> =
                of_peer.map(|record| record.parameters["version"].clone()).collect();
            assert!(!versions.is_empty() && versions.iter().all(|version| version != ""));
        }
    }
}

#[test]
fn failed_peer_is_left_out_and_others_go_on() {
    let missing =
        Found { peer: Peer::Dpdk, library: Some(PathBuf::from("/nowhere/librte_eal.so.0")) };
    let not_preloaded = Found { peer: Peer::Jemalloc, library: None };
    for broken in [missing, not_preloaded] {
        let name = broken.peer.name();
        let (done, found, warnings) = measure(&bench(Test::Bulk, vec![libc(), broken]));
        done.unwrap();
        assert_eq!(metrics(&found, "libc").len(), 2);
        assert_eq!(metrics(&found, name), []);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains("is left out") && warnings[0].contains(name), "{warnings:?}");
    }
}

#[test]
fn run_fails_with_haul_and_keeps_records_of_others() {
    let script = "test \"$1\" = haul && exit 1; exec \"$0\" drives --exact --nocapture";
    let this = this_program();
    let arguments = ["-c".into(), script.into(), this.path.into()].into();
    let driver = Program { path: "sh".into(), arguments, ..this };
    let (done, found, warnings) = measure(&Bench { driver, ..bench(Test::Bulk, usual()) });
    let message = done.unwrap_err().to_string();
    assert!(message.contains("cannot make haul start its heap"), "{message}");
    assert!(!message.contains("--against"), "{message}");
    assert_eq!((metrics(&found, "libc").len(), metrics(&found, "haul").len()), (2, 0));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
}

#[test]
fn grow_ahead_above_memory_is_rejected() {
    let usual = || bench(Test::Growth, usual());
    for config in [
        Bench { grow_ahead_bytes: 16 << 40, ..usual() },
        Bench { ready_bytes: 16 << 40, ..usual() },
    ] {
        let (done, found, _) = measure(&config);
        let message = done.unwrap_err().to_string();
        assert!(message.contains("16 TiB") && message.contains("--grow-ahead"), "{message}");
        assert!(found.is_empty());
    }
}

#[test]
fn ready_bytes_are_recorded_for_haul_only() {
    let found = records(&Bench { ready_bytes: 4 << 20, ..bench(Test::Growth, usual()) });
    for record in &found {
        let ready = record.count("ready_bytes");
        assert_eq!(ready, (record.subject == "haul").then_some(4 << 20), "{record:?}");
    }
}

#[test]
fn program_that_is_not_a_driver_is_reported_without_waiting() {
    let nonsense = "read start; echo nonsense >&0";
    for (program, arguments, part) in [
        ("/nowhere/haul", vec![], "/nowhere/haul"),
        ("true", vec![], "ended"),
        ("sh", vec!["-c".into(), nonsense.into()], "expected"),
    ] {
        let driver = Program::new(program).with(arguments);
        let (done, found, _) = measure(&Bench { driver, ..bench(Test::Bulk, vec![libc()]) });
        let message = done.unwrap_err().to_string();
        assert!(message.contains(part) && message.contains("libc"), "{message}");
        assert!(found.is_empty());
    }
}

#[test]
fn check_shape_rejects_impossible_shapes() {
    for (size, align) in [(0, 16), (1 << 63, 16), (u64::MAX, 1), (64, 0), (64, 24), (64, 1 << 63)] {
        let message = check_shape(size, align).unwrap_err().to_string();
        assert!(message.contains("name another --"), "{message}");
    }
    let mut config = bench(Test::Bulk, vec![libc()]);
    config.extent.shape.align = 3;
    assert!(matches!(measure(&config).0, Err(Error::BlockAlign { .. })));
    let mut config = bench(Test::Growth, vec![libc()]);
    config.extent.count = usize::MAX;
    assert!(measure(&config).0.is_err());
    config.extent.count = 1 << 50;
    let message = measure(&config).0.unwrap_err().to_string();
    assert!(message.contains("available"), "{message}");
    let odd = Bench { threads: 3, ..bench(Test::Remote, vec![libc()]) };
    assert!(matches!(measure(&odd).0, Err(Error::OddThreads { threads: 3 })));
}
