//! The estimate against the counter. Counts must be equal.

use super::*;
use crate::pcie::{Histogram, NICS, Packets, Workload, estimate};

/// The number of packets in each case, smaller without optimization.
const PACKETS: u64 = if cfg!(debug_assertions) { 20_000 } else { 10_000_000 };

/// The number of packets in a common period of all rules, for bursts that divide 960. The rules
/// have thresholds of 32 and 64, batches above a threshold, re-arm batches, and fetches of at
/// most 40.
fn period(batch: u32, free: u32) -> u64 {
    let above = u64::from(batch) * (u64::from(free) / u64::from(batch) + 1);
    let least = u64::from(batch) * u64::from(free).div_ceil(u64::from(batch)).max(1);
    [above, least, u64::from(batch), 960, 128].into_iter().fold(64, lcm)
}

fn lcm(a: u64, b: u64) -> u64 {
    let (mut x, mut y) = (a, b);
    while y > 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}

struct Case<'a> {
    setup: Setup,
    batch: u32,
    size: u32,
    name: &'a str,
}

/// Runs whole periods of a forwarder that receives and sends `batch` packets at a time.
fn counted(case: &Case<'_>) -> (Counts, u64) {
    let mut device = Device::new(case.setup).unwrap();
    let period = period(case.batch, case.setup.thresholds.rx_free);
    let sizes = vec![case.size; case.batch as usize];
    let forward = |device: &mut Device, packets: u64| {
        for _ in 0..packets / u64::from(case.batch) {
            for _ in 0..case.batch {
                assert!(device.arrive(case.size), "{}: a packet was dropped", case.name);
            }
            while device.ready() > 0 {
                let found = device.poll(case.batch);
                device.send(&sizes[..found as usize]);
            }
        }
    };
    // After the first period, vector functions hold the same number of descriptors at the end of
    // every period.
    forward(&mut device, period);
    let before = device.counts().clone();
    let packets = PACKETS.div_ceil(period) * period;
    forward(&mut device, packets);
    (device.counts().since(&before), packets)
}

/// Compares each term with the counter. Counts and bytes must be equal.
fn check(case: &Case<'_>) -> usize {
    let batches: Histogram = format!("{}:1", case.batch).parse().unwrap();
    let sizes: Packets = case.size.to_string().parse().unwrap();
    let (counts, packets) = counted(case);
    let workload = Workload {
        segments: case.setup.segments,
        context: case.setup.context,
        offset: case.setup.offset,
        // With this rate, one second of the estimate corresponds to the counted packets.
        ..Workload::forwarding(crate::pcie::Rate::new(packets as f64).unwrap(), sizes, batches)
    };
    let terms = estimate(&Estimate {
        nic: case.setup.nic,
        version: case.setup.version,
        mode: case.setup.mode,
        thresholds: case.setup.thresholds,
        workload: &workload,
        link: &case.setup.link,
    })
    .unwrap();
    assert_eq!(terms.len(), counts.iter().count(), "{}: {terms:#?} {counts:#?}", case.name);
    for term in &terms {
        let count = counts.get(term.what).unwrap_or_else(|| panic!("{}", case.name));
        let name = format!("{}, batch {}: {}", case.name, case.batch, term.what);
        assert_eq!(term.direction, count.direction, "{name}");
        for (estimated, counted) in [
            (term.count_per_s, count.count),
            (term.count_per_s * term.payload_bytes, count.payload_bytes),
            (term.count_per_s * term.header_bytes, count.header_bytes),
            (term.count_per_s * term.request_bytes, count.request_bytes),
        ] {
            // The estimate has binary fractions: it is correct to the 12th digit, and equal when
            // rounded.
            assert_eq!(estimated.round(), counted as f64, "{name}: {estimated}");
            assert!((estimated - counted as f64).abs() <= counted as f64 * 1e-9, "{name}");
        }
    }
    terms.len()
}

#[test]
fn estimate_equals_counter_for_every_nic_mode_and_batch() {
    let (mut cases, mut compared) = (0, 0);
    for nic in &NICS {
        for (mode, _, _) in nic.modes {
            for version in ["dpdk-22.11", "dpdk-25.07"] {
                for batch in [1, 4, 8, 32, 64] {
                    let link = "gen3x8".parse().unwrap();
                    let setup = Setup {
                        mode: *mode,
                        version: version.parse().unwrap(),
                        ..Setup::of(*nic, link)
                    };
                    let name = format!("{} {} {version}", nic.name, mode.name());
                    compared += check(&Case { setup, batch, size: 64, name: &name });
                    cases += 1;
                }
            }
        }
    }
    eprintln!("{cases} cases, {compared} terms, {PACKETS} packets each: all equal");
    assert!(cases >= 10 * 5 * 2);
}

#[test]
fn estimate_equals_counter_with_options_and_segments() {
    let link = |text: &str| text.parse().unwrap();
    for nic in &NICS {
        for choice in nic.choices {
            let setup = Setup::of(nic.with(choice.name).unwrap(), link("gen4x16"));
            for size in [60, 200, 1514] {
                check(&Case { setup, batch: 16, size, name: choice.name });
            }
        }
        let scalar = nic.modes[0].0;
        for (rx_free, segments, context, offset) in
            [(31, 1, true, 0), (48, 2, false, 0), (0, 3, true, 60), (64, 4, false, 2)]
        {
            // The driver requests a report for whole packets, of 1, 2, 3 or 5 descriptors each.
            let thresholds = Thresholds { rx_free: rx_free * segments, tx_rs: 32 };
            let setup = Setup {
                mode: scalar,
                thresholds,
                segments,
                context,
                offset,
                ..Setup::of(*nic, link("gen3x8"))
            };
            // `period` assumes one descriptor for each packet, so other cases need a tolerance.
            if context || segments > 1 {
                check_roughly(&Case { setup, batch: 8, size: 1514, name: nic.name });
            } else {
                check(&Case { setup, batch: 8, size: 1514, name: nic.name });
            }
        }
    }
}

/// Like `check`, for runs that are not whole periods: counts may differ by 2.
fn check_roughly(case: &Case<'_>) {
    let batches: Histogram = format!("{}:1", case.batch).parse().unwrap();
    let (counts, packets) = counted(case);
    let workload = Workload {
        segments: case.setup.segments,
        context: case.setup.context,
        offset: case.setup.offset,
        ..Workload::forwarding(
            crate::pcie::Rate::new(packets as f64).unwrap(),
            case.size.to_string().parse().unwrap(),
            batches,
        )
    };
    let terms = estimate(&Estimate {
        nic: case.setup.nic,
        version: case.setup.version,
        mode: case.setup.mode,
        thresholds: case.setup.thresholds,
        workload: &workload,
        link: &case.setup.link,
    })
    .unwrap();
    for term in &terms {
        let count = counts.get(term.what).unwrap();
        let off = term.count_per_s - count.count as f64;
        assert!(off.abs() <= 2.0, "{} {}: off by {off} of {}", case.name, term.what, count.count);
    }
}

/// With batches in random order, a rule that depends on held descriptors matches the estimate only
/// on average.
#[test]
fn estimate_is_mean_for_mixed_batches() {
    let nic: &Nic = "e1000e".parse().unwrap();
    let thresholds = Thresholds { rx_free: 32, tx_rs: 32 };
    let setup = Setup { thresholds, ..Setup::of(*nic, "gen3x8".parse().unwrap()) };
    let mut device = Device::new(setup).unwrap();
    let (mut state, mut packets) = (1_u64, 0);
    let mut polls = [0_u64; 13];
    while packets < 300_000 {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let batch = [1, 4, 4, 12][(state >> 62) as usize];
        (0..batch).for_each(|_| assert!(device.arrive(64)));
        assert_eq!(device.poll(32), batch);
        device.send(&vec![64; batch as usize]);
        polls[batch as usize] += 1;
        packets += u64::from(batch);
    }
    let text = format!("1:{},4:{},12:{}", polls[1], polls[4], polls[12]);
    let workload = Workload::forwarding(
        crate::pcie::Rate::new(packets as f64).unwrap(),
        "64".parse().unwrap(),
        text.parse().unwrap(),
    );
    let what = Estimate {
        nic: *nic,
        version: Version::LAST,
        mode: Mode::Scalar,
        thresholds,
        workload: &workload,
        link: &setup.link,
    };
    for term in estimate(&what).unwrap() {
        let counted = device.counts().get(term.what).unwrap().count as f64;
        let off = term.count_per_s / counted - 1.0;
        eprintln!("{}: off by {:+.3}%", term.what, off * 100.0);
        let room = if term.what == "rx doorbell" { 0.01 } else { 0.001 };
        assert!(off.abs() < room, "{}: {} {counted}", term.what, term.count_per_s);
    }
}

#[test]
fn packets_without_free_buffer_are_dropped_and_counted() {
    let nic: &Nic = "ice".parse().unwrap();
    let mut device = Device::new(Setup::of(*nic, "gen3x8".parse().unwrap())).unwrap();
    let taken = (0..2000).filter(|_| device.arrive(64)).count();
    assert_eq!((taken, device.dropped()), (1024, 976));
    assert_eq!(device.poll(32), 32);
    assert_eq!(device.poll(0), 0);
    device.send(&[]);
    assert!(device.counts().get("tx doorbell").is_none());
}

#[test]
fn flush_writes_waiting_completions() {
    let nic: &Nic = "igb".parse().unwrap();
    let mut device = Device::new(Setup::of(*nic, "gen3x8".parse().unwrap())).unwrap();
    (0..3).for_each(|_| assert!(device.arrive(64)));
    assert_eq!(device.poll(32), 0, "four are written together");
    device.flush();
    assert_eq!(device.poll(32), 3);
    let written = device.counts().get("rx write-back").unwrap();
    assert_eq!((written.count, written.payload_bytes), (1, 48));
}

#[test]
fn new_rejects_invalid_setups() {
    let nic: &Nic = "ice".parse().unwrap();
    let usual = Setup::of(*nic, "gen3x8".parse().unwrap());
    for setup in [
        Setup { ring: 64, ..usual },
        Setup { ring: 1 << 20, ..usual },
        Setup { segments: 0, ..usual },
        Setup { offset: 64, ..usual },
        Setup { thresholds: Thresholds { rx_free: 20_000, tx_rs: 32 }, ..usual },
        Setup { thresholds: Thresholds { rx_free: 32, tx_rs: 8 }, ..usual },
    ] {
        assert!(Device::new(setup).is_err(), "{setup:?}");
    }
}
