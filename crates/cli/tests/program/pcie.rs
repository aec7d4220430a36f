//! `haul pcie`: the records that others rely on, closed forms, and everything bad that can be
//! asked.

use haul_model::{Kind, Record};

use crate::{Ran, haul, run};

const EXAMPLE: [&str; 18] = [
    "pcie",
    "estimate",
    "--nic",
    "ice",
    "--driver",
    "dpdk-22.11",
    "--mode",
    "vector",
    "--rate",
    "10M",
    "--size",
    "64",
    "--histogram",
    "0:5,4:10",
    "--link",
    "gen3x8",
    "--mps",
    "256",
];

pub(crate) fn estimate(more: &[&str]) -> Ran {
    let mut words = EXAMPLE.to_vec();
    words.extend(["--mrrs", "512"]);
    words.extend(more);
    run(&mut haul(&words))
}

#[track_caller]
fn sum(records: &[Record], metric: &str) -> f64 {
    let found: Vec<&Record> = records.iter().filter(|r| r.metric == metric).collect();
    assert_eq!(found.len(), 1, "{metric}: {records:#?}");
    found[0].samples[0]
}

pub(crate) fn number(record: &Record, name: &str) -> f64 {
    record.parameters[name].as_f64().unwrap()
}

#[test]
fn an_estimate_is_a_record_a_term_and_one_a_sum() {
    let records = estimate(&["--json"]).expect(0).records();
    assert!(records.iter().all(|r| r.experiment == "pcie.estimate" && r.kind == Kind::Modelled));
    let terms: Vec<&Record> = records.iter().filter(|r| r.metric == "transaction").collect();
    assert_eq!(terms.len(), 8);
    for metric in ["inbound_read", "inbound_write", "outbound_read", "outbound_write"] {
        let of = terms.iter().filter(|term| term.parameters["direction"] == metric);
        let parts: f64 =
            of.map(|term| number(term, "count_per_s") * number(term, "payload_bytes")).sum();
        let whole = sum(&records, metric);
        assert!((parts - whole).abs() <= whole * 1e-12, "{metric}: {parts} {whole}");
    }
    // P (S + Drx + Dtx), P (S + Drx + Dtx / RS), P T (1 / 64 + 1 / 4).
    assert_eq!(sum(&records, "inbound_read"), 1e7 * 112.0);
    assert_eq!(sum(&records, "inbound_write"), 1e7 * 96.5);
    assert_eq!(sum(&records, "outbound_write"), 1e7 * 4.0 * (1.0 / 64.0 + 1.0 / 4.0));
    assert!(sum(&records, "rate_max") > 1e7);
}

#[test]
fn the_recipe_shows_both_readings() {
    let more = ["--as", "recipe", "--rx-free", "32", "--json"];
    let records = estimate(&more).expect(0).records();
    assert!(records.iter().all(|record| record.subject == "recipe"));
    assert_eq!(sum(&records, "outbound_write"), 1e7 * 4.0 * (1.0 / 32.0 + 1.0 / 4.0));
    assert_eq!(sum(&records, "outbound_write"), sum(&records, "outbound_write_by_packets"));
    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "13M", "--size", "64"];
    let mut command = haul(&words);
    command.args(["--histogram", "4:10,8:10", "--as", "recipe", "--json"]);
    let ran = run(&mut command).expect(0);
    let records = ran.records();
    let (right, other) =
        (sum(&records, "outbound_write"), sum(&records, "outbound_write_by_packets"));
    assert!(other < right, "{other} {right}");
    ran.says(&["does not say how it averages", "right for doorbells"]);
    // The recipe's other name.
    let named = estimate(&["--as", "seed", "--rx-free", "32", "--json"]).expect(0).records();
    assert!(named.iter().all(|record| record.subject == "recipe"));
    assert_eq!(sum(&named, "outbound_write"), 1e7 * 4.0 * (1.0 / 32.0 + 1.0 / 4.0));
}

#[test]
fn the_public_models_figures_come_out() {
    let figures = |model: &str| {
        let mut command = haul(&["pcie", "bandwidth", "--model", model, "--json"]);
        command.args(["--nic", "simple,kernel,dpdk", "--link", "gen3x8"]);
        command.args(["--mps", "256", "--mrrs", "512", "--sizes", "64,512"]);
        run(&mut command).expect(0).records()
    };
    let near = |records: &[Record], nic: &str, size: u64, expected: f64| {
        let found = records.iter().find(|record| {
            record.parameters["nic"] == nic && record.parameters["size_bytes"] == size
        });
        let found = found.unwrap();
        assert_eq!((found.experiment.as_str(), found.kind), ("pcie.bandwidth", Kind::Modelled));
        let deviation = found.samples[0] - expected;
        eprintln!("{nic} {size} B: off by {deviation:+.4} Gb/s");
        assert!(deviation.abs() <= 0.01, "{found:?}");
    };
    let published = figures("pcie-bench");
    for (nic, at_64, at_512) in
        [("simple", 12.58, 39.31), ("kernel", 17.63, 43.96), ("dpdk", 20.65, 45.93)]
    {
        near(&published, nic, 64, at_64);
        near(&published, nic, 512, at_512);
    }
    let mended = figures("mended");
    for (nic, at_64) in [("simple", 11.58), ("kernel", 15.72), ("dpdk", 18.07)] {
        near(&mended, nic, 64, at_64);
    }
    let records = estimate(&["--as", "pcie-bench", "--json"]).expect(0).records();
    assert!(records.iter().all(|record| record.subject == "pcie-bench"));
}

#[test]
fn a_person_is_shown_the_terms_the_sums_and_what_binds() {
    let ran = estimate(&[]).expect(0);
    for part in
        ["rx descriptor fetch", "outbound write", "modelled, not measured", "full to the host"]
    {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    let bytes = ran.out.find("tx packet").unwrap()..ran.out.find("rx doorbell").unwrap();
    assert!(!bytes.is_empty(), "the largest term is first: {ran:#?}");
    let ran = run(&mut haul(&["pcie", "estimate", "--list"])).expect(0);
    for nic in ["ixgbe", "i40e", "ice", "iavf", "idpf", "igb", "e1000e", "mlx5", "bnxt", "ena"] {
        assert!(ran.out.contains(&format!("{nic}: ")), "{nic}: {ran:#?}");
    }
}

#[test]
fn a_release_that_nobody_knows_takes_the_nearest_rules_and_says_so() {
    for (driver, nearest) in [("dpdk-19.11", "dpdk-22.11"), ("dpdk-31.03", "dpdk-26.07")] {
        let words = ["pcie", "estimate", "--nic", "i40e", "--rate", "1M", "--size", "64"];
        let mut command = haul(&words);
        let ran = run(command.args(["--driver", driver, "--json"])).expect(0);
        let records = ran.records();
        assert!(records.iter().all(|record| record.parameters["driver_rules"] == nearest));
        ran.says(&[driver, nearest]);
        // Whatever is shown of it: every size, what would save some, one rate after the other.
        let of = ["--nic", "i40e", "--driver", driver];
        for words in [
            &["estimate", "--rate", "1M", "--size", "60..61"][..],
            &["explain", "--rate", "1M", "--size", "64"],
            &["sweep", "--core", "120:55", "--rates", "4M..14M", "--steps", "2", "--for", "1ms"],
        ] {
            let ran = run(haul(&["pcie"]).args(words).args(of)).expect(0);
            assert!(ran.out.contains(nearest) && ran.out.contains(driver), "{ran:#?}");
        }
    }
    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--size", "64"];
    let mut command = haul(&words);
    let ran = run(command.args(["--rx-free", "64"])).expect(0);
    assert!(ran.out.contains("--rx-free changes nothing"), "{ran:#?}");
}

#[test]
fn what_cannot_be_is_refused_by_value_limit_and_remedy() {
    for (option, value, part) in [
        ("--link", "gen3x3", "x16"),
        ("--link", "gen6x8", "1 to 5"),
        ("--link", "", "gen3x8"),
        ("--mps", "100", "256"),
        ("--mps", "-1", "digits alone"),
        ("--mps", "256B", "digits alone"),
        ("--mrrs", "8192", "4096"),
        ("--rcb", "32", "64 and 128"),
        ("--rate", "0", "10M"),
        ("--rate", "-1", "above 0"),
        ("--rate", "1e9", "10M"),
        ("--rate", "NaN", "10M"),
        ("--rate", "10GB/s", "100Gbit/s"),
        ("--rate", "0Gbps", "100Gbit/s"),
        ("--size", "0", "1 to 65535"),
        ("--size", "65536", "1 to 65535"),
        ("--histogram", "0:5", "no poll"),
        ("--histogram", "4:1,4:2", "twice"),
        ("--histogram", "4:99999999999999999999", "0:5,4:10"),
        ("--tx-histogram", "x", "0:5,4:10"),
        ("--driver", "linux-6.1", "dpdk-22.11"),
        ("--nic", "e810", "mlx5"),
        ("--mode", "fast", "vector"),
        ("--option", "fast", "rx-16-byte"),
        ("--segments", "0", "1 to 255"),
        ("--offset", "64", "0 to 63"),
        ("--rx-free", "20000", "16384"),
        ("--tx-rs", "8", "scalar"),
        ("--as", "other", "pcie-bench"),
        ("--sizes", "130..60", "60..130"),
        ("--sizes", "64..", "60..130"),
        ("--sizes", "0..64", "1 to 65535"),
    ] {
        let all = [("--nic", "ice"), ("--rate", "1M"), ("--size", "64")];
        let mut command = haul(&["pcie", "estimate"]);
        let is_other = |name: &str| name != option && !(name == "--size" && option == "--sizes");
        for (name, usual) in all.iter().filter(|(name, _)| is_other(name)) {
            command.args([*name, *usual]);
        }
        run(command.args([option, value])).expect(2).says(&[value, part]);
    }
    for (option, value, part) in [
        ("--sizes", "4", "5 to 65535"),
        ("--sizes", "1MiB", "5 to 65535"),
        ("--sizes", "64,1TiB", "5 to 65535"),
        ("--nic", "ice", "simple, kernel and dpdk"),
    ] {
        run(&mut haul(&["pcie", "bandwidth", option, value])).expect(2).says(&[part]);
    }
    for arguments in [&["pcie"][..], &["pcie", "estimate"], &["pcie", "list", "extra"]] {
        run(&mut haul(arguments)).expect(2);
    }
}

/// Packets or bits of the line, by one grammar, and never more than a line carries.
#[test]
fn a_rate_is_of_packets_or_of_the_lines_bits() {
    let of = |command: &str, rate: &str, size: &[&str]| {
        let words = ["pcie", command, "--nic", "ice", "--json", "--rate", rate, "--size"];
        run(haul(&words).args(size))
    };
    let rate = |ran: Ran| number(&ran.expect(0).records()[0], "rate_packets_per_s");
    for command in ["estimate", "explain"] {
        for (text, expected) in [
            ("14.88Mpps", 14.88e6),
            ("10 M", 1e7),
            ("672Mbit/s", 1e6),
            ("672Mbps", 1e6),
            ("67.2Gbit/s", 1e8),
        ] {
            let found = rate(of(command, text, &["60"]));
            assert!((found / expected - 1.0).abs() < 1e-12, "{command} {text}: {found}");
        }
        // 64 B of a frame are the same on the line.
        assert!((rate(of(command, "672Mbps", &["64", "--with-fcs"])) - 1e6).abs() < 1e-3);
        let refused = of(command, "100G", &["60"]).expect(2);
        let parts = ["67200 Gb/s", "line rate", "800 Gb/s", "ice", "200 Gb/s", "100Gbit/s"];
        refused.says(&parts);
        of(command, "300M", &["60"]).expect(0).says(&["above the line rate of ice", "298 M"]);
        let ran = of(command, "290M", &["60"]).expect(0);
        assert!(!ran.err.contains("line rate"), "{ran:#?}");
    }
    // Of every size its own.
    let words = ["pcie", "estimate", "--nic", "ice", "--sizes", "60..61", "--rate", "67.2Mbit/s"];
    let records = run(haul(&words).arg("--json")).expect(0).records();
    let rates: Vec<f64> =
        records.iter().map(|record| number(record, "rate_packets_per_s")).collect();
    assert!((rates[0] - 1e5).abs() < 1e-6 && *rates.last().unwrap() < 1e5, "{rates:?}");
    let ran = run(&mut haul(&words)).expect(0);
    assert!(ran.out.contains("100 k") && ran.out.contains("98.8 k"), "{ran:#?}");
    let sweep = |rates: &str| {
        let words = ["pcie", "sweep", "--nic", "igb", "--core", "120:55", "--for", "2ms"];
        run(haul(&words).args(["--steps", "2", "--size", "60", "--rates", rates]))
    };
    let ran = sweep("672Mbit/s..1344Mbit/s").expect(0);
    for part in ["1.00 M", "2.00 M", "above the line rate of igb"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    sweep("1M..2Gbit/s").expect(2).says(&["in both"]);
    sweep("1M..100G").expect(2).says(&["67200 Gb/s", "igb"]);
    let forward = |port: &str| {
        run(&mut haul(&["forward", "--port", port, "--port", "sink", "--for", "10ms", "--json"]))
    };
    forward("gen:size=60,rate=672kbit/s").expect(0);
    forward("gen:size=60,rate=1GB/s").expect(2);
}

/// The public model and the estimate differ, and each says why.
#[test]
fn bandwidth_says_how_it_differs_from_an_estimate() {
    let words = ["pcie", "bandwidth", "--nic", "dpdk", "--sizes", "64,1518"];
    let ran = run(&mut haul(&words)).expect(0);
    let said = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["estimate --nic ixgbe Gb/s", "one transmit descriptor in 32", "--completions mps"]
    {
        assert!(said.contains(part), "{part}: {ran:#?}");
    }
    let row = |size: &str| -> Vec<f64> {
        let line = ran.out.lines().find(|line| line.trim_start().starts_with(size)).unwrap();
        line.split_whitespace().skip(1).map(|text| text.parse().unwrap()).collect()
    };
    for size in ["64", "1518"] {
        let mut command = haul(&["pcie", "estimate", "--nic", "ixgbe", "--rate", "1M", "--json"]);
        let records = run(command.args(["--with-fcs", "--size", size])).expect(0).records();
        let bytes = size.parse::<f64>().unwrap() - 4.0;
        let estimated = sum(&records, "rate_max") * bytes * 8e-9;
        assert!((row(size)[1] - estimated).abs() < 0.006, "{size}: {estimated} {ran:#?}");
    }
    // Small packets are cheaper where write-backs are few, large ones where completions are large.
    assert!(row("64")[1] > row("64")[0] && row("1518")[1] < row("1518")[0], "{ran:#?}");
    let other = run(&mut haul(&["pcie", "bandwidth", "--nic", "kernel"])).expect(0);
    assert!(!other.out.contains("ixgbe"), "{other:#?}");
}

/// What is asked of packets that `--traffic` leaves out would change nothing.
#[test]
fn an_option_of_packets_that_there_are_none_of_is_refused() {
    let of = |words: &[&str]| {
        let mut command = haul(&["pcie", "estimate", "--nic", "ixgbe", "--rate", "1M"]);
        run(command.args(["--size", "64", "--json"]).args(words))
    };
    let changed = |words: &[&str], traffic| of(&[words, &["--traffic", traffic]].concat());
    let both = of(&[]).expect(0).out;
    for (words, traffic) in [
        (&["--tx-histogram", "4:1"][..], "rx"),
        (&["--context"], "rx"),
        (&["--tx-rs", "64"], "rx"),
        (&["--rx-free", "64"], "tx"),
        (&["--tx-histogram", "4:1", "--histogram", "8:1"], "tx"),
    ] {
        changed(words, traffic).expect(2).says(&[words[0], "--traffic both"]);
        assert_ne!(of(words).expect(0).out, both, "{words:?}");
    }
    // By itself it is of calls that send as well.
    changed(&["--histogram", "8:1"], "tx").expect(0);
}

#[test]
fn the_devices_of_this_machine_are_listed_or_said_to_be_hidden() {
    let ran = run(&mut haul(&["pcie", "list"])).expect(0);
    assert!(ran.out.contains("  link: ") || ran.out.contains("no network device"), "{ran:#?}");
    let ran = run(&mut haul(&["pcie", "list", "--json"])).expect(0);
    assert!(ran.records().iter().all(|record| record.experiment == "pcie.list"));
}

/// A capture as tcpdump writes it, of packets of these sizes, of which 4 B at most were kept.
fn pcap(sizes: &[u32]) -> Vec<u8> {
    let mut words = vec![0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    for size in sizes {
        let kept = 4.min(*size);
        words.extend([1, 2, kept, *size]);
        words.extend((kept > 0).then_some(0));
    }
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[test]
fn sizes_are_those_of_a_capture_or_every_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let at = path.to_str().unwrap();
    let with = |file: &[u8]| {
        std::fs::write(&path, file).unwrap();
        let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--json", "--capture", at];
        run(&mut haul(&words))
    };
    let ran = with(&pcap(&[60, 60, 1514, 0])).expect(0);
    let records = ran.records();
    assert_eq!(records[0].parameters["sizes_bytes"], "60:2,1514:1");
    ran.says(&["1 packets of the capture have no bytes"]);
    let cut = pcap(&[60, 61]);
    with(&cut[..cut.len() - 1]).expect(0).says(&["ends within a packet", "the 1 whole ones"]);
    with(&[0; 100]).expect(2).says(&[at, "cannot read the capture", "byte 24"]);
    with(&pcap(&[0])).expect(2).says(&["no packet of it counts", "name a whole file"]);
    std::fs::remove_file(&path).unwrap();
    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--capture", at];
    run(&mut haul(&words)).expect(1).says(&[at, "pcap or pcapng"]);
    run(&mut haul(&words[..6])).expect(2).says(&["--sizes or --capture"]);

    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--sizes", "60..130"];
    let mut command = haul(&words);
    let records = run(command.arg("--json")).expect(0).records();
    let reads: Vec<f64> = records
        .iter()
        .filter(|record| record.metric == "inbound_read")
        .map(|record| record.samples[0])
        .collect();
    assert_eq!(reads.len(), 71);
    assert!(reads.windows(2).all(|pair| pair[1] - pair[0] == 1e6), "a byte more is a byte more");
    let ran = run(&mut haul(&words)).expect(0);
    assert!(ran.out.contains("full at packets/s"), "{ran:#?}");
    let lines: Vec<&str> =
        ran.out.lines().filter(|line| line.trim_start().starts_with('6')).collect();
    assert_eq!(lines.len(), 10, "{ran:#?}");
    // A check sequence is no data: frames of 64 B have 60 B of it.
    let last_words = |words: &[&str]| -> Vec<String> {
        let mut command = haul(&["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--sizes"]);
        let ran = run(command.args(words)).expect(0);
        ran.out.lines().nth(1).unwrap().split_whitespace().skip(1).map(str::to_owned).collect()
    };
    assert_eq!(last_words(&["60..61"]), last_words(&["64..65", "--with-fcs"]));
}

fn sweep(words: &[&str]) -> Ran {
    let mut command = haul(&["pcie", "sweep", "--nic", "ice", "--for", "10ms"]);
    run(command.args(words))
}

/// The cookbook's charts, by a modelled core: the same on any machine.
#[test]
fn a_sweep_finds_the_break_and_estimates_what_was_counted() {
    let words = ["--core", "120:55", "--rates", "4M..14M", "--steps", "6"];
    let ran = sweep(&words).expect(0);
    let said = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["breaks between 10.00 and 12.00 M", "0 or 4 packets, 4.00", "polls of 8"] {
        assert!(said.contains(part), "{part}: {ran:#?}");
    }
    let ran = sweep(&[&words[..], &["--json"]].concat()).expect(0);
    let records = ran.records();
    assert!(records.iter().all(|r| r.experiment == "pcie.sweep" && r.kind == Kind::Modelled));
    let of = |metric: &str, basis: &str| -> Vec<f64> {
        let is = |record: &&Record| record.metric == metric && record.text("basis") == Some(basis);
        records.iter().filter(is).map(|record| record.samples[0]).collect()
    };
    for metric in ["inbound_read", "inbound_write", "outbound_read", "outbound_write"] {
        let (counted, estimated) = (of(metric, "counted"), of(metric, "estimated"));
        assert_eq!((counted.len(), estimated.len()), (6, 6), "{metric}");
        for (counted, estimated) in counted.iter().zip(&estimated) {
            let off = (counted - estimated).abs();
            assert!(off <= counted * 5e-3, "{metric}: {counted} {estimated}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (file, page) = (folder.path().join("sweep.jsonl"), folder.path().join("page.html"));
    std::fs::write(&file, &ran.out).unwrap();
    let words = ["report", file.to_str().unwrap(), "--out", page.to_str().unwrap()];
    run(&mut haul(&words)).expect(0);
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("the curve breaks") && html.contains("class=\"cell\""));
}

#[test]
fn a_real_sweep_measures_batches_and_what_cannot_be_swept_is_refused() {
    let words = ["--rates", "100k..200k", "--steps", "2", "--group", "1", "--json"];
    let records = sweep(&words).expect(0).records();
    let mut rates = records.iter().filter(|record| record.metric == "rate");
    assert!(rates.all(|record| record.kind == Kind::Measured));
    for (option, value, part) in [
        ("--rates", "2M..1M", "FIRST..LAST"),
        ("--rates", "1M", "FIRST..LAST"),
        ("--rates", "1..2", "a longer --for"),
        ("--steps", "1", "from 2 to 1000"),
        ("--core", "0:5", "120:55"),
        ("--core", "120", "120:55"),
        ("--for", "0s", "from 1ms to 1m"),
        ("--for", "61", "from 1ms to 1m"),
        ("--size", "13", "14 to 2048"),
        ("--group", "0", "1 to 256"),
        ("--group", "4294967295", "1 to 256"),
        ("--burst", "257", "from 1 to 256"),
        ("--rx-free", "20000", "16384"),
        ("--nic", "e810", "mlx5"),
    ] {
        let mut command = haul(&["pcie", "sweep"]);
        if option != "--nic" {
            command.args(["--nic", "ice", "--mode", "scalar"]);
        }
        run(command.args([option, value])).expect(2).says(&[part]);
    }
    run(&mut haul(&["pcie", "sweep"])).expect(2).says(&["--nic"]);
}

#[test]
fn a_size_is_asked_for_by_either_name() {
    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--json"];
    let sums = |name: &str, size: &str| {
        let records = run(haul(&words).args([name, size])).expect(0).records();
        let samples: Vec<f64> = records.iter().flat_map(|record| record.samples.clone()).collect();
        samples
    };
    assert_eq!(sums("--sizes", "64"), sums("--size", "64"));
    assert_eq!(sums("--sizes", "64..65"), sums("--size", "64..65"));
    assert_ne!(sums("--sizes", "imix"), sums("--sizes", "64"));
    let words = ["pcie", "explain", "--nic", "ice", "--rate", "1M", "--sizes", "64..65"];
    run(&mut haul(&words)).expect(2).says(&["one size or mix"]);
}
