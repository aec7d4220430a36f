//! Keys of transfers between processes.

/// The kind of the receiver's memory.
pub const TARGET: &str = "target";
/// Whether another program keeps a processor busy.
pub const BUSY_CORE: &str = "busy_core";
/// The number of messages in a sample, or in a stream.
pub const MESSAGES: &str = "messages";
/// The number of measurements until one was undisturbed.
pub const TRIES: &str = "tries";
/// The mechanism that haul chose.
pub const MECHANISM: &str = "mechanism";
/// Whether haul chose according to a table that was measured on this machine.
pub const TABLE: &str = "table";
/// The share of pages that the receiver writes to.
pub const DIRTY_SHARE: &str = "dirty_share";
/// The arrangement of those pages.
pub const DIRTY_PAGES: &str = "dirty_pages";
/// Whether the ends trust each other.
pub const TRUSTED: &str = "trusted";
