//! Counters of the packets that this library moved, as librte_vhost counts its own. A program
//! sees the sums: `rte_vhost_vring_stats_get` adds these to DPDK's.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters, by the end of their names in librte_vhost. The eight last count packets by size.
const NAMES: [&str; 12] = [
    "good_packets",
    "good_bytes",
    "multicast_packets",
    "broadcast_packets",
    "undersize_packets",
    "size_64_packets",
    "size_65_127_packets",
    "size_128_255_packets",
    "size_256_511_packets",
    "size_512_1023_packets",
    "size_1024_1518_packets",
    "size_1519_max_packets",
];

/// The counters of a ring. One burst at a time writes them.
#[derive(Debug)]
pub(crate) struct Statistics([AtomicU64; NAMES.len()]);

impl Statistics {
    /// All counters at 0.
    pub(crate) const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; NAMES.len()])
    }

    /// Counts packets by their sizes in bytes and their targets' addresses. Packets of one class in
    /// a row are counted together: a counter that each packet changes in memory takes five cycles.
    #[inline]
    pub(crate) fn count(&self, packets: impl Iterator<Item = (u64, [u8; 6])>) {
        let (mut all, mut total) = (0, 0);
        let (mut class, mut of_class) = (0, 0);
        for (bytes, target) in packets {
            all += 1;
            total += bytes;
            if target[0] & 1 != 0 {
                add(&self.0[2 + usize::from(target == [0xFF; 6])], 1);
            }
            let own = size_class(bytes);
            if own != class {
                add(&self.0[4 + class], of_class);
                (class, of_class) = (own, 0);
            }
            of_class += 1;
        }
        add(&self.0[4 + class], of_class);
        add(&self.0[0], all);
        add(&self.0[1], total);
    }

    /// The value of the counter with this name in librte_vhost, such as
    /// `rx_q0_size_64_packets`; 0 for a counter that is DPDK's alone.
    pub(crate) fn named(&self, name: &str) -> u64 {
        let own = name.splitn(3, '_').nth(2).unwrap_or("");
        let index = NAMES.iter().position(|known| *known == own);
        index.map_or(0, |index| self.0[index].load(Ordering::Relaxed))
    }

    /// Sets all counters to 0.
    pub(crate) fn reset(&self) {
        self.0.iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
    }
}

/// Adds to a counter that only a burst of this library changes: one at a time is inside the gate,
/// so that no addition is lost. An atomic addition would wait for all that the burst has written.
#[inline]
pub(crate) fn add(counter: &AtomicU64, value: u64) {
    let before = counter.load(Ordering::Relaxed);
    counter.store(before.wrapping_add(value), Ordering::Relaxed);
}

/// The class of a size: up to 63 bytes, 64, then classes of doubling sizes, with limits at 1024
/// and 1518.
#[inline]
fn size_class(bytes: u64) -> usize {
    match bytes {
        0..64 => 0,
        64 => 1,
        65..1024 => bytes.ilog2() as usize - 4,
        1024..=1518 => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_the_class_of_its_name() {
        for bytes in 1..3000_u64 {
            let name = NAMES[4 + size_class(bytes)];
            let limits: Vec<u64> =
                name.split('_').filter_map(|number| number.parse().ok()).collect();
            let is_inside = match limits[..] {
                [] => bytes < 64,
                [size] if name.contains("max") => bytes >= size,
                [size] => bytes == size,
                [low, high] => (low..=high).contains(&bytes),
                _ => false,
            };
            assert!(is_inside, "{bytes}: {name}");
        }
    }

    #[test]
    fn counters_are_found_by_librte_vhosts_names() {
        let statistics = Statistics::new();
        let unicast = [2, 0, 0, 0, 0, 0];
        statistics.count([(64, [0xFF; 6]), (1500, [1, 0, 0, 0, 0, 0])].into_iter());
        statistics.count([(100, unicast); 1].into_iter());
        statistics.count(std::iter::empty());
        let named = |name| statistics.named(name);
        assert_eq!((named("rx_q0_good_packets"), named("tx_q11_good_bytes")), (3, 1664));
        assert_eq!((named("tx_q0_broadcast_packets"), named("tx_q0_multicast_packets")), (1, 1));
        assert_eq!((named("tx_q0_size_64_packets"), named("tx_q0_size_1024_1518_packets")), (1, 1));
        assert_eq!((named("rx_q0_guest_notifications"), named("")), (0, 0));
        statistics
            .count([(127, unicast), (127, unicast), (65, unicast), (20, unicast)].into_iter());
        assert_eq!((named("rx_q0_size_65_127_packets"), named("rx_q0_undersize_packets")), (4, 1));
        statistics.reset();
        assert_eq!(named("rx_q0_good_packets"), 0);
    }
}
