//! `haul.toml` from the program's view: good, foreign, malformed, hostile, and not a file at all.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::{NOBODY, Ran, haul, is_root, public_folder, run, unprivileged};

fn list_with(path: &Path) -> Ran {
    run(haul(&["copy", "list", "--json"]).env("HAUL_TUNING", path))
}

/// The command works, after exactly one line that names the file, the fault and a remedy.
#[track_caller]
fn ignored(ran: Ran, parts: &[&str]) {
    let ran = ran.expect(0).says(parts);
    assert_eq!(ran.err.lines().count(), 1, "{ran:#?}");
    assert!(ran.err.starts_with("haul: warning: tuning file ignored: "), "{ran:#?}");
    assert!(ran.machine().facts["tuning"].starts_with("defaults"), "{ran:#?}");
}

fn file_of(machine: &str, copy: &str) -> String {
    format!(
        "schema = \"haul.tuning/1\"\nmachine = \"{machine}\"\nwritten = \"w\"\n[copy]\n{copy}\n"
    )
}

fn this_machine() -> String {
    run(&mut haul(&["doctor", "--json"])).expect(0).machine().id
}

#[test]
fn file_of_this_machine_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    fs::write(&path, file_of(&this_machine(), "stream_copy_min = \"48 MiB\"")).unwrap();
    let ran = list_with(&path).expect(0);
    assert_eq!(ran.err, "");
    let facts = ran.machine().facts;
    assert!(facts["threshold_stream_copy_min"].starts_with("48 MiB"), "{facts:?}");
    for choice in haul::copy::Policy::CHOICES {
        assert!(facts[&format!("policy_{choice}")].contains(", default "), "{facts:?}");
    }
    assert!(facts["tuning"].contains("named by HAUL_TUNING"), "{facts:?}");
}

#[test]
fn users_file_is_found_automatically() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".config/haul");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("haul.toml"), file_of(&this_machine(), "")).unwrap();
    let mut command = haul(&["copy", "list", "--json"]);
    let facts = run(command.env_remove("HAUL_TUNING").env("HOME", home.path())).machine().facts;
    assert!(facts["tuning"].contains("the user's"), "{facts:?}");
}

#[test]
fn tuning_off_or_empty_is_silent() {
    for value in ["", "off"] {
        let ran = run(haul(&["copy", "list", "--json"]).env("HAUL_TUNING", value)).expect(0);
        assert_eq!(ran.err, "");
        assert!(ran.machine().facts["tuning"].contains("turns tuning off"));
    }
}

#[test]
fn bad_texts_are_ignored_with_one_warning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    let here = this_machine();
    for (text, part) in [
        (file_of("intel-6-143-8-avx512-l3-60MiB-64cpu", ""), "intel-6-143-8"),
        (String::new(), "schema"),
        ("not toml".into(), "not TOML"),
        ("schema = \"haul.tuning/9\"".into(), "haul.tuning/9"),
        (file_of(&here, "stream_copy_min = -1"), "stream_copy_min"),
        (file_of(&here, "stream_copy_min = nan"), "stream_copy_min"),
        (file_of(&here, "stream_copy_min = 9223372036854775808"), "not TOML"),
        (file_of(&here, "stream_copy_min = 1\nstream_copy_min = 2"), "not TOML"),
        (file_of(&here, "stream_copy = 1"), "stream_copy_min"),
        (file_of(&here, "stream_copy_min = \"\\u001b[2Jlots\""), "stream_copy_min"),
        (format!("x = {}", "[".repeat(60_000)), "not TOML"),
        ("x".repeat(70_000), "65536"),
    ] {
        fs::write(&path, text).unwrap();
        ignored(list_with(&path), &[path.to_str().unwrap(), part]);
    }
    fs::write(&path, b"schema = \"\xff\"").unwrap();
    ignored(list_with(&path), &["not UTF-8"]);
}

#[test]
fn hostile_sizes_are_clamped_and_copies_stay_correct() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    let here = this_machine();
    for value in ["0", "9223372036854775807"] {
        let names = run(&mut haul(&["copy", "list", "--json"])).machine().facts;
        let names = names.keys().filter_map(|key| key.strip_prefix("threshold_"));
        let copy: String = names.map(|name| format!("{name} = {value}\n")).collect();
        fs::write(&path, file_of(&here, &copy)).unwrap();
        // The experiment verifies every byte that it copies, and otherwise withholds its figures.
        let arguments = [
            "copy",
            "bench",
            "--json",
            "--budget",
            "0.1",
            "--sizes",
            "4KiB,300KiB",
            "--kernel",
            "haul",
            "--function",
            "memcpy,memset",
        ];
        let ran = run(haul(&arguments).env("HAUL_TUNING", &path)).expect(0);
        assert!(!ran.err.contains("warning: tuning file ignored"), "{ran:#?}");
        let sizes = ran.records().into_iter().filter(|r| r.experiment == "copy.size");
        assert_eq!(sizes.filter(|r| r.subject == "haul").count(), 4);
    }
}

#[test]
fn irregular_file_is_ignored_without_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    ignored(list_with(&fifo), &["fifo", "is a FIFO"]);
    ignored(list_with(folder.path()), &["is a directory"]);
    ignored(list_with(Path::new("/dev/zero")), &["is a character device"]);
    ignored(list_with(&folder.path().join("gone.toml")), &["gone.toml", "check the path"]);
}

#[test]
fn unreadable_file_is_ignored_with_remedy() {
    let (folder, program) = public_folder();
    let path = folder.path().join("secret.toml");
    fs::write(&path, "").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let mut command = unprivileged(&program, &["copy", "list", "--json"]);
    ignored(run(command.env("HAUL_TUNING", &path)), &["secret.toml", "chmod a+r"]);
}

/// A set-user-id program has its owner's rights and its caller's environment, so it must not open a
/// file that the environment names, not even to warn of it.
#[test]
fn set_user_id_program_ignores_the_environment() {
    if !is_root() {
        eprintln!("SKIPPED: a set-user-id program: not running as root: run the tests as root");
        return;
    }
    let (_folder, program) = public_folder();
    let list = |program: &Path| {
        let mut command = Command::new(program);
        run(command.args(["copy", "list", "--json"]).env("HAUL_TUNING", "/no/such/haul.toml"))
            .expect(0)
    };
    assert!(list(&program).err.contains("/no/such/haul.toml"), "the normal program does not warn");
    std::os::unix::fs::chown(&program, Some(NOBODY), Some(NOBODY)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let ran = list(&program);
    assert_eq!(ran.err, "");
    assert!(ran.machine().facts["tuning"].contains("more rights"), "{ran:#?}");
}

#[test]
fn closed_or_full_standard_error_is_harmless() {
    let Ok(full) = fs::File::options().write(true).open("/dev/full") else {
        eprintln!("SKIPPED: a full standard error: no file /dev/full: mount /dev");
        return;
    };
    let mut command = haul(&["copy", "list", "--json"]);
    let status = command.env("HAUL_TUNING", "/no/such/file").stderr(full).output().unwrap().status;
    assert_eq!(status.code(), Some(0));
}
