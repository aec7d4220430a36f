//! The content of a page of a heap, slice by slice, as one line of text. Records store a map in
//! this form.
//!
//! A page of 2 MiB has 32 slices of 64 KiB. The text lists the slices in order, separated by
//! spaces; adjacent equal slices are written once, with their number:
//!
//! ```text
//! - free
//! ~                      being built or taken apart
//! !                      damaged
//! 4096:14+1+1@3          a span's: slots of 4096 B, 14 live, 1 cached, 1 free; most have tag 3
//! L327680@3              the first of a large block of 327,680 B with tag 3
//! =                      another of a large block
//! 28*-                   28 free ones
//! ```
//!
//! ```
//! use haul_model::picture::{Slice, parse, text};
//! let span = Slice::Span { class_bytes: 64, live: 1000, cached: 24, free: 0, tag: 1 };
//! let page = [span, Slice::Free, Slice::Free];
//! assert_eq!(text(&page), "64:1000+24+0@1 2*-");
//! assert_eq!(parse("64:1000+24+0@1 2*-").unwrap(), page);
//! ```

use std::fmt::{self, Write as _};

/// The size of a page in bytes.
pub const PAGE_BYTES: u64 = 2 << 20;

/// The number of slices in a page.
pub const PAGE_SLICES: usize = 32;

/// The size of a slice in bytes.
pub const SLICE_BYTES: u64 = PAGE_BYTES / PAGE_SLICES as u64;

/// The content of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Not in use.
    Free,
    /// A span or a large block is being created or removed.
    Busy,
    /// Part of a span. The counts are of the slots that start in this slice.
    Span {
        /// The size of a slot in bytes.
        class_bytes: u64,
        /// The number of live slots.
        live: u32,
        /// The number of free slots in the caches of threads.
        cached: u32,
        /// The number of other free slots.
        free: u32,
        /// The most frequent tag of the live slots; 0 if there is none.
        tag: u8,
    },
    /// The first slice of a large block.
    Large {
        /// The size of the block in bytes.
        bytes: u64,
        /// The tag of the block; 0 if it has no tag.
        tag: u8,
    },
    /// A later slice of a large block.
    LargeRest,
    /// Content that no heap writes.
    Damaged,
}

impl Slice {
    /// The share of the slice that live blocks occupy, from 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a slice is 65,536 B")]
    pub fn live_share(&self) -> f64 {
        match self {
            Self::Span { class_bytes, live, .. } => {
                let bytes = class_bytes.saturating_mul((*live).into());
                (bytes as f64 / SLICE_BYTES as f64).min(1.0)
            }
            Self::Large { .. } | Self::LargeRest => 1.0,
            Self::Free | Self::Busy | Self::Damaged => 0.0,
        }
    }

    /// The share of the slice that the caches of threads hold, from 0 to 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a slice is 65,536 B")]
    pub fn cached_share(&self) -> f64 {
        let Self::Span { class_bytes, cached, .. } = self else { return 0.0 };
        let bytes = class_bytes.saturating_mul((*cached).into());
        (bytes as f64 / SLICE_BYTES as f64).min(1.0 - self.live_share())
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_char('-'),
            Self::Busy => f.write_char('~'),
            Self::Damaged => f.write_char('!'),
            Self::LargeRest => f.write_char('='),
            Self::Large { bytes, tag } => write!(f, "L{bytes}@{tag}"),
            Self::Span { class_bytes, live, cached, free, tag } => {
                write!(f, "{class_bytes}:{live}+{cached}+{free}@{tag}")
            }
        }
    }
}

/// The text of a page's slices.
#[must_use]
pub fn text(slices: &[Slice]) -> String {
    let mut text = String::new();
    for run in slices.chunk_by(|a, b| a == b) {
        if !text.is_empty() {
            text.push(' ');
        }
        let _ = match run.len() {
            1 => write!(text, "{}", run[0]),
            length => write!(text, "{length}*{}", run[0]),
        };
    }
    text
}

/// The slices of a text; `None` if the text is malformed or has more slices than a page.
#[must_use]
pub fn parse(text: &str) -> Option<Vec<Slice>> {
    let mut slices = Vec::new();
    for word in text.split(' ') {
        let (length, word) = match word.split_once('*') {
            Some((length, word)) => (length.parse::<usize>().ok()?, word),
            None => (1, word),
        };
        if length == 0 || length > PAGE_SLICES - slices.len() {
            return None;
        }
        slices.resize(slices.len() + length, slice(word)?);
    }
    Some(slices)
}

fn slice(word: &str) -> Option<Slice> {
    Some(match word {
        "-" => Slice::Free,
        "~" => Slice::Busy,
        "!" => Slice::Damaged,
        "=" => Slice::LargeRest,
        _ => {
            let (what, tag) = word.split_once('@')?;
            let tag = tag.parse().ok()?;
            if let Some(bytes) = what.strip_prefix('L') {
                return Some(Slice::Large { bytes: bytes.parse().ok()?, tag });
            }
            let (class_bytes, counts) = what.split_once(':')?;
            let mut counts = counts.split('+').map(|count| count.parse::<u32>().ok());
            let mut next = || counts.next().flatten();
            let (live, cached, free) = (next()?, next()?, next()?);
            if counts.next().is_some() {
                return None;
            }
            Slice::Span { class_bytes: class_bytes.parse().ok()?, live, cached, free, tag }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parse_rejects_malformed_text() {
        for bad in [
            "",
            " ",
            "x",
            "33*-",
            "0*-",
            "-1*-",
            "- 32*-",
            "64:1+2@1",
            "64:1+2+3+4@1",
            "64:1+2+3@256",
            "L@1",
            "L5",
            "1*",
            "2**-",
        ] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
        assert_eq!(parse("32*-").unwrap().len(), PAGE_SLICES);
    }

    #[test]
    fn shares_are_at_most_one() {
        let oversized = Slice::Span { class_bytes: u64::MAX, live: 3, cached: 4, free: 0, tag: 0 };
        assert_eq!((oversized.live_share(), oversized.cached_share()), (1.0, 0.0));
        let half = Slice::Span { class_bytes: 4096, live: 8, cached: 4, free: 4, tag: 0 };
        assert_eq!((half.live_share(), half.cached_share()), (0.5, 0.25));
        assert_eq!(Slice::Large { bytes: 1, tag: 0 }.live_share(), 1.0);
        assert_eq!(Slice::Free.live_share(), 0.0);
    }

    fn any_slice() -> impl Strategy<Value = Slice> {
        prop_oneof![
            Just(Slice::Free),
            Just(Slice::Busy),
            Just(Slice::LargeRest),
            Just(Slice::Damaged),
            any::<(u64, u8)>().prop_map(|(bytes, tag)| Slice::Large { bytes, tag }),
            any::<(u64, u32, u32, u32, u8)>().prop_map(|(class_bytes, live, cached, free, tag)| {
                Slice::Span { class_bytes, live, cached, free, tag }
            }),
        ]
    }

    proptest! {
        #[test]
        fn text_and_parse_round_trip(slices in prop::collection::vec(any_slice(), 1..=PAGE_SLICES)) {
            prop_assert_eq!(parse(&text(&slices)), Some(slices));
        }

        #[test]
        fn parse_accepts_or_rejects_any_text(text: String) {
            if let Some(slices) = parse(&text) {
                prop_assert!(slices.len() <= PAGE_SLICES);
            }
        }
    }
}
