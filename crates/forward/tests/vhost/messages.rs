//! Invalid messages: the conversation ends, is counted, and the next one is served.

use std::fs::{self, DirEntry};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use haul_forward::{DropReason, Link, Port};

use crate::front::{
    FROM_GUEST, Front, GUEST, MEMORY_BYTES, PROCESS, SET_FEATURES, SET_MEM_TABLE, SET_VRING_ADDR,
    SET_VRING_BASE, SET_VRING_CALL, SET_VRING_ENABLE, SET_VRING_KICK, SET_VRING_NUM, VERSION_1,
    memory_file,
};
use crate::victim::{FEATURES, Victim};

/// Sends an invalid message, and checks that the conversation ends and the next one is served.
fn check(name: &str, act: impl FnOnce(&mut Front)) {
    let mut victim = Victim::new();
    let mut front = Front::connect(&victim.path());
    front.start(FEATURES);
    victim.wait_for_link(Link::Up);
    act(&mut front);
    assert!(front.is_disconnected(), "{name}: the port continues the conversation");
    victim.wait(name, |victim| {
        victim.poll(1, 64);
        victim.counters().resets == 1 && victim.port.link() == Link::Down
    });
    let why = victim.port.obstacle().expect(name);
    assert!(why.starts_with("the last front end "), "{name}: {why}");
    victim.check_service();
    assert_eq!(victim.port.obstacle(), None, "{name}");
}

fn pipe() -> OwnedFd {
    rustix::pipe::pipe().unwrap().1
}

#[test]
fn invalid_ring_is_refused() {
    let state = Front::state;
    check("an unknown ring", |front| _ = front.send(SET_VRING_NUM, &state(2, 64), &[]));
    check("a ring far away", |front| _ = front.send(SET_VRING_BASE, &state(u32::MAX, 0), &[]));
    check("no size", |front| _ = front.send(SET_VRING_NUM, &state(0, 0), &[]));
    check("an odd size", |front| _ = front.send(SET_VRING_NUM, &state(0, 65), &[]));
    check("a large size", |front| _ = front.send(SET_VRING_NUM, &state(1, 65_536), &[]));
    check("a large base", |front| _ = front.send(SET_VRING_BASE, &state(1, 65_536), &[]));
    for (number, address) in [(0, 0), (1, PROCESS + MEMORY_BYTES - 8), (2, u64::MAX - 63)] {
        check("an unmapped address", |front| {
            let mut body = Front::addresses(FROM_GUEST);
            body[8 + 8 * number..16 + 8 * number].copy_from_slice(&address.to_ne_bytes());
            front.send(SET_VRING_ADDR, &body, &[]);
        });
    }
    check("a call descriptor that is not an event", |front| {
        front.send(SET_VRING_CALL, &Front::words(&[0]), &[pipe().as_fd()]);
    });
    for (name, state) in [("an unknown ring", [9, 1]), ("a ring in a third state", [0, 2])] {
        check(name, |front| {
            front.send(SET_VRING_ENABLE, &Front::state(state[0], state[1]), &[]);
        });
    }
    check("a kick of an unknown ring", |front| {
        front.send(SET_VRING_KICK, &Front::words(&[7 | 0x100]), &[]);
    });
}

#[test]
fn invalid_memory_is_refused() {
    let file = memory_file(MEMORY_BYTES);
    let share = |front: &Front, regions: &[[u64; 4]]| {
        let files = vec![file.as_fd(); regions.len()];
        front.send(SET_MEM_TABLE, &Front::table(regions), &files);
    };
    let whole = [GUEST, MEMORY_BYTES, PROCESS, 0];
    check("no regions", |front| share(front, &[]));
    check("more than the file", |front| share(front, &[[GUEST, MEMORY_BYTES, PROCESS, 4096]]));
    check("no bytes", |front| share(front, &[[GUEST, 0, PROCESS, 0]]));
    check("the end of all addresses", |front| share(front, &[[u64::MAX - 4095, 8192, PROCESS, 0]]));
    check("two that overlap", |front| share(front, &[whole, [GUEST + 4096, 4096, 0, 0]]));
    check("twice the same", |front| share(front, &[whole, whole]));
    check("memory without the rings", |front| share(front, &[[GUEST, 4096, 0, 0]]));
    check("a pipe", |front| {
        front.send(SET_MEM_TABLE, &Front::table(&[whole]), &[pipe().as_fd()]);
    });
    check("a file of the kernel's own", |front| {
        let file = std::fs::File::open("/proc/self/maps").unwrap();
        front.send(SET_MEM_TABLE, &Front::table(&[whole]), &[file.as_fd()]);
    });
    check("no file", |front| _ = front.send(SET_MEM_TABLE, &Front::table(&[whole]), &[]));
    check("a file too many", |front| {
        let files = [file.as_fd(), file.as_fd()];
        front.send(SET_MEM_TABLE, &Front::table(&[whole]), &files);
    });
    check("a table cut short", |front| {
        let table = Front::table(&[whole]);
        front.send(SET_MEM_TABLE, &table[..table.len() - 8], &[file.as_fd()]);
    });
}

/// The reported reason is the actual fault of a disconnected front end.
#[test]
fn disconnected_front_end_has_a_reason() {
    type Act = fn(&mut Front);
    let chains: [(Act, &str); 7] = [
        (
            |front| {
                let file = std::fs::File::open("/proc/self/maps").unwrap();
                let whole = [GUEST, MEMORY_BYTES, PROCESS, 0];
                front.send(SET_MEM_TABLE, &Front::table(&[whole]), &[file.as_fd()]);
            },
            "memory in a file system of type 0x9fa0; a memory file (memfd), or a file of tmpfs",
        ),
        (
            |front| {
                let whole = [GUEST, MEMORY_BYTES, PROCESS, 4096];
                let file = memory_file(MEMORY_BYTES);
                front.send(SET_MEM_TABLE, &Front::table(&[whole]), &[file.as_fd()]);
            },
            "a region of 1048576 B at 4096 of 1048576 B",
        ),
        (
            |front| _ = front.send(SET_VRING_NUM, &Front::state(0, 65), &[]),
            "ring 0 cannot have 65 descr",
        ),
        (|front| _ = front.send(SET_VRING_NUM, &Front::state(9, 64), &[]), "5 queue pairs or more"),
        (
            |front| _ = front.send(SET_VRING_CALL, &Front::words(&[0]), &[pipe().as_fd()]),
            "not an eventfd",
        ),
        (
            |front| _ = front.send(SET_FEATURES, &Front::words(&[VERSION_1 | 1]), &[]),
            "features that were not offered, 0x1",
        ),
        (
            |front| _ = front.send(SET_VRING_ENABLE, &Front::state(0, 2), &[]),
            "ring 0 to the state 2",
        ),
    ];
    for (act, why) in chains {
        let mut victim = Victim::new();
        let mut front = victim.front();
        act(&mut front);
        victim.wait(why, |victim| victim.port.obstacle().is_some_and(|it| it.contains(why)));
    }
    let mut victim = Victim::new();
    let front = victim.front();
    rustix::fs::ftruncate(&front.memory, 0).unwrap();
    victim.wait("memory that is gone", |victim| {
        victim.poll(1, 64);
        victim.port.obstacle().is_some_and(|why| why.contains("memory can no longer be read"))
    });
}

#[test]
fn memory_on_a_disk_is_used_and_reported_as_slow() {
    let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    file.set_len(MEMORY_BYTES).unwrap();
    // TMPFS_MAGIC: if the tree is in memory, this test has no file on a disk.
    let is_memory = rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994;
    let mut victim = Victim::new();
    let mut front = Front::connect(&victim.path());
    front.memory = file.into();
    front.start(FEATURES);
    victim.wait_for_link(Link::Up);
    front.add_buffer(0);
    front.send_packet(0, 0xd5);
    victim.wait("a packet", |victim| {
        victim.poll(0, 0);
        !victim.came.is_empty()
    });
    victim.poll(1, 100);
    assert_eq!((front.used(0), front.used(1)), (1, 1));
    let notes = victim.port.notes();
    assert!(is_memory || notes[0].contains("memory lies in a file of "), "{notes:?}");
    // If the file is truncated, its memory is lost like any other memory.
    rustix::fs::ftruncate(&front.memory, 0).unwrap();
    victim.wait("a reset", |victim| {
        victim.poll(1, 64);
        victim.counters().resets == 1
    });
}

#[test]
fn invalid_message_is_refused() {
    check("features that were not offered", |front| {
        front.send(SET_FEATURES, &Front::words(&[VERSION_1 | 1]), &[]);
    });
    check("an unknown code", |front| _ = front.send(4711, &[], &[]));
    check("code 0", |front| _ = front.send(0, &[], &[]));
    check("a reply", |front| _ = front.send_raw(SET_FEATURES, 5, 8, &[0; 8], &[]));
    check("another version", |front| _ = front.send_raw(SET_FEATURES, 2, 8, &[0; 8], &[]));
    check("4 GiB", |front| _ = front.send_raw(SET_FEATURES, 1, u32::MAX, &[0; 8], &[]));
    check("too short a body", |front| _ = front.send_raw(SET_FEATURES, 1, 4, &[0; 4], &[]));
    check("too long a body", |front| _ = front.send_raw(SET_FEATURES, 1, 64, &[0; 64], &[]));
    check("any bytes", |front| front.send_bytes(&[0xA5; 4096]));
}

/// Memory files need not be sealed: a truncated one is an error, and raises no signal.
#[test]
fn truncated_memory_ends_only_the_conversation() {
    for length in [0, 4096, 0x2_0000] {
        let mut victim = Victim::new();
        let mut other = Victim::new();
        let other_front = other.front();
        let mut front = victim.front();
        // Buffers behind the new end, in both directions.
        for index in 0..32 {
            front.add_buffer(index);
            front.send_packet(index, 1);
        }
        victim.poll(4, 100);
        rustix::fs::ftruncate(&front.memory, length).unwrap();
        victim.wait("a reset", |victim| {
            victim.poll(4, 100);
            victim.counters().resets == 1
        });
        // At most the ring and a burst are lost. The number of packets without a link until the
        // reset depends on time.
        let lost = victim.counters().tx.drops_for(DropReason::Reset);
        assert!(lost <= 64, "{lost}");
        victim.check_service();
        drop(other_front);
        other.check_service();
        assert_eq!(other.counters().resets, 0);
    }
}

/// The flags of each of this process's descriptors of a guest's memory or event.
fn flags_of_guests() -> Vec<u32> {
    let of_guest = |entry: &DirEntry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        target.contains("memfd:guest") || target.contains("eventfd")
    };
    let flags = |entry: DirEntry| {
        let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
        // Other tests may close their descriptors at this moment.
        let info = fs::read_to_string(info).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    };
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(of_guest).filter_map(flags).collect()
}

/// A program that this process starts inherits neither a guest's memory nor its events.
#[test]
fn descriptors_of_front_end_are_closed_on_exec() {
    const CLOEXEC: u32 = 0o2_000_000;
    let mut victim = Victim::new();
    let _front = victim.front();
    // Another test may receive a descriptor at this moment, but each descriptor that is kept has
    // the flag.
    victim.wait("what is kept to be closed on exec", |_| {
        let flags = flags_of_guests();
        flags.len() >= 4 && flags.iter().all(|flags| flags & CLOEXEC != 0)
    });
}
