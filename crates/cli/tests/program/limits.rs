//! Limits of a process (`ulimit`), and missing folders: the error names the cause and the remedy.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Ran, away, haul, run};

/// Runs the program under a limit, in a separate folder.
fn under(limit: &str, arguments: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$HAUL\" {arguments}")]);
    command.env("HAUL", env!("CARGO_BIN_EXE_haul")).current_dir(folder.path());
    away(&mut command);
    run(&mut command)
}

#[test]
fn lack_of_descriptors_is_an_error_that_names_the_limit() {
    let heap = "heap bench --test pairs --against libc --budget 0.1";
    let ran = under("-n 8", heap).expect(1).says(&["Too many open files", "ulimit -n"]);
    assert!(!ran.err.contains("--against"), "{ran:#?}");
    if haul_measure::sys::affinity().len() < 2 {
        eprintln!("SKIPPED: too few descriptors of a transfer: only one CPU: allow it two");
        return;
    }
    let channel = "channel bench --sizes 64KiB --mechanism all --against pipe --budget 0.1";
    for limit in ["-n 8", "-n 16"] {
        let ran = under(limit, channel).expect(1).says(&["Too many open files", "ulimit -n"]);
        assert!(!ran.err.contains("--against"), "{ran:#?}");
        // The reason is that of the end that fails, not of the one that waits for it.
        assert!(!ran.err.contains("start the receiver first"), "{ran:#?}");
    }
}

#[test]
fn lack_of_memory_is_an_error_that_names_the_limit() {
    // The tuner's need depends on the last-level cache: this limit is less than it needs on any
    // machine.
    under("-v 60000", "copy tune --budget 0.1").expect(1).says(&["ulimit -v"]);
}

/// Without measurements there is no conclusion.
#[test]
fn packets_without_memory_are_an_error() {
    let between = "forward --port gen --port sink --for 50ms";
    let sweep = "pcie sweep --nic ice --core 120:55 --rates 2M..4M:2M --for 20ms";
    for arguments in [between, sweep] {
        let ran = under("-f 0", arguments).expect(1);
        let ran =
            ran.says(&["cannot size memory", "limit on file sizes, 0 B (RLIMIT_FSIZE)", "ulimit"]);
        assert!(!ran.err.contains("Os {") && !ran.out.contains("no break"), "{ran:#?}");
    }
    let ran = run(&mut haul(&sweep.split(' ').collect::<Vec<_>>())).expect(0);
    assert!(ran.out.contains("no break"), "{ran:#?}");
}

#[test]
fn missing_folder_for_sockets_is_named() {
    if haul_measure::sys::affinity().len() < 2 {
        eprintln!("SKIPPED: a folder for sockets that is not there: only one CPU: allow it two");
        return;
    }
    let absent = Path::new("/nonexistent/folder");
    let mut command = haul(&["channel", "bench", "--sizes", "64", "--against", "pipe"]);
    let ran = run(command.env("TMPDIR", absent)).expect(1);
    ran.says(&["/nonexistent/folder", "TMPDIR"]);
}

/// Tries limits from one under which the program cannot start to one under which everything fits.
/// As soon as there is memory for a message, the message names the lack of memory.
#[test]
fn channels_under_address_limit_name_it_in_their_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("from"), vec![b'x'; 3_000_000]).unwrap();
    // A receiver that fails is still ending when its sender has ended.
    let ends = "tries=0
            while kill -0 $receiver 2>/dev/null &&
                ! grep -q ') Z' /proc/$receiver/stat 2>/dev/null && [ $tries -lt 500 ]; do
                sleep 0.02; tries=$((tries + 1))
            done;";
    let script = |limited: &str| {
        let under =
            |name: &str| if name == limited { "ulimit -v \"$LIMIT\" || exit 99; " } else { "" };
        format!(
            "({} exec \"$HAUL\" channel recv socket --out-file to --trust --deadline 20) 2>recv & receiver=$!
            tries=0
            while [ ! -e socket ] && kill -0 $receiver 2>/dev/null &&
                ! grep -q ') Z' /proc/$receiver/stat 2>/dev/null && [ $tries -lt 500 ]; do
                sleep 0.02; tries=$((tries + 1))
            done
            ({} exec \"$HAUL\" channel send from --to socket --trust --deadline 20) 2>send; echo $?
            {} kill $receiver 2>/dev/null; wait $receiver; echo $?",
            under("recv"),
            under("send"),
            if limited == "recv" { ends } else { "" },
        )
    };
    for limited in ["send", "recv"] {
        let mut is_enough = false;
        let (mut named, mut has_message) = (0, false);
        let mut limit_kib = 12_000;
        while !is_enough {
            let mut command = Command::new("sh");
            command.args(["-c", &script(limited)]).current_dir(folder.path());
            command.env("HAUL", env!("CARGO_BIN_EXE_haul")).env("LIMIT", limit_kib.to_string());
            away(&mut command);
            let ran = run(&mut command);
            let codes: Vec<&str> = ran.out.lines().collect();
            let text = fs::read_to_string(folder.path().join(limited)).unwrap();
            let own = codes[usize::from(limited == "recv")];
            is_enough = codes[0] == "0";
            // If the program does not fit, the kernel or the loader ends it, or its first
            // allocation does.
            has_message |= text.starts_with("haul: ");
            if has_message && !is_enough {
                assert_eq!(own, "1", "{limited} {limit_kib}: {text} {ran:#?}");
                named += usize::from(text.contains("ulimit -v"));
            }
            limit_kib += limit_kib / 40;
            assert!(limit_kib < 4_000_000, "{limited}: {text} {ran:#?}");
            for name in ["socket", "to"] {
                let _ = fs::remove_file(folder.path().join(name));
            }
        }
        assert!(named > 0, "{limited}: no message named the limit");
    }
}
