//! The units of time in captures.

/// The number of ticks of an interface in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticks {
    /// 10 to the power of this.
    Decimal(u8),
    /// 2 to the power of this.
    Binary(u8),
}

/// The nanoseconds in a second.
const SECOND_NS: i128 = 1_000_000_000;

/// The nanoseconds in a tick, by the number of its decimals.
const NS: [u32; 10] =
    [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];

impl Ticks {
    /// The nanoseconds of ticks after a whole second. For the units of pcap, it costs one
    /// multiplication.
    #[inline]
    pub(super) fn short_nanoseconds(self, ticks: u32) -> i64 {
        match self {
            Self::Decimal(9) => i64::from(ticks),
            Self::Decimal(6) => 1000 * i64::from(ticks),
            _ => self.time_ns(ticks.into(), 0),
        }
    }

    /// The time that is `ticks` and `offset_seconds` after the epoch, in nanoseconds. A time that
    /// does not fit into 64 bits is replaced by the nearest time that does.
    #[inline]
    pub(super) fn time_ns(self, ticks: u64, offset_seconds: i64) -> i64 {
        // The ticks are below 2^94 ns, the seconds below 2^93 ns.
        let time = self.nanoseconds(ticks) + SECOND_NS * i128::from(offset_seconds);
        time.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    #[inline]
    fn nanoseconds(self, ticks: u64) -> i128 {
        let ticks = i128::from(ticks);
        match self {
            Self::Decimal(digits) => match NS.get(usize::from(digits)) {
                Some(ns) => ticks * i128::from(*ns),
                None => {
                    let more = 10_i128.checked_pow(u32::from(digits) - 9);
                    more.map_or(0, |more| ticks / more)
                }
            },
            // Below 2^94 before the shift.
            Self::Binary(digits) => (ticks * SECOND_NS) >> digits.min(127),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_ns_converts_every_unit() {
        for (ticks, count, offset, ns) in [
            (Ticks::Decimal(0), 3, 0, 3_000_000_000),
            (Ticks::Decimal(6), 1_500_000, 0, 1_500_000_000),
            (Ticks::Decimal(9), 7, 0, 7),
            (Ticks::Decimal(12), 5_999, 0, 5),
            (Ticks::Decimal(127), u64::MAX, 0, 0),
            (Ticks::Decimal(0), u64::MAX, 0, i64::MAX),
            (Ticks::Binary(10), 512, 0, 500_000_000),
            (Ticks::Binary(127), u64::MAX, 0, 0),
            (Ticks::Binary(0), 2, -1, 1_000_000_000),
            // If the ticks and the offset cancel out, the result is exact, however large both are.
            (Ticks::Decimal(0), 1 << 62, -(1 << 62), 0),
            (Ticks::Decimal(6), 1_500_000, -2, -500_000_000),
            (Ticks::Decimal(6), 0, i64::MIN, i64::MIN),
            (Ticks::Decimal(6), 500_000, 1_700_000_000, 1_700_000_000_500_000_000),
        ] {
            assert_eq!(ticks.time_ns(count, offset), ns, "{ticks:?} {count} {offset}");
        }
        for ticks in [Ticks::Decimal(6), Ticks::Decimal(9), Ticks::Decimal(3)] {
            for count in [0, 1, 999_999, u32::MAX] {
                assert_eq!(ticks.short_nanoseconds(count), ticks.time_ns(count.into(), 0));
            }
        }
    }
}
