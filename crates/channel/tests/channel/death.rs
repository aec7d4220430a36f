//! A peer that is killed at a random instant, and a peer that loses a permission during a
//! transfer.
//!
//! The peer is this program, started again with a role in its environment.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_channel::{Account, Building, Channel, Error, Listener, Mechanism, Settings};
use haul_engine::Queue;

use crate::beside;
use crate::handed_over;
use crate::permission;
use crate::starved;
use crate::support::{by, pattern};
use crate::users;

/// The number of kills per mechanism. Half of the kills end the sender. `HAUL_CHANNEL_KILLS` sets
/// another number.
const KILLS: u32 = 60;
const ROLE: &str = "HAUL_CHANNEL_TEST_ROLE";
pub(crate) const SIZE: usize = 1_200_000;

/// Does nothing unless the program was started as a peer.
#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.splitn(3, ' ');
    let (what, mechanism, path) =
        (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let mechanism: Mechanism = mechanism.parse().unwrap();
    let (what, settings) = settings_of(what, mechanism);
    match what {
        "by-name" => return permission::send_by_name(Path::new(path), mechanism),
        "stranger" => return permission::read_as_a_stranger(path),
        "listen-as-other-user" => return users::listen_as_other_user(Path::new(path)),
        "connect-as-other-user" => return users::connect_as_other_user(Path::new(path)),
        "connect-without-a-number" => return users::connect_without_a_number(Path::new(path)),
        "listen-until-killed" => return users::listen_until_killed(Path::new(path)),
        "fork-beside" => {
            let connect = |settings: &Settings| Channel::connect(Path::new(path), settings);
            return beside::fork_within_message(|settings| connect(settings).unwrap());
        }
        _ => {}
    }
    if what == "forbid-all" {
        forbid(libc::SYS_process_vm_readv);
        forbid(libc::SYS_process_vm_writev);
    }
    let mut channel = Channel::connect(Path::new(path), &settings).unwrap();
    match what {
        "send" => {
            for seed in 0.. {
                let bytes = pattern(size(mechanism), seed);
                let sent = match settings.engine.is_some() && seed % 3 > 0 {
                    true => give_shared(&mut channel, bytes),
                    false => give(&mut channel, mechanism, &bytes),
                };
                if sent.is_err() {
                    return;
                }
            }
        }
        "receive" => {
            let mut target = vec![0; size(mechanism)];
            while channel.recv().is_ok() && channel.recv_into(&mut target).is_ok() {}
        }
        "forbid" => {
            forbid(libc::SYS_process_vm_readv);
            let got = channel.recv().unwrap();
            assert!(got[..] == pattern(SIZE, 5));
            let account = got.account();
            assert!(account.fell_back_from == settings.mechanism || is_all_by_the_peer(account));
            channel.send(b"whole").unwrap();
        }
        "forbid-all" => assert!(channel.recv().unwrap()[..] == pattern(SIZE, 9)),
        "fork" => handed_over::send_memory_of_fork(&mut channel),
        "few-files" => starved::send_without_descriptors(&mut channel),
        "few-files-to-receive" => starved::receive_without_descriptors(&mut channel),
        "little-memory" => starved::receive_without_memory(&mut channel),
        "little-memory-to-send" => starved::send_without_memory(&mut channel, mechanism),
        "small-pages" => starved::answer_without_huge_pages(&mut channel, mechanism),
        "read-sender" => permission::read_the_sender(&mut channel),
        "forbid-writing" => {
            forbid(libc::SYS_process_vm_writev);
            let sent = channel.send(&pattern(SIZE, 6)).unwrap();
            assert_eq!((sent.copied_bytes, sent.fell_back_from), (0, None));
        }
        _ => panic!("no role {what}"),
    }
}

/// The role without the suffix for an engine, and the settings with or without one.
fn settings_of(what: &str, mechanism: Mechanism) -> (&str, Settings) {
    match what.strip_suffix("+worker") {
        Some(what) => (what, beside::with(mechanism, &Queue::worker().unwrap())),
        None => (what, by(mechanism)),
    }
}

/// Whether the other end of `double` copied the whole message.
fn is_all_by_the_peer(account: &Account) -> bool {
    account.mechanism == Mechanism::Double && account.copied_bytes == 0
}

/// The length of a message: the largest inline message, or several chunks and pieces.
fn size(mechanism: Mechanism) -> usize {
    if mechanism == Mechanism::Inline { 8192 } else { SIZE }
}

fn give(channel: &mut Channel, mechanism: Mechanism, bytes: &[u8]) -> Result<Account, Error> {
    if mechanism != Mechanism::Sealed {
        return channel.send(bytes);
    }
    let mut building = Building::new(bytes.len())?;
    building.copy_from_slice(bytes);
    channel.send_built(building)
}

fn give_shared(channel: &mut Channel, bytes: Vec<u8>) -> Result<Account, Error> {
    channel.start_send_shared(Arc::new(bytes))?.finish()
}

pub(crate) struct Started(pub(crate) Child);

impl Started {
    pub(crate) fn process(&self) -> i32 {
        self.0.id() as i32
    }

    /// Waits until the process has ended and checks that it succeeded.
    pub(crate) fn ended_well(mut self) {
        let end = self.0.wait().unwrap();
        assert!(end.success(), "the peer failed, {end}");
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn start(what: &str, mechanism: Mechanism, path: &Path) -> Started {
    Started(command(what, mechanism, path).spawn().unwrap())
}

/// The command that starts a peer with this role.
pub(crate) fn command(what: &str, mechanism: Mechanism, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["death::peer", "--exact", "--test-threads=1", "--nocapture"])
        .env(ROLE, format!("{what} {mechanism} {}", path.display()))
        .stdout(Stdio::null());
    command
}

fn kills() -> u32 {
    std::env::var("HAUL_CHANNEL_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS)
}

/// Calls `each` with a connected peer and the random time after which to kill it: up to 12 ms, in
/// which the peer sends or receives about ten messages. `each` returns the time from the kill
/// until this end noticed it. Prints the longest of these times.
fn each_kill(
    what: &str,
    mechanism: Mechanism,
    mut each: impl FnMut(Channel, Started, Duration) -> Duration,
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let mut state = 0x1234_5678_9abc_def1_u64 ^ mechanism as u64;
    let (count, mut slowest) = (kills().div_ceil(2), Duration::ZERO);
    for _ in 0..count {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let peer = start(what, mechanism, &path);
        let channel = listener.accept(&settings_of(what, mechanism).1).unwrap();
        slowest = slowest.max(each(channel, peer, Duration::from_micros((state >> 33) % 12_000)));
    }
    eprintln!("{mechanism}, {what}: {count} killed, known after {slowest:?} at most");
}

/// Kills the peer after a time, in a thread that returns the peer and the instant of its death.
fn kill_after(mut peer: Started, time: Duration) -> std::thread::JoinHandle<(Started, Instant)> {
    std::thread::spawn(move || {
        std::thread::sleep(time);
        peer.0.kill().unwrap();
        (peer, Instant::now())
    })
}

/// Receives a message by `recv` if `is_new`, otherwise by `recv_into`.
fn receive(channel: &mut Channel, target: &mut [u8], is_new: bool) -> Result<Account, Error> {
    if !is_new {
        return channel.recv_into(target);
    }
    let got = channel.recv()?;
    target.copy_from_slice(&got);
    Ok(got.account().clone())
}

fn a_sender_killed(what: &str, mechanism: Mechanism) {
    each_kill(what, mechanism, |mut channel, peer, time| {
        let killer = kill_after(peer, time);
        let mut target = vec![0; size(mechanism)];
        for seed in 0.. {
            // A lease needs a target in the pool.
            let is_new = seed % 2 == 0 || mechanism == Mechanism::Lease;
            match receive(&mut channel, &mut target, is_new) {
                Ok(account) => {
                    assert_eq!(account.mechanism, mechanism);
                    assert!(
                        target == pattern(size(mechanism), seed),
                        "{mechanism}: message {seed} is torn"
                    );
                }
                Err(error) => {
                    assert!(matches!(error, Error::PeerGone { .. }), "{mechanism}: {error}");
                    break;
                }
            }
        }
        let end = Instant::now();
        end.saturating_duration_since(killer.join().unwrap().1)
    });
}

fn a_receiver_killed(what: &str, mechanism: Mechanism) {
    let bytes = pattern(size(mechanism), 0);
    each_kill(what, mechanism, |mut channel, peer, time| {
        let killer = kill_after(peer, time);
        let start = Instant::now();
        let error = loop {
            if let Err(error) = give(&mut channel, mechanism, &bytes) {
                break error;
            }
            if mechanism != Mechanism::Sealed
                && let Err(error) = give_shared(&mut channel, bytes.clone())
            {
                break error;
            }
        };
        assert!(matches!(error, Error::PeerGone { .. }), "{mechanism}: {error}");
        let end = Instant::now();
        assert!(end - start < Duration::from_secs(40), "{mechanism}: noticed too late");
        end.saturating_duration_since(killer.join().unwrap().1)
    });
}

fn either_killed(mechanism: Mechanism) {
    a_sender_killed("send", mechanism);
    a_receiver_killed("receive", mechanism);
}

/// Like [`either_killed`]; a helper thread of each end copies.
fn either_killed_beside(mechanism: Mechanism) {
    a_sender_killed("send+worker", mechanism);
    a_receiver_killed("receive+worker", mechanism);
}

#[test]
fn killed_ends_of_inline_tear_nothing() {
    either_killed(Mechanism::Inline);
}

#[test]
fn killed_ends_of_ring_tear_nothing() {
    either_killed(Mechanism::Ring);
}

#[test]
fn killed_ends_of_ring_with_engine_tear_nothing() {
    either_killed_beside(Mechanism::Ring);
}

#[test]
fn killed_ends_of_lease_with_engine_tear_nothing() {
    either_killed_beside(Mechanism::Lease);
}

#[test]
fn killed_ends_of_staged_tear_nothing() {
    either_killed(Mechanism::Staged);
}

#[test]
fn killed_ends_of_pull_tear_nothing() {
    either_killed(Mechanism::Pull);
}

#[test]
fn killed_ends_of_sealed_tear_nothing() {
    either_killed(Mechanism::Sealed);
}

#[test]
fn killed_ends_of_double_tear_nothing() {
    either_killed(Mechanism::Double);
}

#[test]
fn killed_ends_of_lease_tear_nothing() {
    either_killed(Mechanism::Lease);
}

/// Makes the kernel refuse a system call of this process from now on, like a container.
fn forbid(call: libc::c_long) {
    let load_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let if_it = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: call as u32 };
    let refuse =
        libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x0005_0000 | libc::EPERM as u32 };
    let allow = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0x7fff_0000 };
    let mut filter = [load_number, if_it, refuse, allow];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: all arguments are numbers, not pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(result, 0);
    // SAFETY: a program of four instructions that lives until the call returns.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program) };
    assert_eq!(result, 0);
}

#[test]
fn message_arrives_after_permission_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    for mechanism in [Mechanism::Pull, Mechanism::Double] {
        let _peer = start("forbid", mechanism, &path);
        let mut channel = listener.accept(&by(mechanism)).unwrap();
        if !channel.offers(mechanism) {
            return;
        }
        let account = channel.send(&pattern(SIZE, 5)).unwrap();
        // This end has permission to write, and may have written the whole message before the
        // other end tried to read.
        let expected = match account.fell_back_from {
            None => (None, Mechanism::Double, SIZE as u64),
            Some(_) => (Some(mechanism), Mechanism::Ring, account.copied_bytes),
        };
        assert_eq!((account.fell_back_from, account.mechanism, account.copied_bytes), expected);
        assert_eq!(channel.recv().unwrap()[..], *b"whole");
    }
}

/// The receiver reads the pieces that the sender has no permission to write.
#[test]
fn receiver_reads_pieces_of_sender_without_permission_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let _peer = start("forbid-writing", Mechanism::Double, &path);
    let mut channel = listener.accept(&by(Mechanism::Double)).unwrap();
    if !channel.offers(Mechanism::Double) {
        return;
    }
    let got = channel.recv().unwrap();
    assert!(got[..] == pattern(SIZE, 6));
    assert_eq!(got.account().copied_bytes, SIZE as u64);
}

#[test]
fn default_settings_do_not_trust_peer() {
    assert!(!Settings::default().trusts_peer, "trust is never a default");
}
