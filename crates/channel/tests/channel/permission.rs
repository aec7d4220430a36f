//! Whom a sender lets read its memory: the one peer, by name, and only as long as a transfer lasts.
//!
//! Where Yama is in force (`ptrace_scope` 1), the kernel is asked; and everywhere, what this
//! process asked of it: a filter has each such call answered by a thread of the test, which keeps
//! what was asked.

use std::ffi::c_int;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use haul_channel::{Channel, Error, Listener, Mechanism, Settings, pair};

use crate::death::{SIZE, start};
use crate::support::{SHORT, by, pattern};
use crate::watched::{Answer, can_watch, watch};

/// What prctl was asked with PR_SET_PTRACER, in order.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<Vec<i32>>>);

impl Asked {
    /// From here on every PR_SET_PTRACER of this thread, and of those that it starts, succeeds and
    /// is kept, whether or not there is a Yama.
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

/// What a peer does that keeps what it asks. This end lives in the process that started it.
pub(crate) fn send_by_name(path: &Path, mechanism: Mechanism) {
    let asked = Asked::begin();
    let peer = std::os::unix::process::parent_id() as i32;
    let mut channel = Channel::connect(path, &by(mechanism)).unwrap();
    // Whether there is a Yama is tried once, then the peer is let try whether it can read.
    assert_eq!(asked.so_far(), [0, peer, 0]);
    if !channel.offers(mechanism) {
        return;
    }
    channel.send(&pattern(SIZE, 11)).unwrap();
    assert_eq!(asked.so_far()[3..], [peer, 0], "named for one message, and withdrawn");
    channel.send(b"").unwrap();
    assert_eq!(asked.so_far().len(), 5, "nobody reads a message that is inline");

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

/// Both ends of a channel that begins while somebody is named: nobody else is, so neither can be
/// read.
fn another_peer(settings: &Settings) -> (Channel, Channel) {
    let (one, other) = pair().unwrap();
    let accepting = thread::spawn({
        let settings = settings.clone();
        move || Channel::accept_over(other, &settings).unwrap()
    });
    (Channel::connect_over(one, settings).unwrap(), accepting.join().unwrap())
}

#[test]
fn a_sender_names_its_peer_alone_and_takes_the_name_back() {
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
            // Where no process may read another there is nothing to name anybody for.
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

/// What a receiver does, and whoever else there is: tells whether it can read its parent's memory
/// when no transfer is under way.
pub(crate) fn read_the_sender(channel: &mut Channel) {
    let got = channel.recv().unwrap();
    assert!(got[..] == pattern(SIZE, 14));
    let was_pulled = got.account().mechanism == Mechanism::Pull;
    let address = channel.recv().unwrap();
    let address = u64::from_ne_bytes(address[..].try_into().unwrap());
    let parent = std::os::unix::process::parent_id() as i32;
    channel.send(&[was_pulled.into(), can_read(parent, address).into()]).unwrap();
}

/// A third process: says by its end whether it can read that memory.
pub(crate) fn read_as_a_stranger(place: &str) {
    let (process, address) = place.split_once(' ').unwrap();
    let can = can_read(process.parse().unwrap(), address.parse().unwrap());
    assert!(!can, "a stranger can read");
}

/// Of children Yama lets nobody read a parent unless it is named.
#[test]
fn with_yama_only_the_peer_can_read_and_only_meanwhile() {
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
        // 0 lets everybody read, 2 and 3 nobody: there is nothing that a name could change.
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
