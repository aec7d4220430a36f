//! Counters with names and meanings, which a run reports in addition to its cycles.

/// Declares a struct of counters, each with its meaning, and a method that lists them all.
macro_rules! counters {
    ($(#[$of_struct:meta])* $name:ident { $($(#[doc = $meaning:literal])+ $counter:ident,)+ }) => {
        $(#[$of_struct])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[doc = $meaning])+ pub $counter: u64,)+
        }

        impl $name {
            /// Every counter: its name, its meaning, its value.
            #[must_use]
            pub fn named(&self) -> Vec<(&'static str, &'static str, u64)> {
                vec![$((stringify!($counter), concat!($($meaning),+).trim_ascii(), self.$counter),)+]
            }
        }
    };
}

pub(crate) use counters;

counters! {
    /// Events in the memory system and the copy engines.
    MemoryStatistics {
        /// Instruction fetches that hit the first-level cache.
        fetch_hits,
        /// Instruction fetches that missed the first-level cache.
        fetch_misses,
        /// Loads and stores that hit the first-level cache.
        data_hits,
        /// Loads and stores that missed the first-level cache.
        data_misses,
        /// First-level misses that hit the second-level cache.
        second_hits,
        /// First-level misses that went to memory, each line counted once.
        second_misses,
        /// Misses to a line that was already under way.
        merged_misses,
        /// Retries of accesses: no MSHR was free, or the line was under way and had been
        /// overwritten in memory since.
        mshr_retries,
        /// Dirty lines that the second-level cache wrote to memory.
        write_backs,
        /// Transactions on the bus's address lines.
        bus_transactions,
        /// Cycles that transactions waited for the bus's address lines.
        bus_address_wait_cycles,
        /// Cycles in which the bus's data lines carried data.
        bus_data_cycles,
        /// Cycles that data waited for the bus's data lines, without its own transfer.
        bus_data_wait_cycles,
        /// Lines read from memory.
        memory_reads,
        /// Lines written to memory.
        memory_writes,
        /// Memory accesses whose row was open.
        row_hits,
        /// Memory accesses whose bank had no row open.
        row_opens,
        /// Memory accesses whose bank had another row open.
        row_conflicts,
        /// Cycles in which the channels' data lines carried data, summed over channels.
        channel_cycles,
        /// Cycles that the processor's reads and write-backs waited in the controller's queue.
        processor_queue_cycles,
        /// Cycles that a NIC's writes waited in the controller's queue.
        device_queue_cycles,
        /// Cycles that the engines' requests waited in the controller's queue.
        engine_queue_cycles,
        /// Choices of a channel while requests of processor and engine both waited.
        contended_choices,
        /// Contended choices in which the channel chose the engine.
        engine_choices,
        /// Copies handed to the copy control unit.
        engine_copies,
        /// Pieces into which copies were split at page boundaries.
        copy_pieces,
        /// Bytes copied by engines.
        copied_bytes,
        /// Page walks of the copy control unit.
        copy_walks,
        /// Retries of copies: the control unit or the pending copy table was full.
        copy_retries,
        /// Cycles from a copy's arrival at the control unit to its final completion, summed.
        engine_copy_cycles,
        /// Cycles from a copy's arrival to the moment its `ecpy` may retire, summed.
        copy_retire_cycles,
        /// Stalls of loads and stores by the pending copy table, each retry counted.
        dependency_stalls,
        /// Source lines that a cache supplied: dirty ones to an engine in the hub, all cached ones
        /// to an engine on the die.
        supplied_lines,
        /// Target lines that were invalidated in caches.
        invalidated_lines,
        /// Lines written by a NIC.
        device_lines,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_and_memory_counters_have_distinct_names() {
        let core = crate::core::CoreStatistics::default().named();
        let memory = MemoryStatistics::default().named();
        let mut names: Vec<&str> = core.iter().chain(&memory).map(|(name, ..)| *name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }

    #[test]
    fn every_counter_has_a_name_and_a_meaning() {
        let counters = MemoryStatistics { row_hits: 7, ..MemoryStatistics::default() }.named();
        assert!(counters.iter().all(|(_, meaning, _)| meaning.ends_with('.')), "{counters:?}");
        assert!(counters.contains(&("row_hits", "Memory accesses whose row was open.", 7)));
    }
}
