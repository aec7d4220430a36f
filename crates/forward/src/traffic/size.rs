//! The sizes of packets, in turn. A size is a frame without its check sequence, as DPDK's programs
//! count.

use super::stamp::FRAME_BYTES_MIN;
use crate::error::Error;
use crate::pool::PACKET_BYTES_MAX;

/// The sizes of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All packets have this size.
    Fixed(usize),
    /// Simple IMIX: of 12 packets, 7 have 60 B, 4 have 590 B and 1 has 1,514 B, which is 64, 594
    /// and 1,518 B with the check sequence. RFC 6985, section 4, describes mixes in such tables.
    Imix,
    /// Sizes in arithmetic progression, one packet of each size, repeated.
    Each {
        /// The first.
        from: usize,
        /// The last size, if a step leads to it.
        to: usize,
        /// From one size to the next.
        step: usize,
    },
    /// These sizes in turn, repeated.
    List(Vec<usize>),
}

/// The order spreads the sizes, as in traffic generators.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

impl Sizes {
    /// The sizes of one round.
    ///
    /// # Errors
    /// [`Error::Value`] for a size outside the limits, and for an empty list.
    pub(crate) fn round(&self) -> Result<Vec<usize>, Error> {
        let round: Vec<usize> = match self {
            Self::Fixed(size) => vec![*size],
            Self::Imix => IMIX.to_vec(),
            Self::Each { from, to, step } => {
                check(*from)?;
                check(*to)?;
                (*from..=*to).step_by((*step).max(1)).collect()
            }
            Self::List(sizes) => sizes.clone(),
        };
        if round.is_empty() {
            let limit = "name a size, and a last one that is not below the first";
            return Err(Error::Value {
                what: "a list of sizes that is",
                value: "empty".into(),
                limit,
            });
        }
        round.iter().try_for_each(|size| check(*size))?;
        Ok(round)
    }
}

fn check(size: usize) -> Result<(), Error> {
    if (FRAME_BYTES_MIN..=PACKET_BYTES_MAX).contains(&size) {
        return Ok(());
    }
    let limit = "a frame without its check sequence has 60 to 9216 B";
    Err(Error::Value { what: "a packet size of", value: format!("{size} B"), limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_has_sizes_of_its_kind() {
        assert_eq!(Sizes::Fixed(64).round().unwrap(), [64]);
        let each = Sizes::Each { from: 60, to: 64, step: 2 };
        assert_eq!(each.round().unwrap(), [60, 62, 64]);
        let imix = Sizes::Imix.round().unwrap();
        let count = |size| imix.iter().filter(|other| **other == size).count();
        assert_eq!((count(60), count(590), count(1514)), (7, 4, 1));
        for wrong in [
            Sizes::Fixed(59),
            Sizes::Fixed(PACKET_BYTES_MAX + 1),
            Sizes::List(vec![]),
            Sizes::List(vec![64, 0]),
            Sizes::Each { from: 64, to: 63, step: 1 },
            Sizes::Each { from: 64, to: usize::MAX, step: 1 },
        ] {
            assert!(matches!(wrong.round(), Err(Error::Value { .. })), "{wrong:?}");
        }
    }
}
