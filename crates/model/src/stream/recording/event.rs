//! One event of a recording, as three words.

use crate::stream::Function;

/// The function of a call, as recordings number it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind(u8);

impl Kind {
    /// `memcpy`.
    pub const MEMCPY: Self = Self(0);
    /// `memmove`.
    pub const MEMMOVE: Self = Self(1);
    /// `memset` with 0.
    pub const ZERO: Self = Self(2);
    /// `memset` with another byte.
    pub const FILL: Self = Self(3);

    /// The number: below 4.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The function.
    #[must_use]
    pub fn function(self) -> Function {
        match self {
            Self::MEMCPY => Function::Memcpy,
            Self::MEMMOVE => Function::Memmove,
            Self::ZERO => Function::Memset { zero: true },
            _ => Function::Memset { zero: false },
        }
    }
}

/// The bits of an address that an event keeps: those of a program's addresses on x86-64 and
/// aarch64.
const ADDRESS_BITS: u32 = 48;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;

/// The bits of the mantissa of a time.
const MANTISSA_BITS: u32 = 7;

/// A call, with the addresses of the program.
///
/// ```
/// use haul_model::stream::recording::{Event, Kind};
/// let event = Event {
///     kind: Kind::MEMCPY,
///     site: 0x5555_0000_1234,
///     target: 0x7fff_ffff_0001,
///     source: 0x7f00_0000_0000,
///     size: 4096,
///     since_ticks: 100,
/// };
/// assert_eq!(Event::from_words(event.to_words()), event);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The function.
    pub kind: Kind,
    /// The return address.
    pub site: u64,
    /// The target.
    pub target: u64,
    /// The source; 0 for memset.
    pub source: u64,
    /// The size in bytes; `u32::MAX` stands for all larger ones.
    pub size: u32,
    /// The ticks since the end of the thread's previous call, to 1%; 0 for the first.
    pub since_ticks: u64,
}

impl Event {
    /// The event as words.
    #[inline]
    #[must_use]
    pub fn to_words(self) -> [u64; 3] {
        let size = u64::from(self.size);
        [
            self.site & ADDRESS
                | u64::from(self.kind.0) << ADDRESS_BITS
                | rounded(self.since_ticks) << (ADDRESS_BITS + 2),
            self.target & ADDRESS | (size & 0xffff) << ADDRESS_BITS,
            self.source & ADDRESS | (size >> 16) << ADDRESS_BITS,
        ]
    }

    /// The event of these words. Any words are an event.
    #[must_use]
    pub fn from_words(words: [u64; 3]) -> Self {
        let [first, second, third] = words;
        Self {
            kind: Kind((first >> ADDRESS_BITS & 3) as u8),
            site: first & ADDRESS,
            target: second & ADDRESS,
            source: third & ADDRESS,
            size: (second >> ADDRESS_BITS | third >> ADDRESS_BITS << 16) as u32,
            since_ticks: unrounded(first >> (ADDRESS_BITS + 2)),
        }
    }
}

/// A number in 13 bits: an exponent and seven bits of a mantissa.
fn rounded(ticks: u64) -> u64 {
    let exponent = (u64::BITS - ticks.leading_zeros()).saturating_sub(MANTISSA_BITS + 1);
    // The leading bit of the mantissa carries into the exponent, as in a float.
    (u64::from(exponent) << MANTISSA_BITS) + (ticks >> exponent)
}

fn unrounded(bits: u64) -> u64 {
    match bits >> MANTISSA_BITS {
        0 => bits,
        exponent => {
            let mantissa = bits & ((1 << MANTISSA_BITS) - 1) | 1 << MANTISSA_BITS;
            mantissa.checked_shl(exponent as u32 - 1).unwrap_or(u64::MAX)
        }
    }
}

/// A call whose target was observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The call: its number among all calls of the thread.
    pub call: u64,
    /// Its return address.
    pub site: u64,
    /// The time until its target was read, in nanoseconds; `None` if it was overwritten or not
    /// read.
    pub read_ns: Option<u64>,
}

impl Sample {
    /// The sample as words.
    #[must_use]
    pub fn to_words(self) -> [u64; 3] {
        [self.call, self.site, self.read_ns.unwrap_or(u64::MAX)]
    }

    /// The sample of these words.
    #[must_use]
    pub fn from_words([call, site, read]: [u64; 3]) -> Self {
        Self { call, site, read_ns: (read != u64::MAX).then_some(read) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_one_percent() {
        for ticks in [0, 1, 127, 128, 255, 256, 1000, 12_345, 1 << 40, u64::MAX] {
            let bits = rounded(ticks);
            let found = unrounded(bits);
            assert!(bits < 1 << 13, "{ticks} needs more than 13 bits");
            assert!(found <= ticks && ticks - found <= ticks / 100, "{ticks} became {found}");
        }
    }

    #[test]
    fn events_keep_sizes_of_32_bits() {
        for size in [0, 1, 0xffff, 0x1_0000, u32::MAX] {
            let (kind, site, target, source) = (Kind::FILL, ADDRESS, 1, ADDRESS);
            let event = Event { kind, site, target, source, size, since_ticks: 0 };
            assert_eq!(Event::from_words(event.to_words()), event);
        }
    }
}
