//! The change that a worker makes to packets.

use super::echo::Host;
use crate::pool::{Burst, Packet, Pool};

/// How a forwarder changes packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// No change: the worker accesses no byte of a packet.
    #[default]
    Io,
    /// Sets both Ethernet addresses.
    Mac {
        /// The source address to set.
        source: [u8; 6],
        /// The target address to set.
        target: [u8; 6],
    },
    /// Swaps the Ethernet addresses, so that packets return to their sender.
    MacSwap,
    /// Answers ARP and ICMP echo requests for a host through the port that received them. Forwards
    /// all other packets unchanged; a worker with one port drops them.
    Echo(Host),
}

/// The size of both Ethernet addresses in bytes.
const ADDRESSES_BYTES: usize = 12;

impl Mode {
    /// The name in commands and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::Mac { .. } => "mac",
            Self::MacSwap => "macswap",
            Self::Echo(_) => "echo",
        }
    }

    /// Changes each packet of a burst except for the first `done`. A packet that is too short for
    /// the addresses stays unchanged. The worker sends answers itself, because they go to another
    /// port.
    #[inline]
    pub(super) fn apply(self, pool: &mut Pool, burst: &Burst, done: usize) {
        match self {
            Self::Io | Self::Echo(_) => {}
            Self::Mac { source, target } => {
                let mut addresses = [0; ADDRESSES_BYTES];
                addresses[..6].copy_from_slice(&target);
                addresses[6..].copy_from_slice(&source);
                burst.for_each_from(done, |packet| {
                    let _ = pool.write(packet, 0, &addresses);
                });
            }
            Self::MacSwap => burst.for_each_from(done, |packet| swap(pool, packet)),
        }
    }
}

fn swap(pool: &mut Pool, packet: &Packet) {
    let mut addresses = [0; ADDRESSES_BYTES];
    if pool.read(packet, 0, &mut addresses) {
        addresses.rotate_left(6);
        let _ = pool.write(packet, 0, &addresses);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_changes_only_addresses() {
        let mut pool = Pool::new(4).unwrap();
        let bytes: Vec<u8> = (0..64).collect();
        let (source, target) = ([0xAA; 6], [0xBB; 6]);
        for mode in [Mode::Io, Mode::Mac { source, target }, Mode::MacSwap] {
            let mut burst = Burst::new();
            for length in [64, 11] {
                let packet = pool.take(length).unwrap();
                assert!(pool.write(&packet, 0, &bytes[..length]));
                burst.push(packet);
            }
            mode.apply(&mut pool, &burst, 0);
            let (whole, short) = (burst.pop().unwrap(), burst.pop().unwrap());
            let mut after = [0; 64];
            assert!(pool.read(&whole, 0, &mut after));
            match mode {
                Mode::Io | Mode::Echo(_) => assert_eq!(after[..12], bytes[..12]),
                Mode::Mac { .. } => {
                    assert_eq!((&after[..6], &after[6..12]), (&target[..], &source[..]));
                }
                Mode::MacSwap => {
                    assert_eq!((&after[..6], &after[6..12]), (&bytes[6..12], &bytes[..6]));
                }
            }
            assert_eq!(after[12..], bytes[12..]);
            let mut after = [0; 11];
            assert!(pool.read(&short, 0, &mut after));
            assert_eq!(after, bytes[..11]);
            pool.free(whole);
            pool.free(short);
        }
    }
}
