//! Keys of [`Record::parameters`](crate::Record::parameters): they end in their unit where they
//! have one.

// What figures of any part have.

/// The size of a copy, a block, a message or a buffer.
pub const SIZE_BYTES: &str = "size_bytes";
/// How many threads do it at once.
pub const THREADS: &str = "threads";
/// The program that was recorded, replayed or simulated.
pub const PROGRAM: &str = "program";
/// The subject's own version.
pub const VERSION: &str = "version";
/// How many processors it may use.
pub const CPUS: &str = "cpus";
/// What a reader has to know beside the figure.
pub const NOTE: &str = "note";
/// The command that measures it again.
pub const RERUN: &str = "rerun";
/// What the hypervisor took of all processors' time meanwhile.
pub const STEAL_PERCENT: &str = "steal_percent";
/// How many processors programs that have nothing to do with the measurement kept busy meanwhile.
pub const OTHERS_PROCESSORS: &str = "others_processors";
/// How many operations a sample is.
pub const OPERATIONS_PER_SAMPLE: &str = "operations_per_sample";
/// Rounds that were disturbed and do not count.
pub const ROUNDS_DISCARDED: &str = "rounds_discarded";
/// Processor time of an operation.
pub const CPU_NS: &str = "cpu_ns";
/// Page faults of all samples.
pub const PAGE_FAULTS: &str = "page_faults";
/// The most memory that the process had.
pub const MEMORY_PEAK_BYTES: &str = "memory_peak_bytes";
/// Who or what was asked for and takes no part.
pub const LEFT_OUT: &str = "left_out";
/// Who is on the machine and was not asked for.
pub const INSTALLED: &str = "installed";

// Copies.

/// memcpy, memmove or memset.
pub const FUNCTION: &str = "function";
/// What sizes are drawn from.
pub const DISTRIBUTION: &str = "distribution";
/// The sizes that are drawn evenly.
pub const SIZE_CLASS: &str = "size_class";
/// The file that a distribution was read from.
pub const FILE: &str = "file";
/// Where the bytes lie: the cache that holds them, or none.
pub const LEVEL: &str = "level";
/// Whether predictors can learn the branches.
pub const BRANCHES: &str = "branches";
/// What of each target is read right after its call.
pub const THEN_READ: &str = "then_read";
/// The share of addresses that are odd.
pub const MISALIGNED: &str = "misaligned";
/// How often source and target overlap; of a simulated machine, whether its copies do.
pub const OVERLAP: &str = "overlap";
/// How the subject was called: through C, or inlined.
pub const CALL: &str = "call";
/// The fastest subjects.
pub const BEST: &str = "best";
/// The time of haul over that of the best.
pub const OVER_BEST: &str = "over_best";
/// The lower end of its interval.
pub const OVER_BEST_LOW: &str = "over_best_low";
/// The upper end of its interval.
pub const OVER_BEST_HIGH: &str = "over_best_high";
/// What tuning measures for: training, search or check.
pub const PHASE: &str = "phase";
/// The choice of a policy that was tried.
pub const CHOICE: &str = "choice";
/// How far a target lies above its source.
pub const DISTANCE_BYTES: &str = "distance_bytes";

// Memory.

/// Reading, writing or copying.
pub const OPERATION: &str = "operation";
/// Which pages a subject has, or how many.
pub const PAGES: &str = "pages";
/// The size of a page.
pub const PAGE_BYTES: &str = "page_bytes";
/// How a page is touched; which engine a simulated machine has; how a driver works.
pub const MODE: &str = "mode";

// Heaps.

/// How blocks are aligned.
pub const ALIGN_BYTES: &str = "align_bytes";
/// Rounds of a repetition.
pub const ROUNDS: &str = "rounds";
/// Which of them.
pub const ROUND: &str = "round";
/// Blocks of a round.
pub const COUNT: &str = "count";
/// Whether other processes can share the heap.
pub const SHARED: &str = "shared";
/// Whether huge pages of the kernel's pool may be used.
pub const POOL: &str = "pool";
/// What the heap keeps ready ahead of need.
pub const GROW_AHEAD_BYTES: &str = "grow_ahead_bytes";
/// What has memory before the first allocation.
pub const READY_BYTES: &str = "ready_bytes";
/// The recorded history.
pub const TRACE: &str = "trace";
/// How many threads were recorded.
pub const THREADS_RECORDED: &str = "threads_recorded";
/// How many operations a history has.
pub const OPERATIONS: &str = "operations";
/// How many of them are done at this point.
pub const OPERATIONS_DONE: &str = "operations_done";
/// When that was, as recorded.
pub const AT_MS: &str = "at_ms";
/// The shared heap that was looked at.
pub const HEAP: &str = "heap";
/// What a share is counted by: heap, class, tag or page.
pub const BY: &str = "by";
/// The class of blocks.
pub const CLASS: &str = "class";
/// Its size.
pub const CLASS_BYTES: &str = "class_bytes";
/// How many blocks.
pub const BLOCKS: &str = "blocks";
/// Whose blocks.
pub const TAG: &str = "tag";
/// The number of that tag.
pub const TAG_NUMBER: &str = "tag_number";
/// Which page.
pub const PAGE: &str = "page";
/// Where it lies in the heap.
pub const OFFSET_BYTES: &str = "offset_bytes";
/// The NUMA node of its memory.
pub const NODE: &str = "node";
/// What memory it has.
pub const BACKING: &str = "backing";
/// How far it is from use.
pub const STATE: &str = "state";
/// What each of its slices holds.
pub const SLICES: &str = "slices";

// Transfers.

/// What the receiver's memory is like.
pub const TARGET: &str = "target";
/// Whether another program keeps a processor busy.
pub const BUSY_CORE: &str = "busy_core";
/// Messages of a sample, or of a stream.
pub const MESSAGES: &str = "messages";
/// How often it was measured until nothing disturbed it.
pub const TRIES: &str = "tries";
/// What haul chose.
pub const MECHANISM: &str = "mechanism";
/// Whether it chose by a table that was measured on this machine.
pub const TABLE: &str = "table";
/// The share of pages that the receiver writes to.
pub const DIRTY_SHARE: &str = "dirty_share";
/// How they lie.
pub const DIRTY_PAGES: &str = "dirty_pages";
/// Whether the ends trust each other.
pub const TRUSTED: &str = "trusted";

// The forwarder.

/// Who or what copies between a switch and its guest.
pub const COPY: &str = "copy";
/// Which program the guest is.
pub const GUEST: &str = "guest";
/// How the rings between switch and guest are laid out.
pub const LAYOUT: &str = "layout";
/// Descriptors of a ring.
pub const RING_SIZE: &str = "ring_size";
/// What both sides agreed on, as virtio's feature bits, in hexadecimal.
pub const FEATURES: &str = "features";
/// The function by which a guest receives.
pub const GUEST_RX: &str = "guest_rx";
/// The function by which a guest sends.
pub const GUEST_TX: &str = "guest_tx";
/// Which release the guest is of.
pub const GUEST_VERSION: &str = "guest_version";
/// Which release the kernel of a guest is of.
pub const GUEST_KERNEL: &str = "guest_kernel";
/// What runs a guest's instructions: kvm or tcg, QEMU's emulator.
pub const ACCELERATOR: &str = "accelerator";
/// How wide testpmd's vectors are at most, in bits.
pub const SIMD_BITS: &str = "simd_bits";
/// Which of a forwarder's ports.
pub const PORT: &str = "port";
/// How many queue pairs a flow has.
pub const QUEUES: &str = "queues";
/// Which of a port's queues.
pub const QUEUE: &str = "queue";
/// How many packets a call moved.
pub const SIZE: &str = "size";
/// Why packets were dropped.
pub const REASON: &str = "reason";
/// Where packets were lost.
pub const STAGE: &str = "stage";
/// What packets go through.
pub const FLOW: &str = "flow";
/// The share of the rate at zero loss that is offered, in percent.
pub const LOAD_PERCENT: &str = "load_percent";
/// Which quantile.
pub const QUANTILE: &str = "quantile";

// The simulated server.

/// The data of a packet or a transaction.
pub const PAYLOAD_BYTES: &str = "payload_bytes";
/// How many packets.
pub const PACKETS: &str = "packets";
/// The core: in order or out of order.
pub const CORE: &str = "core";
/// Channels of the memory.
pub const CHANNELS: &str = "channels";
/// Latency of the memory.
pub const LATENCY_NS: &str = "latency_ns";
/// Bandwidth of the memory.
pub const BANDWIDTH_GB_PER_S: &str = "bandwidth_gb_per_s";
/// Iterations of the loop that stands for a program's own work.
pub const WORK: &str = "work";
/// Who copies.
pub const COPYING: &str = "copying";
/// With or without the one knob.
pub const CALIBRATION: &str = "calibration";
/// Which build of the program.
pub const PROGRAM_DIGEST: &str = "program_digest";
/// How many instructions.
pub const INSTRUCTIONS: &str = "instructions";
/// The paper's value.
pub const BASELINE_VALUE: &str = "baseline_value";
/// How far off it is, in points.
pub const ERROR_POINTS: &str = "error_points";
/// Why the paper's value is doubted.
pub const DISPUTED: &str = "disputed";
/// How many rows it is the mean of.
pub const ROWS: &str = "rows";
/// Cycles of a packet that are not of its copies.
pub const COMPUTE_CYCLES: &str = "compute_cycles";
/// Cycles of a cache line copied.
pub const CYCLES_PER_LINE: &str = "cycles_per_line";
/// Which tier of the reproduction.
pub const TIER: &str = "tier";
/// Which of its checks; which transaction.
pub const WHAT: &str = "what";
/// What the check found.
pub const VALUE: &str = "value";
/// Which task of a sweep.
pub const TASK: &str = "task";
/// Which settings and program.
pub const DIGEST: &str = "digest";
/// Where a row of a trace begins.
pub const FROM_CYCLE: &str = "from_cycle";
/// Where it ends.
pub const TO_CYCLE: &str = "to_cycle";
/// Its place in the picture.
pub const ORDER: &str = "order";
/// What it is called.
pub const ROW: &str = "row";
/// What it went through, and when.
pub const SPANS: &str = "spans";
/// What it waited for.
pub const WAITS: &str = "waits";

// PCIe.

/// The device of a port, as the program names it.
pub const DEVICE: &str = "device";
/// The driver that the program has for it.
pub const PORT_DRIVER: &str = "port_driver";
/// Bursts by their size: `0:5,4:10`.
pub const BATCHES: &str = "batches";
/// Bursts, empty ones among them.
pub const POLLS: &str = "polls";
/// Bursts that had nothing.
pub const EMPTY_POLLS: &str = "empty_polls";
/// Packets of all bursts.
pub const PACKETS_COUNTED: &str = "packets_counted";
/// Mean bytes of a packet.
pub const PACKET_BYTES: &str = "packet_bytes";
/// Mean time from a burst to the next.
pub const GAP_NS: &str = "gap_ns";
/// How long was watched.
pub const SECONDS: &str = "seconds";
/// Intervals in which a counter was not known.
pub const GAPS: &str = "gaps";
/// Which NIC.
pub const NIC: &str = "nic";
/// The driver's rules that were asked for.
pub const DRIVER: &str = "driver";
/// The rules that come nearest to them.
pub const DRIVER_RULES: &str = "driver_rules";
/// Packets a second.
pub const RATE_PACKETS_PER_S: &str = "rate_packets_per_s";
/// Their sizes.
pub const SIZES_BYTES: &str = "sizes_bytes";
/// How many packets a poll receives.
pub const RX_BATCHES: &str = "rx_batches";
/// How many packets a burst sends.
pub const TX_BATCHES: &str = "tx_batches";
/// The batch that an average stands for.
pub const AVERAGE_BATCH: &str = "average_batch";
/// Who sends.
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
/// All headers a second.
pub const HEADER_BYTES_PER_S: &str = "header_bytes_per_s";
/// What the link carries a second.
pub const USABLE_BYTES_PER_S: &str = "usable_bytes_per_s";
/// Transactions a second.
pub const COUNT_PER_S: &str = "count_per_s";
/// Which way they go.
pub const DIRECTION: &str = "direction";
/// Which direction limits the rate.
pub const BINDS: &str = "binds";
/// Network interfaces of a device.
pub const INTERFACES: &str = "interfaces";
/// What is worth changing.
pub const FINDINGS: &str = "findings";
/// What an advice changes; of a comparison, faster, slower or stayed.
pub const CHANGE: &str = "change";
/// How that is done.
pub const HOW: &str = "how";
/// Writes to the device that it saves.
pub const SAVED_WRITES_PER_S: &str = "saved_writes_per_s";
/// The rate at which the link is full then, over that before.
pub const RATE_MAX_RATIO: &str = "rate_max_ratio";
/// What a comparison begins with.
pub const FROM: &str = "from";
/// What it ends with.
pub const TO: &str = "to";
/// Why two terms differ.
pub const CAUSE: &str = "cause";
/// Transactions a second in what a comparison begins with.
pub const COUNT_PER_S_BEFORE: &str = "count_per_s_before";
/// Packets a second that were asked for, and may be more than were forwarded.
pub const OFFERED_PACKETS_PER_S: &str = "offered_packets_per_s";
/// Packets that come back to back.
pub const GROUP: &str = "group";
/// Packets that were dropped.
pub const DROPPED: &str = "dropped";
/// How a figure was come by: counted, or estimated.
pub const BASIS: &str = "basis";
/// Whose time it is: the clock's, or a modelled core's.
pub const TIME: &str = "time";
/// What a program does for each burst beside forwarding it.
pub const WORK_NS: &str = "work_ns";

// Two files of records.

/// The experiment whose figure changed.
pub const OF: &str = "of";
/// The unit of both figures.
pub const UNIT: &str = "unit";
/// The earlier figure.
pub const OLD: &str = "old";
/// The later figure.
pub const NEW: &str = "new";
/// The run of the earlier figure.
pub const OLD_RUN: &str = "old_run";
/// The run of the later figure.
pub const NEW_RUN: &str = "new_run";
/// The later over the earlier figure, in time or cost.
pub const NEW_OVER_OLD: &str = "new_over_old";
/// Whose change between the two runs is taken out of the ratio.
pub const BESIDE: &str = "beside";
/// The lower end of the ratio's interval.
pub const RATIO_LOW: &str = "ratio_low";
/// The upper end of the ratio's interval.
pub const RATIO_HIGH: &str = "ratio_high";
/// The floors of both runs together, or the least change that counts.
pub const NOISE: &str = "noise";
