//! Nothing is left behind: descriptors, mappings. A test of its own, as it counts what this process
//! has.

use std::fs;
use std::thread;
use std::time::Duration;

use haul::channel::{Building, Channel, Mechanism, Settings, pair};

fn count() -> (usize, usize) {
    let files = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (files, maps.lines().filter(|line| line.contains("haul-channel")).count())
}

fn life(mechanism: Mechanism, is_cut_short: bool) {
    let wait = Duration::from_secs(20);
    let settings = Settings {
        mechanism: Some(mechanism).filter(|mechanism| *mechanism != Mechanism::Sealed),
        trusts_peer: true,
        wait: Some(wait),
        deadline: wait,
        ..Settings::default()
    };
    let (one, other) = pair().unwrap();
    thread::scope(|scope| {
        let sending = &settings;
        scope.spawn(move || {
            let mut channel = Channel::connect_over(one, sending).unwrap();
            let _ = match mechanism {
                Mechanism::Sealed => channel.send_built(Building::new(200_000).unwrap()),
                Mechanism::Inline => channel.send(&[0; 100]),
                _ => channel.send(&[0; 2_000_000]),
            };
        });
        let mut channel = Channel::accept_over(other, &settings).unwrap();
        if !is_cut_short {
            channel.recv().unwrap();
        }
    });
}

#[test]
fn channels_leave_nothing_behind() {
    if !std::path::Path::new("/proc/self/maps").exists() {
        eprintln!("SKIPPED: what channels leave behind: no file /proc/self/maps: mount /proc");
        return;
    }
    life(Mechanism::Ring, false);
    let before = count();
    for mechanism in Mechanism::ALL {
        for _ in 0..10 {
            life(mechanism, false);
            life(mechanism, true);
        }
    }
    assert_eq!(count(), before, "descriptors, mappings");
}
