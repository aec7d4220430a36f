//! `haul pcie`: the records that other programs rely on, closed forms, and every wrong argument.

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
    "--sizes",
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
pub(crate) fn sum(records: &[Record], metric: &str) -> f64 {
    let found: Vec<&Record> = records.iter().filter(|r| r.metric == metric).collect();
    assert_eq!(found.len(), 1, "{metric}: {records:#?}");
    found[0].samples[0]
}

pub(crate) fn number(record: &Record, name: &str) -> f64 {
    record.parameters[name].as_f64().unwrap()
}

#[test]
fn estimate_records_terms_and_sums() {
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
fn recipe_shows_both_averages() {
    let more = ["--as", "recipe", "--set", "rx_free=32", "--json"];
    let records = estimate(&more).expect(0).records();
    assert!(records.iter().all(|record| record.subject == "recipe"));
    assert_eq!(sum(&records, "outbound_write"), 1e7 * 4.0 * (1.0 / 32.0 + 1.0 / 4.0));
    assert_eq!(sum(&records, "outbound_write"), sum(&records, "outbound_write_by_packets"));
    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "13M", "--sizes", "64"];
    let mut command = haul(&words);
    command.args(["--histogram", "4:10,8:10", "--as", "recipe", "--json"]);
    let ran = run(&mut command).expect(0);
    let records = ran.records();
    let (right, other) =
        (sum(&records, "outbound_write"), sum(&records, "outbound_write_by_packets"));
    assert!(other < right, "{other} {right}");
    ran.says(&["does not say how it averages", "right for doorbells"]);
}

#[test]
fn estimate_prints_terms_sums_and_limit() {
    let ran = estimate(&[]).expect(0);
    for part in
        ["rx descriptor fetch", "outbound write", "modelled, not measured", "full to the host"]
    {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    let bytes = ran.out.find("tx packet").unwrap()..ran.out.find("rx doorbell").unwrap();
    assert!(!bytes.is_empty(), "the largest term is first: {ran:#?}");
    let ran = run(&mut haul(&["pcie", "list", "--nics"])).expect(0);
    for nic in ["ixgbe", "i40e", "ice", "iavf", "idpf", "igb", "e1000e", "mlx5", "bnxt", "ena"] {
        assert!(ran.out.contains(&format!("{nic}: ")), "{nic}: {ran:#?}");
    }
}

#[test]
fn unknown_release_uses_nearest_rules_with_note() {
    for (driver, nearest) in [("dpdk-19.11", "dpdk-22.11"), ("dpdk-31.03", "dpdk-26.07")] {
        let words = ["pcie", "estimate", "--nic", "i40e", "--rate", "1M", "--sizes", "64"];
        let mut command = haul(&words);
        let ran = run(command.args(["--driver", driver, "--json"])).expect(0);
        let records = ran.records();
        assert!(records.iter().all(|record| record.parameters["driver_rules"] == nearest));
        ran.says(&[driver, nearest]);
        // In every view: by size, advice, and a sweep.
        let of = ["--nic", "i40e", "--driver", driver];
        for words in [
            &["estimate", "--rate", "1M", "--sizes", "60..61:1"][..],
            &["explain", "--rate", "1M", "--sizes", "64"],
            &["sweep", "--core", "120:55", "--rates", "4M..14M:10M", "--for", "1ms"],
        ] {
            let ran = run(haul(&["pcie"]).args(words).args(of)).expect(0);
            assert!(ran.out.contains(nearest) && ran.out.contains(driver), "{ran:#?}");
        }
    }
    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--sizes", "64"];
    let mut command = haul(&words);
    let ran = run(command.args(["--set", "rx_free=64"])).expect(0);
    assert!(ran.out.contains("the setting rx_free changes nothing"), "{ran:#?}");
}

#[test]
fn impossible_values_are_refused_with_limit_and_remedy() {
    for (option, value, part) in [
        ("--link", "gen3x3", "x16"),
        ("--link", "gen6x8", "1 to 5"),
        ("--link", "", "gen3x8"),
        ("--mps", "100", "256"),
        ("--mps", "-1", "only digits"),
        ("--mps", "256B", "only digits"),
        ("--mrrs", "8192", "4096"),
        ("--set", "rcb=32", "64 and 128"),
        ("--rate", "0", "10M"),
        ("--rate", "-1", "above 0"),
        ("--rate", "1e9", "10M"),
        ("--rate", "NaN", "10M"),
        ("--rate", "10GB/s", "100Gbit/s"),
        ("--rate", "0Gbps", "100Gbit/s"),
        ("--sizes", "0", "1 to 65535"),
        ("--sizes", "65536", "1 to 65535"),
        ("--histogram", "0:5", "no poll"),
        ("--histogram", "4:1,4:2", "twice"),
        ("--histogram", "4:99999999999999999999", "0:5,4:10"),
        ("--set", "tx_histogram=x", "0:5,4:10"),
        ("--driver", "linux-6.1", "dpdk-22.11"),
        ("--nic", "e810", "mlx5"),
        ("--mode", "fast", "vector"),
        ("--set", "option=fast", "rx-16-byte"),
        ("--set", "segments=0", "1 to 255"),
        ("--set", "offset=64", "0 to 63"),
        ("--set", "rx_free=20000", "16384"),
        ("--set", "tx_rs=8", "scalar"),
        ("--set", "completions=all", "write one of rcb, mps"),
        ("--set", "rx_fre=1", "option, rx_free, tx_rs, rcb, completions, tx_histogram"),
        ("--as", "other", "pcie-bench"),
        ("--sizes", "130..60:1", "ends before it starts"),
        ("--sizes", "64..", "FIRST..LAST:STEP"),
        ("--sizes", "60..130", "write 60..130:1 "),
        ("--sizes", "64,512", "write --mix 64,512"),
        ("--sizes", "64:7", "write --mix 64:7"),
        ("--sizes", "imix", "write --mix imix"),
    ] {
        let all = [("--nic", "ice"), ("--rate", "1M"), ("--sizes", "64")];
        let mut command = haul(&["pcie", "estimate"]);
        for (name, default) in all.iter().filter(|(name, _)| *name != option) {
            command.args([*name, *default]);
        }
        let named = value.split_once('=').map_or(value, |(_, of_setting)| of_setting);
        run(command.args([option, value])).expect(2).says(&[named, part]);
    }
    let missing = ["pcie", "estimate", "--settings", "/dev/null/none"];
    run(&mut haul(&missing)).expect(1).says(&["/dev/null/none"]);
    let option = ["pcie", "estimate", "--rx-free", "32"];
    run(&mut haul(&option)).expect(2).says(&["--rx-free"]);
    for (sizes, part) in [("0..64:1", "1 to 65535"), ("64..65536:4", "1 to 65535")] {
        let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--sizes", sizes];
        run(&mut haul(&words)).expect(2).says(&[part]);
    }
    for (option, value, part) in [
        ("--sizes", "4", "5 to 65535"),
        ("--sizes", "1MiB", "5 to 65535"),
        ("--sizes", "64,1TiB", "5 to 65535"),
        ("--model-nic", "ice", "simple, kernel or dpdk"),
    ] {
        run(&mut haul(&["pcie", "bandwidth", option, value])).expect(2).says(&[part]);
    }
    for arguments in [&["pcie"][..], &["pcie", "estimate"], &["pcie", "list", "extra"]] {
        run(&mut haul(arguments)).expect(2);
    }
}

/// Packets or bits of the line in one grammar, and never more than a line carries.
#[test]
fn rates_are_packets_or_bits_of_the_line() {
    let of = |command: &str, rate: &str, size: &[&str]| {
        let words = ["pcie", command, "--nic", "ice", "--json", "--rate", rate, "--sizes"];
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
        // Frames of 64 B with the check sequence have the same rate on the line.
        assert!((rate(of(command, "672Mbps", &["64", "--with-fcs"])) - 1e6).abs() < 1e-3);
        let refused = of(command, "100G", &["60"]).expect(2);
        let parts = ["67200 Gb/s", "line rate", "800 Gb/s", "ice", "200 Gb/s", "100Gbit/s"];
        refused.says(&parts);
        of(command, "300M", &["60"]).expect(0).says(&["above the line rate of ice", "298 M"]);
        let ran = of(command, "290M", &["60"]).expect(0);
        assert!(!ran.err.contains("line rate"), "{ran:#?}");
    }
    // In a range of sizes, each size has its own rate.
    let words = ["pcie", "estimate", "--nic", "ice", "--sizes", "60..61:1", "--rate", "67.2Mbit/s"];
    let records = run(haul(&words).arg("--json")).expect(0).records();
    let rates: Vec<f64> =
        records.iter().map(|record| number(record, "rate_packets_per_s")).collect();
    assert!((rates[0] - 1e5).abs() < 1e-6 && *rates.last().unwrap() < 1e5, "{rates:?}");
    let ran = run(&mut haul(&words)).expect(0);
    assert!(ran.out.contains("100 k") && ran.out.contains("98.8 k"), "{ran:#?}");
    let sweep = |rates: &str| {
        let words = ["pcie", "sweep", "--nic", "igb", "--core", "120:55", "--for", "2ms"];
        run(haul(&words).args(["--packet-size", "60", "--rates", rates]))
    };
    let ran = sweep("672Mbit/s..1344Mbit/s:672Mbit/s").expect(0);
    for part in ["1.00 M", "2.00 M", "above the line rate of igb"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
    sweep("1M..2Gbit/s:1M").expect(2).says(&["all three"]);
    sweep("1M..100G:1M").expect(2).says(&["67200 Gb/s", "igb"]);
    let forward = |port: &str| {
        run(&mut haul(&["forward", "--port", port, "--port", "sink", "--for", "10ms", "--json"]))
    };
    forward("gen:size=60,rate=672kbit/s").expect(0);
    forward("gen:size=60,rate=1GB/s").expect(2);
}

/// A setting for packets that the setting `traffic` excludes would have no effect.
#[test]
fn estimate_refuses_options_for_excluded_packets() {
    let of = |words: &[&str]| {
        let mut command = haul(&["pcie", "estimate", "--nic", "ixgbe", "--rate", "1M"]);
        run(command.args(["--sizes", "64", "--json"]).args(words))
    };
    let changed = |words: &[&str], traffic: &str| {
        of(&[words, &["--set", &format!("traffic={traffic}")]].concat())
    };
    let both = of(&[]).expect(0).out;
    for (words, traffic) in [
        (&["--set", "tx_histogram=4:1"][..], "rx"),
        (&["--set", "context=true"], "rx"),
        (&["--set", "tx_rs=64"], "rx"),
        (&["--set", "rx_free=64"], "tx"),
        (&["--set", "tx_histogram=4:1", "--histogram", "8:1"], "tx"),
    ] {
        changed(words, traffic)
            .expect(2)
            .says(&[words[1].split_once('=').unwrap().0, "traffic = both"]);
        assert_ne!(of(words).expect(0).out, both, "{words:?}");
    }
    // Without `--tx-histogram`, it also applies to calls that send.
    changed(&["--histogram", "8:1"], "tx").expect(0);
}

#[test]
fn list_shows_devices_or_says_that_none_is_visible() {
    let ran = run(&mut haul(&["pcie", "list"])).expect(0);
    assert!(ran.out.contains("  link: ") || ran.out.contains("no network device"), "{ran:#?}");
    let ran = run(&mut haul(&["pcie", "list", "--json"])).expect(0);
    assert!(ran.records().iter().all(|record| record.experiment == "pcie.list"));
}

/// A capture in tcpdump's format with packets of these sizes; the capture has at most 4 B of each
/// packet.
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
fn estimate_accepts_capture_or_range_of_sizes() {
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
    run(&mut haul(&words[..6])).expect(2).says(&["--sizes, --mix or --capture"]);

    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--sizes", "60..130:1"];
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
    // The check sequence is not data: frames of 64 B have 60 B of it.
    let last_words = |words: &[&str]| -> Vec<String> {
        let mut command = haul(&["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--sizes"]);
        let ran = run(command.args(words)).expect(0);
        ran.out.lines().nth(1).unwrap().split_whitespace().skip(1).map(str::to_owned).collect()
    };
    assert_eq!(last_words(&["60..61:1"]), last_words(&["64..65:1", "--with-fcs"]));
}

#[test]
fn estimate_separates_sizes_from_mixes() {
    let words = ["pcie", "estimate", "--nic", "ice", "--rate", "1M", "--json"];
    let sums = |name: &str, size: &str| {
        let records = run(haul(&words).args([name, size])).expect(0).records();
        let samples: Vec<f64> = records.iter().flat_map(|record| record.samples.clone()).collect();
        samples
    };
    assert_eq!(sums("--sizes", "64"), sums("--mix", "64"));
    assert_eq!(sums("--sizes", "64..64:1"), sums("--sizes", "64"));
    assert_ne!(sums("--mix", "imix"), sums("--sizes", "64"));
    assert_eq!(sums("--mix", "64:7,594:4,1518:1"), sums("--mix", "imix"));
    let words = ["pcie", "explain", "--nic", "ice", "--rate", "1M", "--sizes", "64..65:1"];
    run(&mut haul(&words)).expect(2).says(&["one size or mix"]);
}
