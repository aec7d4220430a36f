//! Ranges of sizes as text: "from 2 KiB to 64 KiB and from 1 MiB up".

use haul_model::Bytes;

use crate::text;

/// The chosen sizes as ranges of neighbours among all measured sizes. `sizes` must ascend.
pub(super) fn words(sizes: &[(u64, bool)]) -> String {
    let chosen = sizes.iter().filter(|(_, chosen)| *chosen).count();
    if chosen == 0 {
        return "at no size".into();
    }
    if chosen == sizes.len() {
        return match (sizes.first(), sizes.last()) {
            (Some((first, _)), Some((last, _))) if first != last => {
                format!("at every size from {} to {}", Bytes(*first), Bytes(*last))
            }
            _ => format!("at {}", Bytes(sizes[0].0)),
        };
    }
    let runs: Vec<&[(u64, bool)]> = sizes
        .chunk_by(|a, b| a.1 == b.1)
        .filter(|run| run.first().is_some_and(|size| size.1))
        .collect();
    let parts: Vec<String> = runs
        .iter()
        .map(|run| {
            let (first, last) = (run[0].0, run[run.len() - 1].0);
            if run.len() == 1 {
                format!("at {}", Bytes(first))
            } else if sizes.last().is_some_and(|size| size.0 == last) {
                format!("from {} up", Bytes(first))
            } else if sizes[0].0 == first {
                format!("up to {}", Bytes(last))
            } else {
                format!("from {} to {}", Bytes(first), Bytes(last))
            }
        })
        .collect();
    if parts.len() > 3 {
        return format!("at {chosen} of {} sizes", sizes.len());
    }
    text::list(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(flags: &str) -> String {
        let sizes: Vec<(u64, bool)> =
            flags.chars().enumerate().map(|(index, flag)| (1024 << index, flag == '#')).collect();
        words(&sizes)
    }

    #[test]
    fn ranges_are_written_as_text() {
        assert_eq!(of("...."), "at no size");
        assert_eq!(of("####"), "at every size from 1 KiB to 8 KiB");
        assert_eq!(of("##.."), "up to 2 KiB");
        assert_eq!(of("..##"), "from 4 KiB up");
        assert_eq!(of(".##."), "from 2 KiB to 4 KiB");
        assert_eq!(of("#..#"), "at 1 KiB and at 8 KiB");
        assert_eq!(of("#.#.#.#.#"), "at 5 of 9 sizes");
        assert_eq!(of("#"), "at 1 KiB");
    }
}
