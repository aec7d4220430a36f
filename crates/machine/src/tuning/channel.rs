//! The table of mechanisms in `haul.toml`: the mechanism for a message to another process.
//!
//! ```toml
//! [channel]
//! sealed_dirty_max = 0.11   # a message built in place is copied if the receiver writes more of it
//! measured_max = "16 MiB"   # bytes: the largest message for which the choices were measured
//! [[channel.choice]]
//! from = "1 MiB"            # bytes: from this size on
//! mechanism = "double"
//! trusted = true            # only if both ends trust each other; absent: always
//! idle = true               # only if each end has a processor; absent: always
//! ```
//!
//! An unknown name, and a mechanism that is not available with a peer, are skipped. So no table can
//! do more than make a transfer slower.

use std::fmt;

use toml::{Table, Value};

use super::value::{number_of, only_known, quoted, shown as size, text_of, threshold, wrong};
use crate::error::Error;

const KEYS: [&str; 3] = ["choice", "measured_max", "sealed_dirty_max"];
const CHOICE: [&str; 4] = ["from", "mechanism", "trusted", "idle"];

/// The factor beyond the largest measured message up to which the table applies: tables are
/// measured at every fourth size or more densely, and also apply between these sizes.
const BEYOND: u64 = 4;

/// The section `[channel]` of `haul.toml`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChannelTable {
    /// The largest share of a message, 0 to 1, to which the receiver may be expected to write if a
    /// message that was built in place is to be handed over and not copied.
    pub sealed_dirty_max: Option<f64>,
    /// The largest message for which the choices were measured, in bytes; `None` for any. They
    /// apply to messages of up to four times that.
    pub measured_max: Option<usize>,
    /// Of the entries that fit, the one with the largest size applies; the last of several.
    pub choices: Vec<Choice>,
}

/// One entry of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The smallest message to which it applies, in bytes.
    pub from: usize,
    /// The mechanism's name.
    pub mechanism: String,
    /// Whether both ends must trust each other, or must not; `None` for either.
    pub trusted: Option<bool>,
    /// Whether each end must have a processor, or must not; `None` for either.
    pub idle: Option<bool>,
}

impl ChannelTable {
    /// Whether the choices apply to a message of this length.
    #[must_use]
    pub fn holds_for(&self, length: u64) -> bool {
        length <= self.longest()
    }

    /// The longest message to which they apply, in bytes.
    #[must_use]
    pub fn longest(&self) -> u64 {
        self.measured_max.map_or(u64::MAX, |most| (most as u64).saturating_mul(BEYOND))
    }

    /// The names of the table's mechanisms for such a message, the best first.
    pub fn names(&self, length: u64, trusted: bool, idle: bool) -> impl Iterator<Item = &str> {
        self.fitting(length, trusted, idle).into_iter().map(|choice| choice.mechanism.as_str())
    }

    /// The entries for such a message, the best first.
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

    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return Ok(());
        }
        writeln!(f, "\n[channel] # the mechanism for a message to another process")?;
        if let Some(part) = self.sealed_dirty_max {
            writeln!(f, "sealed_dirty_max = {}", Value::Float(part))?;
        }
        if let Some(most) = self.measured_max {
            writeln!(f, "measured_max = {}", size(most))?;
        }
        for choice in &self.choices {
            writeln!(f, "[[channel.choice]]")?;
            writeln!(f, "from = {}", size(choice.from))?;
            writeln!(f, "mechanism = {}", quoted(&choice.mechanism))?;
            for (name, asked) in [("trusted", choice.trusted), ("idle", choice.idle)] {
                if let Some(asked) = asked {
                    writeln!(f, "{name} = {asked}")?;
                }
            }
        }
        Ok(())
    }
}

/// Parses the section of a file, which may be absent.
pub(super) fn section(table: &Table) -> Result<ChannelTable, Error> {
    let Some(section) = table.get("channel") else { return Ok(ChannelTable::default()) };
    let Value::Table(section) = section else {
        return Err(wrong("channel", section, "a table: [channel]"));
    };
    only_known(section, "channel.", &KEYS)?;
    let sealed_dirty_max = match section.get("sealed_dirty_max") {
        None => None,
        Some(_) => Some(number_of(section, "channel.", "sealed_dirty_max")?),
    };
    let measured_max = match section.get("measured_max") {
        None => None,
        Some(value) => Some(threshold("channel.measured_max", value)?),
    };
    let expected = "a list of tables: [[channel.choice]]";
    let choices = match section.get("choice") {
        None => Vec::new(),
        Some(Value::Array(entries)) => entries
            .iter()
            .map(|entry| match entry {
                Value::Table(entry) => choice(entry),
                other => Err(wrong("channel.choice", other, expected)),
            })
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(wrong("channel.choice", other, expected)),
    };
    Ok(ChannelTable { sealed_dirty_max, measured_max, choices })
}

fn choice(entry: &Table) -> Result<Choice, Error> {
    const PREFIX: &str = "channel.choice.";
    only_known(entry, PREFIX, &CHOICE)?;
    let from = match entry.get("from") {
        Some(value) => threshold(&format!("{PREFIX}from"), value)?,
        None => return Err(Error::MissingKey { key: format!("{PREFIX}from") }),
    };
    let flag = |name: &str| match entry.get(name) {
        None => Ok(None),
        Some(Value::Boolean(value)) => Ok(Some(*value)),
        Some(other) => Err(wrong(&format!("{PREFIX}{name}"), other, "true or false")),
    };
    let mechanism = text_of(entry, PREFIX, "mechanism")?;
    Ok(Choice { from, mechanism, trusted: flag("trusted")?, idle: flag("idle")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;

    const HEAD: &str = "schema = \"haul.tuning/1\"\nmachine = \"m\"\nwritten = \"w\"\n";

    fn table(text: &str) -> Result<ChannelTable, Error> {
        format!("{HEAD}{text}").parse::<Tuning>().map(|tuning| tuning.channel)
    }

    fn example() -> ChannelTable {
        table(
            "[channel]\nsealed_dirty_max = 0.25\nmeasured_max = \"64 MiB\"\n\
             [[channel.choice]]\nfrom = 0\nmechanism = \"ring\"\n\
             [[channel.choice]]\nfrom = \"1 MiB\"\nmechanism = \"double\"\ntrusted = true\nidle = true\n\
             [[channel.choice]]\nfrom = \"64 KiB\"\nmechanism = \"pull\"\ntrusted = true\n\
             [[channel.choice]]\nfrom = \"never\"\nmechanism = \"staged\"\n",
        )
        .unwrap()
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

    #[test]
    fn written_table_is_read_back() {
        let mut tuning: Tuning = HEAD.parse().unwrap();
        tuning.channel = example();
        assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        assert_eq!(tuning.channel.sealed_dirty_max, Some(0.25));
        assert_eq!(tuning.channel.measured_max, Some(64 << 20));
    }

    #[test]
    fn invalid_tables_are_errors() {
        for bad in [
            "channel = 1",
            "[channel]\nchoices = 1",
            "[channel]\nchoice = 1",
            "[channel]\nchoice = [1]",
            "[channel]\nsealed_dirty_max = \"much\"",
            "[channel]\nmeasured_max = \"much\"",
            "[[channel.choice]]\nmechanism = \"ring\"",
            "[[channel.choice]]\nfrom = 1",
            "[[channel.choice]]\nfrom = -1\nmechanism = \"ring\"",
            "[[channel.choice]]\nfrom = 1\nmechanism = \"ring\"\nidle = 1",
            "[[channel.choice]]\nfrom = 1\nmechanism = \"ring\"\nname = 1",
        ] {
            assert!(table(bad).is_err(), "{bad}");
        }
    }
}
