//! A device of several queue pairs: the guest enables some of them, and others later.

use haul_forward::{Burst, DropReason, Link, Pool, Port, Vhost, VhostSettings};

use crate::front::{Front, PROTOCOL, SET_VRING_ENABLE};
use crate::victim::{FEATURES, LONG, settings};

/// VIRTIO_NET_F_MQ.
const MULTIQUEUE: u64 = 1 << 22;

/// The rings to the guest of both pairs.
const RINGS: [u64; 2] = [0, 2];

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LONG, "{what}: not within {LONG:?}");
        std::thread::yield_now();
    }
}

fn enable(front: &Front, pair: u32, is_enabled: bool) {
    for ring in [2 * pair, 2 * pair + 1] {
        front.send(SET_VRING_ENABLE, &Front::state(ring, is_enabled.into()), &[]);
    }
}

/// Sends a packet through each pair; returns how many chains of each ring to the guest are used
/// then.
fn send(pairs: &mut [Vhost], pool: &mut Pool, front: &Front) -> [u16; 2] {
    for pair in pairs {
        let mut burst = Burst::new();
        burst.push(pool.take(64).unwrap());
        // A packet waits while the front end's message changes its ring.
        wait("a ring for the packet", || {
            pair.tx_burst(pool, &mut burst);
            burst.is_empty()
        });
        wait("packets on their way", || pair.drain(pool));
    }
    RINGS.map(|ring| front.used(ring))
}

#[test]
fn packets_go_to_enabled_queue_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm");
    let settings = VhostSettings { queues: 2, ..settings(&path) };
    let mut pairs = Vhost::open("vhost0", &settings).unwrap();
    let mut pool = Pool::new(64).unwrap();
    let mut front = Front::connect(&path);
    let features = FEATURES | PROTOCOL | MULTIQUEUE;
    (0..Front::steps_of(4)).for_each(|step| front.step(step, features));
    for ring in RINGS {
        (0..16).for_each(|index| front.add_buffer_of(ring, index));
    }
    let expect = |pairs: &[Vhost], links: [Link; 2]| {
        wait("links", || [pairs[0].link(), pairs[1].link()] == links);
    };
    assert_eq!(send(&mut pairs, &mut pool, &front), [0, 0], "no pair is enabled");
    assert_eq!(pairs[1].counters().tx.drops_for(DropReason::NoLink), 1);
    enable(&front, 0, true);
    expect(&pairs, [Link::Up, Link::Down]);
    assert_eq!(send(&mut pairs, &mut pool, &front), [2, 0]);
    assert!(pairs[0].notes()[0].contains("uses 1 of 2 queue pairs"), "{:?}", pairs[0].notes());
    assert_eq!((pairs[0].obstacle(), pairs[1].obstacle()), (None, None));
    enable(&front, 1, true);
    expect(&pairs, [Link::Up; 2]);
    assert_eq!(send(&mut pairs, &mut pool, &front), [3, 1]);
    assert!(pairs[0].notes().is_empty());
    enable(&front, 0, false);
    expect(&pairs, [Link::Down, Link::Up]);
    assert_eq!(send(&mut pairs, &mut pool, &front), [3, 3]);
    // Each pair counts its packets, in any ring.
    let sent: Vec<_> = pairs.iter().map(|pair| pair.counters().tx.packets).collect();
    assert_eq!(sent, [3, 3]);
    assert_eq!(pool.available(), pool.size());
}
