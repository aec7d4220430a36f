//! The settings of copy engines.

use serde::{Deserialize, Serialize};

use super::within;
use crate::error::Error;

/// Where the engines are located. Section 3.1 of the paper discusses both locations; it evaluates
/// the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In the memory controller hub, beside the memory controller's queue.
    #[default]
    Hub,
    /// On the processor's die, beside its second-level cache: every line crosses the bus.
    Die,
}

/// What an engine does with lines of the target that a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// Invalidate the lines, and write the data to memory.
    #[default]
    Invalidate,
    /// Write the data into the second-level cache; the data reaches memory when the line is
    /// evicted. Only an engine on the die has access to that cache.
    Cache,
}

/// What an engine does with lines of the source that a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Keep the lines. The cache supplies a dirty line on the snoop, and memory is updated.
    #[default]
    Keep,
    /// Drop a line once the engine has read it: the setting assumes that the program will not read
    /// it again.
    Drop,
}

/// The copy engines and the copy control unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// The name of the policy: `sync-nlb`, `sync-wlb`, `async`, or another that the engine lists.
    pub policy: String,
    /// Whether other instructions may overlap with a copy. Without overlap, the rest of the benefit
    /// is what the paper calls "faster copies".
    pub overlap: bool,
    /// The number of engines. A copy goes to the engine with the fewest pieces. The paper: 1.
    pub engines: u32,
    /// The location of the engines.
    pub placement: Placement,
    /// The largest number of copies that may wait at each engine. Chosen: 8.
    pub queue_entries: u32,
    /// The number of lines in each engine's stream buffer, "to store copied data"; each holds a
    /// line of the target. A longer copy takes several rounds of reading and writing. Fitted to
    /// the paper's Table 2: 6; the record in bench/record/2026-11-22-sim-paper lists the results
    /// of other values.
    pub stream_lines: u32,
    /// The processor's requests bypass those of the engines, but the engines are guaranteed this
    /// percentage of a channel's contended choices. In the paper, CPU requests are "interleaved"
    /// with the engine's. Fitted to the paper's Table 2: 50, every other choice; the record named
    /// above lists the result of 67. The processor's write-backs wait for these choices too, so
    /// that a stream of dirty lines can fill the queue if the share is below 50.
    pub share_percent: u32,
    /// The largest number of copies that the pending copy table holds. Chosen: 16.
    pub pending_entries: u32,
    /// What to do with lines of the source in caches.
    pub source: Source,
    /// What to do with lines of the target in caches.
    pub target: Target,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            policy: "async".into(),
            overlap: true,
            engines: 1,
            placement: Placement::default(),
            queue_entries: 8,
            stream_lines: 6,
            share_percent: 50,
            pending_entries: 16,
            source: Source::default(),
            target: Target::default(),
        }
    }
}

impl EngineSettings {
    pub(crate) fn validate(&self) -> Result<(), Error> {
        within("engine.engines", self.engines.into(), 1, 64)?;
        within("engine.queue_entries", self.queue_entries.into(), 1, 1024)?;
        within("engine.stream_lines", self.stream_lines.into(), 1, 1024)?;
        within("engine.share_percent", self.share_percent.into(), 1, 99)?;
        within("engine.pending_entries", self.pending_entries.into(), 1, 1024)?;
        if self.target == Target::Cache && self.placement == Placement::Hub {
            return Err(Error::setting(
                "engine.target",
                "cache",
                "only an engine on the die reaches the cache; set engine.placement to \"die\"",
            ));
        }
        Ok(())
    }
}
