//! Keys of PCIe traffic.

/// The device of a port, as the program names it.
pub const DEVICE: &str = "device";
/// The driver that the program uses for the device.
pub const PORT_DRIVER: &str = "port_driver";
/// The number of bursts by their size: `0:5,4:10`.
pub const BATCHES: &str = "batches";
/// The number of bursts, including empty ones.
pub const POLLS: &str = "polls";
/// The number of empty bursts.
pub const EMPTY_POLLS: &str = "empty_polls";
/// The packets of all bursts together.
pub const PACKETS_COUNTED: &str = "packets_counted";
/// The mean size of a packet.
pub const PACKET_BYTES: &str = "packet_bytes";
/// The mean time from one burst to the next.
pub const GAP_NS: &str = "gap_ns";
/// The length of the observation.
pub const SECONDS: &str = "seconds";
/// The number of intervals in which a counter was unknown.
pub const GAPS: &str = "gaps";
/// The NIC.
pub const NIC: &str = "nic";
/// The requested rules of a driver.
pub const DRIVER: &str = "driver";
/// The rules that were used, the nearest to the requested ones.
pub const DRIVER_RULES: &str = "driver_rules";
/// The rate.
pub const RATE_PACKETS_PER_S: &str = "rate_packets_per_s";
/// The sizes of packets.
pub const SIZES_BYTES: &str = "sizes_bytes";
/// The number of packets that a poll receives.
pub const RX_BATCHES: &str = "rx_batches";
/// The number of packets that a burst sends.
pub const TX_BATCHES: &str = "tx_batches";
/// The average batch.
pub const AVERAGE_BATCH: &str = "average_batch";
/// The directions of the traffic.
pub const TRAFFIC: &str = "traffic";
/// Generation and lanes.
pub const LINK: &str = "link";
/// The largest payload of a transaction.
pub const MPS_BYTES: &str = "mps_bytes";
/// The largest read request.
pub const MRRS_BYTES: &str = "mrrs_bytes";
/// The boundary at which completions are cut.
pub const RCB_BYTES: &str = "rcb_bytes";
/// The header of a transaction.
pub const HEADER_BYTES: &str = "header_bytes";
/// The bytes per second of all headers.
pub const HEADER_BYTES_PER_S: &str = "header_bytes_per_s";
/// The usable bandwidth of the link.
pub const USABLE_BYTES_PER_S: &str = "usable_bytes_per_s";
/// The number of transactions a second.
pub const COUNT_PER_S: &str = "count_per_s";
/// The direction of transactions.
pub const DIRECTION: &str = "direction";
/// The direction that limits the rate.
pub const BINDS: &str = "binds";
/// The network interfaces of a device.
pub const INTERFACES: &str = "interfaces";
/// The changes that are worthwhile.
pub const FINDINGS: &str = "findings";
/// The change that an advice proposes; in a comparison, `faster`, `slower`, `stayed` or `cannot
/// tell`.
pub const CHANGE: &str = "change";
/// How to make the change.
pub const HOW: &str = "how";
/// The writes to the device that the change saves.
pub const SAVED_WRITES_PER_S: &str = "saved_writes_per_s";
/// The rate at which the link is full after the change, over the rate before.
pub const RATE_MAX_RATIO: &str = "rate_max_ratio";
/// The first estimate of a comparison.
pub const FROM: &str = "from";
/// The second estimate of a comparison.
pub const TO: &str = "to";
/// The cause of the difference between two terms.
pub const CAUSE: &str = "cause";
/// The number of transactions a second in the first estimate of a comparison.
pub const COUNT_PER_S_BEFORE: &str = "count_per_s_before";
/// The offered rate, which may be above the forwarded rate.
pub const OFFERED_PACKETS_PER_S: &str = "offered_packets_per_s";
/// The number of packets that arrive back to back.
pub const GROUP: &str = "group";
/// The number of dropped packets.
pub const DROPPED: &str = "dropped";
/// The origin of a figure: counted or estimated.
pub const BASIS: &str = "basis";
/// The source of times: the clock, or a modelled core.
pub const TIME: &str = "time";
/// The work of a program per burst, in addition to forwarding.
pub const WORK_NS: &str = "work_ns";
