//! Keys of field tests of whole programs.

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
