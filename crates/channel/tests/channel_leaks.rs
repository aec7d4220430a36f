//! Channels leave no descriptors and no mappings behind. These tests are a separate test program,
//! because they count the descriptors and mappings of the whole process.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use haul_channel::{Account, Building, Channel, Error, Listener, Mechanism, Settings, pair};

const ROLE: &str = "HAUL_CHANNEL_LEAKS_ROLE";

fn count() -> (usize, usize, String) {
    let files = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let maps = maps.lines().filter(|line| line.contains("haul-channel")).count();
    let children = format!("/proc/self/task/{}/children", std::process::id());
    (files, maps, fs::read_to_string(children).unwrap_or_default())
}

fn settings(mechanism: Mechanism) -> Settings {
    let wait = Duration::from_secs(20);
    Settings {
        mechanism: Some(mechanism).filter(|mechanism| *mechanism != Mechanism::Sealed),
        trusts_peer: true,
        wait: Some(wait),
        deadline: wait,
        ..Settings::default()
    }
}

fn send(channel: &mut Channel, mechanism: Mechanism) -> Result<Account, Error> {
    match mechanism {
        Mechanism::Sealed => channel.send_built(Building::new(200_000)?),
        Mechanism::Inline => channel.send(&[0; 100]),
        _ => channel.send(&[0; 2_000_000]),
    }
}

fn life(mechanism: Mechanism, is_cut_short: bool) {
    let settings = settings(mechanism);
    let (one, other) = pair().unwrap();
    thread::scope(|scope| {
        let sending = &settings;
        scope.spawn(move || {
            let mut channel = Channel::connect_over(one, sending).unwrap();
            let _ = send(&mut channel, mechanism);
        });
        let mut channel = Channel::accept_over(other, &settings).unwrap();
        if !is_cut_short {
            channel.recv().unwrap();
        }
    });
}

/// Does nothing unless the program was started as a peer to be killed.
#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (mechanism, path) = role.split_once(' ').unwrap();
    let mechanism: Mechanism = mechanism.parse().unwrap();
    let mut channel = Channel::connect(Path::new(path), &settings(mechanism)).unwrap();
    while send(&mut channel, mechanism).is_ok() {}
}

/// Uses a channel whose peer is killed.
fn killed(mechanism: Mechanism) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["peer", "--exact", "--test-threads=1", "--nocapture"])
        .env(ROLE, format!("{mechanism} {}", path.display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut channel = listener.accept(&settings(mechanism)).unwrap();
    channel.recv().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    while channel.recv().is_ok() {}
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
            killed(mechanism);
        }
    }
    assert_eq!(count(), before, "descriptors, mappings, children");
}
