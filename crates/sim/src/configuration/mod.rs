//! The settings of the simulated machine, each with its source. "Table 1" is the paper's (Zhao et
//! al., ICCD 2005); "chosen" marks this project's value if the paper gives none.
//!
//! From the bottom up:
//!
//! - `core`: the processor;
//! - `memory`: caches, bus and memory;
//! - `engine`: copy engines.

mod core;
mod engine;
mod memory;

pub use core::{CoreSettings, Issue, Latencies, PredictorSettings, TlbSettings};
pub use engine::{EngineSettings, Placement, Source, Target};
pub use memory::{BusSettings, CacheSettings, DramSettings, MemorySettings, cycles_of_ns};

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A point in time or a duration, in clock cycles of the CPU.
pub type Cycle = u64;

/// The clock of the CPU in MHz. Every duration in the simulator is in its cycles. Table 1.
pub const CPU_MHZ: u64 = 3000;

/// One machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Configuration {
    /// The processor.
    pub core: CoreSettings,
    /// Caches, bus and memory.
    pub memory: MemorySettings,
    /// The copy engines.
    pub engine: EngineSettings,
}

impl Configuration {
    /// Checks that the machine is possible.
    ///
    /// # Errors
    /// [`Error::Setting`] names the first setting outside its limit.
    pub fn validate(&self) -> Result<(), Error> {
        self.core.validate()?;
        self.memory.validate()?;
        self.engine.validate()?;
        let page_bytes = self.core.tlb.page_bytes;
        if self.memory.line_bytes > page_bytes {
            return Err(Error::setting(
                "memory.line_bytes",
                self.memory.line_bytes,
                format!("a line must not be larger than a page of {page_bytes} bytes"),
            ));
        }
        Ok(())
    }
}

/// Returns an error for a value outside `low..=high`.
pub(crate) fn within(setting: &'static str, value: u64, low: u64, high: u64) -> Result<(), Error> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::setting(setting, value, format!("it must be from {low} to {high}")))
}

/// Returns an error for a value that is not a power of two or is outside `low..=high`.
pub(crate) fn power_of_two(
    setting: &'static str,
    value: u64,
    low: u64,
    high: u64,
) -> Result<(), Error> {
    within(setting, value, low, high)?;
    if value.is_power_of_two() {
        return Ok(());
    }
    Err(Error::setting(setting, value, "it must be a power of two"))
}
