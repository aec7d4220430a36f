//! Descriptors whose close takes long, in every message that may carry one. The worker, the next
//! front end and the thread that drops the port do not wait for the close.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use haul_forward::{Pool, Port, Virtio, VirtioSettings};
use rustix::net::sockopt;

use crate::front::{
    Front, SET_FEATURES, SET_INFLIGHT_FD, SET_MEM_TABLE, SET_VRING_CALL, SET_VRING_ENABLE,
    SET_VRING_KICK,
};
use crate::slow::slow;
use crate::victim::Victim;

/// Time limit on a loaded machine.
const SOON: Duration = Duration::from_secs(15);

/// SET_LOG_FD and SET_VRING_ERR.
const SET_LOG_FD: u32 = 7;
const SET_VRING_ERR: u32 = 14;

/// Closes this process's own copy. If it is the last one, the close may wait, so a separate
/// thread closes it.
fn close(slow: OwnedFd) {
    let closing = thread::spawn(move || drop(slow));
    let start = Instant::now();
    while !closing.is_finished() && start.elapsed() < Duration::from_millis(100) {
        thread::yield_now();
    }
}

/// Sends a message of this code and body with such a descriptor. The sender closes its own copy
/// of the descriptor after `sent` bytes of the message. Checks that another front end is served,
/// and that the port can be dropped.
#[track_caller]
fn check_close_does_not_block(name: &str, code: u32, body: &[u8], sent: usize, goes_on: bool) {
    let Some((slow, _other)) = slow() else { return };
    let mut victim = Victim::new();
    let mut front = victim.front();
    let mut bytes = [code, 1, body.len() as u32].map(u32::to_ne_bytes).concat();
    bytes.extend(body);
    assert!(front.send_bytes_with(&bytes[..sent], &[slow.as_fd()]), "{name}");
    close(slow);
    if goes_on {
        front.send_bytes(&bytes[sent..]);
    }
    let start = Instant::now();
    victim.poll(1, 60);
    drop(front);
    victim.check_service();
    drop(victim);
    assert!(start.elapsed() < SOON, "{name}: {:?}", start.elapsed());
}

#[test]
fn close_of_message_descriptors_does_not_block() {
    let inflight = crate::dying::area_body(1 << 16, 0, 2, 64);
    let table = Front::table(&[[0, 1 << 20, 1 << 24, 0]]);
    let word = 0_u64.to_ne_bytes();
    for (name, code, body) in [
        ("memory", SET_MEM_TABLE, &table[..]),
        ("a call event", SET_VRING_CALL, &word),
        ("a kick event", SET_VRING_KICK, &word),
        ("an error event", SET_VRING_ERR, &word),
        ("an inflight area", SET_INFLIGHT_FD, &inflight),
        ("a log", SET_LOG_FD, &[]),
        ("features, which have none", SET_FEATURES, &word),
        ("a ring that is enabled", SET_VRING_ENABLE, &word),
        ("an unknown request", 99, &word),
    ] {
        for sent in [1, 12, 12 + body.len()] {
            check_close_does_not_block(&format!("{name}, {sent} B"), code, body, sent, true);
        }
    }
    check_close_does_not_block("half a message", SET_FEATURES, &word, 5, false);
    check_close_does_not_block("a message that is too long", SET_FEATURES, &[0; 5000], 12, true);
}

/// The descriptors are in messages that are never read, and on a connection that is never accepted.
#[test]
fn close_of_unread_descriptors_does_not_block() {
    let Some((slow, _other)) = slow() else { return };
    let mut victim = Victim::new();
    let front = victim.front();
    let waits = Front::connect(&victim.path());
    let start = Instant::now();
    // The conversation ends at the first message.
    assert!(front.send(99, &[], &[]));
    let _ = front.send(99, &[], &[slow.as_fd()]);
    assert!(waits.send(99, &[], &[slow.as_fd()]));
    close(slow);
    victim.poll(1, 60);
    drop((front, waits, victim));
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

/// A back end sends a descriptor with its first answer: the kernel refuses it.
#[test]
fn close_of_back_end_descriptor_does_not_block() {
    let Some((slow, _other)) = slow() else { return };
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("vm")).unwrap();
    let settings = VirtioSettings::new(folder.path().join("vm"));
    let mut port = Virtio::open("virtio0", &settings).unwrap().pop().unwrap();
    let mut pool = Pool::new(4096).unwrap();
    let start = Instant::now();
    port.service(&mut pool).unwrap();
    let mut socket: UnixStream = listener.accept().unwrap().0;
    // SET_OWNER and GET_FEATURES.
    socket.read_exact(&mut [0; 24]).unwrap();
    let front = Front::over(socket);
    let reply = [1_u32, 1 | 1 << 2, 8, 0, 1].map(u32::to_ne_bytes).concat();
    if front.send_bytes_with(&reply, &[slow.as_fd()]) {
        sockopt::set_socket_linger(&slow, Some(Duration::ZERO)).unwrap();
        eprintln!(
            "SKIPPED: a back end's descriptors: no Linux 6.16: run on that kernel or a newer one"
        );
        return;
    }
    close(slow);
    port.service(&mut pool).unwrap();
    port.stop(&mut pool);
    drop(port);
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}
