//! A kernel's own virtio driver behind the vhost port: `scripts/vhost-guest` for a few seconds.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Ran;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether all that a guest takes is here; if not, the skip is said.
fn is_here() -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    for (tool, package) in
        [("qemu-system-x86_64", "qemu-system-x86"), ("cpio", "cpio"), ("busybox", "busybox-static")]
    {
        if !std::env::split_paths(&folders).any(|folder| folder.join(tool).is_file()) {
            eprintln!("SKIPPED: a guest's kernel: no {tool} on PATH: apt-get install {package}");
            return false;
        }
    }
    let kept = "target/pcie-guest/bridge.ko";
    let is_kept = root().join(kept).exists();
    if !is_kept {
        eprintln!("SKIPPED: a guest's kernel: no file {kept}: scripts/pcie-guest --fetch");
    }
    is_kept
}

#[test]
fn a_kernels_own_driver_passes_traffic_and_survives_a_restart_of_haul() {
    if !is_here() {
        return;
    }
    let mut command = Command::new(root().join("scripts/vhost-guest"));
    command.arg("2").env("HAUL", env!("CARGO_BIN_EXE_haul"));
    // The script has limits of its own.
    let ran = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) };
    let ran = ran.expect(0);
    let value = |what: &str, name: &str| -> u64 {
        let line = ran.out.lines().find(|line| line.starts_with(what));
        let mut words = line.into_iter().flat_map(str::split_whitespace);
        let word = words.find_map(|word| word.strip_prefix(name));
        let number = word.and_then(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("no {name} of {what}: {ran:#?}"))
    };
    assert!(value("files", "whole=") > 0 && value("files", "torn=") == 0, "{ran:#?}");
    assert!(value("restarted", "rx=") > 0, "{ran:#?}");
    // Of what was made all that a link was there for went in, and what went in came out again.
    let of = |name: &str| value("generator", name);
    let (sent, came) = (of("sent="), of("came="));
    assert!(came > 0 && of("made=") == sent + of("no_link=") + of("full="), "{ran:#?}");
    assert!(came <= sent && of("duplicates=") == 0, "{ran:#?}");
    // What haul put into the ring is what the driver has received; what the driver sent it counts
    // when it clears the buffers, those of the time before among them.
    let (rx, tx) = (value("driver", "rx="), value("driver", "tx="));
    assert_eq!(rx, sent, "{ran:#?}");
    assert!(tx >= came, "{ran:#?}");
}
