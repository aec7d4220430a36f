//! Whether a larger or a smaller figure is better.

use super::Record;
use crate::experiment::name;

/// The better direction of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Less is better: the figure is a time or another cost.
    Less,
    /// More is better: the figure is a rate.
    More,
}

/// Experiments whose figures only describe something, so that no figure is better than another.
const DESCRIBED: [&str; 12] = [
    name::COMPARE,
    name::COPY_PROFILE,
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
    /// The better direction of a record's figure, which follows from its unit. `None` if neither
    /// direction is better.
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
            // More is better for the gain of a copy in a flow. The other ratios are of used memory
            // over requested memory, or of time over the first round's, and less is better.
            "ratio" if record.metric == "copy_gain" => Some(Self::More),
            "ratio" => Some(Self::Less),
            "Mpps" => Some(Self::More),
            rate if rate.ends_with("/s") || rate.ends_with("/us") => Some(Self::More),
            _ => None,
        }
    }

    /// Converts a ratio of figures to a ratio of costs, which is below 1 if the first figure is
    /// better.
    #[must_use]
    pub fn cost(self, ratio: f64) -> f64 {
        match self {
            Self::Less => ratio,
            Self::More => 1.0 / ratio,
        }
    }
}
