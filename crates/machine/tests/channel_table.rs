//! A channel chooses the mechanism from the table that was measured on this machine. It is a
//! separate test, because a process reads `haul.toml` once.

#[path = "../../channel/tests/channel/support.rs"]
mod support;

use std::thread;

use haul_channel::{Building, Mechanism, Settings};
use haul_machine::sys::Sys;
use haul_machine::tuning::{ChannelTable, Choice, Force, Tuning};

use support::ends;

fn choice(from: usize, mechanism: &str, trusted: Option<bool>) -> Choice {
    Choice { from, mechanism: mechanism.into(), trusted, idle: None }
}

/// The mechanism that the channel chooses for a message of this size.
fn way(settings: &Settings, size: usize) -> Mechanism {
    let (mut one, mut other) = ends(settings);
    thread::scope(|scope| {
        let sending = scope.spawn(move || one.send(&vec![3; size]).unwrap());
        assert!(other.recv().unwrap().iter().all(|byte| *byte == 3));
        sending.join().unwrap().mechanism
    })
}

#[test]
fn the_table_of_this_machine_is_followed_as_far_as_the_peer_allows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    let policy = haul_copy::Policy::for_this_processor();
    let mut tuning = Tuning::new(&Sys::new().machine_id(), "w", policy);
    tuning.channel = ChannelTable {
        sealed_dirty_max: Some(0.5),
        measured_max: Some(100_000),
        choices: vec![
            choice(0, "staged", None),
            choice(50_000, "no such way", None),
            choice(100_000, "lease", None),
            choice(200_000, "pull", Some(true)),
            choice(300_000, "sealed", None),
        ],
    };
    tuning.write(&path).unwrap();
    // SAFETY: no other thread that could read the environment runs yet in this program.
    unsafe { std::env::set_var("HAUL_TUNING", &path) };
    assert!(matches!(haul_machine::init(), Force::File { .. }));

    let stranger = Settings::default();
    let friend = Settings { trusts_peer: true, ..Settings::default() };
    assert_eq!(way(&stranger, 4096), Mechanism::Inline);
    assert_eq!(way(&stranger, 8193), Mechanism::Staged);
    assert_eq!(way(&stranger, 60_000), Mechanism::Staged, "an unknown name is passed over");
    assert_eq!(
        way(&stranger, 250_000),
        Mechanism::Staged,
        "a mechanism that needs trust is passed over"
    );
    assert_eq!(way(&friend, 150_000), Mechanism::Lease);
    assert_eq!(way(&friend, 250_000), Mechanism::Pull);
    assert_eq!(way(&friend, 350_000), Mechanism::Pull, "nothing was built in place");
    assert_eq!(way(&friend, 600_000), Mechanism::Ring, "beyond what was measured by far");
    let asked = Settings { mechanism: Some(Mechanism::Ring), ..friend };
    assert_eq!(way(&asked, 250_000), Mechanism::Ring);

    for (dirty_fraction, mechanism) in [(0.5, Mechanism::Sealed), (0.6, Mechanism::Staged)] {
        let (mut one, mut other) = ends(&Settings { dirty_fraction, ..Settings::default() });
        let sent = one.send_built(Building::new(70_000).unwrap()).unwrap();
        assert_eq!(sent.mechanism, mechanism);
        assert_eq!(other.recv().unwrap().len(), 70_000);
    }
}
