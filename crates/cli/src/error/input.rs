//! What is wrong with records that are read.

use std::io;

use haul_model::Bytes;

/// Why records cannot be read, or are not what they are read for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// Standard input could not be read.
    #[error("cannot read records from standard input: {0}; name a file instead of -")]
    Standard(io::Error),
    /// Standard input holds more than is read.
    #[error(
        "cannot read more than {limit} of records from standard input, for a page has all of them in \
         memory; give fewer records, such as those of one experiment or machine at a time"
    )]
    TooLong {
        /// The most that is read.
        limit: Bytes,
    },
    /// A compressed file of records cannot be unpacked.
    #[error(
        "cannot unpack {name}: {reason}; pack its records again with gzip, or give fewer of them"
    )]
    Compressed {
        /// The file, or `-`.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A line of a record file is no record.
    #[error("{}:{line}: {error}", name)]
    Line {
        /// The file, or `-`.
        name: String,
        /// The line's number, from 1.
        line: usize,
        /// What is wrong with it.
        error: haul_model::LineError,
    },
    /// Record files that hold no record.
    #[error("{names} holds no record; name a file that `haul survey` or `haul ... --json` wrote")]
    NoRecords {
        /// The files.
        names: String,
    },
    /// Two files of records without a figure in common.
    #[error(
        "cannot compare {old} with {new}: no figure is in both; compare files that the same command wrote"
    )]
    NothingInCommon {
        /// The earlier file.
        old: String,
        /// The later file.
        new: String,
    },
    /// Two files whose common figures have no better or worse.
    #[error(
        "cannot compare {old} with {new}: {}, such as what an estimate counts; see both in one page \
         (`haul report`), or of PCIe traffic, what differs (`haul pcie explain`)",
        match *count {
            1 => "the figure that is in both has no better or worse".to_owned(),
            count => format!("none of the {count} figures that are in both has a better or worse"),
        }
    )]
    NoDirection {
        /// The earlier file.
        old: String,
        /// The later file.
        new: String,
        /// How many figures both have.
        count: usize,
    },
    /// Two sides whose common figures are of nothing that a program calls.
    #[error(
        "nothing is compared: the {count} figures that are in both are of what the tuner tried, and of \
         kernels that only haul calls; name them with --only copy.tune, or --subject avx2"
    )]
    LeftOut {
        /// How many figures both have.
        count: usize,
    },
    /// Two files of records of different machines.
    #[error(
        "cannot compare {old} with {new}: they were measured on different machines; compare files of one \
         machine, or ask for --across-machines"
    )]
    OtherMachine {
        /// The earlier file.
        old: String,
        /// The later file.
        new: String,
    },
    /// What `--fail-on` looks for was found.
    #[error(
        "{count} {} {what}, and --fail-on {option} looks for that; the table names them, or without \
         --fail-on this is no error",
        if *count == 1 { "figure" } else { "figures" }
    )]
    Changed {
        /// What was looked for.
        option: &'static str,
        /// How many figures.
        count: usize,
        /// What became of them.
        what: &'static str,
    },
    /// Records without terms or sums of PCIe traffic.
    #[error(
        "{name} holds no PCIe traffic; name a file that `haul pcie estimate --json` or `haul pcie \
         sweep --json` wrote"
    )]
    NoTraffic {
        /// The file.
        name: String,
    },
    /// Records of several estimates, where one is compared.
    #[error(
        "{name} holds several estimates; keep the lines of one, or ask for a rate that it has once"
    )]
    SeveralEstimates {
        /// The file.
        name: String,
    },
    /// Records without a map among them.
    #[error("{name} holds no map of a heap; name a file that `haul heap map --json` wrote")]
    NoMap {
        /// The file.
        name: String,
    },
}
