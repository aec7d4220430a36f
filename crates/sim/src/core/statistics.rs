//! What a core counts.

use crate::statistics::counters;

counters! {
    /// What happened in the processor. The cycles of a run are told apart by what its oldest
    /// instruction waited for.
    CoreStatistics {
        /// Cycles of the run.
        cycles,
        /// Instructions that the program executed.
        instructions,
        /// Cycles in which instructions left the window.
        flow_cycles,
        /// Cycles in which nothing was in the window: fetch missed, or a branch was put right.
        fetch_cycles,
        /// Cycles in which the oldest instruction was a load that waited for its value.
        load_cycles,
        /// Cycles in which it was a copy that had not completed.
        copy_cycles,
        /// Cycles in which it was done and could not leave: a store that memory did not take.
        store_cycles,
        /// Cycles in which it was none of these: it waited for operands or a unit.
        execute_cycles,
        /// Loads that committed.
        loads,
        /// Loads that took their value from an older store; those of wrong paths too.
        forwarded_loads,
        /// Stores that committed.
        stores,
        /// Branches and jumps that committed.
        branches,
        /// Branches and jumps after which fetch went elsewhere than the program.
        mispredicted_branches,
        /// Instructions dispatched behind them, and dropped.
        wrong_path_instructions,
        /// Copies that retired.
        copies,
        /// Walks for translations of data.
        data_walks,
        /// Walks for translations of instructions.
        fetch_walks,
    }
}
