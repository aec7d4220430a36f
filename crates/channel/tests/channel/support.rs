//! Helpers: two ends, and bytes that differ by offset.
#![allow(dead_code, reason = "every test binary uses its own part of it")]

use std::thread;
use std::time::Duration;

use haul_channel::{Channel, Error, Mechanism, Settings, pair};

/// A time limit that is long enough for a loaded machine, and short enough that a hang is
/// noticed.
const LIMIT: Duration = Duration::from_secs(60);

/// A time limit for peers that make no progress. The limit is short enough to wait for, and long
/// enough that a correct peer makes progress even if a hypervisor takes most of the processors (a
/// runnable thread waited for 320 ms).
pub(crate) const SHORT: Duration = Duration::from_secs(1);

/// Settings of ends that trust each other and send by one mechanism.
pub(crate) fn by(mechanism: Mechanism) -> Settings {
    Settings {
        mechanism: Some(mechanism),
        trusts_peer: true,
        wait: Some(LIMIT),
        deadline: LIMIT,
        ..Settings::default()
    }
}

/// Settings with time limits of [`SHORT`], and without trust.
pub(crate) fn impatient() -> Settings {
    Settings { wait: Some(SHORT), deadline: SHORT, ..Settings::default() }
}

/// Settings without trust, for a conversation in which no time limit is reached.
pub(crate) fn patient() -> Settings {
    let limit = Duration::from_secs(60);
    Settings { wait: Some(limit), deadline: limit, ..Settings::default() }
}

/// Both ends of a channel in this process, with the same settings.
pub(crate) fn ends(settings: &Settings) -> (Channel, Channel) {
    two(settings, settings)
}

/// The connecting and the accepting end of a channel in this process. They meet again if a thread
/// had no processor for as long as the settings allow a peer.
pub(crate) fn two(connecting: &Settings, accepting: &Settings) -> (Channel, Channel) {
    for _ in 0..20 {
        match meet(connecting, accepting) {
            (Ok(connected), Ok(accepted)) => return (connected, accepted),
            (one, other) => {
                let is_late = |end: &Result<_, Error>| {
                    matches!(end, Ok(_) | Err(Error::Deadline { .. } | Error::PeerGone { .. }))
                };
                assert!(is_late(&one) && is_late(&other), "{one:?} {other:?}");
            }
        }
    }
    panic!("the ends never met in time");
}

fn meet(
    connecting: &Settings,
    accepting: &Settings,
) -> (Result<Channel, Error>, Result<Channel, Error>) {
    let (one, other) = pair().unwrap();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| Channel::accept_over(other, accepting));
        let connected = Channel::connect_over(one, connecting);
        (connected, accepted.join().unwrap())
    })
}

/// Bytes that depend on the offset and the seed, so that a chunk at a wrong offset shows.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for piece in bytes.chunks_mut(8) {
        // xorshift64, Marsaglia 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        piece.copy_from_slice(&state.to_le_bytes()[..piece.len()]);
    }
    bytes
}

/// The mechanisms that `send` can use by name for messages of any size.
pub(crate) const BY_COPY: [Mechanism; 5] =
    [Mechanism::Ring, Mechanism::Staged, Mechanism::Pull, Mechanism::Double, Mechanism::Lease];
