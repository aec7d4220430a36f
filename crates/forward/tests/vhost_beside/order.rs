//! Bursts that an engine copies arrive in order, and only whole ones. The port keeps their packets
//! until then.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use haul_engine::dsa::fake::Fake;
use haul_engine::dsa::{Dsa, Options};
use haul_engine::{Engine, Error, Queue, Settings};
use haul_forward::{Burst, Port, VhostSettings};

use crate::guest::{Guest, LAYOUTS, send};
use crate::held::{Held, Way};
use crate::victim::Victim;

/// A port whose engine copies bursts of this many bytes and more.
fn victim(queue: Queue, engine_bytes_min: usize) -> Victim {
    let engine = Some(queue);
    Victim::with(|settings| VhostSettings { engine, engine_bytes_min, ..settings })
}

/// A port with an engine that holds its copies.
fn holding(engine_bytes_min: usize) -> (Arc<Held>, Victim) {
    let (held, queue) = Held::queue(Way::Holds, true);
    (held, victim(queue, engine_bytes_min))
}

/// Polls the port once.
fn poll(victim: &mut Victim) {
    let mut burst = Burst::new();
    victim.port.rx_burst(&mut victim.pool, &mut burst);
    assert!(burst.is_empty());
}

#[test]
fn burst_waits_for_those_before_it() {
    for features in LAYOUTS {
        let (held, mut victim) = holding(3000);
        let mut guest = Guest::new(&mut victim, features);
        send(&mut victim, &[(1, 9000)]);
        send(&mut victim, &[(2, 100)]);
        send(&mut victim, &[(3, 1500), (4, 1500)]);
        assert_eq!(held.starts.load(Relaxed), 2, "the second burst is short");
        poll(&mut victim);
        assert_eq!(guest.take(), []);
        assert_eq!(victim.port.counters().tx.packets, 0);
        assert_eq!(victim.pool.available(), victim.pool.size() - 5 - 1 - 2, "the packets are kept");
        held.release_last();
        poll(&mut victim);
        assert!(!victim.port.drain(&mut victim.pool));
        assert_eq!(guest.take(), [], "the first burst is on its way");
        held.release();
        poll(&mut victim);
        assert_eq!(guest.take(), [(1, 9000), (2, 100), (3, 1500), (4, 1500)]);
        let counters = victim.counters();
        assert_eq!((counters.tx.packets, counters.tx.bytes), (4, 12_100));
        assert_eq!((counters.tx.batches[1], counters.tx.batches[2]), (2, 1));
        assert!(victim.port.drain(&mut victim.pool));
    }
}

/// The first bursts arrive while later ones are on their way.
#[test]
fn first_bursts_arrive_before_last_ones() {
    for features in LAYOUTS {
        let (held, mut victim) = holding(1);
        let mut guest = Guest::new(&mut victim, features);
        // More packets than the ring has buffers.
        let mut arrived = Vec::new();
        for round in 0..40 {
            for number in 0..3 {
                send(&mut victim, &[(3 * round + number, 1500)]);
            }
            held.release_but(1);
            poll(&mut victim);
            let now = guest.take();
            assert_eq!(now.len(), 2 + usize::from(round > 0));
            guest.make_available(now.len() as u16);
            arrived.extend(now);
        }
        held.release();
        poll(&mut victim);
        arrived.extend(guest.take());
        assert_eq!(arrived, (0..120).map(|number| (number, 1500)).collect::<Vec<_>>());
        assert_eq!(victim.counters().tx.packets, 120);
    }
}

#[test]
fn worker_copies_while_engine_has_enough_to_do() {
    let (held, mut victim) = holding(1);
    let mut guest = Guest::new(&mut victim, LAYOUTS[0]);
    let packets: Vec<_> = (0..20).map(|number| (number, 1000)).collect();
    packets.iter().for_each(|packet| send(&mut victim, &[*packet]));
    assert_eq!(held.starts.load(Relaxed), 4);
    assert_eq!(guest.take(), []);
    held.release();
    poll(&mut victim);
    assert_eq!(guest.take(), packets);
    assert_eq!(victim.counters().tx.packets, 20);
}

#[test]
fn full_ring_leaves_packets_to_caller() {
    for features in LAYOUTS {
        let (held, mut victim) = holding(1);
        let mut guest = Guest::new(&mut victim, features);
        (0..12).for_each(|number| send(&mut victim, &[(number, 9000)]));
        // Four of 64 buffers are left.
        let mut burst = crate::guest::burst(&mut victim, &[(12, 9000)]);
        assert_eq!(victim.port.tx_burst(&mut victim.pool, &mut burst), 0);
        assert_eq!(burst.len(), 1);
        held.release();
        poll(&mut victim);
        assert_eq!(guest.take().len(), 12);
        guest.make_available(1);
        victim.wait("room", |victim| {
            victim.port.tx_burst(&mut victim.pool, &mut burst);
            burst.is_empty()
        });
        held.release();
        poll(&mut victim);
        assert_eq!(guest.take(), [(12, 9000)]);
    }
}

#[test]
fn cpu_finishes_what_engine_does_not() {
    for way in [Way::Stops, Way::Disappears, Way::Refuses] {
        for finishes_on_cpu in [true, false] {
            let (held, queue) = Held::queue(way, finishes_on_cpu);
            let mut victim = victim(queue, 1);
            let mut guest = Guest::new(&mut victim, LAYOUTS[1]);
            send(&mut victim, &[(1, 9000), (2, 64)]);
            assert_eq!(guest.take(), [(1, 9000), (2, 64)], "{way:?}");
            assert_eq!((victim.counters().tx.packets, held.starts.load(Relaxed)), (2, 1));
        }
    }
}

/// A queue of a fake DSA, in which this goes wrong.
fn fake(text: &str) -> Queue {
    let fake = Arc::new(Fake::new(text.parse().unwrap()).unwrap());
    let failed = |reason| Error::System { attempt: "open the fake", reason };
    let open = |slots| -> Result<Box<dyn Engine>, Error> {
        Ok(Box::new(Dsa::of_fake(&fake, 0, Options::default(), slots).map_err(failed)?))
    };
    Queue::open(Settings::default(), open).unwrap()
}

#[test]
fn fake_device_delivers_packets_whatever_it_reports() {
    for (text, features) in [
        ("queue mode=shared size=8", LAYOUTS[0]),
        ("queue mode=dedicated size=8", LAYOUTS[1]),
        ("device batches=no portal=no", LAYOUTS[1]),
        ("inject every=2 fault=100 access=write", LAYOUTS[0]),
        ("inject every=3 full", LAYOUTS[1]),
        ("inject every=4 status=0x20", LAYOUTS[1]),
        ("inject every=5 delay_us=300", LAYOUTS[0]),
        ("inject at=9 remove", LAYOUTS[0]),
        ("inject at=9 halt", LAYOUTS[1]),
    ] {
        let mut victim = victim(fake(text), 1);
        let mut guest = Guest::new(&mut victim, features);
        let mut arrived = Vec::new();
        for round in 0..30 {
            send(&mut victim, &[(2 * round, 9000), (2 * round + 1, 60)]);
            victim.wait("packets", |victim| victim.port.drain(&mut victim.pool));
            arrived.extend(guest.take());
            guest.make_available(6);
        }
        let expected: Vec<_> = (0..60).map(|it| (it, [9000, 60][usize::from(it % 2)])).collect();
        assert_eq!(arrived, expected, "{text}");
        assert_eq!(victim.counters().tx.packets, 60, "{text}");
    }
}

/// The CPU alone needs no packets on their way.
#[test]
fn inline_engine_copies_as_no_engine_does() {
    let mut victim = victim(Queue::inline(), 0);
    let mut guest = Guest::new(&mut victim, LAYOUTS[0]);
    for round in 0..200 {
        send(&mut victim, &[(round, 1500)]);
        assert_eq!(guest.take(), [(round, 1500)]);
        guest.make_available(1);
    }
    assert_eq!(victim.counters().tx.packets, 200);
}

/// Bad chains are returned in their turn, too.
#[test]
fn dropped_packet_keeps_its_place() {
    let (held, mut victim) = holding(1000);
    let guest = Guest::new(&mut victim, LAYOUTS[0]);
    send(&mut victim, &[(1, 1500)]);
    // The next buffer lies outside of the memory.
    let bad = crate::front::Descriptor { address: 0, length: 2048, flags: 2, next: 0 };
    guest.front.set(crate::front::TO_GUEST, 1, bad);
    send(&mut victim, &[(2, 60)]);
    assert_eq!(guest.front.used(crate::front::TO_GUEST), 0);
    assert_eq!(victim.port.counters().tx.drops_sum(), 1);
    held.release();
    poll(&mut victim);
    assert_eq!(guest.front.used(crate::front::TO_GUEST), 2);
    let counters = victim.counters();
    assert_eq!((counters.tx.packets, counters.tx.drops_sum()), (1, 1));
}
