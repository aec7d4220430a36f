//! The counters of a core.

use crate::statistics::counters;

counters! {
    /// Events in the processor. The cycles of a run are divided by the cause for which the oldest
    /// instruction waited.
    CoreStatistics {
        /// Cycles of the run.
        cycles,
        /// Instructions that the program executed.
        instructions,
        /// Cycles in which instructions left the window.
        flow_cycles,
        /// Cycles in which the window was empty: fetch missed, or a branch was mispredicted.
        fetch_cycles,
        /// Cycles in which the oldest instruction was a load that waited for its value.
        load_cycles,
        /// Cycles in which the oldest instruction was a copy that had not completed.
        copy_cycles,
        /// Cycles in which the oldest instruction was a store that memory did not accept.
        store_cycles,
        /// Cycles in which the oldest instruction waited for operands or a unit.
        execute_cycles,
        /// Loads that committed.
        loads,
        /// Loads that got their value from an older store, including loads on wrong paths.
        forwarded_loads,
        /// Stores that committed.
        stores,
        /// Branches and jumps that committed.
        branches,
        /// Branches and jumps that were mispredicted.
        mispredicted_branches,
        /// Instructions dispatched after mispredicted branches, and squashed.
        wrong_path_instructions,
        /// Copies that retired.
        copies,
        /// Page walks for data.
        data_walks,
        /// Page walks for instructions.
        fetch_walks,
    }
}
