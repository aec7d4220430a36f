//! A front end that adds and removes regions of memory one by one, while packets pass.

use std::os::fd::AsFd;

use haul_forward::{Link, Port};

use crate::front::{
    FROM_GUEST, Front, GUEST, MEMORY_BYTES, PROCESS, PROTOCOL, SET_PROTOCOL_FEATURES,
    SET_VRING_ENABLE, SIZE, TO_GUEST, memory_file,
};
use crate::victim::{FEATURES, Victim};

const GET_MAX_MEM_SLOTS: u32 = 36;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;

/// VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS.
const SLOTS: u64 = 1 << 15;

/// The region of the rings and buffers, and one behind it, as guest, bytes, process, offset.
const WHOLE: [u64; 4] = [GUEST, MEMORY_BYTES, PROCESS, 0];
const OTHER: [u64; 4] = [GUEST + (1 << 30), 4096, PROCESS + (1 << 30), 0];

/// The body of a message about one region.
fn region(region: [u64; 4]) -> Vec<u8> {
    Front::words(&[0, region[0], region[1], region[2], region[3]])
}

fn add(front: &Front, at: [u64; 4]) {
    assert!(front.send(ADD_MEM_REG, &region(at), &[front.memory.as_fd()]));
}

fn remove(front: &Front, at: [u64; 4]) {
    assert!(front.send(REM_MEM_REG, &region(at), &[]));
}

/// A front end that gives its memory by slots.
fn start(victim: &mut Victim) -> Front {
    victim.wait_for_link(Link::Down);
    let mut front = Front::connect(&victim.path());
    for step in 0..Front::steps() {
        // The third message sets the features, the fourth the memory.
        if step == 3 {
            front.send(SET_PROTOCOL_FEATURES, &Front::words(&[SLOTS]), &[]);
            front.send(GET_MAX_MEM_SLOTS, &[], &[]);
            assert_eq!(front.answer(), Some(32));
            add(&front, OTHER);
            add(&front, WHOLE);
        } else {
            front.step(step, FEATURES | PROTOCOL);
        }
    }
    for ring in [TO_GUEST, FROM_GUEST] {
        front.send(SET_VRING_ENABLE, &Front::state(ring as u32, 1), &[]);
    }
    front
}

#[test]
fn rings_go_on_while_regions_come_and_go() {
    let mut victim = Victim::new();
    let mut front = start(&mut victim);
    victim.wait_for_link(Link::Up);
    (0..SIZE).for_each(|index| front.add_buffer(index));
    for round in 0..4_u16 {
        front.send_packet(round, round as u8);
        victim.wait("a packet from the guest", |victim| {
            victim.poll(0, 0);
            victim.came.len() == usize::from(round) + 1
        });
        // A ring may still be changing.
        victim.wait("a packet to the guest", |victim| {
            victim.poll(1, 100);
            front.used(TO_GUEST) > round
        });
        if round % 2 == 0 {
            remove(&front, OTHER);
        } else {
            add(&front, OTHER);
        }
        // The rings wait without their memory, and go on behind it.
        if round == 1 {
            remove(&front, WHOLE);
            victim.wait_for_link(Link::Down);
            add(&front, WHOLE);
        }
        victim.wait_for_link(Link::Up);
    }
    assert_eq!(victim.counters().resets, 0);
}

/// A descriptor in a region that was removed is not followed.
#[test]
fn packet_in_removed_region_is_dropped() {
    let mut victim = Victim::new();
    let mut front = start(&mut victim);
    victim.wait_for_link(Link::Up);
    let put = |front: &mut Front, address: u64| {
        let index = front.available(FROM_GUEST);
        let descriptor = crate::front::Descriptor { address, length: 72, flags: 0, next: 0 };
        front.set(FROM_GUEST, index, descriptor);
        front.make_available(FROM_GUEST, index);
    };
    put(&mut front, OTHER[0]);
    victim.wait("a packet", |victim| {
        victim.poll(0, 0);
        victim.came.len() == 1
    });
    remove(&front, OTHER);
    // An answer follows the change.
    front.send(GET_MAX_MEM_SLOTS, &[], &[]);
    assert_eq!(front.answer(), Some(32));
    put(&mut front, OTHER[0]);
    put(&mut front, GUEST + Front::buffer(FROM_GUEST, 9));
    victim.wait("a packet", |victim| {
        victim.poll(0, 0);
        victim.came.len() == 2
    });
    assert_eq!(front.used(FROM_GUEST), 3);
    assert_eq!(victim.counters().rx.drops_sum(), 1);
}

#[test]
fn invalid_region_ends_conversation() {
    let file = memory_file(MEMORY_BYTES);
    type Act<'a> = &'a dyn Fn(&Front);
    let acts: [(&str, Act<'_>); 6] = [
        ("a region twice", &|front| add(front, WHOLE)),
        ("a region that overlaps", &|front| add(front, [GUEST + 4096, 4096, 0, 0])),
        ("more than the file", &|front| add(front, [1 << 40, MEMORY_BYTES + 1, 0, 0])),
        ("a region that is not there", &|front| remove(front, [GUEST, 4096, PROCESS, 0])),
        ("no file", &|front| _ = front.send(ADD_MEM_REG, &region(OTHER), &[])),
        ("two files", &|front| {
            front.send(ADD_MEM_REG, &region([1 << 40, 4096, 0, 0]), &[file.as_fd(), file.as_fd()]);
        }),
    ];
    for (name, act) in acts {
        let mut victim = Victim::new();
        let mut front = start(&mut victim);
        victim.wait_for_link(Link::Up);
        act(&front);
        assert!(front.is_disconnected(), "{name}: the port continues the conversation");
        victim.wait(name, |victim| {
            victim.poll(1, 64);
            victim.counters().resets == 1 && victim.port.link() == Link::Down
        });
        victim.check_service();
    }
}
