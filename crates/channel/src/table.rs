//! The measured choices of mechanisms, as in `haul.toml`.
//!
//! haul skips unknown names, and mechanisms that are not available with a peer. So a table can at
//! worst make a transfer slower.

use std::sync::OnceLock;

/// The table applies to messages of up to this many times the largest measured size: tables are
/// measured at every fourth size or more densely, and also apply between these sizes.
const BEYOND: u64 = 4;

/// The section `[channel]` of `haul.toml`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelTable {
    /// A message that was built in place is handed over, not copied, if the receiver is expected
    /// to write to at most this share of it, 0 to 1.
    pub sealed_dirty_max: Option<f64>,
    /// The largest message for which the choices were measured, in bytes; `None` if they apply to
    /// any size. Otherwise the choices apply to messages of up to four times this size.
    pub measured_max: Option<usize>,
    /// Of the entries that fit, the entry with the largest size applies; of several entries with
    /// this size, the last one applies.
    pub choices: Vec<Choice>,
}

/// One entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The smallest message to which the entry applies, in bytes.
    pub from: usize,
    /// The mechanism's name.
    pub mechanism: String,
    /// Whether the entry requires that both ends trust each other (true) or do not (false);
    /// `None` for both cases.
    pub trusted: Option<bool>,
    /// Whether the entry requires that each end has a processor (true) or does not (false);
    /// `None` for both cases.
    pub idle: Option<bool>,
}

impl ChannelTable {
    /// Whether the choices apply to a message of this length.
    #[must_use]
    pub fn holds_for(&self, length: u64) -> bool {
        length <= self.longest()
    }

    /// The longest message to which the choices apply, in bytes.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.measured_max.map_or(u64::MAX, |most| (most as u64).saturating_mul(BEYOND))
    }

    /// The names of the table's mechanisms for a message of this length, trust and load, the best
    /// first.
    pub fn names(&self, length: u64, trusted: bool, idle: bool) -> impl Iterator<Item = &str> {
        self.fitting(length, trusted, idle).into_iter().map(|choice| choice.mechanism.as_str())
    }

    /// The entries for a message of this length, trust and load, the best first.
    #[must_use]
    pub fn fitting(&self, length: u64, trusted: bool, idle: bool) -> Vec<&Choice> {
        let fits = move |choice: &&Choice| {
            choice.from as u64 <= length
                && choice.trusted.is_none_or(|asked| asked == trusted)
                && choice.idle.is_none_or(|asked| asked == idle)
        };
        let mut fitting: Vec<&Choice> = self.choices.iter().rev().filter(fits).collect();
        fitting.sort_by_key(|choice| std::cmp::Reverse(choice.from));
        fitting
    }
}

static INSTALLED: OnceLock<ChannelTable> = OnceLock::new();

/// Makes `table` the one that all channels of this process use. The first call decides; later
/// calls have no effect.
pub fn install(table: ChannelTable) {
    let _ = INSTALLED.set(table);
}

/// The installed table; `None` before [`install`].
pub(crate) fn installed() -> Option<&'static ChannelTable> {
    INSTALLED.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(from: usize, mechanism: &str, trusted: Option<bool>, idle: Option<bool>) -> Choice {
        Choice { from, mechanism: mechanism.into(), trusted, idle }
    }

    fn example() -> ChannelTable {
        let choices = vec![
            choice(0, "ring", None, None),
            choice(1 << 20, "double", Some(true), Some(true)),
            choice(64 << 10, "pull", Some(true), None),
            choice(usize::MAX, "staged", None, None),
        ];
        ChannelTable { sealed_dirty_max: Some(0.25), measured_max: Some(64 << 20), choices }
    }

    #[test]
    fn choice_of_the_largest_fitting_size_applies() {
        let table = example();
        let first = |length, trusted, idle| table.names(length, trusted, idle).next().unwrap();
        assert_eq!(first(10, true, true), "ring");
        assert_eq!(first(1 << 20, true, true), "double");
        assert_eq!(first(1 << 20, true, false), "pull");
        assert_eq!(first(1 << 30, false, true), "ring");
        let all: Vec<&str> = table.names(1 << 20, true, true).collect();
        assert_eq!(all, ["double", "pull", "ring"]);
        assert!(table.holds_for(256 << 20) && !table.holds_for((256 << 20) + 1));
        assert!(ChannelTable::default().holds_for(u64::MAX));
    }
}
