//! The sizes of packets, one after the other. A size is a frame without its check sequence, as
//! DPDK's programs count.

use super::super::error::Error;
use super::super::pool::PACKET_BYTES_MAX;
use super::stamp::FRAME_BYTES_MIN;

/// Which sizes the packets have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All the same.
    Fixed(usize),
    /// Simple IMIX: of 12 packets 7 of 60 B, 4 of 590 B, 1 of 1,514 B, which is 64, 594 and 1,518 B
    /// with the check sequence (RFC 6985, section 4, gives mixes by such tables).
    Imix,
    /// One size after the other, each for one packet, from the first to the last and again.
    Each {
        /// The first.
        from: usize,
        /// The last, if a step leads to it.
        to: usize,
        /// From one to the next.
        step: usize,
    },
    /// These, one after the other, and again.
    List(Vec<usize>),
}

/// The order spreads the sizes, as traffic generators have it.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

impl Sizes {
    /// The sizes of one round.
    ///
    /// # Errors
    /// [`Error::Value`] for a size that no packet has, and for none at all.
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
    fn rounds_are_what_their_names_say() {
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
