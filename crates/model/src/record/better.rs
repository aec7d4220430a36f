//! Which direction of a figure is the better one.

use super::Record;
use crate::experiment::name;

/// Which direction of a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// A time or another cost.
    Less,
    /// A rate.
    More,
}

/// Experiments whose figures describe something: none is better than another.
const DESCRIBED: [&str; 11] = [
    name::COMPARE,
    name::HEAP_LIST,
    name::HEAP_TRACE,
    name::HEAP_MAP,
    name::PCIE_BURST,
    name::PCIE_ESTIMATE,
    name::PCIE_EXPLAIN,
    name::PCIE_LIST,
    name::PCIE_SWEEP,
    name::SIM_TIERS,
    name::SIM_TRACE,
];

impl Better {
    /// Of a record, by its unit; `None` where neither direction is better.
    ///
    /// ```
    /// use haul_model::{Better, Record};
    /// let of = |metric, unit| Better::of(&Record::new("r", "copy.size", "haul", metric, unit));
    /// assert_eq!(of("time", "ns"), Some(Better::Less));
    /// assert_eq!(of("throughput", "GB/s"), Some(Better::More));
    /// assert_eq!(of("overlap", "%"), None);
    /// // More that crosses a link is neither better nor worse.
    /// let sweep = Record::new("r", "pcie.sweep", "haul", "inbound_read", "bytes/s");
    /// assert_eq!(Better::of(&sweep), None);
    /// ```
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        if DESCRIBED.contains(&record.experiment.as_str()) {
            return None;
        }
        match record.unit.as_str() {
            "ns" | "us" | "ms" | "s" | "s/GB" | "cycles" | "B" | "KiB" | "MiB" => Some(Self::Less),
            // What a copy gains in a flow; what memory is taken, or time grows, over what was asked
            // for or the first round.
            "ratio" if record.metric == "copy_gain" => Some(Self::More),
            "ratio" => Some(Self::Less),
            "Mpps" => Some(Self::More),
            rate if rate.ends_with("/s") || rate.ends_with("/us") => Some(Self::More),
            _ => None,
        }
    }

    /// A ratio of figures as one of time or cost, below 1 where the first is better.
    #[must_use]
    pub fn cost(self, ratio: f64) -> f64 {
        match self {
            Self::Less => ratio,
            Self::More => 1.0 / ratio,
        }
    }
}
