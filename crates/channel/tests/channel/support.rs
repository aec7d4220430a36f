//! Helpers: two ends, and bytes that differ by offset.
#![allow(dead_code, reason = "every test binary uses its own part of it")]

use std::thread;
use std::time::Duration;

use haul_channel::{Channel, Mechanism, Settings, pair};

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

/// Both ends of a channel in this process.
pub(crate) fn ends(settings: &Settings) -> (Channel, Channel) {
    let (one, other) = pair().unwrap();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| Channel::accept_over(other, settings).unwrap());
        let connected = Channel::connect_over(one, settings).unwrap();
        (connected, accepting.join().unwrap())
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
