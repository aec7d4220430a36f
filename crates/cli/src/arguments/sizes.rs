//! Sizes on the command line. Every command has one grammar for ranges ([`haul_model::Sizes`]):
//! `FIRST..LAST` is the powers of two between, `FIRST..LAST:STEP` is every `STEP`-th size.

use haul_model::Sizes;

/// The sizes of a sweep, whose ranges need a step. Earlier releases swept over `60..256` byte by
/// byte and wrote a step as `60..256+8`; these forms are refused, because they would have another
/// meaning now.
pub(super) fn swept(text: &str) -> Result<Sizes, String> {
    if let Some(part) = text.split(',').find(|part| part.contains("..") && !part.contains(':')) {
        return Err(without_step(part));
    }
    text.parse().map_err(|error: haul_model::UnitError| error.to_string())
}

/// Refuses a range without a step where a bare range could be mistaken for every number in it.
pub(crate) fn without_step(range: &str) -> String {
    let (range, step) = range.split_once('+').unwrap_or((range, "1"));
    format!(
        "{range} has no step; write {range}:{step} (FIRST..LAST:STEP), as FIRST..LAST alone means \
         the powers of two"
    )
}

/// The packet sizes of an estimate: one size, or a range, of which each size is estimated.
/// Earlier releases accepted mixes here, too.
pub(super) fn packets(text: &str) -> Result<Sizes, String> {
    let is_mix = text == "imix" || text.contains(',') || text.contains(':') && !text.contains("..");
    if is_mix {
        return Err(format!("{text:?} is a mix; write --mix {text}"));
    }
    swept(text)
}

#[cfg(test)]
mod tests {
    use haul_model::Bytes;

    use super::*;

    #[test]
    fn sweep_needs_a_step() {
        let sizes = |text: &str| swept(text).map(|sizes| sizes.0);
        assert_eq!(sizes("60..62:1"), Ok([60, 61, 62].map(Bytes).into()));
        assert_eq!(sizes("64,1500"), Ok([64, 1500].map(Bytes).into()));
        assert!(sizes("60..256").unwrap_err().contains("write 60..256:1 "));
        assert!(sizes("64,60..256+8").unwrap_err().contains("write 60..256:8 "));
        assert!(sizes("70..60:1").unwrap_err().contains("ends before it starts"));
    }

    #[test]
    fn estimate_refuses_mixes_and_bare_ranges() {
        assert_eq!(packets("64").map(|sizes| sizes.0), Ok(vec![Bytes(64)]));
        assert_eq!(packets("64..66:2").map(|sizes| sizes.0.len()), Ok(2));
        for mix in ["imix", "64,512", "64:7,594:4"] {
            assert!(packets(mix).unwrap_err().contains(&format!("write --mix {mix}")), "{mix}");
        }
        assert!(packets("60..130").unwrap_err().contains("write 60..130:1 "));
    }
}
