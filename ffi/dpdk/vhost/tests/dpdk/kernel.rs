//! A kernel's own driver in a virtual machine behind testpmd with the library:
//! `scripts/vhost-guest --testpmd` for a few seconds. The kernel leaves the checksum of each TCP
//! packet to the device, and testpmd is killed and started again meanwhile.

use std::path::Path;
use std::process::Command;

use crate::testpmd::{is_here, library, skip, turn};

/// Whether all that a guest needs is installed; if not, prints the skip.
fn has_guest(root: &Path) -> bool {
    let what = "a guest's kernel";
    let folders = std::env::var_os("PATH").unwrap_or_default();
    for (tool, package) in
        [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio"), ("busybox", "busybox-static")]
    {
        if !std::env::split_paths(&folders).any(|folder| folder.join(tool).is_file()) {
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

#[test]
fn kernel_driver_sends_files_without_checksums_through_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    if !is_here("kernel_driver_sends_files_without_checksums_through_library") || !has_guest(&root)
    {
        return;
    }
    let _turn = turn();
    let mut command = Command::new(root.join("scripts/vhost-guest"));
    // The script has its own limits.
    let ran = command.args(["--testpmd", "2"]).env("LIBRARY", library()).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{text}{}", String::from_utf8_lossy(&ran.stderr));
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
