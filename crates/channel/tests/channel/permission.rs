//! A sender permits only the peer to read its memory. The sender names the peer, and only during
//! a transfer.
//!
//! With Yama in force (`ptrace_scope` 1), a test checks the kernel's decision. On every machine,
//! another test checks the calls of this process: a filter passes them to a thread of the test,
//! which records and answers them.

use std::ffi::c_int;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use haul_channel::{Channel, Error, Listener, Mechanism, Settings};

use crate::death::{SIZE, start};
use crate::support::{SHORT, by, pattern, two};
use crate::watched::{Answer, can_watch, watch};

/// The arguments of prctl with PR_SET_PTRACER, in order.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<Vec<i32>>>);

impl Asked {
    /// From now on every PR_SET_PTRACER of this thread, and of threads that it starts, succeeds
    /// and is recorded, with or without Yama.
    fn begin() -> Self {
        let asked = Self::default();
        let keeping = asked.clone();
        watch(&[libc::SYS_prctl], move |_, [what, name, ..]| {
            if what as c_int != libc::PR_SET_PTRACER {
                return Answer::Continue;
            }
            keeping.0.lock().unwrap().push(name as i32);
            Answer::Succeed
        });
        asked
    }

    fn so_far(&self) -> Vec<i32> {
        self.0.lock().unwrap().clone()
    }
}

/// The role of a peer that records its calls. The other end is in the process that started this
/// process.
pub(crate) fn send_by_name(path: &Path, mechanism: Mechanism) {
    let asked = Asked::begin();
    let peer = std::os::unix::process::parent_id() as i32;
    let mut channel = Channel::connect(path, &by(mechanism)).unwrap();
    // One call checks for Yama, then the peer gets permission to try a read.
    assert_eq!(asked.so_far(), [0, peer, 0]);
    if !channel.offers(mechanism) {
        return;
    }
    channel.send(&pattern(SIZE, 11)).unwrap();
    assert_eq!(asked.so_far()[3..], [peer, 0], "named for one message, and withdrawn");
    channel.send(b"").unwrap();
    assert_eq!(asked.so_far().len(), 5, "an inline message needs no permission");

    let bytes = pattern(SIZE, 12);
    let mut sending = channel.start_send(&bytes).unwrap();
    assert!(!sending.advance().unwrap());
    let during = asked.so_far();
    assert_eq!(during[5..], [peer]);
    let settings = Settings { deadline: SHORT, wait: Some(SHORT), ..by(mechanism) };
    let mut other = another_peer(&settings);
    let error = other.0.send(&bytes).unwrap_err();
    assert!(matches!(error, Error::Deadline { .. }), "{error}");
    assert_eq!(asked.so_far(), during, "while one peer is named, no other is");
    drop(sending);
    assert_eq!(asked.so_far()[6..], [0], "withdrawn as it was given up");
    let own = std::process::id() as i32;
    let mut sending = other.0.start_send(&bytes).unwrap();
    assert!(!sending.advance().unwrap());
    assert_eq!(asked.so_far()[7..], [own]);
    drop(other.1);
    while sending.advance().is_ok_and(|is_complete| !is_complete) {
        thread::yield_now();
    }
    assert_eq!(asked.so_far()[8..], [0], "withdrawn as the peer went");
}

/// Both ends of a channel that begins while another peer is named. Neither of these two ends can
/// be named, so neither can be read.
fn another_peer(settings: &Settings) -> (Channel, Channel) {
    two(settings, settings)
}

#[test]
fn sender_names_its_peer_alone_and_withdraws_name() {
    if !can_watch("names for Yama") {
        return;
    }
    for mechanism in [Mechanism::Pull, Mechanism::Double] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = Listener::bind(&path).unwrap();
        let peer = start("by-name", mechanism, &path);
        let mut channel = listener.accept(&by(mechanism)).unwrap();
        match channel.recv() {
            Ok(got) => {
                assert!(got[..] == pattern(SIZE, 11), "{mechanism}");
                assert!(channel.recv().unwrap().is_empty());
            }
            // If no process may read another, no process is named.
            Err(error) => assert!(!channel.offers(mechanism), "{error}"),
        }
        peer.ended_well();
    }
}

/// Reads a byte of another process's memory.
fn can_read(process: i32, address: u64) -> bool {
    let mut byte = [0_u8];
    let local = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let base = std::ptr::without_provenance_mut(address as usize);
    let remote = libc::iovec { iov_base: base, iov_len: 1 };
    // SAFETY: one vector that names a byte here, and one that names another process's memory, which
    // the kernel checks and only reads.
    let count =
        unsafe { libc::process_vm_readv(process, &raw const local, 1, &raw const remote, 1, 0) };
    count == 1
}

/// The role of a receiver: reports whether it can read its parent's memory outside of a transfer.
pub(crate) fn read_the_sender(channel: &mut Channel) {
    let got = channel.recv().unwrap();
    assert!(got[..] == pattern(SIZE, 14));
    let was_pulled = got.account().mechanism == Mechanism::Pull;
    let address = channel.recv().unwrap();
    let address = u64::from_ne_bytes(address[..].try_into().unwrap());
    let parent = std::os::unix::process::parent_id() as i32;
    channel.send(&[was_pulled.into(), can_read(parent, address).into()]).unwrap();
}

/// The role of a third process: its exit status shows whether it can read that memory.
pub(crate) fn read_as_a_stranger(place: &str) {
    let (process, address) = place.split_once(' ').unwrap();
    let can = can_read(process.parse().unwrap(), address.parse().unwrap());
    assert!(!can, "a stranger can read");
}

/// Under Yama, a child may read its parent's memory only if the parent names the child.
#[test]
fn under_yama_only_peer_can_read_and_only_during_transfer() {
    let scope = "/proc/sys/kernel/yama/ptrace_scope";
    let Ok(found) = std::fs::read_to_string(scope) else {
        eprintln!(
            "SKIPPED: reading under Yama: no file {scope}: a kernel with CONFIG_SECURITY_YAMA"
        );
        return;
    };
    if rustix::process::getuid().is_root() {
        eprintln!("SKIPPED: reading under Yama: running as root: run it as an ordinary user");
        return;
    }
    if found.trim() != "1" {
        // With `ptrace_scope` 0 all processes may read, with 2 and 3 no process may. So naming a
        // peer changes nothing.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let peer = start("read-sender", Mechanism::Pull, &path);
    let mut channel = listener.accept(&by(Mechanism::Pull)).unwrap();
    assert!(channel.offers(Mechanism::Pull));
    let bytes = pattern(SIZE, 14);
    let address = bytes.as_ptr().expose_provenance() as u64;
    let stranger = |when: &str| {
        let place = format!("{} {address}", std::process::id());
        let role = format!("stranger ring {place}");
        let found = Command::new(std::env::current_exe().unwrap())
            .args(["death::peer", "--exact", "--test-threads=1"])
            .env("HAUL_CHANNEL_TEST_ROLE", role)
            .output()
            .unwrap();
        assert!(found.status.success(), "{when}");
    };
    let mut sending = channel.start_send(&bytes).unwrap();
    let mut is_complete = sending.advance().unwrap();
    stranger("in the middle of a transfer");
    while !is_complete {
        is_complete = sending.advance().unwrap();
    }
    drop(sending);
    stranger("after it");
    channel.send(&address.to_ne_bytes()).unwrap();
    assert_eq!(channel.recv().unwrap()[..], [1, 0], "pulled; and no longer to be read");
    peer.ended_well();
}
