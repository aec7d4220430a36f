//! Rings, memory, guests and ports that end while packets are on their way: the packets arrive, or
//! are counted as lost, and nothing accesses memory that is no longer the port's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_forward::{Burst, DropReason, Link, Pool, Port, Vhost, VhostSettings};

use crate::front::{
    FROM_GUEST, Front, GET_FEATURES, GET_VRING_BASE, PROTOCOL, SET_VRING_ENABLE, TO_GUEST,
};
use crate::guest::{Guest, LAYOUTS, burst, send};
use crate::held::{Held, Way};
use crate::victim::{FEATURES, LONG, Victim, assert_no_wait, settings};

/// A port whose engine holds its copies, and a guest to which two packets are on their way.
fn on_their_way(features: u64) -> (Arc<Held>, Victim, Guest) {
    let (held, queue) = Held::queue(Way::Holds, true);
    let engine = Some(queue);
    let mut victim = Victim::with(|settings| VhostSettings { engine, ..settings });
    let mut guest = Guest::new(&mut victim, features);
    send(&mut victim, &[(7, 9000)]);
    send(&mut victim, &[(8, 100)]);
    assert_eq!(guest.take(), []);
    (held, victim, guest)
}

/// Calls of the worker return at once, and keep the packets.
fn check_no_wait(victim: &mut Victim) {
    assert_no_wait(|| {
        let start = Instant::now();
        let mut kept = burst(victim, &[(1, 60)]);
        for _ in 0..100 {
            victim.port.rx_burst(&mut victim.pool, &mut Burst::new());
            victim.port.tx_burst(&mut victim.pool, &mut kept);
            victim.port.drain(&mut victim.pool);
            victim.port.service(&mut victim.pool).unwrap();
        }
        victim.pool.free_burst(&mut kept);
        start.elapsed()
    });
}

/// Asserts that the answer to what was sent comes after the copies have ended.
fn answer_after_release(held: &Held, victim: &mut Victim, guest: &mut Guest) -> u64 {
    let front = &mut guest.front;
    front.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(front.answer(), None, "the engine still writes to the memory");
    check_no_wait(victim);
    held.release();
    front.socket.set_read_timeout(Some(LONG)).unwrap();
    front.answer().expect("an answer")
}

#[test]
fn ring_stops_behind_packets_on_their_way() {
    for features in LAYOUTS {
        let (held, mut victim, mut guest) = on_their_way(features);
        guest.front.send(GET_VRING_BASE, &Front::state(TO_GUEST as u32, 0), &[]);
        let base = answer_after_release(&held, &mut victim, &mut guest) >> 32;
        assert_eq!(base & 0xFF, 6, "six buffers are used");
        assert_eq!(guest.take(), [(7, 9000), (8, 100)]);
        victim.wait("all packets", |victim| victim.port.drain(&mut victim.pool));
        assert_eq!(victim.port.counters().tx.packets, 2);
        assert_eq!(victim.pool.available(), victim.pool.size());
    }
}

#[test]
fn memory_changes_behind_packets_on_their_way() {
    for features in LAYOUTS {
        let (held, mut victim, mut guest) = on_their_way(features);
        assert!(guest.front.share());
        guest.front.send(GET_FEATURES, &[], &[]);
        answer_after_release(&held, &mut victim, &mut guest);
        assert_eq!(guest.take(), [(7, 9000), (8, 100)]);
        victim.wait("all packets", |victim| victim.port.drain(&mut victim.pool));
        // The ring goes on in the new memory.
        victim.wait_for_link(Link::Up);
        send(&mut victim, &[(9, 1500)]);
        held.release();
        victim.wait("a packet", |victim| victim.port.drain(&mut victim.pool));
        assert_eq!(guest.take(), [(9, 1500)]);
    }
}

#[test]
fn guest_that_leaves_takes_no_packet_from_pool() {
    for features in LAYOUTS {
        let (held, mut victim, guest) = on_their_way(features);
        drop(guest);
        std::thread::sleep(Duration::from_millis(20));
        check_no_wait(&mut victim);
        assert!(!victim.port.drain(&mut victim.pool));
        held.release();
        victim.wait("the packets", |victim| victim.port.drain(&mut victim.pool));
        assert_eq!(victim.pool.available(), victim.pool.size());
        victim.wait_for_link(Link::Down);
    }
}

/// The engine writes to pages that the guest has taken away.
#[test]
fn packets_to_lost_memory_are_counted_as_reset() {
    for features in LAYOUTS {
        let (held, mut victim, mut guest) = on_their_way(features);
        rustix::fs::ftruncate(&guest.front.memory, 0).unwrap();
        held.release();
        victim.wait("the packets", |victim| victim.port.drain(&mut victim.pool));
        assert!(guest.front.is_disconnected());
        victim.wait("a reset", |victim| victim.counters().resets == 1);
        let counters = victim.counters();
        assert_eq!(counters.tx.drops_for(DropReason::Reset), 2);
        assert_eq!(counters.tx.packets, 0);
    }
}

/// A fault of the guest ends the conversation; packets that were on their way are lost with it.
#[test]
fn jumping_index_loses_packets_on_their_way() {
    let (held, mut victim, mut guest) = on_their_way(LAYOUTS[0]);
    guest.front.set_available(TO_GUEST, 1000);
    // The port reads the index once it knows of too few buffers: 58 are left.
    send(&mut victim, &[(1, 60); 32]);
    send(&mut victim, &[(1, 60); 32]);
    assert!(!victim.port.drain(&mut victim.pool), "the engine still reads the packets");
    check_no_wait(&mut victim);
    held.release();
    victim.wait("the packets", |victim| victim.port.drain(&mut victim.pool));
    assert!(guest.front.is_disconnected());
    assert_eq!(guest.take(), []);
    assert_eq!(victim.port.counters().tx.drops_for(DropReason::Reset), 2 + 32 + 32);
    assert_eq!(victim.pool.available(), victim.pool.size());
}

#[test]
fn stopped_port_returns_packets_on_their_way() {
    for features in LAYOUTS {
        let (held, mut victim, mut guest) = on_their_way(features);
        let releasing = held.release_later();
        victim.port.stop(&mut victim.pool);
        assert_eq!(victim.pool.available(), victim.pool.size());
        assert_eq!(guest.take(), [(7, 9000), (8, 100)]);
        releasing.join().unwrap();
    }
}

/// A port that is dropped with its pool ends its copies first.
#[test]
fn dropped_port_ends_copies() {
    for features in LAYOUTS {
        let (held, victim, mut guest) = on_their_way(features);
        let releasing = held.release_later();
        drop(victim);
        assert_eq!(guest.take(), [(7, 9000), (8, 100)]);
        releasing.join().unwrap();
    }
}

/// Packets of a pair without a ring of its own go to another pair's ring, behind that pair's.
#[test]
fn pairs_share_ring_in_order() {
    let (held, queue) = Held::queue(Way::Holds, true);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vm");
    let engine = Some(queue);
    let settings = VhostSettings { queues: 2, engine, engine_bytes_min: 1000, ..settings(&path) };
    let mut pairs = Vhost::open("vhost0", &settings).unwrap();
    let mut pools = [Pool::new(64).unwrap(), Pool::new(64).unwrap()];
    let mut front = Front::connect(&path);
    (0..Front::steps_of(4)).for_each(|step| front.step(step, FEATURES | PROTOCOL | 1 << 22));
    (0..16).for_each(|index| front.add_buffer(index));
    for ring in [TO_GUEST, FROM_GUEST] {
        front.send(SET_VRING_ENABLE, &Front::state(ring as u32, 1), &[]);
    }
    let start = Instant::now();
    while pairs[0].link() != Link::Up {
        assert!(start.elapsed() < LONG);
    }
    for (number, length) in [(0, 1500), (1, 60), (1, 1500), (0, 60)] {
        let (pair, pool) = (&mut pairs[number], &mut pools[number]);
        let mut burst = Burst::new();
        burst.push(pool.take(length).unwrap());
        pair.tx_burst(pool, &mut burst);
        assert!(burst.is_empty());
    }
    assert_eq!(front.used(TO_GUEST), 0);
    held.release_last();
    assert!(!pairs[1].drain(&mut pools[1]));
    held.release();
    // The second pair publishes the packets of both.
    assert!(pairs[1].drain(&mut pools[1]));
    assert_eq!(front.used(TO_GUEST), 4);
    assert!(pairs[0].drain(&mut pools[0]));
    for (pair, pool) in pairs.iter().zip(&pools) {
        assert_eq!((pair.counters().tx.packets, pool.available()), (2, 64));
    }
}
