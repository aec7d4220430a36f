//! Rings that their front end stops, enables before any other message, and uses beyond the end of
//! their indices. The program `vhost_leaving` tests front ends that disconnect.

use haul_forward::{Link, Port};

use crate::front::{
    EVENT_INDEX, FROM_GUEST, Front, GET_VRING_BASE, PROTOCOL, SET_OWNER, SET_VRING_ENABLE, SIZE,
    TO_GUEST, WANTS_ANSWER,
};
use crate::victim::{FEATURES, Victim};

#[test]
fn stopped_ring_reports_its_progress() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    for index in 0..5 {
        front.send_packet(index, 9);
    }
    victim.poll(0, 0);
    assert_eq!(victim.came.len(), 5);
    front.send(GET_VRING_BASE, &Front::state(1, 0), &[]);
    assert_eq!(front.answer(), Some(5 << 32 | 1));
    assert_eq!(victim.port.link(), Link::Down);
    front.send_packet(6, 9);
    victim.poll(0, 0);
    assert_eq!(victim.came.len(), 5, "the ring is stopped");
}

/// QEMU enables rings before it sets any feature, and requests answers.
#[test]
fn rings_may_be_enabled_before_features_are_set() {
    let mut victim = Victim::new();
    let mut front = Front::connect(&victim.path());
    front.send(SET_OWNER, &[], &[]);
    for ring in 0..2 {
        let state = Front::state(ring, 1);
        front.send_raw(SET_VRING_ENABLE, WANTS_ANSWER, 8, &state, &[]);
        assert_eq!(front.answer(), Some(0));
    }
    front.start(FEATURES | PROTOCOL);
    victim.wait_for_link(Link::Up);
    front.send_packet(0, 7);
    victim.poll(0, 0);
    assert_eq!(victim.came, [(7, 60)]);
    front.send(SET_VRING_ENABLE, &Front::state(1, 0), &[]);
    victim.wait_for_link(Link::Down);
    front.send(SET_VRING_ENABLE, &Front::state(1, 1), &[]);
    victim.wait_for_link(Link::Up);
    assert_eq!(victim.counters().resets, 0);
}

/// A ring resumes at its used index, and indices continue at 0 after 65,535.
#[test]
fn indices_wrap_around() {
    const FIRST: u16 = 65_500;
    for features in [FEATURES, FEATURES | EVENT_INDEX] {
        let mut victim = Victim::new();
        let mut front = Front::connect(&victim.path());
        [TO_GUEST, FROM_GUEST].into_iter().for_each(|ring| front.begin_at(ring, FIRST));
        front.start(features);
        victim.wait_for_link(Link::Up);
        for number in 0..100_u16 {
            front.add_buffer(number % SIZE);
            front.send_packet(number % SIZE, number as u8);
            victim.wait("a packet from the guest", |victim| {
                victim.poll(0, 0);
                victim.came.len() > usize::from(number)
            });
            victim.poll(1, 100);
            assert_eq!(victim.came.last(), Some(&(number as u8, 60)));
            let used = FIRST.wrapping_add(number + 1);
            assert_eq!([front.used(TO_GUEST), front.used(FROM_GUEST)], [used; 2], "{number}");
        }
        let counters = victim.counters();
        assert_eq!((counters.tx.drops_sum(), counters.resets), (0, 0));
        front.send(GET_VRING_BASE, &Front::state(0, 0), &[]);
        let base = u64::from(FIRST.wrapping_add(100));
        assert_eq!(front.answer(), Some(base << 32), "after the wrap");
    }
}
