//! Estimates of PCIe traffic against closed forms, with the deviation printed, and properties of
//! every estimate.

use haul_model::pcie::{
    Bench, BenchNic, Direction, Estimate, Link, Mode, NICS, Nic, Settings, Sums, Thresholds,
    Transaction, Version, Way, Workload, estimate, rate_max, recipe,
};
use proptest::prelude::*;

fn workload(rate: &str, size: &str, histogram: &str) -> Workload {
    let histogram = histogram.parse().unwrap();
    Workload::forwarding(rate.parse().unwrap(), size.parse().unwrap(), histogram)
}

#[derive(Debug)]
struct Case {
    nic: Nic,
    version: Version,
    mode: Mode,
    thresholds: Thresholds,
}

impl Case {
    fn new(nic: &str, mode: Mode) -> Self {
        let nic: &Nic = nic.parse().unwrap();
        Self { nic: *nic, version: Version::FIRST, mode, thresholds: nic.thresholds }
    }

    fn terms(&self, workload: &Workload) -> Vec<Transaction> {
        let link: Link = "gen3x8".parse().unwrap();
        let Self { nic, version, mode, thresholds } = *self;
        estimate(&Estimate { nic, version, mode, thresholds, workload, link: &link }).unwrap()
    }

    fn term(&self, workload: &Workload, what: &str) -> Option<Transaction> {
        self.terms(workload).into_iter().find(|term| term.what == what)
    }

    fn packets_per_rx_doorbell(&self, histogram: &str) -> f64 {
        let term = self.term(&workload("10M", "64", histogram), "rx doorbell").unwrap();
        1e7 / term.count_per_s
    }
}

#[track_caller]
fn near(what: &str, found: f64, expected: f64) {
    eprintln!("{what}: {found}, off by {:e}", found - expected);
    assert!((found - expected).abs() <= expected.abs() * 1e-9, "{what}: {found}, not {expected}");
}

#[test]
fn receive_doorbells_follow_mode_and_release() {
    for (nic, mode, histogram, expected) in [
        // b (floor(F / b) + 1), F = 32.
        ("ixgbe", Mode::Scalar, "32:1", 64.0),
        ("ixgbe", Mode::Scalar, "4:1", 36.0),
        ("i40e", Mode::Scalar, "0:9,33:1", 33.0),
        ("igb", Mode::Scalar, "5:1", 35.0),
        ("e1000e", Mode::Scalar, "5:1", 5.0),
        ("ice", Mode::Bulk, "4:10", 32.0),
        ("iavf", Mode::Bulk, "32:1", 32.0),
        ("ixgbe", Mode::Vector, "4:10", 32.0),
        ("ice", Mode::Vector, "4:10", 64.0),
        ("idpf", Mode::Vector, "4:10", 64.0),
        // At least 128 descriptors are held after 13 polls of 10.
        ("ena", Mode::Scalar, "10:1", 130.0),
        ("ena", Mode::Scalar, "32:1", 128.0),
    ] {
        let found = Case::new(nic, mode).packets_per_rx_doorbell(histogram);
        near(&format!("{nic} {} {histogram}", mode.name()), found, expected);
    }
    let mut later = Case::new("ixgbe", Mode::Vector);
    later.version = "dpdk-25.07".parse().unwrap();
    near("ixgbe vector at 25.07", later.packets_per_rx_doorbell("4:10"), 64.0);
    assert!(
        Case::new("mlx5", Mode::Vector).term(&workload("1M", "64", "8:1"), "rx doorbell").is_none()
    );
}

/// Every mode of every Intel NIC with thresholds of 32: the packets for each receive doorbell in
/// batches of 4 and of 32, by release, and the doorbells of a sent burst of 64. Read from DPDK's
/// sources.
#[test]
fn intel_modes_have_doorbells_of_their_drivers() {
    use Mode::{Bulk, Scalar, Vector};
    const HELD: ([f64; 2], [f64; 2]) = ([36.0, 64.0], [36.0, 64.0]);
    const FREE: ([f64; 2], [f64; 2]) = ([32.0; 2], [32.0; 2]);
    const REARM_32: ([f64; 2], [f64; 2]) = ([32.0; 2], [64.0; 2]);
    const REARM_64: ([f64; 2], [f64; 2]) = ([64.0; 2], [64.0; 2]);
    let table = [
        ("ixgbe", Scalar, HELD, 1.0),
        ("ixgbe", Bulk, FREE, 2.0),
        ("ixgbe", Vector, REARM_32, 2.0),
        ("i40e", Scalar, HELD, 1.0),
        ("i40e", Bulk, FREE, 2.0),
        ("i40e", Vector, REARM_32, 2.0),
        ("ice", Scalar, HELD, 1.0),
        ("ice", Bulk, FREE, 2.0),
        ("ice", Vector, REARM_64, 2.0),
        ("iavf", Scalar, HELD, 1.0),
        ("iavf", Bulk, FREE, 1.0),
        ("iavf", Vector, REARM_32, 2.0),
        ("idpf", Scalar, HELD, 1.0),
        ("idpf", Vector, REARM_64, 2.0),
        ("igb", Scalar, HELD, 1.0),
        ("e1000e", Scalar, HELD, 1.0),
    ];
    for (name, mode, (until_25_03, from_25_07), bursts) in table {
        let mut case = Case::new(name, mode);
        case.thresholds = Thresholds { rx_free: 32, tx_rs: 32 };
        for (release, expected) in [
            ("dpdk-22.11", until_25_03),
            ("dpdk-25.03", until_25_03),
            ("dpdk-25.07", from_25_07),
            ("dpdk-26.07", from_25_07),
        ] {
            case.version = release.parse().unwrap();
            let found = ["4:1", "32:1"].map(|batches| case.packets_per_rx_doorbell(batches));
            near(&format!("{name} {} {release}, 4", mode.name()), found[0], expected[0]);
            near(&format!("{name} {} {release}, 32", mode.name()), found[1], expected[1]);
        }
        let term = case.term(&workload("64M", "64", "64:1"), "tx doorbell").unwrap();
        near(&format!("{name} {}, sent", mode.name()), term.count_per_s, 1e6 * bursts);
    }
    let intel = NICS.iter().filter(|nic| !["mlx5", "bnxt", "ena"].contains(&nic.name));
    assert_eq!(intel.map(|nic| nic.modes.len()).sum::<usize>(), table.len(), "none is left out");
}

/// The recurrence against a simulation of the driver, poll by poll.
#[test]
fn mixed_batches_match_simulated_driver() {
    let case = Case::new("ixgbe", Mode::Scalar);
    for histogram in ["4:10,8:10", "1:5,7:2,32:9", "3:1,33:1"] {
        let batches: Vec<(u32, u64)> =
            histogram.parse::<haul_model::pcie::Histogram>().unwrap().batches().to_vec();
        let polls: u64 = batches.iter().map(|(_, polls)| polls).sum();
        // Splitmix64, so that the test draws the same values each time.
        let mut state = 1_u64;
        let mut draw = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let mut at = (z ^ (z >> 31)) % polls;
            let found = batches.iter().find(|(_, count)| {
                let is_here = at < *count;
                at = at.saturating_sub(*count);
                is_here
            });
            found.unwrap().0
        };
        let (mut held, mut packets, mut doorbells) = (0, 0_u64, 0_u64);
        for _ in 0..400_000 {
            let batch = draw();
            packets += u64::from(batch);
            held += batch;
            if held > 32 {
                doorbells += 1;
                held = 0;
            }
        }
        let (played, found) =
            (packets as f64 / doorbells as f64, case.packets_per_rx_doorbell(histogram));
        eprintln!("{histogram}: {found} by the recurrence, {played} played");
        assert!((found / played - 1.0).abs() < 0.01, "{histogram}: {found} {played}");
    }
}

#[test]
fn transmit_doorbells_follow_mode() {
    for (nic, mode, histogram, per_burst) in [
        ("ixgbe", Mode::Scalar, "64:1", 1.0),
        ("ixgbe", Mode::Bulk, "64:1", 2.0),
        ("i40e", Mode::Vector, "64:1", 2.0),
        ("ice", Mode::Vector, "33:1", 2.0),
        ("ice", Mode::Vector, "32:1", 1.0),
        ("mlx5", Mode::Vector, "64:1", 1.0),
        ("ena", Mode::Scalar, "64:1", 1.0),
    ] {
        let workload = workload("10M", "64", histogram);
        let term = Case::new(nic, mode).term(&workload, "tx doorbell").unwrap();
        let bursts = 1e7 / workload.tx.mean_of_polls();
        near(&format!("{nic} {} {histogram}", mode.name()), term.count_per_s, bursts * per_burst);
    }
}

/// Computed by hand for a link with MPS 256, MRRS 512 and RCB 64 B: 10 M packets of 64 B in bursts
/// of 4.
#[test]
fn headers_match_link_settings() {
    let case = Case::new("ice", Mode::Vector);
    let workload = workload("10M", "64", "0:5,4:10");
    for (what, count, payload, header, request) in [
        ("rx descriptor fetch", 5e6, 64.0, 44.0, 24.0),
        ("rx packet", 1e7, 64.0, 24.0, 0.0),
        ("rx write-back", 1e7, 32.0, 24.0, 0.0),
        ("rx doorbell", 1e7 / 64.0, 4.0, 24.0, 0.0),
        ("tx doorbell", 2.5e6, 4.0, 24.0, 0.0),
        ("tx descriptor fetch", 2.5e6, 64.0, 44.0, 24.0),
        ("tx packet", 1e7, 64.0, 44.0, 24.0),
        ("tx write-back", 1e7 / 32.0, 16.0, 24.0, 0.0),
    ] {
        let term = case.term(&workload, what).unwrap();
        near(&format!("{what}, count"), term.count_per_s, count);
        near(&format!("{what}, payload"), term.payload_bytes, payload);
        near(&format!("{what}, headers"), term.header_bytes, header);
        near(&format!("{what}, requests"), term.request_bytes, request);
    }
    let sums = Sums::of(&case.terms(&workload));
    let to_host =
        5e6 * 24.0 + 1e7 * 88.0 + 1e7 * 56.0 + 2.5e6 * 24.0 + 1e7 * 24.0 + 1e7 / 32.0 * 40.0;
    near("to the host", sums.bytes_per_s_on(Way::ToHost), to_host);
    let usable = "gen3x8".parse::<Link>().unwrap().usable_bytes_per_s();
    let (rate, way) = rate_max(&sums, 1e7, usable).unwrap();
    assert_eq!(way, Way::ToHost);
    near("rate", rate, 1e7 * usable / to_host);
}

#[test]
fn short_packets_are_pushed_or_inlined() {
    let ena = Case::new("ena", Mode::Scalar);
    let small = workload("1M", "64", "32:1");
    assert!(ena.term(&small, "tx packet").is_none(), "96 B fit into the entry");
    let push = ena.term(&small, "tx push").unwrap();
    assert_eq!((push.payload_bytes, push.header_bytes, push.count_per_s), (128.0, 48.0, 1e6));
    let rest = ena.term(&workload("1M", "1500", "32:1"), "tx packet").unwrap();
    assert_eq!(rest.payload_bytes, 1500.0 - 96.0);
    let sums = Sums::of(&ena.terms(&small));
    let most = sums.payload_bytes_per_s(Direction::OutboundWrite);
    assert!(Direction::ALL.iter().all(|d| sums.payload_bytes_per_s(*d) <= most));

    let mut mlx5 = Case::new("mlx5", Mode::Vector);
    // 32 + 32 * 16 is 544 B, padded to 576.
    let fetched = |case: &Case, size| {
        let sums = Sums::of(&case.terms(&workload("1M", size, "32:1")));
        sums.payload_bytes_per_s(Direction::InboundRead) / 1e6 - 16.0
    };
    near("mlx5, many a work entry", fetched(&mlx5, "64"), 576.0 / 32.0 + 64.0);
    mlx5.nic = mlx5.nic.with("inline").unwrap();
    // Each packet needs 80 B, so 11 fit into 960 B: two entries of 912 B are padded to 960 B, and
    // ten packets fit in 832 B.
    near("mlx5, inlined", fetched(&mlx5, "64"), (2.0 * 960.0 + 832.0) / 32.0);
    mlx5.nic = "mlx5".parse::<&Nic>().unwrap().with("single-send").unwrap();
    near("mlx5, one a work entry", fetched(&mlx5, "64"), 64.0 + 64.0);
}

#[test]
fn segments_and_contexts_add_descriptors() {
    let case = Case::new("ixgbe", Mode::Scalar);
    let mut workload = workload("1M", "1500", "32:1");
    workload.segments = 3;
    workload.context = true;
    let payload = |what| {
        let term = case.term(&workload, what).unwrap();
        term.count_per_s * term.payload_bytes / 1e6
    };
    near("rx descriptors", payload("rx descriptor fetch"), 48.0);
    near("tx descriptors", payload("tx descriptor fetch"), 64.0);
    near("packets", payload("tx packet"), 1500.0);
    assert_eq!(case.term(&workload, "rx packet").unwrap().count_per_s, 3e6);
}

#[test]
fn estimate_rejects_invalid_thresholds_and_segments() {
    let link: Link = "gen3x8".parse().unwrap();
    let mut small = workload("1M", "64", "32:1");
    let mut refused = |nic: &str, mode, thresholds, segments| {
        small.segments = segments;
        let nic = *nic.parse::<&Nic>().unwrap();
        let version = Version::FIRST;
        let workload = &small;
        let what = Estimate { nic, version, mode, thresholds, workload, link: &link };
        estimate(&what).unwrap_err().to_string()
    };
    let free = |rx_free| Thresholds { rx_free, tx_rs: 32 };
    assert!(refused("ice", Mode::Bulk, free(16), 1).contains("below 32"));
    assert!(refused("ice", Mode::Scalar, free(20_000), 1).contains("0 to 16384"));
    assert!(refused("ice", Mode::Scalar, Thresholds { rx_free: 32, tx_rs: 0 }, 1).contains("1 to"));
    assert!(
        refused("ice", Mode::Vector, Thresholds { rx_free: 32, tx_rs: 8 }, 1).contains("scalar")
    );
    assert!(refused("ice", Mode::Scalar, free(32), 0).contains("segments"));
}

/// Any NIC in any of its modes, on any link, with any valid workload.
fn anything() -> impl Strategy<Value = (Case, Workload, Link)> {
    let nic = (0..NICS.len(), any::<prop::sample::Index>(), any::<prop::sample::Index>());
    let batches = prop::collection::btree_map(1_u32..2000, 1_u64..1 << 48, 1..12);
    let sizes = prop::collection::btree_map(1_u32..65_536, 1_u64..1 << 48, 1..6);
    let link = (1_u32..=5, 0_u32..6, 0_u32..6, 0_u32..6);
    let shape = (1_u32..=255, any::<bool>(), 0_u32..64, 32_u32..500, 1e-3_f64..1e12);
    (nic, batches, sizes, link, shape).prop_map(|(nic, batches, sizes, link, shape)| {
        let (segments, context, offset, threshold, rate) = shape;
        let nic_at = nic.0;
        let mut found = NICS[nic_at];
        if !found.choices.is_empty() {
            found = found.with(found.choices[nic.1.index(found.choices.len())].name).unwrap();
        }
        let mode = found.modes[nic.2.index(found.modes.len())].0;
        let thresholds = Thresholds { rx_free: threshold, tx_rs: threshold };
        let text = |pairs: std::collections::BTreeMap<u32, u64>| {
            let pairs: Vec<String> = pairs.iter().map(|(at, n)| format!("{at}:{n}")).collect();
            pairs.join(",")
        };
        let mut workload = workload("1", &text(sizes), &text(batches));
        workload.rate = haul_model::pcie::Rate::new(rate).unwrap();
        (workload.segments, workload.context, workload.offset) = (segments, context, offset);
        let settings = Settings { mps: 128 << link.2, mrrs: 128 << link.3, ..Settings::default() };
        let link = Link::new(&format!("gen{}x{}", link.0, 1 << link.1), settings).unwrap();
        (Case { nic: found, version: Version::LAST, mode, thresholds }, workload, link)
    })
}

fn of(case: &Case, workload: &Workload, link: &Link) -> Vec<Transaction> {
    let Case { nic, version, mode, thresholds } = *case;
    estimate(&Estimate { nic, version, mode, thresholds, workload, link }).unwrap()
}

fn is_sound(terms: &[Transaction]) {
    let sums = Sums::of(terms);
    let whole: f64 = terms.iter().map(Transaction::bytes_per_s).sum();
    for term in terms {
        for number in [term.count_per_s, term.payload_bytes, term.header_bytes, term.request_bytes]
        {
            assert!(number.is_finite() && number >= 0.0, "{term:?}");
        }
        assert!(term.request_bytes <= term.header_bytes, "{term:?}");
    }
    let by_direction: f64 = Direction::ALL
        .iter()
        .map(|at| sums.payload_bytes_per_s(*at) + sums.header_bytes_per_s(*at))
        .sum();
    let by_way = sums.bytes_per_s_on(Way::ToHost) + sums.bytes_per_s_on(Way::ToDevice);
    for sum in [by_direction, by_way] {
        assert!((sum - whole).abs() <= whole * 1e-9, "{sum} {whole}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn sums_equal_their_parts_and_are_finite((case, workload, link) in anything()) {
        is_sound(&of(&case, &workload, &link));
        is_sound(&recipe(&case.nic, case.thresholds, &workload).by_packets);
        let rate = workload.rate.packets_per_s();
        for nic in BenchNic::ALL {
            let bench = Bench::as_published(&link);
            is_sound(&bench.terms(nic, workload.traffic, rate, &workload.packets));
        }
    }

    #[test]
    fn traffic_is_proportional_to_rate((case, mut workload, link) in anything()) {
        let rate = workload.rate.packets_per_s() / 2.0;
        workload.rate = haul_model::pcie::Rate::new(rate).unwrap();
        let less = Sums::of(&of(&case, &workload, &link));
        workload.rate = haul_model::pcie::Rate::new(rate * 2.0).unwrap();
        let more = Sums::of(&of(&case, &workload, &link));
        for way in [Way::ToHost, Way::ToDevice] {
            let (less, more) = (less.bytes_per_s_on(way), more.bytes_per_s_on(way));
            prop_assert!((more - 2.0 * less).abs() <= more * 1e-9);
            prop_assert!(more > less);
        }
    }

    #[test]
    fn larger_packets_never_move_fewer_bytes(size in 1_u32..65_535, nic in 0_usize..9) {
        let case = Case::new(NICS[nic].name, NICS[nic].usual_mode());
        let all = |size: u32| {
            let sums = Sums::of(&case.terms(&workload("1M", &size.to_string(), "32:1")));
            Direction::ALL.iter().map(|at| sums.payload_bytes_per_s(*at)).sum::<f64>()
        };
        prop_assert!(all(size) <= all(size + 1));
    }
}
