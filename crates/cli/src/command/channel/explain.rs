//! `haul channel explain`: which mechanism would carry a message, and why.

use haul::channel::{Channel, Explanation, Settings};
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Kind, Record};

use super::POLL;
use crate::arguments::channel;
use crate::arguments::users::Allowed;
use crate::command::{self, Command};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal::{self, Table};

pub(super) struct Explain {
    arguments: channel::Explain,
    /// The sizes of messages, with the mechanism that would carry each.
    explained: Vec<(Bytes, Explanation)>,
}

impl Explain {
    /// # Errors
    ///
    /// A size is 0.
    pub(super) fn check(arguments: channel::Explain) -> Result<Self, Error> {
        if arguments.sizes.0.iter().any(|size| size.0 == 0) {
            return Err(Error::NoSize { option: "--sizes" });
        }
        Ok(Self { arguments, explained: Vec::new() })
    }
}

impl Command for Explain {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.arguments.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let settings = Settings {
            wait: Some(POLL),
            users: Allowed::users(&self.arguments.allow_user),
            trusts_peer: self.arguments.trust,
            ..Settings::default()
        };
        let (mut sender, _receiver) = Channel::connect(&self.arguments.to, &settings)?.split();
        for &size in &self.arguments.sizes.0 {
            self.explained.push((size, sender.explain(size.0)?));
        }
        if self.arguments.json {
            let records =
                self.explained.iter().map(|(size, explanation)| record(*size, explanation));
            command::record(name::CHANNEL_EXPLAIN, records, journal)?;
        }
        Ok(())
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        let Some((_, last)) = self.explained.last().filter(|_| !self.arguments.json) else {
            return Ok(());
        };
        for (size, explanation) in &self.explained {
            let (mechanism, reason) = (explanation.mechanism, explanation.reason.text());
            terminal::print(&format!("{size} go by {mechanism}, because {reason}."))?;
        }
        let mut table = Table::new(&["mechanism", ">copies", "to this peer", "what it does"]);
        for (mechanism, obstacle) in &last.obstacles {
            let obstacle = obstacle.map_or("yes".to_owned(), |reason| format!("no: {reason}"));
            let copies = mechanism.copies().to_string();
            table.add(vec![mechanism.name().into(), copies, obstacle, mechanism.summary().into()]);
        }
        let size = self.explained.last().map_or(Bytes(0), |(size, _)| *size);
        terminal::print(&format!("\nFor {size}:\n{}", table.text()))?;
        let trust = match last.is_trusted {
            true => "The two ends trust each other.",
            false => "The two ends do not trust each other: --trust at both allows one copy less.",
        };
        let table = match last.is_measured {
            true => "The choice uses a measured haul.toml.",
            false => {
                "The choice uses no measurement: `haul survey` writes a haul.toml with a [channel] table."
            }
        };
        terminal::print(&format!("\n{trust} {table}"))
    }
}

fn record(size: Bytes, explanation: &Explanation) -> Record {
    let subject = format!("haul:{}", explanation.mechanism);
    let mut record = Record::new("", name::CHANNEL_EXPLAIN, &subject, "copies", "count")
        .with(key::SIZE_BYTES, size.0)
        .with(key::TRUSTED, explanation.is_trusted)
        .with(key::TABLE, explanation.is_measured)
        .with(key::WHAT, explanation.reason.text());
    record.kind = Kind::Modelled;
    record.samples = vec![f64::from(explanation.mechanism.copies())];
    record
}
