//! The processor's settings.

use serde::{Deserialize, Serialize};

use super::{power_of_two, within};
use crate::error::Error;

/// The order in which instructions may begin to execute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Issue {
    /// Program order: an instruction that waits holds up all younger ones.
    InOrder,
    /// An instruction begins as soon as its operands and a unit are available.
    #[default]
    OutOfOrder,
}

impl Issue {
    /// The name in settings and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InOrder => "in-order",
            Self::OutOfOrder => "out-of-order",
        }
    }
}

/// The processor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoreSettings {
    /// The order of issue. The paper evaluates both orders.
    pub issue: Issue,
    /// The largest number of instructions that are fetched, dispatched, issued and committed per
    /// cycle. Table 1: 4.
    pub width: u32,
    /// The largest number of instructions between dispatch and commit. Table 1: 128.
    pub window_entries: u32,
    /// The largest number of loads and stores between dispatch and commit. Section 4.3: 64.
    pub load_store_entries: u32,
    /// Integer units; one instruction a cycle each. Table 1: 2.
    pub integer_units: u32,
    /// Multiply and divide units. Chosen: 1, SimpleScalar's default.
    pub multiply_units: u32,
    /// The largest number of loads and stores that may use the first-level cache in one cycle.
    /// Chosen: 2, SimpleScalar's default.
    pub memory_ports: u32,
    /// The largest number of fetched instructions that are not yet dispatched. Chosen: 16, four
    /// cycles of fetch.
    pub fetch_entries: u32,
    /// The number of cycles from the resolution of a mispredicted branch to the first fetch on
    /// the right path, beyond the fetch itself. Chosen: 3, SimpleScalar's default.
    pub mispredict_cycles: u32,
    /// Whether instructions after a mispredicted branch execute until the branch resolves, as they
    /// do in SimpleScalar.
    pub wrong_path: bool,
    /// Cycles that each kind of operation takes.
    pub latencies: Latencies,
    /// The branch predictor.
    pub predictor: PredictorSettings,
    /// The settings of the instruction TLB and of the data TLB, which are alike.
    pub tlb: TlbSettings,
}

/// Cycles from issue to result; SimpleScalar's defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latencies {
    /// Arithmetic, logic, shifts, branches.
    pub integer: u32,
    /// Multiplication. The unit accepts a new multiplication each cycle.
    pub multiply: u32,
    /// Division. The unit is busy until the division is done.
    pub divide: u32,
}

/// The branch predictor: two-bit counters, a target buffer and a return-address stack.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PredictorSettings {
    /// Two-bit counters. Chosen: 2048, SimpleScalar's default.
    pub counters: u32,
    /// The number of entries in the direct-mapped target buffer. Chosen: 2048, SimpleScalar's 512
    /// sets of 4.
    pub targets: u32,
    /// The number of entries in the return-address stack. Chosen: 8, SimpleScalar's default.
    pub return_entries: u32,
}

/// A fully associative translation buffer with least-recently-used replacement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlbSettings {
    /// The number of pages that the buffer holds. Chosen: 64.
    pub entries: u32,
    /// The size of a page in bytes. Chosen: 4096.
    pub page_bytes: u64,
    /// The number of cycles per page walk. Chosen: 30, SimpleScalar's default.
    pub walk_cycles: u32,
}

impl Default for CoreSettings {
    fn default() -> Self {
        Self {
            issue: Issue::default(),
            width: 4,
            window_entries: 128,
            load_store_entries: 64,
            integer_units: 2,
            multiply_units: 1,
            memory_ports: 2,
            fetch_entries: 16,
            mispredict_cycles: 3,
            wrong_path: true,
            latencies: Latencies::default(),
            predictor: PredictorSettings::default(),
            tlb: TlbSettings::default(),
        }
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self { integer: 1, multiply: 3, divide: 20 }
    }
}

impl Default for PredictorSettings {
    fn default() -> Self {
        Self { counters: 2048, targets: 2048, return_entries: 8 }
    }
}

impl Default for TlbSettings {
    fn default() -> Self {
        Self { entries: 64, page_bytes: 4096, walk_cycles: 30 }
    }
}

impl CoreSettings {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        within("core.width", self.width.into(), 1, 16)?;
        within("core.window_entries", self.window_entries.into(), self.width.into(), 4096)?;
        within("core.load_store_entries", self.load_store_entries.into(), 1, 4096)?;
        within("core.integer_units", self.integer_units.into(), 1, 16)?;
        within("core.multiply_units", self.multiply_units.into(), 1, 16)?;
        within("core.memory_ports", self.memory_ports.into(), 1, 16)?;
        within("core.fetch_entries", self.fetch_entries.into(), self.width.into(), 4096)?;
        within("core.mispredict_cycles", self.mispredict_cycles.into(), 0, 1000)?;
        within("core.latencies.integer", self.latencies.integer.into(), 1, 1000)?;
        within("core.latencies.multiply", self.latencies.multiply.into(), 1, 1000)?;
        within("core.latencies.divide", self.latencies.divide.into(), 1, 1000)?;
        power_of_two("core.predictor.counters", self.predictor.counters.into(), 1, 1 << 20)?;
        power_of_two("core.predictor.targets", self.predictor.targets.into(), 1, 1 << 20)?;
        within("core.predictor.return_entries", self.predictor.return_entries.into(), 0, 1024)?;
        within("core.tlb.entries", self.tlb.entries.into(), 1, 4096)?;
        power_of_two("core.tlb.page_bytes", self.tlb.page_bytes, 4096, 1 << 30)?;
        within("core.tlb.walk_cycles", self.tlb.walk_cycles.into(), 0, 100_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Configuration;

    #[test]
    fn default_machine_is_valid() {
        assert_eq!(Configuration::default().validate(), Ok(()));
    }

    #[test]
    fn invalid_core_setting_is_named_in_the_error() {
        let refusal = |change: fn(&mut CoreSettings)| {
            let mut settings = CoreSettings::default();
            change(&mut settings);
            settings.validate().expect_err("an impossible machine").to_string()
        };
        assert!(refusal(|s| s.width = 0).starts_with("core.width = 0: it must be from 1 to 16"));
        assert!(refusal(|s| s.window_entries = 3).contains("core.window_entries = 3"));
        assert!(refusal(|s| s.predictor.counters = 1000).contains("a power of two"));
        assert!(refusal(|s| s.tlb.page_bytes = 0).contains("core.tlb.page_bytes = 0"));
    }
}
