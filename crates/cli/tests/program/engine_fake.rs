//! `haul engine fake`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use crate::heap_record::compiled;
use crate::{Ran, haul, run, wait_until};

/// Builds the library beside the program.
fn built() {
    static BUILT: OnceLock<()> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["-p", "haul-engine-fake", "-p", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--lib"]).args(both);
        cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
        run(cargo.current_dir(env!("CARGO_MANIFEST_DIR"))).expect(0);
        assert!(folder.join("libhaul_engine_fake.so").exists(), "cargo left no library");
    });
}

fn fake(arguments: &[&str]) -> Command {
    built();
    let mut command = haul(&["engine", "fake"]);
    command.args(arguments).env_remove("LD_PRELOAD").env_remove("HAUL_ENGINE_FAKE");
    command
}

/// `haul doctor` below a fake with these options.
fn doctor(options: &[&str]) -> Ran {
    let program = ["--", env!("CARGO_BIN_EXE_haul"), "doctor"];
    run(&mut fake(&[options, &program].concat())).expect(0)
}

#[test]
fn doctor_walks_the_chain_of_a_fake() {
    let ran = doctor(&["--queue", "mode=shared,size=7", "--device", "batches=no"]);
    for line in [
        "ok      DSA: driver              dsa0 (haul's fake)",
        "ok      DSA: shared addresses    enabled for dsa0",
        "ok      DSA: queue               wq0.0 (shared, 7 descriptors)",
        "ok      DSA: permission          this user may open wq0.0",
        "ok      DSA: fork ",
    ] {
        assert!(ran.out.contains(line), "{line}: {ran:#?}");
    }
    assert!(ran.out.contains("no batches"), "{ran:#?}");
}

#[test]
fn doctor_names_the_next_command() {
    for (options, link, remedy) in [
        (["--device", "sva=no"], "missing DSA: shared addresses", "intel_iommu=on,sm_on"),
        (["--queue", "enabled=no"], "missing DSA: queue", "accel-config"),
        (["--queue", "type=kernel"], "missing DSA: queue", "--type=user"),
    ] {
        let ran = doctor(&options);
        assert!(ran.out.contains(link), "{link}: {ran:#?}");
        assert!(ran.out.contains(remedy), "{remedy}: {ran:#?}");
        assert!(!ran.out.contains("DSA: permission"), "{ran:#?}");
    }
}

#[test]
fn exit_code_is_the_programs() {
    run(&mut fake(&["--", "true"])).expect(0);
    run(&mut fake(&["--", "sh", "-c", "exit 7"])).expect(7).says(&["sh ended with exit code 7"]);
    run(&mut fake(&["--", "sh", "-c", "kill -9 $$"])).expect(128 + 9);
    run(&mut fake(&["--", "./no-such-program"])).expect(1).says(&["cannot start"]);
}

#[test]
fn wrong_settings_are_refused_before_the_program_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (file, missing) = (folder.path().join("settings"), folder.path().join("missing"));
    fs::write(&file, "queue size=4\ninject at=1 explode\n").unwrap();
    let started = folder.path().join("started");
    let touch = ["--", "touch", started.to_str().unwrap()];
    for (options, parts) in [
        (["--queue", "size=0"], ["size=0", "from 1 to 4096"]),
        (["--device", "colour=red"], ["colour", "engines=N"]),
        (["--inject", "at=1"], ["inject", "an event"]),
        (["--settings", file.to_str().unwrap()], ["line 2", "an event"]),
    ] {
        run(&mut fake(&[&options[..], &touch].concat())).expect(2).says(&parts);
    }
    let options = ["--settings", missing.to_str().unwrap()];
    run(&mut fake(&[&options[..], &touch].concat())).expect(1).says(&["missing"]);
    let existing = ["--dir", folder.path().to_str().unwrap()];
    run(&mut fake(&[&existing[..], &touch].concat())).expect(1).says(&["does not exist yet"]);
    assert!(!started.exists());
}

/// A settings file and options together; the program sees the queues of both.
#[test]
fn file_and_options_are_joined() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("settings");
    fs::write(&file, "queue size=4").unwrap();
    let shell = ["--", "sh", "-c", "cat $HAUL_ENGINE_FAKE/settings; ls $HAUL_ENGINE_FAKE/dev/dsa"];
    let options = ["--settings", file.to_str().unwrap(), "--queue", "mode=dedicated,size=8"];
    let ran = run(&mut fake(&[&options[..], &shell].concat())).expect(0);
    for part in ["mode=shared size=4", "mode=dedicated size=8", "wq0.0", "wq0.1"] {
        assert!(ran.out.contains(part), "{part}: {ran:#?}");
    }
}

#[test]
fn static_program_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let source = "int main(void) { return 0; }";
    let Some(program) = compiled(folder.path(), source, &["-static"]) else { return };
    let ran = run(&mut fake(&["--", program.to_str().unwrap()])).expect(0);
    ran.says(&["has not seen the fake", "linked statically"]);
}

#[test]
fn shown_fake_ends_with_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dsa");
    let mut command = fake(&["--dir", dir.to_str().unwrap()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut variables = (0..2).map(|_| {
        let line = lines.next().unwrap().unwrap();
        let (name, value) = line.strip_prefix("export ").unwrap().split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    let mut doctor = haul(&["doctor"]);
    let doctor = doctor.envs(variables.by_ref());
    let ran = run(doctor).expect(0);
    assert!(ran.out.contains("dsa0 (haul's fake)"), "{ran:#?}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    wait_until("haul ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!dir.exists());
    // The variables lead nowhere now, and change nothing.
    let ran = run(doctor).expect(0);
    assert!(!ran.out.contains("haul's fake"), "{ran:#?}");
}

#[test]
fn list_names_the_troubles_of_a_device() {
    let list = |options: &[&str]| {
        let program = ["--", env!("CARGO_BIN_EXE_haul"), "engine", "list"];
        run(&mut fake(&[options, &program].concat())).expect(0).out
    };
    for (options, trouble) in [
        (["--inject", "every=1,status=0x20"], "trouble: dsa:wq0.0 reported 1 times status 0x20"),
        (["--inject", "every=1,wedge"], "trouble: dsa:wq0.0 "),
        (["--device", "sva=no"], "the device has no shared virtual addressing; boot with"),
        (["--queue", "enabled=no"], "trouble: cannot be used: DSA: queue"),
    ] {
        let out = list(&options);
        assert!(out.contains(trouble), "{trouble}: {out}");
    }
    assert!(!list(&["--queue", "mode=shared"]).contains("trouble"));
}
