//! Keys of the simulated server.

/// The data of a packet or a transaction.
pub const PAYLOAD_BYTES: &str = "payload_bytes";
/// The number of packets.
pub const PACKETS: &str = "packets";
/// The core: in order or out of order.
pub const CORE: &str = "core";
/// The number of memory channels.
pub const CHANNELS: &str = "channels";
/// The latency of the memory.
pub const LATENCY_NS: &str = "latency_ns";
/// The bandwidth of the memory.
pub const BANDWIDTH_GB_PER_S: &str = "bandwidth_gb_per_s";
/// The iterations of the loop that represents a program's own work.
pub const WORK: &str = "work";
/// The component that copies: the core or an engine.
pub const COPYING: &str = "copying";
/// Whether the one calibrated parameter is set.
pub const CALIBRATION: &str = "calibration";
/// The digest of the program's build.
pub const PROGRAM_DIGEST: &str = "program_digest";
/// The number of instructions.
pub const INSTRUCTIONS: &str = "instructions";
/// The paper's value.
pub const BASELINE_VALUE: &str = "baseline_value";
/// The deviation from the paper's value, in percentage points.
pub const ERROR_POINTS: &str = "error_points";
/// The reason why the paper's value is doubted.
pub const DISPUTED: &str = "disputed";
/// The number of rows in the mean.
pub const ROWS: &str = "rows";
/// The cycles of a packet without its copies.
pub const COMPUTE_CYCLES: &str = "compute_cycles";
/// The cycles per copied cache line.
pub const CYCLES_PER_LINE: &str = "cycles_per_line";
/// The tier of the reproduction.
pub const TIER: &str = "tier";
/// The check of a tier, or the transaction.
pub const WHAT: &str = "what";
/// The value that the check found.
pub const VALUE: &str = "value";
/// The task of a sweep.
pub const TASK: &str = "task";
/// The digest of settings and program.
pub const DIGEST: &str = "digest";
/// The cycle at which a row of a trace begins.
pub const FROM_CYCLE: &str = "from_cycle";
/// The cycle at which a row of a trace ends.
pub const TO_CYCLE: &str = "to_cycle";
/// The position in the drawing.
pub const ORDER: &str = "order";
/// The name of the row.
pub const ROW: &str = "row";
/// The stages of the row, with their times.
pub const SPANS: &str = "spans";
/// The causes of the row's waits.
pub const WAITS: &str = "waits";
