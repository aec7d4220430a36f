//! Compares the memory system with closed-form latencies and bandwidths, and checks its invariants.

use super::*;
use crate::configuration::cycles_of_ns;
use crate::memory::{Access, Copy};

/// A processor that only accesses memory: it runs the system until an access or a copy completes.
struct Driver {
    system: MemorySystem,
    now: Cycle,
    tag: u32,
    completions: Vec<Completion>,
}

impl Driver {
    fn new(change: impl FnOnce(&mut Configuration)) -> Self {
        let mut configuration = Configuration::default();
        change(&mut configuration);
        let system = MemorySystem::new(&configuration).expect("a possible machine");
        Self { system, now: 0, tag: 0, completions: Vec::new() }
    }

    fn tag(&mut self) -> Tag {
        self.tag += 1;
        Tag(self.tag)
    }

    /// Retries a request until it is accepted.
    fn begin(&mut self, mut request: impl FnMut(&mut MemorySystem, Cycle) -> Access) -> Access {
        loop {
            self.system.advance(self.now, &mut self.completions);
            match request(&mut self.system, self.now) {
                Access::Retry => self.now += 1,
                accepted => return accepted,
            }
        }
    }

    fn wait(&mut self, tag: Tag) -> Cycle {
        loop {
            if let Some(done) = self.completions.iter().find(|done| done.tag == tag) {
                return done.at;
            }
            self.now = self.system.next_event().expect("a request was lost").max(self.now);
            self.system.advance(self.now, &mut self.completions);
        }
    }

    /// Makes one access from issue to data, and advances time to its end.
    fn access(&mut self, kind: Kind, address: u64) -> Cycle {
        let (tag, began) = (self.tag(), self.now);
        let done = match self.begin(|system, now| system.access(now, kind, address, tag)) {
            Access::Hit { ready } => ready,
            _ => self.wait(tag),
        };
        self.now = done;
        done - began
    }

    fn copy(&mut self, source: u64, target: u64, bytes: u64) -> Tag {
        let tag = self.tag();
        let copy = Copy { source, target, bytes, tag };
        self.begin(|system, now| system.copy(now, copy));
        tag
    }

    fn drain(&mut self) {
        while let Some(at) = self.system.next_event() {
            self.now = at;
            self.system.advance(at, &mut self.completions);
        }
    }
}

/// Prints the deviation and asserts that it is at most `limit_percent`.
fn assert_near(what: &str, found: f64, expected: f64, limit_percent: f64) {
    let deviation = (found / expected - 1.0) * 100.0;
    eprintln!("{what}: {found:.2}, closed form {expected:.2}, deviation {deviation:+.2}%");
    assert!(deviation.abs() <= limit_percent, "{what}: {deviation:+.2}%");
}

/// The addresses of a chain of dependent loads.
fn chain(random: bool, lines: u64) -> Vec<u64> {
    // An odd multiplier permutes the numbers below a power of two.
    (0..lines).map(|n| if random { n.wrapping_mul(40_503) % lines } else { n } * 64).collect()
}

#[test]
fn cache_hits_take_the_latencies_of_table_1() {
    let mut driver = Driver::new(|_| {});
    driver.access(Kind::Load, 0);
    assert_eq!(driver.access(Kind::Load, 8), 2);
    for line in 1..=4 {
        // The same set of the first level (128 sets of 64 bytes), another set of the second.
        driver.access(Kind::Load, line * 128 * 64);
    }
    assert_eq!(driver.access(Kind::Load, 0), 17, "a miss in the first level, a hit in the second");
}

#[test]
fn idle_load_chain_measures_latency_plus_caches_and_bus() {
    // Lookups take 17 cycles, rounded up to a bus clock; arbitration and request take 4 clocks;
    // then memory with its chipset; the answer takes 3 clocks: 15 ns more than the latency.
    assert_eq!(MemorySettings::default().idle_load_cycles(), 3 * (80 + 15));
    for latency_ns in [80, 95, 110] {
        for random in [false, true] {
            let mut driver = Driver::new(|c| c.memory.latency_ns = latency_ns);
            let lines = chain(random, 1 << 13);
            let total: Cycle = lines.iter().map(|at| driver.access(Kind::Load, *at)).sum();
            let mean_ns = total as f64 / lines.len() as f64 / 3.0;
            let what = format!("idle latency in ns, random {random}");
            assert_near(&what, mean_ns, (latency_ns + 15) as f64, 1.0);
        }
    }
}

/// GB/s of a stream of loads with `mshrs` lines under way.
fn streamed_gb_per_s(channels: u32, mshrs: u32) -> f64 {
    let mut driver = Driver::new(|c| {
        c.memory.dram.channels = channels;
        c.memory.mshrs = mshrs;
    });
    let lines = 4096;
    for line in 0..lines {
        let tag = driver.tag();
        driver.begin(|system, now| system.access(now, Kind::Load, line * 64, tag));
    }
    driver.drain();
    (lines * 64) as f64 / (driver.now as f64 / 3.0)
}

#[test]
fn stream_reaches_the_bandwidth_of_its_channels() {
    assert_near("one channel, GB/s", streamed_gb_per_s(1, 16), 3.2, 2.0);
    assert_near("two channels, GB/s", streamed_gb_per_s(2, 32), 6.4, 3.0);
    // Eight lines under way for 95 ns each limit the bandwidth before the channels do; row hits
    // shorten that time.
    let bound = 8.0 * 64.0 / 95.0;
    let found = streamed_gb_per_s(2, 8);
    eprintln!("two channels, 8 MSHRs: {found:.2} GB/s, {bound:.2} if each line took 95 ns");
    assert!((0.7 * bound..=6.4).contains(&found));
}

#[test]
fn line_occupies_bus_and_channel_for_its_transfer_time() {
    let mut driver = Driver::new(|c| c.memory.dram.channels = 1);
    for line in chain(true, 256) {
        driver.access(Kind::Load, line);
    }
    let counted = driver.system.statistics();
    assert_near("cycles on a channel", counted.channel_cycles as f64 / 256.0, 60.0, 0.0);
    assert_near("cycles on the bus", counted.bus_data_cycles as f64 / 256.0, 30.0, 2.0);
}

/// The cycles of an `ecpy` with `policy` until it may retire, and until its copy is complete.
fn copy_cycles(policy: &str, bytes: u64, change: fn(&mut Configuration)) -> (Cycle, Cycle) {
    let mut driver = Driver::new(|c| {
        c.engine.policy = policy.into();
        change(c);
    });
    let tag = driver.copy(0x10_0000, 0x20_0000, bytes);
    let retired = driver.wait(tag);
    driver.drain();
    (retired, driver.system.statistics().engine_copy_cycles)
}

#[test]
fn engine_copies_at_the_speed_of_the_channels() {
    for bytes in [512, 1024, 4096] {
        let lines = bytes / 64;
        let (retired, complete) = copy_cycles("sync-nlb", bytes, |_| {});
        assert_eq!(retired, complete);
        // Both walks, the command, the lines read and written in batches of the stream buffer
        // over both channels, and the completion. Source and target share a bank: each batch
        // closes and opens a row to read and one to write, and waits for the recovery of the
        // written data.
        let batches = lines.div_ceil(EngineSettings::default().stream_lines.into());
        let closed_form = 60 + 30 + 30 + lines * 60 + batches * (2 * 135 + 45) + 30 + 30;
        let what = format!("sync-nlb, {bytes} bytes, cycles");
        assert_near(&what, complete as f64, closed_form as f64, 20.0);
    }
}

#[test]
fn only_asynchronous_copies_retire_early() {
    for (policy, early) in
        [("sync-nlb", false), ("sync-wlb", false), ("async", true), ("async-pipelined", true)]
    {
        let (retired, complete) = copy_cycles(policy, 4096, |_| {});
        eprintln!("{policy}: retires after {retired}, complete after {complete} cycles");
        assert_eq!(retired < complete / 2, early, "{policy}");
        let (retired, complete) = copy_cycles(policy, 4096, |c| c.engine.overlap = false);
        assert_eq!(retired, complete, "{policy}, no overlap");
    }
}

#[test]
fn load_bypass_costs_an_announcement() {
    let (_, nlb) = copy_cycles("sync-nlb", 1024, |_| {});
    let (_, wlb) = copy_cycles("sync-wlb", 1024, |_| {});
    let settings = Configuration::default().memory;
    let bus = &settings.bus;
    let clocks = bus.arbitration_clocks + 2 * bus.request_clocks + bus.snoop_clocks;
    let crossings = 2 * cycles_of_ns(settings.crossing_ns);
    let closed_form = crossings + bus.after(u64::from(clocks + bus.response_clocks));
    assert_near("announcement, cycles", (wlb - nlb) as f64, closed_form as f64, 10.0);
}

#[test]
fn every_copy_completes_with_every_placement_policy_and_count() {
    use crate::configuration::{Placement, Source, Target};
    for policy in ["sync-nlb", "sync-wlb", "async", "async-pipelined"] {
        for (placement, target) in [
            (Placement::Hub, Target::Invalidate),
            (Placement::Die, Target::Invalidate),
            (Placement::Die, Target::Cache),
        ] {
            for (engines, stream_lines) in [(1, 12), (3, 1), (2, 2)] {
                let mut driver = Driver::new(|c| {
                    c.engine.policy = policy.into();
                    c.engine.placement = placement;
                    c.engine.target = target;
                    c.engine.source = Source::Drop;
                    c.engine.engines = engines;
                    c.engine.stream_lines = stream_lines;
                });
                let mut tags = Vec::new();
                for n in 0..40_u64 {
                    driver.access(Kind::Store, 0x10_0000 + n * 1000);
                    tags.push(driver.copy(0x10_0000 + n * 1000, 0x90_0007 + n * 5000, n * 97 + 1));
                }
                driver.drain();
                for tag in tags {
                    let done = driver.completions.iter().filter(|done| done.tag == tag).count();
                    assert_eq!(done, 1, "{policy} {placement:?} {target:?} {engines}");
                }
                assert!(driver.system.control.is_idle() && driver.system.queue.is_empty());
            }
        }
    }
}

/// The largest length of the queue during a stream of stores to consecutive lines, each issued as
/// soon as the previous one is accepted.
fn longest_queue_of_a_dirty_stream(share_percent: u32) -> usize {
    let mut driver = Driver::new(|c| c.engine.share_percent = share_percent);
    let channels = driver.system.channels.len();
    let mut longest = 0;
    for line in 0..60_000 {
        let tag = driver.tag();
        driver.begin(|system, now| system.access(now, Kind::Store, line * 64, tag));
        driver.completions.clear();
        let waiting = (0..channels).map(|channel| driver.system.queue.waiting(channel).len());
        longest = longest.max(waiting.sum());
    }
    assert!(driver.system.statistics().write_backs > 40_000);
    longest
}

#[test]
fn reads_do_not_starve_write_backs_of_a_dirty_stream() {
    let default = longest_queue_of_a_dirty_stream(EngineSettings::default().share_percent);
    let least = longest_queue_of_a_dirty_stream(1);
    eprintln!("at most {default} requests wait, with the least share {least}");
    assert!(default <= 2 * MemorySettings::default().mshrs as usize, "{default}");
}

#[test]
fn waiting_is_attributed_to_its_agent_without_transfer_time() {
    let mut driver = Driver::new(|c| c.memory.payload_takes_bandwidth = true);
    driver.system.dma_write(0, 0x10_0000, 640);
    driver.drain();
    let counted = driver.system.statistics();
    assert!(counted.device_queue_cycles > 0, "five lines a channel wait for each other");
    assert_eq!(counted.processor_queue_cycles, 0, "the processor made no request");
    driver.system.write_back(driver.now, 1);
    driver.drain();
    let counted = driver.system.statistics();
    assert_eq!((counted.bus_data_cycles, counted.bus_data_wait_cycles), (30, 0));
    driver.system.write_back(driver.now, 1);
    driver.system.write_back(driver.now, 2);
    assert!(driver.system.statistics().bus_data_wait_cycles > 0, "the second waits");
}

#[test]
fn dirty_source_is_supplied_and_cached_target_is_invalidated() {
    let mut driver = Driver::new(|c| c.engine.policy = "sync-nlb".into());
    driver.access(Kind::Store, 0x1000);
    driver.access(Kind::Load, 0x8000);
    let tag = driver.copy(0x1000, 0x8000, 128);
    driver.wait(tag);
    driver.drain();
    let counted = driver.system.statistics();
    assert_eq!((counted.supplied_lines, counted.invalidated_lines), (1, 1));
    assert_eq!(driver.access(Kind::Load, 0x1000), 2, "the source stays");
    assert!(driver.access(Kind::Load, 0x8000) > cycles_of_ns(60), "the target comes from memory");
}

#[test]
fn pending_copy_blocks_dependent_accesses_until_complete() {
    let mut driver = Driver::new(|c| c.engine.policy = "async".into());
    let tag = driver.copy(0x10_0000, 0x20_0000, 4096);
    let retired = driver.wait(tag);
    assert!(driver.system.blocks(Kind::Load, 0x20_0800, 8));
    assert!(driver.system.blocks(Kind::Store, 0x10_0800, 8));
    assert!(!driver.system.blocks(Kind::Load, 0x10_0800, 8));
    driver.drain();
    assert!(driver.now > retired);
    assert!(!driver.system.blocks(Kind::Load, 0x20_0800, 8));
}

/// Runs streams of loads and copies concurrently. Returns the engine's share of contended choices
/// in percent.
fn contended_share(policy: &str, share_percent: u32) -> (f64, MemoryStatistics) {
    let mut driver = Driver::new(|c| {
        c.engine.policy = policy.into();
        c.engine.share_percent = share_percent;
        // More than the processor's eight lines under way.
        c.engine.stream_lines = 12;
        c.memory.dram.channels = 1;
    });
    for n in 0..16_u64 {
        driver.copy(0x100_0000 + n * 4096, 0x200_0000 + n * 4096, 4096);
        for line in 0..256 {
            let tag = driver.tag();
            let address = 0x300_0000 + (n * 256 + line) * 64;
            driver.begin(|system, now| system.access(now, Kind::Load, address, tag));
        }
    }
    driver.drain();
    let counted = driver.system.statistics().clone();
    (counted.engine_choices as f64 / counted.contended_choices as f64 * 100.0, counted)
}

#[test]
fn engine_gets_its_share_and_no_request_starves() {
    for share in [5, 25, 50] {
        let (found, counted) = contended_share("async", share);
        assert!(counted.contended_choices > 500, "{counted:?}");
        assert_near("the engine's share in percent", found, share.into(), 2.0);
        assert_eq!((counted.engine_copies, counted.copied_bytes), (16, 65536));
    }
    let (fifo, _) = contended_share("sync-nlb", 25);
    eprintln!("first in, first out: {fifo:.1}%");
    assert!(fifo > 50.0, "first in, first out favours the agent that enqueues most");
}

#[test]
fn nic_write_invalidates_cached_lines() {
    let mut driver = Driver::new(|_| {});
    driver.access(Kind::Load, 0x4000);
    assert_eq!(driver.access(Kind::Load, 0x4000), 2);
    driver.system.dma_write(driver.now, 0x4010, 100);
    assert!(driver.access(Kind::Load, 0x4000) > cycles_of_ns(60));
    assert_eq!(driver.system.statistics().device_lines, 2);
}

#[test]
fn trace_shows_stages_of_a_miss_without_gap() {
    let mut driver = Driver::new(|_| {});
    driver.system.record(0..10_000);
    let latency = driver.access(Kind::Load, 0x4000);
    let trace = driver.system.trace().expect("a trace was requested");
    let spans = trace.of(trace.transactions[0].number);
    let stages: Vec<Stage> = spans.iter().map(|span| span.stage).collect();
    let expected = [
        Stage::Caches,
        Stage::Bus,
        Stage::Chipset,
        Stage::Queue,
        Stage::Memory,
        Stage::Chipset,
        Stage::Data,
    ];
    assert_eq!(stages, expected);
    assert!(spans.windows(2).all(|pair| pair[0].to == pair[1].from), "{spans:?}");
    assert_eq!(spans.last().map(|span| span.to), Some(latency));
}

#[test]
fn dependent_copies_keep_their_order_on_several_engines() {
    let mut driver = Driver::new(|c| {
        c.engine.policy = "async".into();
        c.engine.engines = 2;
    });
    driver.system.record(0..1_000_000);
    let (a, b, c) = (0x10_0000, 0x20_0000, 0x30_0000);
    for (source, target) in [(a, b), (b, c), (a, c)] {
        driver.copy(source, target, 4096);
    }
    driver.drain();
    let trace = driver.system.trace().expect("a trace was requested");
    let written = served(trace, What::EngineWrite, b + 0xfc0);
    let read = served(trace, What::EngineRead, b + 0xfc0);
    assert!(written[0].1 <= read[0].0, "read {read:?} before it was written {written:?}");
    let twice = served(trace, What::EngineWrite, c);
    assert!(twice.len() == 2 && twice[0].1 <= twice[1].0, "{twice:?}");
}

#[test]
fn copy_sees_older_store_whose_line_is_under_way() {
    let mut driver = Driver::new(|c| c.engine.policy = "sync-nlb".into());
    let store = driver.tag();
    driver.begin(|system, now| system.access(now, Kind::Store, 0x1000, store));
    let copy = driver.copy(0x1000, 0x8000, 64);
    driver.wait(copy);
    assert_eq!(driver.system.statistics().supplied_lines, 1);
}

/// When memory served the requests of a kind for a line: first and last cycle of each.
fn served(trace: &Trace, what: What, address: u64) -> Vec<(Cycle, Cycle)> {
    let is = |each: &&Transaction| each.what == what && each.address == address;
    let numbers = trace.transactions.iter().filter(is).map(|each| each.number);
    let memory = |number| trace.of(number).into_iter().find(|s| s.stage == Stage::Memory);
    numbers.filter_map(memory).map(|span| (span.from, span.to)).collect()
}

/// Whether memory served one request before the other. It may open the second row while data of the
/// first still moves.
fn is_before(first: (Cycle, Cycle), second: (Cycle, Cycle)) -> bool {
    first.0 < second.0 && first.1 <= second.1
}

/// A driver whose second-level cache has just evicted the dirty line at `address`.
fn evicting(address: u64, change: impl FnOnce(&mut Configuration)) -> Driver {
    let mut driver = Driver::new(change);
    driver.system.record(0..1_000_000);
    driver.access(Kind::Store, address);
    let second = &Configuration::default().memory.second_cache;
    let way_bytes = second.bytes / u64::from(second.ways);
    let mut other = address;
    while driver.system.statistics().write_backs == 0 {
        other += way_bytes;
        assert!(other < address + 64 * way_bytes, "the line is never evicted");
        driver.access(Kind::Load, other);
    }
    driver
}

#[test]
fn miss_does_not_overtake_write_back_of_its_line() {
    let mut driver = evicting(0x4000, |_| {});
    driver.access(Kind::Load, 0x4000);
    driver.drain();
    let trace = driver.system.trace().expect("a trace was requested");
    let written = served(trace, What::WriteBack, 0x4000);
    let read = served(trace, What::Load, 0x4000);
    assert!(is_before(written[0], read[0]), "read {read:?}, written {written:?}");
}

#[test]
fn copy_does_not_overtake_write_back_of_its_lines() {
    use crate::configuration::Placement;
    for placement in [Placement::Hub, Placement::Die] {
        for (source, target) in [(0x4000, 0x80_0000), (0x80_0000, 0x4000)] {
            let mut driver = evicting(0x4000, |c| {
                c.engine.policy = "sync-nlb".into();
                c.engine.placement = placement;
                // The write-back's path to memory is slow, and the copy needs no page walk, which
                // makes the copy relatively fast.
                c.core.tlb.walk_cycles = 0;
                c.memory.latency_ns = 400;
                c.memory.crossing_ns = if placement == Placement::Die { 150 } else { 0 };
            });
            driver.copy(source, target, 64);
            driver.drain();
            let trace = driver.system.trace().expect("a trace was requested");
            let written = served(trace, What::WriteBack, 0x4000);
            let what = if source == 0x4000 { What::EngineRead } else { What::EngineWrite };
            let copied = served(trace, what, 0x4000);
            assert!(is_before(written[0], copied[0]), "{what:?} {copied:?}, back {written:?}");
        }
    }
}

#[test]
fn short_queue_does_not_starve_an_engine() {
    for queue_entries in [1, 4, 8, 32] {
        let mut driver = Driver::new(|c| {
            c.engine.policy = "async".into();
            c.memory.queue_entries = queue_entries;
            c.memory.dram.channels = 1;
        });
        driver.copy(0x10_0000, 0x20_0000, 1024);
        let mut lines = 0;
        while driver.system.statistics().engine_copy_cycles == 0 {
            let tag = driver.tag();
            let address = 0x300_0000 + lines * 64;
            driver.begin(|system, now| system.access(now, Kind::Load, address, tag));
            lines += 1;
            assert!(lines < 2000, "a queue of {queue_entries}: the copy never completes");
        }
    }
}

#[test]
fn dropped_source_line_is_whole_and_written_back() {
    use crate::configuration::{Placement, Source};
    let mut driver = Driver::new(|c| {
        c.engine.policy = "sync-nlb".into();
        c.engine.placement = Placement::Die;
        c.engine.source = Source::Drop;
    });
    driver.access(Kind::Store, 0x1000);
    driver.access(Kind::Store, 0x1040);
    let copy = driver.copy(0x1020, 0x8000, 96);
    driver.wait(copy);
    driver.drain();
    assert_eq!(driver.system.statistics().write_backs, 0, "counts evictions only");
    assert_eq!(driver.system.statistics().memory_writes, 2 + 1, "two copied, one dropped");
    assert_eq!(driver.access(Kind::Load, 0x1000), 2, "a partly copied line stays");
    assert!(driver.access(Kind::Load, 0x1040) > 100, "a fully copied line was dropped");
}

#[test]
fn load_never_gets_line_overwritten_in_memory_since() {
    let mut driver = Driver::new(|_| {});
    let first = driver.tag();
    driver.begin(|system, now| system.access(now, Kind::Load, 0x4000, first));
    driver.now += 200;
    driver.system.dma_write(driver.now, 0x4000, 64);
    let issued = driver.now;
    let latency = driver.access(Kind::Load, 0x4000);
    assert!(latency > cycles_of_ns(80), "issued at {issued}, got the old line after {latency}");
}
