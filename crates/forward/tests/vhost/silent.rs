//! Peers that are silent or stop in the middle of a message: no call waits for them, and neither
//! does dropping a port.

use std::io::Read;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use haul_forward::{Link, Pool, Port, Role, Virtio, VirtioSettings};

use crate::front::Front;
use crate::victim::{LONG, Victim, assert_no_wait};

#[test]
fn half_message_of_front_end_does_not_block() {
    for bytes in [0, 1, 11, 12, 15] {
        assert_no_wait(|| {
            let mut victim = Victim::new();
            let mut front = Front::connect(&victim.path());
            // Half of a message that sets features.
            let message = [2_u32, 1, 8, 0, 1].map(u32::to_ne_bytes).concat();
            front.send_bytes(&message[..bytes]);
            let start = Instant::now();
            for _ in 0..100 {
                victim.poll(1, 64);
            }
            drop(victim);
            start.elapsed()
        });
    }
}

/// The front end sends requests and never reads the answers.
#[test]
fn flood_of_front_end_does_not_block() {
    assert_no_wait(flood);
}

/// The time to drop a flooded port.
fn flood() -> Duration {
    let mut victim = Victim::new();
    let front = Front::connect(&victim.path());
    front.socket.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) || sent <= 10 {
        sent += u32::from(front.send(1, &[], &[]));
        victim.poll(1, 64);
        assert!(start.elapsed() < LONG, "{sent} messages");
    }
    let start = Instant::now();
    drop(victim);
    start.elapsed()
}

fn virtio(folder: &tempfile::TempDir, role: Role) -> Virtio {
    let settings = VirtioSettings { role, ..VirtioSettings::new(folder.path().join("vm")) };
    Virtio::open("virtio0", &settings).unwrap().pop().unwrap()
}

#[test]
fn silent_back_end_does_not_block() {
    assert_no_wait(stop_before_answer);
}

/// The time to service and stop a port whose back end answers nothing.
fn stop_before_answer() -> Duration {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("vm")).unwrap();
    let (mut port, mut pool) = (virtio(&folder, Role::Client), Pool::new(4096).unwrap());
    let start = Instant::now();
    port.service(&mut pool).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    let mut first = [0; 12];
    socket.read_exact(&mut first).unwrap();
    for _ in 0..100 {
        port.service(&mut pool).unwrap();
        assert_eq!(port.link(), Link::Down);
    }
    port.stop(&mut pool);
    let elapsed = start.elapsed();
    assert_eq!(pool.available(), pool.size());
    elapsed
}

#[test]
fn port_reconnects_after_repeated_disconnects() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("vm")).unwrap();
    let (mut port, mut pool) = (virtio(&folder, Role::Client), Pool::new(4096).unwrap());
    port.service(&mut pool).unwrap();
    for _ in 0..3 {
        drop(listener.accept().unwrap());
        port.service(&mut pool).unwrap();
    }
    drop(listener);
    std::fs::remove_file(folder.path().join("vm")).unwrap();
    // Then a real back end connects.
    let settings = crate::victim::settings(folder.path().join("vm"));
    let _vhost = haul_forward::Vhost::open("vhost0", &settings).unwrap();
    let start = Instant::now();
    while port.link() != Link::Up {
        assert!(start.elapsed() < LONG, "no link");
        port.service(&mut pool).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    port.stop(&mut pool);
    assert_eq!(pool.available(), pool.size());
}
