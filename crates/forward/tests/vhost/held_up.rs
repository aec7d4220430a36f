//! Attempts of a peer to block a worker: events that the peer shares, rings that cannot be read,
//! and chains of many descriptors. No call waits for the peer, and none takes long.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use haul_forward::VirtioSettings;
use haul_forward::{Burst, DropReason, Link, Pool, Port, Vhost, VhostSettings, Virtio};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

use crate::front::{
    Descriptor, FROM_GUEST, Front, GET_VRING_BASE, GUEST, IS_INDIRECT, MEMORY_BYTES, NEXT, PACKED,
    PROTOCOL, SET_VRING_CALL, SET_VRING_ENABLE, SIZE, TO_GUEST, VERSION_1, WRITE, bytes_of,
};
use crate::random::Random;
use crate::victim::{FEATURES, LONG, Victim, settings};

/// Runs `act` on a separate thread. If `act` hangs, fails without waiting for it.
fn in_time<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || done.send(act()));
    is_done.recv_timeout(LONG).unwrap_or_else(|_| panic!("{what}: not within {LONG:?}"))
}

/// Fills an event, so that a write to it waits.
fn fill(event: BorrowedFd<'_>) {
    fcntl_setfl(event, OFlags::NONBLOCK).unwrap();
    // Empties the event first: an event that was signalled in between has no room for the value.
    let _ = rustix::io::read(event, &mut [0; 8]);
    let _ = rustix::io::write(event, &(u64::MAX - 1).to_ne_bytes());
    fcntl_setfl(event, OFlags::empty()).unwrap();
}

#[test]
fn file_named_like_an_event_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("anon_inode:[eventfd]")).unwrap();
    let mut victim = Victim::new();
    let mut front = victim.front();
    front.send(SET_VRING_CALL, &Front::words(&[FROM_GUEST]), &[file.as_fd()]);
    assert!(front.is_disconnected());
    victim.wait("a reset", |victim| victim.counters().resets == 1);
    let obstacle = victim.port.obstacle().unwrap();
    assert!(obstacle.contains("not an eventfd"), "{obstacle}");
    victim.check_service();
    assert_eq!(file.metadata().unwrap().len(), 0);
}

/// The front end empties its event and fills it again, at any moment of a call.
#[test]
fn full_call_event_does_not_block_worker() {
    let event = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    let (filled, fills_until) = (event.clone(), is_over.clone());
    let filling = thread::spawn(move || {
        while !fills_until.load(Ordering::Relaxed) {
            fill(filled.as_fd());
        }
        rustix::io::read(&*filled, &mut [0; 8]).unwrap();
    });
    let called = event.clone();
    in_time("calls", move || {
        let mut victim = Victim::new();
        let mut front = victim.front();
        front.send(SET_VRING_CALL, &Front::words(&[FROM_GUEST]), &[called.as_fd()]);
        for number in 0..20_000_u32 {
            front.send_packet((number % u32::from(SIZE)) as u16, 9);
            victim.wait("a packet", |victim| {
                victim.poll(0, 0);
                victim.came.len() as u32 > number
            });
        }
    });
    is_over.store(true, Ordering::Relaxed);
    filling.join().unwrap();
}

/// A front end whose ring from the guest has started, and the event of this ring's calls.
fn called_front(victim: &mut Victim) -> (Front, OwnedFd) {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
    let front = victim.front();
    front.send(SET_VRING_CALL, &Front::words(&[FROM_GUEST]), &[event.as_fd()]);
    victim.wait("the call of a ring that starts", |_| is_called(&event));
    (front, event)
}

fn is_called(event: &OwnedFd) -> bool {
    rustix::io::read(event, &mut [0; 8]).is_ok()
}

/// A call waits for more packets, but not for ever.
#[test]
fn call_for_one_packet_comes() {
    let mut victim = Victim::new();
    let (mut front, event) = called_front(&mut victim);
    for number in 0..20 {
        front.send_packet(number, 9);
        victim.wait("a call", |victim| {
            victim.poll(0, 0);
            is_called(&event)
        });
        assert_eq!(victim.came.len(), usize::from(number) + 1);
    }
}

/// A front end may stop a ring while its call waits.
#[test]
fn stopped_ring_owes_no_call() {
    for _ in 0..10 {
        let mut victim = Victim::new();
        let (mut front, event) = called_front(&mut victim);
        front.send_packet(0, 9);
        while victim.came.is_empty() {
            victim.poll(0, 0);
        }
        // On a slow machine, the call came already.
        front.send(GET_VRING_BASE, &Front::state(FROM_GUEST as u32, 0), &[]);
        assert_eq!(front.answer(), Some(1 << 32 | 1));
        assert!(is_called(&event));
    }
}

/// A back end that negotiates the minimum, and returns the kick events that it received.
fn negotiate(mut socket: UnixStream) -> (UnixStream, Vec<OwnedFd>) {
    let mut kicks = Vec::new();
    while kicks.len() < 2 {
        let (mut header, mut space) = ([0; 12], [MaybeUninit::uninit(); 512]);
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut header)];
        let flags = RecvFlags::WAITALL | RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(&socket, parts, &mut ancillary, flags).unwrap();
        let files: Vec<OwnedFd> = ancillary
            .drain()
            .flat_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => files.collect(),
                _ => vec![],
            })
            .collect();
        let [code, _, bytes] =
            [0, 4, 8].map(|at| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap()));
        socket.read_exact(&mut vec![0; bytes as usize]).unwrap();
        match code {
            // GET_FEATURES.
            1 => {
                let mut reply = [code, 1 | 1 << 2, 8].map(u32::to_ne_bytes).concat();
                reply.extend(VERSION_1.to_ne_bytes());
                socket.write_all(&reply).unwrap();
            }
            // SET_VRING_KICK.
            12 => kicks.extend(files),
            _ => {}
        }
    }
    (socket, kicks)
}

#[test]
fn full_kick_event_does_not_block_worker() {
    in_time("kicks", || {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("vm")).unwrap();
        let back_end = thread::spawn(move || negotiate(listener.accept().unwrap().0));
        let settings = VirtioSettings::new(folder.path().join("vm"));
        let mut port = Virtio::open("virtio0", &settings).unwrap().pop().unwrap();
        let mut pool = Pool::new(4096).unwrap();
        port.service(&mut pool).unwrap();
        let (_socket, kicks) = back_end.join().unwrap();
        kicks.iter().for_each(|kick| fill(kick.as_fd()));
        while port.link() != Link::Up {
            port.service(&mut pool).unwrap();
        }
        for _ in 0..10 {
            let mut burst = Burst::new();
            burst.push(pool.take(60).unwrap());
            port.tx_burst(&mut pool, &mut burst);
            assert!(burst.is_empty());
        }
        port.stop(&mut pool);
    });
}

/// Polls a device's queue pairs for a while; returns the number of polls.
fn polls(ports: &mut [Vhost], pool: &mut Pool, mut beside: impl FnMut() -> bool) -> u64 {
    let (start, mut polls) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_millis(500) && beside() {
        for port in &mut *ports {
            port.rx_burst(pool, &mut Burst::new());
            let mut burst = Burst::new();
            burst.push(pool.take(60).unwrap());
            port.tx_burst(pool, &mut burst);
            pool.free_burst(&mut burst);
            // A worker makes these calls now and then.
            let _ = (port.agreement(), port.notes());
            polls += 1;
        }
    }
    polls
}

/// Packed rings that no driver has written: each read of a ring takes long, and is repeated.
#[test]
fn unreadable_rings_do_not_block_worker() {
    const PAIRS: u16 = 8;
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        let settings = VhostSettings { queues: PAIRS, ..settings(path) };
        Vhost::open("vhost0", &settings).unwrap()
    };
    let path = folder.path().join("vm");
    let (mut idle_ports, mut ports) = (open(&folder.path().join("idle")), open(&path));
    let mut pool = Pool::new(64).unwrap();
    let mut front = Front::connect(&path);
    let mut random = Random::new(0x0BAD_5EED_0000_0001);
    let junk: Vec<u8> = (0..MEMORY_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    front.put(0, &junk);
    let rings = 2 * usize::from(PAIRS);
    let features = FEATURES | PACKED | PROTOCOL | 1 << 22;
    (0..Front::steps_of(rings)).for_each(|step| front.step(step, features));
    (0..rings as u32).for_each(|ring| {
        front.send(SET_VRING_ENABLE, &Front::state(ring, 1), &[]);
    });
    front.socket.set_nonblocking(true).unwrap();
    // Work of other programs may slow a single try down.
    let mut tries = Vec::new();
    let is_quick = (0..10).any(|_| {
        let idle = polls(&mut idle_ports, &mut pool, || true);
        let mut sent = 0;
        let attacked = polls(&mut ports, &mut pool, || {
            sent += u32::from(front.share());
            true
        });
        eprintln!("{idle} polls without a front end, {attacked} with {sent} messages");
        tries.push((idle, attacked, sent));
        sent > 0 && attacked > idle / 10
    });
    assert!(is_quick, "polls without a front end, polls with one, and its messages: {tries:?}");
}

/// Tables of 1,024 descriptors, all empty except for the last one of some: a call follows a few
/// of the tables, and the other tables wait for the next calls, in order.
#[test]
fn call_follows_few_long_chains() {
    const COUNT: u16 = 1024;
    let mut victim = Victim::new();
    let mut front = victim.front();
    let [empty, packets] = [0x4_8000, 0x4_C000].map(|at| {
        let descriptor = |index: u16| Descriptor {
            address: GUEST + 0x5_0000,
            length: u32::from(at == 0x4_C000 && index + 1 == COUNT) * 72,
            flags: if index + 1 < COUNT { NEXT } else { 0 },
            next: index + 1,
        };
        (0..COUNT)
            .for_each(|index| front.put(at + 16 * u64::from(index), &bytes_of(descriptor(index))));
        at
    });
    front.put(0x5_0000, &[0; 12]);
    front.put(0x5_0000 + 12, &[7; 60]);
    for index in 0..SIZE {
        let at = if index % 2 == 0 { empty } else { packets };
        let address = GUEST + at;
        let table = Descriptor { address, length: 16 * 1024, flags: IS_INDIRECT, next: 0 };
        front.set(FROM_GUEST, index, table);
        front.make_available(FROM_GUEST, index);
    }
    let (mut before, mut calls) = (0, 0);
    victim.wait("all chains", |victim| {
        victim.poll(0, 0);
        let used = front.used(FROM_GUEST);
        assert!(used - before <= SIZE / 4, "{} chains at once", used - before);
        calls += u32::from(used > before);
        before = used;
        used == SIZE
    });
    assert!(calls >= 4, "{calls} calls");
    let counters = victim.counters();
    assert_eq!(counters.rx.drops_for(DropReason::TooShort), u64::from(SIZE / 2));
    assert_eq!(victim.came, vec![(7, 60); usize::from(SIZE / 2)]);
    assert_eq!(counters.resets, 0);
}

/// Packets to the guest: each call returns a few chains without room and drops their packet. A
/// later packet finds the buffer behind these chains.
#[test]
fn call_returns_few_chains_without_room() {
    let mut victim = Victim::new();
    let mut front = victim.front();
    for index in 0..1024_u16 {
        let flags = WRITE | if index < 1023 { NEXT } else { 0 };
        let empty = Descriptor { address: GUEST + 0x5_0000, length: 0, flags, next: index + 1 };
        front.put(0x4_8000 + 16 * u64::from(index), &bytes_of(empty));
    }
    for index in 0..SIZE - 1 {
        let address = GUEST + 0x4_8000;
        let table = Descriptor { address, length: 16 * 1024, flags: IS_INDIRECT, next: 0 };
        front.set(TO_GUEST, index, table);
        front.make_available(TO_GUEST, index);
    }
    front.add_buffer(SIZE - 1);
    let (mut before, mut sent) = (0, 0);
    victim.wait("the buffer", |victim| {
        victim.poll(32, 60);
        sent += 32;
        let used = front.used(TO_GUEST);
        assert!(used - before <= SIZE / 4, "{} chains at once", used - before);
        before = used;
        used == SIZE
    });
    let counters = victim.counters();
    let long = counters.tx.drops_for(DropReason::TooLong);
    assert_eq!((counters.tx.packets, counters.resets), (1, 0));
    assert!(long > 0 && long < u64::from(SIZE), "{long} of {sent} dropped");
}
