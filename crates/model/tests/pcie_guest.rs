//! The behaviour of DPDK's own driver on an emulated NIC against the model. Counts must be equal.
//!
//! `scripts/pcie-guest` runs testpmd in a guest on QEMU's 82574 (e1000e) or 82576 (igb) and sums
//! up QEMU's trace of register writes and descriptors. All batches in a run have one size, so
//! that the result is deterministic: each sum equals that of the modelled driver and device for
//! the same bursts. `bench/record` has the sums of an earlier run, so that the comparison is also
//! made without QEMU.

use std::path::{Path, PathBuf};
use std::process::Command;

use haul_model::pcie::{Device, Fetch, Mode, Nic, Setup, Thresholds};

/// Burst, receive free threshold, report-status threshold. The batches are below, at and above
/// the thresholds; some are not a power of two, and some are single packets.
const CASES: [&str; 6] = ["32:32:32", "4:32:32", "8:0:16", "16:48:8", "5:32:32", "1:3:1"];

/// The number of descriptors in each ring of the guest.
const RING: u32 = 256;
/// Each port's driver writes both tails once before packets are sent.
const SET_UP: u64 = 1;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The setup for QEMU's device. Unlike the real device, it reads one descriptor at a time.
fn emulated(name: &str, free: u32, rs: u32) -> Setup {
    let nic: &Nic = name.parse().unwrap();
    let nic = if name == "igb" { nic.with("82576").unwrap() } else { *nic };
    let one = Fetch { descriptors: 1, source: "QEMU hw/net/e1000e_core.c, igb_core.c" };
    let nic = Nic { rx_fetch: one, tx_fetch: one, ..nic };
    Setup {
        mode: Mode::Scalar,
        thresholds: Thresholds { rx_free: free, tx_rs: rs },
        ring: RING,
        ..Setup::of(nic, "gen1x1".parse().unwrap())
    }
}

/// One port after its traffic. The port sends the bursts that the other port polled, after a
/// first burst of its own. The port does not poll for the last burst that arrives.
fn port(setup: Setup, burst: u32, came: u64, sent: u64) -> Device {
    let mut device = Device::new(setup).unwrap();
    let sizes = vec![64; burst as usize];
    (0..sent).for_each(|_| device.send(&sizes));
    for arrived in 1..=came {
        (0..burst).for_each(|_| assert!(device.arrive(64), "the ring is never empty"));
        if arrived < came {
            assert_eq!(device.poll(burst), burst);
        }
    }
    device
}

/// Compares one line of the script's output with the model, and prints the deviation of each sum.
fn check(nic: &str, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let case = words[1];
    let numbers: Vec<u32> = case.split(':').map(|number| number.parse().unwrap()).collect();
    let [burst, free, rs] = numbers[..] else { panic!("{line}") };
    let value = |word: &&str| word.split_once('=').unwrap().1.parse::<u64>().unwrap();
    let sent: Vec<u64> =
        words.iter().filter(|word| word.starts_with("port_tx_bursts=")).map(value).collect();
    let [first, second] = sent[..] else { panic!("{line}") };
    assert!(first > 20 && second > 20, "too few bursts to say anything: {line}");
    let sum = |name: &str| {
        let found = words.iter().find(|word| word.split('=').next() == Some(name));
        found.map(value).unwrap_or_else(|| panic!("no {name}: {line}"))
    };
    // Each port receives the bursts that the other sends.
    let setup = emulated(nic, free, rs);
    let ports = [port(setup, burst, second, first), port(setup, burst, first, second)];
    let counted = |what: &str| -> u64 {
        ports.iter().filter_map(|port| port.counts().get(what)).map(|count| count.count).sum()
    };
    for (traced, modelled, name) in [
        ("rx_packets", counted("rx packet"), "packets received"),
        ("rx_descriptors", counted("rx descriptor fetch"), "receive descriptors read"),
        ("rx_doorbells", counted("rx doorbell") + 2 * SET_UP, "receive doorbells"),
        ("tx_descriptors", counted("tx descriptor fetch"), "transmit descriptors read"),
        ("tx_doorbells", counted("tx doorbell") + 2 * SET_UP, "transmit doorbells"),
        ("tx_write_backs", counted("tx write-back"), "transmit write-backs"),
    ] {
        let off = modelled as i64 - sum(traced) as i64;
        eprintln!("{case}: {name}: {} traced, {modelled} modelled, off by {off}", sum(traced));
        assert_eq!(off, 0, "{case}: {name}: {line}");
    }
}

#[test]
fn recorded_guest_sums_match_model() {
    for (nic, file) in [("e1000e", "sums.txt"), ("igb", "igb.txt")] {
        let path = root().join("bench/record/2026-11-25-pcie-guest").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("case ")).collect();
        assert_eq!(lines.len(), CASES.len(), "{file}");
        lines.into_iter().for_each(|line| check(nic, line));
    }
}

#[test]
fn running_guest_matches_model() {
    for (tool, package) in [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("dpdk-testpmd", "dpdk-dev"),
        ("cpio", "cpio"),
        ("busybox", "busybox-static"),
    ] {
        let found = std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|at| at.join(tool).is_file()));
        if !found {
            eprintln!("SKIPPED: DPDK in a guest: no {tool} on PATH: apt-get install {package}");
            return;
        }
    }
    let kernel = "target/pcie-guest/vmlinuz";
    if !root().join(kernel).exists() {
        eprintln!("SKIPPED: DPDK in a guest: no file {kernel}: scripts/pcie-guest --fetch");
        return;
    }
    let ran = Command::new(root().join("scripts/pcie-guest")).args(CASES).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}{err}");
    assert_eq!(out.lines().count(), CASES.len(), "{out}{err}");
    out.lines().for_each(|line| check("e1000e", line));
}
