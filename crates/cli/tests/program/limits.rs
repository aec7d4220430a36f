//! Limits of a process (`ulimit`), and places that are not there: the cause is named, and what
//! lifts it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{Ran, away, haul, run};

/// The program under a limit, in a folder of its own.
fn under(limit: &str, arguments: &str) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit {limit} && exec \"$HAUL\" {arguments}")]);
    command.env("HAUL", env!("CARGO_BIN_EXE_haul")).current_dir(folder.path());
    away(&mut command);
    run(&mut command)
}

#[test]
fn too_few_descriptors_are_told_with_their_limit() {
    let heap = "heap bench --test pairs --against libc --budget 0.1";
    let ran = under("-n 8", heap).expect(1).says(&["Too many open files", "ulimit -n"]);
    assert!(!ran.err.contains("--against"), "{ran:#?}");
    if haul_measure::sys::affinity().len() < 2 {
        eprintln!("SKIPPED: too few descriptors of a transfer: only one CPU: allow it two");
        return;
    }
    let channel = "channel bench --size 64KiB --mechanism all --against pipe --budget 0.1";
    for limit in ["-n 8", "-n 16"] {
        let ran = under(limit, channel).expect(1).says(&["ulimit -n"]);
        assert!(!ran.err.contains("--against"), "{ran:#?}");
    }
}

#[test]
fn too_little_memory_is_an_error_that_names_the_limit() {
    // What the tuner takes depends on the last-level cache: less than it takes on any machine.
    under("-v 60000", "copy tune --budget 0.1").expect(1).says(&["ulimit -v"]);
}

/// Nothing is concluded from what was not measured.
#[test]
fn packets_without_memory_are_told_in_words() {
    let between = "forward --port gen --port sink --for 50ms";
    let sweep = "pcie sweep --nic ice --core 120:55 --rates 2M..4M --steps 2 --for 20ms";
    for arguments in [between, sweep] {
        let ran = under("-f 0", arguments).expect(1);
        let ran =
            ran.says(&["cannot size memory", "limit of file sizes, 0 B (RLIMIT_FSIZE)", "ulimit"]);
        assert!(!ran.err.contains("Os {") && !ran.out.contains("no break"), "{ran:#?}");
    }
    let ran = run(&mut haul(&sweep.split(' ').collect::<Vec<_>>())).expect(0);
    assert!(ran.out.contains("no break"), "{ran:#?}");
}

#[test]
fn a_folder_for_sockets_that_is_not_there_is_told_by_its_name() {
    if haul_measure::sys::affinity().len() < 2 {
        eprintln!("SKIPPED: a folder for sockets that is not there: only one CPU: allow it two");
        return;
    }
    let absent = Path::new("/nonexistent/folder");
    let mut command = haul(&["channel", "bench", "--size", "64", "--against", "pipe"]);
    let ran = run(command.env("TMPDIR", absent)).expect(1);
    ran.says(&["/nonexistent/folder", "TMPDIR"]);
}

/// From where nothing of the program fits to where all of it does. From where it has room to say a
/// word on, it says that there is too little.
#[test]
fn channels_under_a_limit_of_addresses_end_with_an_error_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("from"), vec![b'x'; 3_000_000]).unwrap();
    let script = |limited: &str| {
        let under =
            |name: &str| if name == limited { "ulimit -v \"$LIMIT\" || exit 99; " } else { "" };
        format!(
            "({} exec \"$HAUL\" channel recv socket --out to --trust --deadline 20) 2>recv & receiver=$!
            tries=0
            while [ ! -e socket ] && kill -0 $receiver 2>/dev/null &&
                ! grep -q ') Z' /proc/$receiver/stat 2>/dev/null && [ $tries -lt 500 ]; do
                sleep 0.02; tries=$((tries + 1))
            done
            ({} exec \"$HAUL\" channel send from --to socket --trust --deadline 20) 2>send; echo $?
            kill $receiver 2>/dev/null; wait $receiver; echo $?",
            under("recv"),
            under("send"),
        )
    };
    for limited in ["send", "recv"] {
        let mut is_enough = false;
        let (mut said, mut has_spoken) = (0, false);
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
            // Where not even the program fits, the kernel or the loader ends it, or its first
            // allocation.
            has_spoken |= text.starts_with("haul: ");
            if has_spoken && !is_enough {
                assert_eq!(own, "1", "{limited} {limit_kib}: {text} {ran:#?}");
                said += usize::from(text.contains("ulimit -v"));
            }
            limit_kib += limit_kib / 40;
            assert!(limit_kib < 4_000_000, "{limited}: {text} {ran:#?}");
            for name in ["socket", "to"] {
                let _ = fs::remove_file(folder.path().join(name));
            }
        }
        assert!(said > 0, "{limited}: nothing named the limit");
    }
}
