//! Time and cost of a stream over a channel, as records and as a line for a person.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use haul::channel::Account;
use haul_model::experiment::key;
use haul_model::{Bytes, Record};

use crate::command;
use crate::error::Error;
use crate::journal::Journal;

/// The sum of the accounts of a stream's messages.
pub(super) struct Cost {
    start: Instant,
    time: Duration,
    bytes: u64,
    messages: u64,
    system_calls: u64,
    faults: u64,
    cpu: Duration,
    extra_memory_bytes: u64,
    mechanisms: BTreeSet<&'static str>,
}

impl Cost {
    pub(super) fn start() -> Self {
        Self {
            start: Instant::now(),
            time: Duration::ZERO,
            bytes: 0,
            messages: 0,
            system_calls: 0,
            faults: 0,
            cpu: Duration::ZERO,
            extra_memory_bytes: 0,
            mechanisms: BTreeSet::new(),
        }
    }

    /// Adds a message that carried bytes.
    pub(super) fn add(&mut self, account: &Account) {
        self.bytes += account.size_bytes;
        self.messages += 1;
        self.system_calls += account.system_calls;
        self.faults += account.faults.unwrap_or_default();
        self.cpu += account.cpu.unwrap_or_default();
        self.extra_memory_bytes = self.extra_memory_bytes.max(account.extra_memory_bytes);
        self.mechanisms.insert(account.mechanism.name());
    }

    /// Ends the measurement: everything was received.
    pub(super) fn stop(&mut self) {
        self.time = self.start.elapsed();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub(super) fn is_complete(&self) -> bool {
        self.time > Duration::ZERO
    }

    fn subject(&self) -> String {
        let names: Vec<&str> = self.mechanisms.iter().copied().collect();
        format!("haul:{}", names.join("+"))
    }

    /// The records of this end.
    ///
    /// # Errors
    /// A record cannot be written.
    pub(super) fn record(&self, experiment: &str, journal: &mut Journal) -> Result<(), Error> {
        let figures = [
            ("time", "s", self.time.as_secs_f64()),
            ("cpu", "s", self.cpu.as_secs_f64()),
            ("faults", "count", self.faults as f64),
            ("system_calls", "count", self.system_calls as f64),
            ("extra_memory", "B", self.extra_memory_bytes as f64),
        ];
        let records = figures.map(|(metric, unit, value)| {
            let mut record = Record::new("", experiment, &self.subject(), metric, unit)
                .with(key::SIZE_BYTES, self.bytes)
                .with(key::MESSAGES, self.messages);
            record.samples = vec![value];
            record
        });
        command::record(experiment, records, journal)
    }

    /// `sent 12 MiB in 3 ms by ring`.
    pub(super) fn line(&self, verb: &str) -> String {
        let size = Bytes(self.bytes).approximate();
        let names: Vec<&str> = self.mechanisms.iter().copied().collect();
        let by = if names.is_empty() { String::new() } else { format!(" by {}", names.join(", ")) };
        format!("haul: {verb} {size} in {:.1?}{by}", self.time)
    }
}
