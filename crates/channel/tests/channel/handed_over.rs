//! Messages that were built in place, between ends that trust each other: the memory itself is
//! handed over.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use haul_channel::{Buffer, Building, Channel, Error, Listener, Mechanism, Settings};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};

use crate::death::start;
use crate::raw::{Liar, receive, send};
use crate::support::{by, ends, impatient, pattern};

const SEALED: u64 = 5;
const PAGE: usize = 4096;

/// Two ends that trust each other and expect to write to the whole message.
fn trusting() -> (Channel, Channel) {
    let settings = Settings { trusts_peer: true, dirty_fraction: 1.0, ..Settings::default() };
    ends(&settings)
}

fn built(bytes: &[u8]) -> Building {
    let mut building = Building::new(bytes.len()).unwrap();
    building.copy_from_slice(bytes);
    building
}

/// Whether the kernel shows that a file is open elsewhere. If the kernel does not show this, all
/// memory arrives as a private view.
fn has_leases() -> bool {
    let enabled = std::fs::read_to_string("/proc/sys/fs/leases-enable");
    let can = enabled.is_ok_and(|text| text.trim() == "1");
    if !can {
        eprintln!("SKIPPED: memory handed over: no leases: mount /proc, set fs.leases-enable to 1");
    }
    can
}

/// How often a hand-over is tried until the memory itself is handed over: a child that another
/// test forks has the memory from its fork to its exec, and the receiver then copies it.
const TRIES: usize = 10;

/// Whether this memory is a shared mapping of a file, not a private view.
fn is_shared(buffer: &[u8]) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let at = buffer.as_ptr().addr();
    let line = maps.lines().find(|line| {
        let (start, rest) = line.split_once('-').unwrap();
        let end = rest.split_once(' ').unwrap().0;
        let address = |text| usize::from_str_radix(text, 16).unwrap();
        (address(start)..address(end)).contains(&at)
    });
    line.unwrap().contains("rw-s")
}

#[test]
fn receiver_writes_to_handed_over_memory_without_copy() {
    if !has_leases() {
        return;
    }
    let (mut one, mut other) = trusting();
    for size in [1, PAGE, 5000, (6 << 20) + 5000] {
        let bytes = pattern(size, 61);
        let handed_over = (0..TRIES).find_map(|_| {
            let sent = one.send_built(built(&bytes)).unwrap();
            let got = other.recv().unwrap();
            assert!(got[..] == bytes);
            assert_eq!(sent.copied_bytes, 0);
            // If another process has the memory, the receiver copies it, because the receiver
            // expects to write to all of it.
            (sent.mechanism == Mechanism::Sealed && is_shared(&got)).then_some(got)
        });
        let mut got = handed_over.unwrap();
        got.will_write(0..size);
        got.fill(7);
        assert!(got.iter().all(|byte| *byte == 7));
        assert_eq!(got.account().copied_bytes, 0);
    }
}

#[test]
fn handed_over_pages_replace_hauls_own_and_are_copied_elsewhere() {
    if !has_leases() {
        return;
    }
    let (mut one, mut other) = trusting();
    let bytes = pattern((4 << 20) + 100, 67);
    let mut target = Buffer::new(6 << 20).unwrap();
    for start in [0, 2 * PAGE, 100] {
        let copied = if start == 100 { bytes.len() as u64 } else { 100 };
        let is_as_expected = (0..TRIES).any(|_| {
            one.send_built(built(&bytes)).unwrap();
            target.fill(0xee);
            let account = other.recv_into(&mut target[start..]).unwrap();
            assert!(target[start..start + bytes.len()] == bytes);
            let outside = target[..start].iter().chain(&target[start + bytes.len()..]);
            assert!(outside.into_iter().all(|byte| *byte == 0xee), "{start}");
            account.copied_bytes == copied && (start == 100 || is_shared(&target[start..]))
        });
        assert!(is_as_expected, "{start}");
    }
    one.send_built(built(&bytes)).unwrap();
    let mut target = vec![0; bytes.len()];
    assert_eq!(other.recv_into(&mut target).unwrap().copied_bytes, bytes.len() as u64);
    assert!(target == bytes);
}

#[test]
fn receiver_compares_checksum_of_handed_over_memory() {
    if !has_leases() {
        return;
    }
    let settings = Settings { trusts_peer: true, integrity: true, ..Settings::default() };
    let (mut one, mut other) = ends(&settings);
    let bytes = pattern(3_000_000, 71);
    assert!((0..TRIES).any(|_| {
        one.send_built(built(&bytes)).unwrap();
        let got = other.recv().unwrap();
        assert!(got[..] == bytes && got.account().is_checked);
        is_shared(&got)
    }));
}

/// If a child of fork also holds the memory, the sender keeps it and gets an error. The test runs
/// in a separate process, because the fork copies the state of all threads.
#[test]
fn send_built_fails_while_fork_has_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let peer = start("fork", Mechanism::Sealed, &path);
    let mut channel = listener.accept(&by(Mechanism::Sealed)).unwrap();
    for byte in [4, 5] {
        let got = channel.recv().unwrap();
        assert!(got[..] == [byte; PAGE]);
    }
    peer.ended_well();
}

/// The role of the peer.
pub(crate) fn send_memory_of_fork(channel: &mut Channel) {
    let building = built(&[3; 2 * PAGE]);
    // SAFETY: the child does nothing but wait to be killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it ends with its parent, if it is not killed before.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        loop {
            // SAFETY: pause has no preconditions.
            unsafe { libc::pause() };
        }
    }
    assert!(child > 0);
    let result = channel.send_built(building);
    // SAFETY: a child of this process that was not waited for yet.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0);
    // SAFETY: no status is written.
    assert_eq!(unsafe { libc::waitpid(child, null_mut(), 0) }, child);
    assert!(matches!(result, Err(Error::System { .. })), "{result:?}");
    channel.send_built(built(&[4; PAGE])).unwrap();
    // A child that is about to exec holds the memory for a moment.
    assert!((0..TRIES).any(|_| {
        let building = built(&[5; PAGE]);
        // SAFETY: the child does nothing but wait and end.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: usleep has no preconditions.
            unsafe { libc::usleep(3000) };
            // SAFETY: nothing of this process is needed after this.
            unsafe { libc::_exit(0) };
        }
        assert!(child > 0);
        let result = channel.send_built(building);
        // SAFETY: no status is written.
        assert_eq!(unsafe { libc::waitpid(child, null_mut(), 0) }, child);
        result.is_ok()
    }));
}

/// The liar's memory, with all pages allocated, opened by a description that the kernel counts.
fn counted(bytes: usize, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(c"liar", flags).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let file = File::from(file);
    file.write_all_at(&vec![7; bytes], 0).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

/// The victim's result if the liar offers this memory as a message of two pages.
fn offered(file: &OwnedFd) -> Result<Buffer, Error> {
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    let mut packet = [1; 9];
    packet[1..].copy_from_slice(&0_u64.to_le_bytes());
    send(&liar.socket, &packet, &[file.as_fd()]);
    liar.publish(0, [0, SEALED, 2 * PAGE as u64, 0]);
    victim.recv()
}

const SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

#[test]
fn receiver_refuses_memory_that_could_kill_it() {
    assert!(offered(&counted(2 * PAGE, SIZE)).unwrap().iter().all(|byte| *byte == 7));
    let with_hole = counted(PAGE, SealFlags::empty());
    rustix::fs::ftruncate(&with_hole, 2 * PAGE as u64).unwrap();
    rustix::fs::fcntl_add_seals(&with_hole, SIZE).unwrap();
    for file in [
        with_hole,
        counted(PAGE, SIZE),
        counted(3 * PAGE, SIZE),
        counted(2 * PAGE, SealFlags::empty()),
        counted(2 * PAGE, SealFlags::GROW),
        counted(2 * PAGE, SealFlags::SHRINK),
    ] {
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap();
        let error = offered(&file).map(|got| got.len()).unwrap_err();
        assert!(matches!(error, Error::Memory { .. }), "{seals:?}: {error}");
    }
}

/// The receiver seals memory that another process can write to, and keeps a private view of it.
/// If the memory cannot be sealed, because a writable mapping exists, the receiver refuses it.
#[test]
fn receiver_seals_or_refuses_memory_that_is_open_elsewhere() {
    let file = counted(2 * PAGE, SIZE);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let other = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let mut got = offered(&file).unwrap();
    assert!(!is_shared(&got));
    got.fill(9);
    assert!(rustix::io::pwrite(&other, &[8], 0).is_err(), "it is sealed");
    assert!(got.iter().all(|byte| *byte == 9));
    let file = counted(2 * PAGE, SIZE);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let other = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let (length, protection) = (2 * PAGE, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(null_mut(), length, protection, libc::MAP_SHARED, other.as_raw_fd(), 0)
    };
    assert_ne!(base, libc::MAP_FAILED);
    let error = offered(&file).map(|got| got.len()).unwrap_err();
    assert!(matches!(error, Error::Memory { .. }), "{error}");
    // SAFETY: mapped above, and nothing refers to it.
    assert_eq!(unsafe { libc::munmap(base, length) }, 0);
}

/// Haul's sender keeps no access to memory that it gave up.
#[test]
fn sender_keeps_no_access_to_handed_over_memory() {
    if !has_leases() {
        return;
    }
    let (liar, mut victim) = Liar::meet_trusted(&impatient());
    let is_open_nowhere = (0..TRIES).any(|_| {
        victim.send_built(built(&[5; 3 * PAGE])).unwrap();
        let file = receive(&liar.socket).1.unwrap();
        let seals = rustix::fs::fcntl_get_seals(&file).unwrap();
        // SAFETY: this command takes only a number, no pointer.
        let lease = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        // Memory that is open elsewhere is sealed against writing as well.
        seals == SIZE && lease == 0
    });
    assert!(is_open_nowhere, "the memory is open elsewhere");
}
