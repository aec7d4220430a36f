//! Keys of comparisons of two files of records.

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
