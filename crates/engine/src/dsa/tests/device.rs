//! The engine over a device file, as it finds it on a machine. The test starts itself again under
//! `libhaul_engine_fake.so`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use super::{PAGE_BYTES, Pages, WRITTEN, copy};
use crate::contract::{Engine as _, Kind};
use crate::dsa::fake::{Fake, Settings, tree};
use crate::dsa::{Dsa, Mechanism, Options, Sysfs};
use crate::outcome::{Outcome, Refusal};
use crate::slots::Slots;

/// The library. Cargo builds it on demand.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().and_then(Path::parent).unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["--package", "haul-engine-fake", "--package", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--lib"]).args(both);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
        let built = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap();
        assert!(built.success());
        folder.join("libhaul_engine_fake.so")
    })
}

/// Runs `inner` in a process of its own that sees a fake with these settings.
fn under_the_library(test: &str, settings: &str, inner: impl FnOnce()) {
    if std::env::var_os(tree::VARIABLE).is_some() {
        return inner();
    }
    let folder = tempfile::tempdir().unwrap();
    let settings: Settings = settings.parse().unwrap();
    let fake = folder.path().join("fake");
    fs::create_dir(&fake).unwrap();
    tree::write(&fake, &settings).unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("dsa::tests::device::{test}"), "--nocapture"]);
    let output = command.env("LD_PRELOAD", library()).env(tree::VARIABLE, &fake).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
}

/// The engine over a queue of this machine, as [`super::Rig`] has it; its fake does nothing.
fn rig(queue: &str, options: Options) -> super::Rig {
    let slots = Slots::new(32);
    let engine = Dsa::open(&Sysfs::new(), Some(queue), options, Arc::clone(&slots)).unwrap();
    super::Rig { fake: Arc::new(Fake::new(Settings::default()).unwrap()), slots, engine }
}

#[test]
fn queues_of_a_machine_are_found_and_copy() {
    under_the_library("queues_of_a_machine_are_found_and_copy", "", || {
        let names: Vec<String> =
            Dsa::usable(&Sysfs::new()).into_iter().map(|queue| queue.name).collect();
        assert_eq!(names, ["wq0.0", "wq0.1"]);
        let (source, target) = (Pages::filled(9), Pages::new(9));
        for queue in ["wq0.0", "wq0.1"] {
            for only_write in [false, true] {
                let rig = rig(queue, Options { only_write, ..Options::default() });
                assert_eq!(rig.engine.facts().kind, Kind::Fake);
                let mechanism = rig.engine.mechanism().unwrap();
                assert!(!only_write || mechanism == Mechanism::Write);
                target.fill(|_| 0);
                assert_eq!(rig.run(copy(&source, &target, 9 * PAGE_BYTES)), WRITTEN);
                assert_eq!(target.bytes(), source.bytes());
            }
        }
    });
}

#[test]
fn dedicated_queue_belongs_to_one_engine() {
    under_the_library("dedicated_queue_belongs_to_one_engine", "queue mode=dedicated", || {
        let first = rig("wq0.0", Options::default());
        let second = Dsa::open(&Sysfs::new(), None, Options::default(), Slots::new(1)).unwrap_err();
        let text = second.to_string();
        assert!(text.contains("dsa:wq0.0") && text.contains("dedicated"), "{text}");
        drop(first);
        rig("wq0.0", Options::default());
    });
}

#[test]
fn removed_device_is_noticed_and_later_refused() {
    under_the_library("removed_device_is_noticed_and_later_refused", "inject at=1 wedge", || {
        let rig = rig("wq0.0", Options::default());
        let (source, target) = (Pages::filled(1), Pages::new(1));
        let pending = rig.start(copy(&source, &target, 64)).unwrap();
        fs::remove_dir_all(std::env::var_os(tree::VARIABLE).unwrap()).unwrap();
        let refused = rig.start(copy(&source, &target, 64));
        assert_eq!(refused, Err(Refusal::Gone));
        assert_eq!(rig.wait(pending), Outcome::Gone);
    });
}

/// The state file says so; without it, the engine would wait for a record for ever.
#[test]
fn halted_device_is_noticed() {
    under_the_library("halted_device_is_noticed", "inject at=2 halt", || {
        let rig = rig("wq0.0", Options { only_write: true, ..Options::default() });
        let (source, target) = (Pages::filled(1), Pages::new(1));
        assert_eq!(rig.run(copy(&source, &target, 64)), WRITTEN);
        assert_eq!(rig.run(copy(&source, &target, 64)), Outcome::Gone);
        assert!(!Sysfs::new().devices()[0].is_enabled);
    });
}

#[test]
fn device_that_removes_itself_is_noticed() {
    let settings = "inject at=1 wedge\ninject at=2 remove";
    under_the_library("device_that_removes_itself_is_noticed", settings, || {
        let rig = rig("wq0.0", Options::default());
        let (source, target) = (Pages::filled(1), Pages::new(1));
        let pending = rig.start(copy(&source, &target, 64)).unwrap();
        let refused = rig.start(copy(&source, &target, 64));
        // A portal answers "retry" for a device that is gone.
        assert!(matches!(refused, Err(Refusal::Gone | Refusal::Full)), "{refused:?}");
        assert_eq!(rig.wait(pending), Outcome::Gone);
    });
}

/// The file is shared with a child of fork; the parent's close must drain nevertheless.
#[test]
fn child_keeps_no_copy_of_the_file() {
    under_the_library("child_keeps_no_copy_of_the_file", "inject at=1 delay_us=20000", || {
        let rig = rig("wq0.0", Options { only_write: true, ..Options::default() });
        let (source, target) = (Pages::filled(1), Pages::new(1));
        let pending = rig.start(copy(&source, &target, 64)).unwrap();
        assert!(super::children::holds_in_child(|| {
            let opened = rig.engine.reopen() == Ok(());
            opened && rig.run(copy(&source, &target, 64)) == WRITTEN
        }));
        rig.engine.revoke();
        assert_eq!(rig.slots.outcome(pending), Some(WRITTEN));
    });
}
