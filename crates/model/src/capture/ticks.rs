//! The units of time that captures have.

/// How many ticks of an interface are a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ticks {
    /// 10 to the power of this.
    Decimal(u8),
    /// 2 to the power of this.
    Binary(u8),
}

impl Ticks {
    /// Nothing but a multiplication for the units that captures have.
    #[inline]
    pub(super) fn nanoseconds(self, ticks: u64) -> u64 {
        /// Nanoseconds of a tick, by its decimals.
        const NS: [u64; 10] =
            [1_000_000_000, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        match self {
            Self::Decimal(digits) => match NS.get(usize::from(digits)) {
                Some(ns) => ticks.saturating_mul(*ns),
                None => {
                    let more = 10_u64.checked_pow(u32::from(digits - 9));
                    more.map_or(0, |more| ticks / more)
                }
            },
            Self::Binary(digits) => {
                let ns = (u128::from(ticks) * 1_000_000_000) >> digits;
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_nanoseconds_whatever_their_unit() {
        for (ticks, count, ns) in [
            (Ticks::Decimal(0), 3, 3_000_000_000),
            (Ticks::Decimal(6), 1_500_000, 1_500_000_000),
            (Ticks::Decimal(9), 7, 7),
            (Ticks::Decimal(12), 5_999, 5),
            (Ticks::Decimal(127), u64::MAX, 0),
            (Ticks::Decimal(0), u64::MAX, u64::MAX),
            (Ticks::Binary(10), 512, 500_000_000),
            (Ticks::Binary(127), u64::MAX, 0),
        ] {
            assert_eq!(ticks.nanoseconds(count), ns, "{ticks:?} {count}");
        }
    }
}
