//! The settings of copy engines.

use serde::{Deserialize, Serialize};

use super::within;
use crate::error::Error;

/// Where the engines stand. Section 3.1 of the paper discusses both; it evaluates the hub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// In the memory controller hub, beside the memory controller's queue.
    #[default]
    Hub,
    /// On the processor's die, beside its second-level cache: every line crosses the bus.
    Die,
}

/// What becomes of lines of the target that a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// They are invalidated, and the data goes to memory.
    #[default]
    Invalidate,
    /// The data is written into the second-level cache, and to memory when it is evicted. Only an
    /// engine on the die reaches it.
    Cache,
}

/// What becomes of lines of the source that a cache holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// They stay; a dirty one is supplied by its cache on the snoop, and memory is brought up to
    /// date.
    #[default]
    Keep,
    /// They are given up once read: the program is taken not to read them again.
    Drop,
}

/// The copy engines and the copy control unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineSettings {
    /// The name of the policy: `sync-nlb`, `sync-wlb`, `async`, or another that the engine lists.
    pub policy: String,
    /// Whether anything may overlap with a copy. The paper's "faster copies" is what remains of the
    /// benefit when nothing may.
    pub overlap: bool,
    /// Engines; a copy goes to the one with the fewest waiting. The paper: 1.
    pub engines: u32,
    /// Where they stand.
    pub placement: Placement,
    /// Copies that may wait at each engine. Chosen: 8.
    pub queue_entries: u32,
    /// Lines of each engine's stream buffer, "to store copied data": lines of the target. A longer
    /// copy takes rounds of reading and writing. Fitted to the paper's Table 2: 6; docs/sim.md has
    /// what others give.
    pub stream_lines: u32,
    /// The part of a channel's requests that is the engines' for sure while the processor bypasses
    /// them. The paper has CPU requests "interleaved" with the engine's. Fitted to its Table 2: 50,
    /// every other one; docs/sim.md has what 67 gives. The processor's write-backs wait for the
    /// same choices: below 50, a stream of dirty lines can pile them up in the queue.
    pub share_percent: u32,
    /// Copies that the pending copy table holds. Chosen: 16.
    pub pending_entries: u32,
    /// Lines of the source in caches.
    pub source: Source,
    /// Lines of the target in caches.
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
