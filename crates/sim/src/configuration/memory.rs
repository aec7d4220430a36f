//! The settings of caches, bus and memory.

use serde::{Deserialize, Serialize};

use super::{CPU_MHZ, Cycle, power_of_two, within};
use crate::error::Error;

/// The largest cache. The simulator needs 32 bytes of the host's memory for each line.
const CACHE_BYTES_MAX: u64 = 64 << 20;

/// Everything between the processor and the memory chips.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySettings {
    /// The size of a line in bytes, the same in every cache. Table 1: 64.
    pub line_bytes: u64,
    /// The first-level instruction cache. Table 1: 32 KB, 4 ways, 2 cycles.
    pub instruction_cache: CacheSettings,
    /// The first-level data cache. Table 1: 32 KB, 4 ways, 2 cycles.
    pub data_cache: CacheSettings,
    /// The second-level cache. Table 1: 1 MB, 8 ways, 15 cycles.
    pub second_cache: CacheSettings,
    /// The largest number of lines that may be under way from memory at the same time. Table 1:
    /// 8.
    pub mshrs: u32,
    /// Average access time of memory if no row is open: from the end of a read's request on the
    /// bus until the chipset has the whole line ready for the bus. Table 1: 80, under DRAM, and
    /// "includes the delays taken to propagate the request and response via a realistic chipset";
    /// Figure 8: 80, 95, 110. The chipset's own delay is this time minus the time of the memory
    /// chips. Caches and bus add their own time, as in SimpleScalar: [`Self::idle_load_cycles`].
    pub latency_ns: u64,
    /// The part of the chipset's delay that every message between bus and hub takes in each
    /// direction, commands to an engine and its notifications included. The rest of the delay
    /// applies to reads alone, between memory and the bus. Fitted to Figure 8: 10. There, slower
    /// memory makes a read longer, but not a command to an engine; the benefits of 2.4, 1 and 0.2
    /// points require this.
    pub crossing_ns: u64,
    /// The largest number of requests that the memory controller's queue holds. Chosen: 32.
    pub queue_entries: u32,
    /// Whether the payload that a NIC writes uses bandwidth of the memory channels. Chosen: no,
    /// because the paper's packets are a trace in memory.
    pub payload_takes_bandwidth: bool,
    /// The bus between processor and chipset.
    pub bus: BusSettings,
    /// The memory chips.
    pub dram: DramSettings,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSettings {
    /// The size of the data in bytes.
    pub bytes: u64,
    /// The number of lines per set.
    pub ways: u32,
    /// The number of cycles from an access to its data on a hit.
    pub hit_cycles: u32,
}

/// The pipelined bus. Each phase is given in bus clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BusSettings {
    /// Clock. Table 1: 800.
    pub mhz: u64,
    /// The number of bytes transferred per clock. Table 1: 64 bits.
    pub bytes: u64,
    /// The number of clocks for arbitration of the bus. Chosen: 2.
    pub arbitration_clocks: u32,
    /// The number of clocks per address for which a transaction holds the address lines. Chosen:
    /// 2, like the Pentium Pro's request phase; a copy transaction sends two addresses.
    pub request_clocks: u32,
    /// The number of clocks until all processors of a 4-way platform have searched their caches.
    /// Chosen: 8.
    pub snoop_clocks: u32,
    /// The number of clocks in the response phase. Chosen: 2.
    pub response_clocks: u32,
}

/// The memory chips and their channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DramSettings {
    /// Channels. Figure 7: one (3.2 GB/s) or two (6.4 GB/s).
    pub channels: u32,
    /// Whether the channels work as one, each with its part of every line, so that a second channel
    /// shortens the transfer of a line. Otherwise lines alternate between channels. Chosen: yes, as
    /// in servers of the time (Intel's E7505: "lock-step"; the E7520 pairs two channels of DDR2-400
    /// with a bus of 800 MHz). Figure 7 requires it: there a second channel helps BASE too.
    pub lockstep: bool,
    /// The number of transfers per microsecond on one channel. Table 1: DDR2-400.
    pub megatransfers: u64,
    /// The size of a transfer in bytes. JESD79-2 modules: 64 bits.
    pub bytes: u64,
    /// The number of banks per channel. Chosen: 8.
    pub banks: u32,
    /// The size in bytes of a row over all chips of a channel. Chosen: 8192 (1 KB pages of eight
    /// x8 chips).
    pub row_bytes: u64,
    /// Time to close a row. Table 1: 15.
    pub precharge_ns: u64,
    /// Time to open a row. Table 1: 15.
    pub row_ns: u64,
    /// From a read's or write's command to its first data. Table 1: 15.
    pub column_ns: u64,
    /// From the last data written to the next read's command. The data of that read follows
    /// `column_ns` later. Chosen: 10, two clocks (tWTR of JESD79-2 for DDR2-400).
    pub write_to_read_ns: u64,
    /// Between the last data read and the first data written. Chosen: 5, one clock (JESD79-2: two
    /// clocks and a burst between the commands, and a write's data comes a clock sooner).
    pub read_to_write_ns: u64,
    /// From the last data written to a row until that row may be closed. Chosen: 15 (tWR of
    /// JESD79-2).
    pub write_recovery_ns: u64,
    /// How long a row stays open if the queue has no request for it. Chosen: 0. The controller
    /// then closes a row that no queued request needs, so that a lone access of the processor
    /// finds its bank closed while an engine's stream finds its row open. A server's controller
    /// has such a timer. With one of 50 ns, a processor that copies out of order hits rows at 80
    /// ns latency and misses them at 95, a step that the paper's Figure 8 does not show.
    pub row_idle_ns: u64,
}

impl Default for MemorySettings {
    fn default() -> Self {
        let first = CacheSettings { bytes: 32 << 10, ways: 4, hit_cycles: 2 };
        Self {
            line_bytes: 64,
            instruction_cache: first.clone(),
            data_cache: first,
            second_cache: CacheSettings { bytes: 1 << 20, ways: 8, hit_cycles: 15 },
            mshrs: 8,
            latency_ns: 80,
            crossing_ns: 10,
            queue_entries: 32,
            payload_takes_bandwidth: false,
            bus: BusSettings::default(),
            dram: DramSettings::default(),
        }
    }
}

impl Default for BusSettings {
    fn default() -> Self {
        Self {
            mhz: 800,
            bytes: 8,
            arbitration_clocks: 2,
            request_clocks: 2,
            snoop_clocks: 8,
            response_clocks: 2,
        }
    }
}

impl Default for DramSettings {
    fn default() -> Self {
        Self {
            channels: 2,
            lockstep: true,
            megatransfers: 400,
            bytes: 8,
            banks: 8,
            row_bytes: 8192,
            precharge_ns: 15,
            row_ns: 15,
            column_ns: 15,
            write_to_read_ns: 10,
            read_to_write_ns: 5,
            write_recovery_ns: 15,
            row_idle_ns: 0,
        }
    }
}

/// CPU cycles in `ns` nanoseconds, rounded to the nearest.
#[must_use]
pub fn cycles_of_ns(ns: u64) -> Cycle {
    (ns * CPU_MHZ + 500) / 1000
}

impl BusSettings {
    /// The cycle in which the first bus clock at or after `at` begins.
    #[must_use]
    pub fn edge(&self, at: Cycle) -> Cycle {
        self.after(self.clock_at(at))
    }

    /// The cycle in which bus clock `clock` begins.
    #[must_use]
    pub fn after(&self, clock: u64) -> Cycle {
        (clock * CPU_MHZ).div_ceil(self.mhz)
    }

    /// The first bus clock that begins at or after `at`.
    #[must_use]
    pub fn clock_at(&self, at: Cycle) -> u64 {
        // `clock` is the largest clock that begins at or before `at` when its beginning is not
        // rounded up. If its beginning is rounded up, `clock` may begin after `at`, and is then
        // the result.
        let clock = at * self.mhz / CPU_MHZ;
        if self.after(clock) >= at { clock } else { clock + 1 }
    }
}

impl DramSettings {
    /// Channels that work independently: one if all of them are in lockstep.
    #[must_use]
    pub fn independent_channels(&self) -> u32 {
        if self.lockstep { 1 } else { self.channels }
    }

    /// Cycles for which a line holds the data lines of an independent channel, rounded up.
    #[must_use]
    pub fn burst_cycles(&self, line_bytes: u64) -> Cycle {
        let bytes = self.bytes * self.joined_channels();
        (line_bytes * CPU_MHZ).div_ceil(bytes * self.megatransfers)
    }

    /// Lines of a row over all chips of an independent channel.
    #[must_use]
    pub fn row_lines(&self, line_bytes: u64) -> u64 {
        self.row_bytes * self.joined_channels() / line_bytes
    }

    /// Channels that work as one.
    fn joined_channels(&self) -> u64 {
        if self.lockstep { self.channels.into() } else { 1 }
    }
}

impl MemorySettings {
    /// The chipset's delay in both directions together: [`Self::latency_ns`] minus the time of
    /// memory that opens a row. `None` if memory alone takes longer.
    #[must_use]
    pub fn chipset_cycles(&self) -> Option<Cycle> {
        let opened = cycles_of_ns(self.dram.row_ns + self.dram.column_ns);
        let known = opened + self.dram.burst_cycles(self.line_bytes);
        cycles_of_ns(self.latency_ns).checked_sub(known)
    }

    /// The cycles from the arrival of data in the chipset to its transfer on the bus: the
    /// response phase, and one more clock. The number is rounded down, because the end of the
    /// request was rounded up.
    #[must_use]
    pub fn answer_cycles(&self) -> Cycle {
        (u64::from(self.bus.response_clocks) + 1) * CPU_MHZ / self.bus.mhz
    }

    /// The cycles of each load in a chain of dependent loads on an idle machine, from issue to
    /// data: the lookups of both caches, arbitration, request, [`Self::latency_ns`] and the answer.
    #[must_use]
    pub fn idle_load_cycles(&self) -> Cycle {
        let lookups = u64::from(self.data_cache.hit_cycles + self.second_cache.hit_cycles);
        let phases = u64::from(self.bus.arbitration_clocks + self.bus.request_clocks);
        // In a chain each load is issued when the previous line has arrived, at the beginning of a
        // bus clock.
        let requested = self.bus.after(self.bus.clock_at(lookups) + phases);
        requested + cycles_of_ns(self.latency_ns) + self.answer_cycles()
    }

    pub(crate) fn validate(&self) -> Result<(), Error> {
        power_of_two("memory.line_bytes", self.line_bytes, 16, 4096)?;
        let caches = [
            (
                [
                    "memory.instruction_cache.bytes",
                    "memory.instruction_cache.ways",
                    "memory.instruction_cache.hit_cycles",
                ],
                &self.instruction_cache,
            ),
            (
                [
                    "memory.data_cache.bytes",
                    "memory.data_cache.ways",
                    "memory.data_cache.hit_cycles",
                ],
                &self.data_cache,
            ),
            (
                [
                    "memory.second_cache.bytes",
                    "memory.second_cache.ways",
                    "memory.second_cache.hit_cycles",
                ],
                &self.second_cache,
            ),
        ];
        for ([bytes, ways, hit_cycles], cache) in caches {
            power_of_two(bytes, cache.bytes, self.line_bytes, CACHE_BYTES_MAX)?;
            power_of_two(ways, cache.ways.into(), 1, (cache.bytes / self.line_bytes).min(64))?;
            within(hit_cycles, cache.hit_cycles.into(), 1, 1000)?;
        }
        within("memory.mshrs", self.mshrs.into(), 1, 256)?;
        within("memory.queue_entries", self.queue_entries.into(), 1, 4096)?;
        self.bus.validate(self.line_bytes)?;
        self.dram.validate(self.line_bytes)?;
        within("memory.latency_ns", self.latency_ns, 1, 100_000)?;
        within("memory.crossing_ns", self.crossing_ns, 0, 100_000)?;
        if self.chipset_cycles().is_none() {
            return Err(Error::setting(
                "memory.latency_ns",
                self.latency_ns,
                "memory alone takes longer; raise it or make memory faster",
            ));
        }
        Ok(())
    }
}

impl BusSettings {
    fn validate(&self, line_bytes: u64) -> Result<(), Error> {
        within("memory.bus.mhz", self.mhz, 1, CPU_MHZ)?;
        power_of_two("memory.bus.bytes", self.bytes, 1, line_bytes)?;
        within("memory.bus.arbitration_clocks", self.arbitration_clocks.into(), 0, 1000)?;
        within("memory.bus.request_clocks", self.request_clocks.into(), 1, 1000)?;
        within("memory.bus.snoop_clocks", self.snoop_clocks.into(), 0, 1000)?;
        within("memory.bus.response_clocks", self.response_clocks.into(), 0, 1000)
    }
}

impl DramSettings {
    fn validate(&self, line_bytes: u64) -> Result<(), Error> {
        power_of_two("memory.dram.channels", self.channels.into(), 1, 16)?;
        power_of_two("memory.dram.bytes", self.bytes, 1, line_bytes)?;
        // A line takes at least one cycle, so that the simulator cannot show a quicker memory.
        let joined_bytes = self.bytes * self.joined_channels();
        if joined_bytes > line_bytes {
            let problem = "channels in lockstep share each line: take fewer or narrower ones";
            return Err(Error::setting("memory.dram.channels", self.channels, problem));
        }
        let quickest = line_bytes * CPU_MHZ / joined_bytes;
        within("memory.dram.megatransfers", self.megatransfers, 1, quickest)?;
        power_of_two("memory.dram.banks", self.banks.into(), 1, 256)?;
        power_of_two("memory.dram.row_bytes", self.row_bytes, line_bytes, 1 << 24)?;
        within("memory.dram.precharge_ns", self.precharge_ns, 0, 10_000)?;
        within("memory.dram.row_ns", self.row_ns, 0, 10_000)?;
        within("memory.dram.column_ns", self.column_ns, 1, 10_000)?;
        within("memory.dram.write_to_read_ns", self.write_to_read_ns, 0, 10_000)?;
        within("memory.dram.read_to_write_ns", self.read_to_write_ns, 0, 10_000)?;
        within("memory.dram.write_recovery_ns", self.write_recovery_ns, 0, 10_000)?;
        within("memory.dram.row_idle_ns", self.row_idle_ns, 0, 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_clock_begins_at_first_cycle_not_before_it() {
        let bus = BusSettings::default();
        let edges: Vec<Cycle> = (0..5).map(|clock| bus.after(clock)).collect();
        assert_eq!(edges, [0, 4, 8, 12, 15], "3.75 cycles each");
        for at in 0..100 {
            let edge = bus.edge(at);
            assert!(edge >= at && edge < at + 4, "{at} {edge}");
            assert_eq!(bus.edge(edge), edge);
        }
    }

    #[test]
    fn burst_takes_whole_cycles_and_at_least_one() {
        let of = |lockstep, megatransfers| DramSettings {
            lockstep,
            megatransfers,
            ..DramSettings::default()
        };
        let cycles = |megatransfers| of(false, megatransfers).burst_cycles(64);
        assert_eq!(cycles(400), 60, "20 ns: DDR2-400");
        assert_eq!(cycles(667), 36, "35.98");
        assert_eq!(cycles(24_000), 1);
        assert_eq!(of(true, 400).burst_cycles(64), 30, "two channels share a line");
        assert_eq!(of(true, 400).row_lines(64), 2 * of(false, 400).row_lines(64));
        let settings = of(false, 24_001);
        let message = settings.validate(64).expect_err("quicker than a cycle").to_string();
        assert!(message.contains("memory.dram.megatransfers = 24001"), "{message}");
        assert!(message.contains("24000"), "{message}");
    }

    #[test]
    fn invalid_memory_setting_is_named_in_the_error() {
        let refusal = |change: fn(&mut MemorySettings)| {
            let mut settings = MemorySettings::default();
            change(&mut settings);
            settings.validate().expect_err("an impossible machine").to_string()
        };
        assert!(refusal(|s| s.mshrs = 0).starts_with("memory.mshrs = 0: it must be from 1"));
        assert!(refusal(|s| s.line_bytes = 8192).contains("memory.line_bytes = 8192"));
        assert!(refusal(|s| s.latency_ns = 20).contains("raise it"));
        assert!(refusal(|s| s.dram.channels = 3).contains("a power of two"));
        assert!(refusal(|s| s.dram.channels = 16).contains("in lockstep share each line"));
        assert!(refusal(|s| s.bus.mhz = 0).contains("memory.bus.mhz = 0"));
        assert!(refusal(|s| s.second_cache.ways = 0).contains("memory.second_cache.ways = 0"));
    }
}
