//! Names of experiments: the part of haul, a full stop, and the measurement.

/// The change of a figure from one file of records to another.
pub const COMPARE: &str = "compare";

/// The copy for a call site.
pub const COPY_ADVISE: &str = "copy.advise";
/// Copies of sizes drawn from a distribution.
pub const COPY_DISTRIBUTION: &str = "copy.distribution";
/// Copies of one size into a buffer that another processor copies out of.
pub const COPY_HANDED: &str = "copy.handed";
/// The copies and fills of a program, by call site, size and thread.
pub const COPY_PROFILE: &str = "copy.profile";
/// Copies of one size.
pub const COPY_SIZE: &str = "copy.size";
/// Copies of sizes drawn evenly from a class.
pub const COPY_SIZE_CLASS: &str = "copy.size_class";
/// The calls of a recorded program, in their order.
pub const COPY_STREAM: &str = "copy.stream";
/// The measurements from which a copy policy was tuned.
pub const COPY_TUNE: &str = "copy.tune";

/// The prefix of every field test.
pub const FIELD: &str = "field.";
/// A quantity of a whole program, with a change or without.
pub const FIELD_RUN: &str = "field.run";
/// A whole program with a change and without.
pub const FIELD_VERDICT: &str = "field.verdict";

/// The prefix of every experiment with heaps.
pub const HEAP: &str = "heap.";
/// Many blocks allocated, filled, freed.
pub const HEAP_BULK: &str = "heap.bulk";
/// Rounds of allocations with nothing freed between.
pub const HEAP_GROWTH: &str = "heap.growth";
/// Single allocations while the heap grows.
pub const HEAP_LATENCY: &str = "heap.latency";
/// Blocks of random sizes and lifetimes.
pub const HEAP_LIFETIMES: &str = "heap.lifetimes";
/// The heaps that processes share by name.
pub const HEAP_LIST: &str = "heap.list";
/// The content of a heap.
pub const HEAP_MAP: &str = "heap.map";
/// Growth by blocks that alternate between two sizes.
pub const HEAP_MIXED: &str = "heap.mixed";
/// One block at a time, with a pause.
pub const HEAP_NO_BULK: &str = "heap.no-bulk";
/// A block and its free.
pub const HEAP_PAIRS: &str = "heap.pairs";
/// Blocks that are doubled.
pub const HEAP_REALLOC: &str = "heap.realloc";
/// Rounds of allocations, each freed before the next.
pub const HEAP_REGROW: &str = "heap.regrow";
/// The content of a trace of allocations.
pub const HEAP_TRACE: &str = "heap.trace";
/// Blocks that another thread frees.
pub const HEAP_REMOTE: &str = "heap.remote";
/// Blocks of zeros, written by the calling thread or by an engine.
pub const HEAP_ZEROED: &str = "heap.zeroed";
/// A recorded history of allocations, replayed.
pub const HEAP_REPLAY: &str = "heap.replay";

/// The mechanism with which a message is sent.
pub const CHANNEL_EXPLAIN: &str = "channel.explain";
/// A stream that was received.
pub const CHANNEL_RECV: &str = "channel.recv";
/// A stream that was sent.
pub const CHANNEL_SEND: &str = "channel.send";
/// Messages between two processes.
pub const CHANNEL_TRANSFER: &str = "channel.transfer";

/// The prefix of every experiment with engines.
pub const ENGINE: &str = "engine.";
/// The size from which an engine costs its caller less than a copy.
pub const ENGINE_BREAK_EVEN: &str = "engine.break_even";
/// The end of a copy that an engine has done: its caller takes back the buffers.
pub const ENGINE_COMPLETE: &str = "engine.complete";
/// A copy by an engine, submitted and waited for.
pub const ENGINE_LATENCY: &str = "engine.latency";
/// The engines of this machine.
pub const ENGINE_LIST: &str = "engine.list";
/// The share of a copy that an engine hides behind computing.
pub const ENGINE_OVERLAP: &str = "engine.overlap";
/// The submission of a copy to an engine that polls.
pub const ENGINE_SUBMIT: &str = "engine.submit";
/// Small requests beside large copies.
pub const ENGINE_TAIL: &str = "engine.tail";
/// Copies by an engine, one after the other.
pub const ENGINE_THROUGHPUT: &str = "engine.throughput";
/// The submission of a copy to an engine that sleeps.
pub const ENGINE_WAKE: &str = "engine.wake";
/// A copy by an engine that sleeps, submitted and waited for.
pub const ENGINE_WAKE_LATENCY: &str = "engine.wake_latency";

/// The prefix of every experiment with the forwarder.
pub const FORWARD: &str = "forward.";
/// Packets between two ports, by the number that a burst moves.
pub const FORWARD_BURST: &str = "forward.burst";
/// Packets from a switch to a guest.
pub const FORWARD_ENQUEUE: &str = "forward.enqueue";
/// Packets from a guest to a switch.
pub const FORWARD_DEQUEUE: &str = "forward.dequeue";
/// Packets that circulate between a switch and a guest.
pub const FORWARD_LOOPBACK: &str = "forward.loopback";
/// Packets from a generator through a switch and a guest and back.
pub const FORWARD_PVP: &str = "forward.pvp";
/// Packets from a guest to a switch and back.
pub const FORWARD_RETURN: &str = "forward.return";
/// A flow with packets of many sizes, measured in sequence.
pub const FORWARD_SWEEP: &str = "forward.sweep";

/// The bandwidth of memory for reads, writes and copies.
pub const MEMORY_BANDWIDTH: &str = "memory.bandwidth";
/// The first touch of a page.
pub const MEMORY_FAULT: &str = "memory.fault";

/// The prefix of every experiment with PCIe.
pub const PCIE: &str = "pcie.";
/// The bandwidth of a link for transactions of one size.
pub const PCIE_BANDWIDTH: &str = "pcie.bandwidth";
/// Bursts of a running program, with the PCIe traffic that they cause.
pub const PCIE_BURST: &str = "pcie.burst";
/// The PCIe traffic of a packet workload.
pub const PCIE_ESTIMATE: &str = "pcie.estimate";
/// The causes of a workload's PCIe traffic, and the changes that would reduce it.
pub const PCIE_EXPLAIN: &str = "pcie.explain";
/// A device and its link.
pub const PCIE_LIST: &str = "pcie.list";
/// A modelled NIC at increasing rates: counted traffic next to estimated traffic.
pub const PCIE_SWEEP: &str = "pcie.sweep";

/// The prefix of every experiment with the simulated server.
pub const SIM: &str = "sim.";
/// The share of copies in a packet's time.
pub const SIM_COPY_SHARE: &str = "sim.copy_share";
/// The paper's Figure 7: bandwidth of the bus.
pub const SIM_FIGURE7: &str = "sim.figure7";
/// The paper's Figure 8: latency of memory.
pub const SIM_FIGURE8: &str = "sim.figure8";
/// A program's cycles and counters.
pub const SIM_PROGRAM: &str = "sim.program";
/// One machine of the paper.
pub const SIM_RUN: &str = "sim.run";
/// The speed of the simulator.
pub const SIM_SPEED: &str = "sim.speed";
/// One task of a sweep.
pub const SIM_SWEEP: &str = "sim.sweep";
/// The paper's Table 2: the gain from copy engines.
pub const SIM_TABLE2: &str = "sim.table2";
/// Whether the tiers of a reproduction hold.
pub const SIM_TIERS: &str = "sim.tiers";
/// Instructions and transactions, cycle by cycle.
pub const SIM_TRACE: &str = "sim.trace";
/// The distribution of a sweep over workers.
pub const SIM_WORKERS: &str = "sim.workers";
