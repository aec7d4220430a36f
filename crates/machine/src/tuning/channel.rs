//! The table of mechanisms in `haul.toml`: which mechanism sends a message to another process.
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
//! A choice with an unknown name, or with a mechanism that is not available with the peer, is
//! skipped. So a wrong table can only make a transfer slower.

use std::fmt;

use toml::{Table, Value};

use haul_channel::{ChannelTable, Choice};

use super::value::{number_of, only_known, quoted, shown as size, text_of, threshold, wrong};
use crate::error::Error;

const KEYS: [&str; 3] = ["choice", "measured_max", "sealed_dirty_max"];
const CHOICE: [&str; 4] = ["from", "mechanism", "trusted", "idle"];

/// Writes the section `[channel]` of a file, if the table is not empty.
pub(super) fn write(table: &ChannelTable, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if *table == ChannelTable::default() {
        return Ok(());
    }
    writeln!(f, "\n[channel] # the mechanism for a message to another process")?;
    if let Some(part) = table.sealed_dirty_max {
        writeln!(f, "sealed_dirty_max = {}", Value::Float(part))?;
    }
    if let Some(most) = table.measured_max {
        writeln!(f, "measured_max = {}", size(most))?;
    }
    for choice in &table.choices {
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

/// Parses the section `[channel]` of a file. The section may be absent.
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
