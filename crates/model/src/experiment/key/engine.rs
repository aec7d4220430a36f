//! Keys of engines.

/// What an engine is made of: software, hardware or fake.
pub const ENGINE_KIND: &str = "kind";
/// The name of the engine that does a part of the measured work.
pub const ENGINE: &str = "engine";
/// The share of a copy that the plain `copy`, which hides nothing, seems to hide in the same
/// rounds.
pub const SHARE_FLOOR: &str = "share_floor";
/// What the caller of an engine does while the engine copies: computes or waits.
pub const CALLER: &str = "caller";
/// The submissions that are pending at a time.
pub const DEPTH: &str = "depth";
/// The copies that are submitted together.
pub const BATCH: &str = "batch";
