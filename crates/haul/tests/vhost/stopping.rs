//! Rings that their front end stops, and enables before anything else. Front ends that go: the
//! program `vhost_leaving`.

use haul::forward::{Link, Port};

use crate::front::{Front, GET_VRING_BASE, PROTOCOL, SET_OWNER, SET_VRING_ENABLE, WANTS_ANSWER};
use crate::victim::{FEATURES, Victim};

#[test]
fn a_ring_that_is_stopped_says_how_far_it_came() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    for index in 0..5 {
        front.send_packet(index, 9);
    }
    victim.poll(0, 0);
    assert_eq!(victim.came.len(), 5);
    front.say(GET_VRING_BASE, &Front::state(1, 0), &[]);
    assert_eq!(front.answer(), Some(5 << 32 | 1));
    assert_eq!(victim.port.link(), Link::Down);
    front.send_packet(6, 9);
    victim.poll(0, 0);
    assert_eq!(victim.came.len(), 5, "it is stopped");
}

/// As QEMU does: before any feature is set, and with answers.
#[test]
fn rings_are_enabled_before_features_are_set() {
    let mut victim = Victim::new();
    let mut front = Front::connect(&victim.path());
    front.say(SET_OWNER, &[], &[]);
    for ring in 0..2 {
        let state = Front::state(ring, 1);
        front.say_raw(SET_VRING_ENABLE, WANTS_ANSWER, 8, &state, &[]);
        assert_eq!(front.answer(), Some(0));
    }
    front.start(FEATURES | PROTOCOL);
    victim.wait_for_link(Link::Up);
    front.send_packet(0, 7);
    victim.poll(0, 0);
    assert_eq!(victim.came, [(7, 60)]);
    front.say(SET_VRING_ENABLE, &Front::state(1, 0), &[]);
    victim.wait_for_link(Link::Down);
    front.say(SET_VRING_ENABLE, &Front::state(1, 1), &[]);
    victim.wait_for_link(Link::Up);
    assert_eq!(victim.counters().resets, 0);
}
