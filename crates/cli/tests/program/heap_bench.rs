//! `haul heap bench`: the names that checks rely on, and every wrong argument.

use haul_model::Record;

use crate::{Ran, haul, run};

fn bench(arguments: &[&str]) -> Ran {
    let mut all = vec!["heap", "bench", "--json", "--budget", "0.1"];
    all.extend(arguments);
    run(&mut haul(&all))
}

fn of<'a>(records: &'a [Record], subject: &str, metric: &str) -> Vec<&'a Record> {
    records.iter().filter(|record| record.subject == subject && record.metric == metric).collect()
}

#[test]
fn growth_records_round_times_growth_and_footprint() {
    let arguments = ["--test", "growth", "--sizes", "4096", "--align", "4096", "--rounds", "5"];
    let ran = bench(&[&arguments[..], &["--count", "100", "--against", "libc"]].concat()).expect(0);
    ran.machine();
    let records = ran.records();
    assert!(records.iter().all(|record| record.experiment == "heap.growth"));
    for subject in ["haul", "libc"] {
        let times = of(&records, subject, "alloc_time");
        let rounds: Vec<u64> =
            times.iter().filter_map(|record| record.parameters["round"].as_u64()).collect();
        assert_eq!(rounds, [1, 2, 3, 4, 5], "{ran:#?}");
        assert!(times.iter().all(|record| record.unit == "ns"));
        for metric in ["growth", "footprint"] {
            let [record] = of(&records, subject, metric)[..] else { panic!("{metric}: {ran:#?}") };
            let comparison = record.comparison.as_ref().unwrap();
            assert_eq!(comparison.baseline, "libc");
            assert!(comparison.floor >= 0.0);
        }
    }
    let footprint = of(&records, "libc", "footprint")[0].median().unwrap();
    assert!((0.9..4.0).contains(&footprint), "{footprint}");
}

#[test]
fn pairs_record_times_on_threads_and_shared() {
    for extra in [&["--threads", "1"][..], &["--threads", "3", "--shared"]] {
        let arguments = ["--test", "pairs", "--sizes", "64", "--against", "libc"];
        let ran = bench(&[&arguments[..], extra].concat()).expect(0);
        let records = ran.records();
        for subject in ["haul", "libc"] {
            let [time] = of(&records, subject, "time")[..] else { panic!("{ran:#?}") };
            assert_eq!((time.experiment.as_str(), time.unit.as_str()), ("heap.pairs", "ns"));
            assert_eq!(time.parameters["threads"], extra[1].parse::<u64>().unwrap());
            assert_eq!(time.parameters["shared"], extra.len() > 2);
        }
    }
}

#[test]
fn zeroed_records_blocks_of_caller_and_of_engine() {
    for engine in ["inline", "worker"] {
        let arguments = ["--test", "zeroed", "--sizes", "256KiB,1MiB", "--engine", engine];
        let records = bench(&[&arguments[..], &["--against", "libc"]].concat()).expect(0).records();
        for subject in ["haul", "libc"] {
            for (metric, unit) in [
                ("time", "ns"),
                ("engine_time", "ns"),
                ("engine_start", "ns"),
                ("engine_overlap", "ratio"),
            ] {
                let found = of(&records, subject, metric);
                assert_eq!(found.len(), 2, "{subject} {metric}");
                for record in found {
                    assert_eq!(
                        (record.experiment.as_str(), record.unit.as_str()),
                        ("heap.zeroed", unit)
                    );
                    assert_eq!(record.parameters["engine"], engine);
                    let value = record.median().unwrap();
                    assert!(if unit == "ns" { value > 0.0 } else { (0.0..=1.0).contains(&value) });
                }
            }
        }
    }
    bench(&["--test", "zeroed", "--engine", "turbine"])
        .expect(2)
        .says(&["turbine", "inline, worker, auto, dsa"]);
}

#[test]
fn remote_defaults_to_two_threads_and_refuses_odd_number() {
    let ran = bench(&["--test", "remote", "--against", "libc"]).expect(0);
    let records = ran.records();
    let [time] = of(&records, "haul", "time")[..] else { panic!("{ran:#?}") };
    assert_eq!(time.parameters["threads"], 2);
    let ran = bench(&["--test", "pairs,remote", "--against", "libc"]).expect(0);
    let threads = |experiment: &str| {
        let found = ran.records().into_iter().find(|record| record.experiment == experiment);
        found.unwrap().parameters["threads"].clone()
    };
    assert_eq!((threads("heap.pairs"), threads("heap.remote")), (1.into(), 2.into()));
    let ran = bench(&["--test", "pairs,remote", "--threads", "3", "--against", "libc"]).expect(2);
    assert_eq!(ran.out, "", "something was measured before it");
    ran.says(&["3 threads", "even number"]);
}

#[test]
fn bench_prints_table() {
    let arguments = ["heap", "bench", "--test", "bulk", "--sizes", "64,4KiB", "--against", "libc"];
    let ran = run(haul(&arguments).args(["--budget", "0.1"])).expect(0);
    for part in ["free_time", "64 B @ 16 B", "4 KiB @ 16 B", "libc", "haul", "floor"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
}

#[test]
fn bench_answers_unknown_names_with_known_ones() {
    bench(&["--test", "shrink"]).expect(2).says(&["shrink", "growth, mixed, regrow"]);
    bench(&["--against", "musl"]).expect(2).says(&["musl", "dpdk, mimalloc"]);
}

#[test]
fn bench_refuses_values_out_of_range() {
    for (arguments, part) in [
        (&["--sizes", "0"][..], "name another --sizes"),
        (&["--sizes", "9223372036854775808"], "8388608 TiB"),
        (&["--sizes", "18446744073709551615"], "name another --sizes"),
        (&["--sizes", "-1"], "-1"),
        (&["--align", "0"], "power of two"),
        (&["--align", "24"], "power of two"),
        (&["--align", "9223372036854775808"], "name another --align"),
        (&["--align", "page"], "page"),
        (&["--threads", "0"], "threads"),
        (&["--threads", "65535"], "threads"),
        (&["--rounds", "0"], "rounds"),
        (&["--count", "0"], "count"),
        (&["--test", "remote", "--threads", "3"], "even number"),
    ] {
        bench(arguments).expect(2).says(&[part]);
    }
}

#[test]
fn bench_refuses_more_blocks_than_memory_holds() {
    let arguments = ["--test", "growth", "--sizes", "1GiB", "--count", "4294967296"];
    bench(&arguments).expect(1).says(&["available"]);
    let arguments = ["--test", "pairs,growth", "--against", "libc", "--grow-ahead", "16TiB"];
    let ran = bench(&arguments).expect(1);
    assert_eq!(ran.out, "", "something was measured before it");
    ran.says(&["16 TiB", "available", "lower --grow-ahead"]);
}

#[test]
fn bench_names_missing_peer_and_measures_others() {
    let arguments = ["--test", "pairs", "--against", "dpdk,mimalloc,jemalloc,tcmalloc,libc"];
    let ran = bench(&arguments).expect(0);
    let records = ran.records();
    for (peer, package) in [
        ("dpdk", "dpdk"),
        ("mimalloc", "libmimalloc2.0"),
        ("jemalloc", "libjemalloc2"),
        ("tcmalloc", "libtcmalloc-minimal4"),
    ] {
        let is_named = ran.err.contains(&format!("apt-get install {package}"));
        let is_measured = !of(&records, peer, "time").is_empty();
        assert!(is_named != is_measured, "{peer}: {ran:#?}");
    }
    assert_eq!(of(&records, "libc", "time").len(), 1);
}

#[test]
fn drive_without_run_is_an_error() {
    run(&mut haul(&["heap", "drive", "libc"])).expect(1).says(&["haul heap bench", "socket"]);
}
