//! Keys of [`Record::parameters`](crate::Record::parameters). A key of a value with a unit ends
//! in the unit.

// Keys of all parts of haul.

/// The size of a copy, a block, a message or a buffer.
pub const SIZE_BYTES: &str = "size_bytes";
/// The number of threads that run concurrently.
pub const THREADS: &str = "threads";
/// The program that was recorded, replayed or simulated.
pub const PROGRAM: &str = "program";
/// The subject's own version.
pub const VERSION: &str = "version";
/// The number of processors that the subject may use.
pub const CPUS: &str = "cpus";
/// A remark that a reader must know.
pub const NOTE: &str = "note";
/// The command that repeats the measurement.
pub const RERUN: &str = "rerun";
/// The share of all processors' time that the hypervisor used during the measurement.
pub const STEAL_PERCENT: &str = "steal_percent";
/// The number of processors that unrelated programs kept busy during the measurement.
pub const OTHERS_PROCESSORS: &str = "others_processors";
/// The number of operations in a sample.
pub const OPERATIONS_PER_SAMPLE: &str = "operations_per_sample";
/// The number of rounds that were discarded because they were disturbed.
pub const ROUNDS_DISCARDED: &str = "rounds_discarded";
/// The processor time of an operation.
pub const CPU_NS: &str = "cpu_ns";
/// The page faults of all samples together.
pub const PAGE_FAULTS: &str = "page_faults";
/// The largest memory of the process.
pub const MEMORY_PEAK_BYTES: &str = "memory_peak_bytes";
/// The requested subjects that were left out.
pub const LEFT_OUT: &str = "left_out";
/// The subjects that are installed on the machine and were not requested.
pub const INSTALLED: &str = "installed";

// Engines.

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

// Copies.

/// memcpy, memmove or memset.
pub const FUNCTION: &str = "function";
/// The distribution that sizes are drawn from.
pub const DISTRIBUTION: &str = "distribution";
/// The sizes that are drawn evenly.
pub const SIZE_CLASS: &str = "size_class";
/// The file that a distribution was read from.
pub const FILE: &str = "file";
/// The location of the bytes: the cache that contains them, or none.
pub const LEVEL: &str = "level";
/// Whether predictors can learn the branches.
pub const BRANCHES: &str = "branches";
/// The part of each target that is read right after its call.
pub const THEN_READ: &str = "then_read";
/// The share of addresses that are odd.
pub const MISALIGNED: &str = "misaligned";
/// How often source and target overlap; for a simulated machine, whether copies overlap with
/// computing.
pub const OVERLAP: &str = "overlap";
/// The call of the subject: through C, or inlined.
pub const CALL: &str = "call";
/// The fastest subjects.
pub const BEST: &str = "best";
/// The time of haul over the time of the best subjects.
pub const OVER_BEST: &str = "over_best";
/// The lower end of the interval of [`OVER_BEST`].
pub const OVER_BEST_LOW: &str = "over_best_low";
/// The upper end of the interval of [`OVER_BEST`].
pub const OVER_BEST_HIGH: &str = "over_best_high";
/// The recorded program whose calls are replayed.
pub const STREAM: &str = "stream";
/// The description of a recording by its user.
pub const ABOUT: &str = "about";
/// The index of the recorded thread.
pub const THREAD: &str = "thread";
/// The number of calls.
pub const CALLS: &str = "calls";
/// The number of call sites.
pub const SITES: &str = "sites";
/// The call site: module, offset and function.
pub const SITE: &str = "site";
/// The calls that were sampled.
pub const SAMPLED: &str = "sampled";
/// The number of profiled processes.
pub const PROCESSES: &str = "processes";
/// The mean work between two samples of a thread: the bytes and a constant for each call.
pub const WORK_PER_SAMPLE_BYTES: &str = "work_per_sample_bytes";
/// Copies by the class of their size: 0 bytes, 1, 2 to 3, 4 to 7 and so on.
pub const COPY_CALLS_BY_CLASS: &str = "copy_calls_by_class";
/// The bytes of copies by the class of their size.
pub const COPY_BYTES_BY_CLASS: &str = "copy_bytes_by_class";
/// Fills by the class of their size.
pub const FILL_CALLS_BY_CLASS: &str = "fill_calls_by_class";
/// The bytes of fills by the class of their size.
pub const FILL_BYTES_BY_CLASS: &str = "fill_bytes_by_class";
/// The estimated time of the calls with the C library's functions.
pub const LIBC_S: &str = "libc_s";
/// The estimated time of the calls with haul's functions.
pub const HAUL_S: &str = "haul_s";
/// The processor time of the program and of the children that it waited for.
pub const PROGRAM_CPU_S: &str = "program_cpu_s";
/// The size that half of the calls do not exceed, rounded up to a power of two less one.
pub const SIZE_MEDIAN_BYTES: &str = "size_median_bytes";
/// The largest size, rounded up likewise.
pub const SIZE_MAX_BYTES: &str = "size_max_bytes";
/// The share of copies with source and target less than 4 KiB apart.
pub const NEAR: &str = "near";
/// The memory that the calls use.
pub const ARENA_BYTES: &str = "arena_bytes";
/// How the recorder knows when targets are read.
pub const READS_BY: &str = "reads_by";
/// The share of calls whose target is read right after the call.
pub const READ_SHARE: &str = "read_share";
/// The phase of tuning: training, search or check.
pub const PHASE: &str = "phase";
/// The part of a policy that was tuned.
pub const PART: &str = "part";
/// The choice of a policy that was tried.
pub const CHOICE: &str = "choice";
/// The distance of a target above its source.
pub const DISTANCE_BYTES: &str = "distance_bytes";

// Memory.

/// The operation: reading, writing or copying.
pub const OPERATION: &str = "operation";
/// The kind or the number of a subject's pages.
pub const PAGES: &str = "pages";
/// The size of a page.
pub const PAGE_BYTES: &str = "page_bytes";
/// How a page is touched; the engine of a simulated machine; the mode of a driver.
pub const MODE: &str = "mode";

// Heaps.

/// The alignment of blocks.
pub const ALIGN_BYTES: &str = "align_bytes";
/// The number of rounds in a repetition.
pub const ROUNDS: &str = "rounds";
/// The number of the round.
pub const ROUND: &str = "round";
/// The number of blocks in a round.
pub const COUNT: &str = "count";
/// Whether other processes can share the heap.
pub const SHARED: &str = "shared";
/// Whether huge pages of the kernel's pool may be used.
pub const POOL: &str = "pool";
/// The memory that the heap keeps ready in advance.
pub const GROW_AHEAD_BYTES: &str = "grow_ahead_bytes";
/// The part of the heap that has memory before the first allocation.
pub const READY_BYTES: &str = "ready_bytes";
/// The recorded history.
pub const TRACE: &str = "trace";
/// The number of recorded threads.
pub const THREADS_RECORDED: &str = "threads_recorded";
/// The number of operations in a history.
pub const OPERATIONS: &str = "operations";
/// The number of operations that are done at this point.
pub const OPERATIONS_DONE: &str = "operations_done";
/// The recorded time of this point.
pub const AT_MS: &str = "at_ms";
/// The shared heap that was inspected.
pub const HEAP: &str = "heap";
/// The unit by which shares are counted: heap, class, tag or page.
pub const BY: &str = "by";
/// The class of blocks.
pub const CLASS: &str = "class";
/// The size of the class.
pub const CLASS_BYTES: &str = "class_bytes";
/// The number of blocks.
pub const BLOCKS: &str = "blocks";
/// The tag of the blocks.
pub const TAG: &str = "tag";
/// The number of the blocks' tag.
pub const TAG_NUMBER: &str = "tag_number";
/// The number of the page.
pub const PAGE: &str = "page";
/// The offset of the page in the heap.
pub const OFFSET_BYTES: &str = "offset_bytes";
/// The NUMA node of its memory.
pub const NODE: &str = "node";
/// The kind of memory behind the page.
pub const BACKING: &str = "backing";
/// The state of the page.
pub const STATE: &str = "state";
/// The content of each slice, see [`picture`](crate::picture).
pub const SLICES: &str = "slices";

// Transfers.

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

// The forwarder.

/// The copier between a switch and its guest.
pub const COPY: &str = "copy";
/// The library that a switch loads in addition, or in place of its own: `preload=FILE` or
/// `lib=DIR`.
pub const LIBRARY: &str = "library";
/// The kind of Open vSwitch's port to the guest, if it is not `dpdkvhostuser`.
pub const OVS_PORT: &str = "ovs_port";
/// Whether the library served packets in place of the switch's own library.
pub const SERVED: &str = "served";
/// The program in the guest.
pub const GUEST: &str = "guest";
/// The layout of the rings between switch and guest.
pub const LAYOUT: &str = "layout";
/// The number of descriptors in a ring.
pub const RING_SIZE: &str = "ring_size";
/// The negotiated virtio feature bits, in hexadecimal.
pub const FEATURES: &str = "features";
/// The function with which a guest receives.
pub const GUEST_RX: &str = "guest_rx";
/// The function with which a guest sends.
pub const GUEST_TX: &str = "guest_tx";
/// The release of the program in the guest.
pub const GUEST_VERSION: &str = "guest_version";
/// The release of a guest's kernel.
pub const GUEST_KERNEL: &str = "guest_kernel";
/// The accelerator that runs a guest's instructions: kvm or tcg, QEMU's emulator.
pub const ACCELERATOR: &str = "accelerator";
/// The largest width of testpmd's vectors, in bits.
pub const SIMD_BITS: &str = "simd_bits";
/// The port of the forwarder.
pub const PORT: &str = "port";
/// The number of queue pairs in a flow.
pub const QUEUES: &str = "queues";
/// The queue of the port.
pub const QUEUE: &str = "queue";
/// The number of packets that a call moved.
pub const SIZE: &str = "size";
/// The reason why packets were dropped.
pub const REASON: &str = "reason";
/// The stage at which packets were lost.
pub const STAGE: &str = "stage";
/// The components that packets pass through.
pub const FLOW: &str = "flow";
/// The share of the rate at zero loss that is offered, in percent.
pub const LOAD_PERCENT: &str = "load_percent";
/// The quantile.
pub const QUANTILE: &str = "quantile";

// The simulated server.

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

// PCIe.

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

// Field tests of whole programs.

/// The conclusion: faster, slower, no difference or cannot tell.
pub const VERDICT: &str = "verdict";
/// The share of the program's processor time that its copies and fills take without the change.
pub const COPY_SHARE: &str = "copy_share";
/// The same share of the same processor time, with haul's copies and fills.
pub const COPY_SHARE_CHANGED: &str = "copy_share_changed";
/// The matched-pairs rank-biserial correlation, from -1 (less in every round) to 1.
pub const EFFECT_SIZE: &str = "effect_size";
/// Whether more of the metric is better.
pub const HIGHER_IS_BETTER: &str = "higher_is_better";
/// The effect of each place in a round, as a ratio.
pub const PLACES: &str = "places";
/// The difference on which the user would act, as a share.
pub const MATTERS: &str = "matters";
/// The number of runs of each side.
pub const RUNS: &str = "runs";
/// The standard deviation of a run, as a share.
pub const RUN_NOISE: &str = "run_noise";
/// The number of planned analyses, one of which may have ended the test.
pub const ANALYSES: &str = "analyses";
/// The program that loads a server.
pub const LOAD: &str = "load";

// Two files of records.

/// The experiment whose figure changed.
pub const OF: &str = "of";
/// The unit of both figures.
pub const UNIT: &str = "unit";
/// The earlier figure.
pub const OLD: &str = "old";
/// The later figure.
pub const NEW: &str = "new";
/// The number of runs of the earlier figure.
pub const OLD_RUNS: &str = "old_runs";
/// The number of runs of the later figure.
pub const NEW_RUNS: &str = "new_runs";
/// The number of figures that a change summarizes.
pub const FIGURES: &str = "figures";
/// Whether a change counts. A change of a baseline does not count.
pub const COUNTED: &str = "counted";
/// The run of the earlier figure.
pub const OLD_RUN: &str = "old_run";
/// The run of the later figure.
pub const NEW_RUN: &str = "new_run";
/// The later figure over the earlier one, in time or cost.
pub const NEW_OVER_OLD: &str = "new_over_old";
/// The subject whose change between the two runs is removed from the ratio.
pub const BESIDE: &str = "beside";
/// The lower end of the ratio's interval.
pub const RATIO_LOW: &str = "ratio_low";
/// The upper end of the ratio's interval.
pub const RATIO_HIGH: &str = "ratio_high";
/// The combined floor of both runs, or the smallest change that counts.
pub const NOISE: &str = "noise";
