//! A kernel's own driver in a virtual machine behind a DPDK program with the library:
//! `scripts/vhost-guest`, with testpmd, with Open vSwitch, and with two queues.

use std::path::Path;
use std::process::Command;

use crate::testpmd::{has, is_here, library, skip, turn};

/// Whether all that a guest needs is installed; if not, prints the skip.
fn has_guest() -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let what = "a guest's kernel";
    for (tool, package) in
        [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio"), ("busybox", "busybox-static")]
    {
        if !has(tool) {
            skip(what, &format!("no {tool} on PATH"), &format!("apt-get install {package}"));
            return false;
        }
    }
    let kept = "target/pcie-guest/bridge.ko";
    let is_kept = root.join(kept).exists();
    if !is_kept {
        skip(what, &format!("no file {kept}"), "scripts/pcie-guest --fetch");
    }
    is_kept
}

/// What the script prints in this mode, with the library or without. With `--ovs`, it sends as many
/// bytes over TCP in addition.
fn run(words: &[&str], is_loaded: bool, tcp_bytes: u64) -> String {
    let _turn = turn();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let mut command = Command::new(root.join("scripts/vhost-guest"));
    let library = if is_loaded { library() } else { Path::new("") };
    command.args(words).env("LIBRARY", library).env("HAUL_GUEST_TCP_BYTES", tcp_bytes.to_string());
    // The script has its own limits.
    let ran = command.output().expect("the script runs");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
    text
}

/// The numbers behind `name` in all lines.
fn numbers(text: &str, name: &str) -> Vec<u64> {
    let values = text.split(name).skip(1);
    values
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect()
}

#[test]
fn kernel_driver_sends_files_without_checksums_through_library() {
    if !is_here("kernel_driver_sends_files_without_checksums_through_library") || !has_guest() {
        return;
    }
    let text = run(&["--testpmd", "2"], true, 0);
    assert!(text.contains(" torn=0") && !text.contains(" whole=0"), "{text}");
    assert!(text.contains(" 200 packets received, 0% packet loss"), "{text}");
    let served = crate::served(&text);
    assert!(served.len() == 2 && served.iter().all(|(here, _)| *here > 0), "{text}");
    // The kernel computes the checksums of other packets, such as its pings, itself.
    let lacking = |line: &str| {
        let (_, counts) = line.split_once(": of these, ")?;
        counts.strip_suffix(" from the guest lacked a checksum")?.parse().ok()
    };
    let lacking: Vec<u64> = text.lines().filter_map(lacking).collect();
    let all: u64 = served.iter().map(|(here, _)| here).sum();
    // A file has 4 MiB, each packet at most 1460 B of it; the other direction acknowledges.
    assert!(lacking.len() == 2 && lacking.iter().all(|count| *count > 10), "{text}");
    assert!(lacking.iter().sum::<u64>() > 4 << 20 >> 11 && all > 4 << 20 >> 10, "{text}");
    let handed: u64 = served.iter().map(|(_, there)| there).sum();
    assert!(handed < all / 20, "{text}");
}

/// Whether the tests also run without the library, and send more. Each run takes a minute or two
/// without KVM.
fn is_long() -> bool {
    std::env::var_os("HAUL_GUEST_LONG").is_some()
}

/// Whether Open vSwitch with DPDK is installed, and can have a network of its own.
fn has_switch(what: &str) -> bool {
    let program = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
    if !Path::new(program).exists() {
        let remedy = "apt-get install openvswitch-switch-dpdk";
        skip(what, &format!("no file {program}"), remedy);
        return false;
    }
    if !has("ovs-vsctl") {
        skip(what, "no ovs-vsctl on PATH", "apt-get install openvswitch-switch-dpdk");
        return false;
    }
    let is_alone = Command::new("unshare").args(["-n", "true"]).output();
    let is_alone = is_alone.is_ok_and(|ran| ran.status.success());
    if !is_alone {
        skip(what, "no network namespaces", "run as root");
    }
    is_alone
}

#[test]
fn kernel_driver_survives_changes_of_open_vswitch() {
    let what = "kernel_driver_survives_changes_of_open_vswitch";
    if !has_switch(what) || !has_guest() {
        return;
    }
    let runs: &[(bool, u64)] =
        if is_long() { &[(true, 100_000_000), (false, 10_000_000)] } else { &[(true, 10_000_000)] };
    for &(is_loaded, tcp_bytes) in runs {
        // The script compares Open vSwitch's counters with the guest's.
        let text = run(&["--ovs"], is_loaded, tcp_bytes);
        assert_eq!(text.matches(" 200 packets received, 0% packet loss").count(), 4, "{text}");
        let (whole, torn) = (numbers(&text, "whole="), numbers(&text, "torn="));
        // Much over one connection after another, and files while the switch changes.
        assert!(whole.len() == 2 && whole[0] > tcp_bytes >> 22 && whole[1] > 0, "{text}");
        assert_eq!(torn, [0, 0], "{text}");
        assert_eq!(numbers(&text, "bad_checksums="), [0], "{text}");
        let served = crate::served(&text);
        let all: u64 = served.iter().map(|(here, _)| here).sum();
        // Both devices: before, and after the switch was started again, twice each.
        assert_eq!(served.len() > 3, is_loaded, "{text}");
        assert!(!is_loaded || all > tcp_bytes / 9000, "{text}");
    }
}

#[test]
fn kernel_driver_uses_two_queues() {
    let what = "kernel_driver_uses_two_queues";
    if !is_here(what) || !has_guest() {
        return;
    }
    let runs: &[bool] = if is_long() { &[true, false] } else { &[true] };
    for &is_loaded in runs {
        let text = run(&["--queues"], is_loaded, 0);
        assert!(text.contains(" 200 packets received, 0% packet loss"), "{text}");
        assert!(text.contains(" queues=2"), "{text}");
        let (whole, torn) = (numbers(&text, "whole="), numbers(&text, "torn="));
        assert!(whole.len() == 1 && whole[0] > 0 && torn == [0], "{text}");
        // Both queues of both cards, in both directions.
        let ended = numbers(&text, " ended=");
        let used = ended.iter().filter(|packets| **packets > 0).count();
        assert_eq!(used, 8, "{text}");
        let served = crate::served(&text);
        assert_eq!(served.iter().filter(|(here, _)| *here > 0).count() >= 2, is_loaded, "{text}");
    }
}

/// Whether the library left a device to DPDK while its front end logged writes, and served the
/// device again afterwards.
fn is_handed_over_and_back(text: &str, device: &str) -> bool {
    let logs = format!("{device}: DPDK serves it: its front end logs writes");
    let after = text.split_once(&logs).map_or("", |(_, after)| after);
    after.contains(&format!("{device}: serves "))
}

#[test]
fn kernel_driver_moves_to_second_qemu_while_it_sends() {
    let what = "kernel_driver_moves_to_second_qemu_while_it_sends";
    if !is_here(what) || !has_guest() {
        return;
    }
    let runs: &[bool] = if is_long() { &[true, false] } else { &[true] };
    for &is_loaded in runs {
        let text = run(&["--migrate"], is_loaded, 0);
        let (whole, torn) = (numbers(&text, "whole="), numbers(&text, "torn="));
        assert!(whole.len() == 1 && whole[0] > 0 && torn == [0], "{text}");
        assert_eq!(numbers(&text, "bad_checksums="), [0], "{text}");
        let numbered = text.lines().find(|line| line.starts_with("numbered ")).unwrap_or_default();
        let counts = [numbers(numbered, "numbered "), numbers(numbered, "transmitted, ")].concat();
        let [sent, received] = counts[..] else { panic!("{text}") };
        // TCP repairs the packets that are lost while a device has no ring. Numbered ones are not
        // repaired, and ping reports each that arrives twice.
        assert!(received > 0 && sent - received < 50 && !text.contains("duplicates"), "{text}");
        let served = crate::served(&text);
        // Both devices of the first QEMU, and both of the second.
        let moved = |(here, there): &&(u64, u64)| *here > 0 && *there > 0;
        assert_eq!(served.iter().filter(moved).count() >= 2, is_loaded, "{text}");
        let is_back = ["a", "b"].iter().all(|device| is_handed_over_and_back(&text, device));
        assert_eq!(is_back, is_loaded, "{text}");
        let last = ["c", "d"].iter().all(|device| text.contains(&format!("{device}: serves 4")));
        assert_eq!(last, is_loaded, "{text}");
    }
}
