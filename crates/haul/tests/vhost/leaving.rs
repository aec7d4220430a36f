//! Front ends that go: at every step of the handshake, and under load, again and again. Nothing
//! stays behind, and the other ports go on.

use haul::forward::{Link, Port};

use crate::front::{Front, GET_VRING_BASE};
use crate::victim::{FEATURES, Victim};

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:guest")).count()
}

/// One test, because files are counted in the whole process.
#[test]
fn front_ends_that_go_leave_nothing_behind() {
    let mut victim = Victim::new();
    for step in 0..=Front::steps() {
        let mut front = Front::connect(&victim.path());
        (0..step).for_each(|step| front.step(step, FEATURES));
        victim.poll(1, 64);
        drop(front);
        victim.poll(1, 64);
    }
    victim.check_service();
    assert_eq!(victim.counters().resets, 0, "going is no mistake");
    let mut random = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..300 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let mut front = Front::connect(&victim.path());
        front.start(FEATURES);
        victim.wait_for_link(Link::Up);
        for index in 0..(random >> 40) % 40 {
            front.give_buffer(index as u16);
            front.send_packet(index as u16, index as u8);
            if random >> 33 & index == 0 {
                victim.poll(3, 1 + (random >> 20) as usize % 5000);
            }
        }
        drop(front);
        victim.wait_for_link(Link::Down);
    }
    victim.check_service();
    victim.wait("all mappings to go", |_| mappings() == 0 || open_files() > 4096);
    let files: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.to_string_lossy().contains("memfd:guest"))
        .collect();
    // Those of other tests of this process are their own: few, and not one for each of these.
    assert!(files.len() < 60, "{} files of guests that went", files.len());
}

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
