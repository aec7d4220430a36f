//! Errors in records that haul reads.

use std::io;

use haul_model::Bytes;

/// Why records cannot be read, or lack the expected content.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputError {
    /// Standard input could not be read.
    #[error("cannot read records from standard input: {0}; name a file instead of -")]
    Standard(io::Error),
    /// Standard input is longer than the limit.
    #[error(
        "cannot read more than {limit} of records from standard input, because a page needs all of them \
         in memory; give fewer records, such as those of one experiment or machine at a time"
    )]
    TooLong {
        /// The limit.
        limit: Bytes,
    },
    /// A compressed file of records cannot be unpacked.
    #[error(
        "cannot unpack {name}: {reason}; pack its records again with gzip, or give fewer of them"
    )]
    Compressed {
        /// The file, or `-`.
        name: String,
        /// The fault of the file.
        reason: String,
    },
    /// A line of a record file is not a record.
    #[error("{}:{line}: {error}", name)]
    Line {
        /// The file, or `-`.
        name: String,
        /// The line's number, from 1.
        line: usize,
        /// The fault of the line.
        error: haul_model::LineError,
    },
    /// Record files without a record.
    #[error("{names} holds no record; name a file that `haul survey` or `haul ... --json` wrote")]
    NoRecords {
        /// The files.
        names: String,
    },
    /// A file without a profile.
    #[error("{name} holds no profile of copies; name a file that `haul copy profile -o` wrote")]
    NoProfile {
        /// The file, or `-`.
        name: String,
    },
    /// A profile without sizes by function, as haul wrote it before it could tune to one.
    #[error(
        "the profile {name} does not say which sizes are copies and which are fills, because an earlier haul \
         wrote it, or its records were changed; profile the program again"
    )]
    OldProfile {
        /// The file, or `-`.
        name: String,
    },
    /// A profile without a call.
    #[error(
        "the profile {name} has no calls to tune to; let the program run longer, or sample more often"
    )]
    EmptyProfile {
        /// The file, or `-`.
        name: String,
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
    /// Two files whose common figures have no better direction.
    #[error(
        "cannot compare {old} with {new}: {}, as for the counts of an estimate; render both on one page \
         (`haul report`), or compare PCIe traffic with `haul pcie explain`",
        match *count {
            1 => "the figure that is in both has no better direction".to_owned(),
            count => format!("none of the {count} figures that are in both has a better direction"),
        }
    )]
    NoDirection {
        /// The earlier file.
        old: String,
        /// The later file.
        new: String,
        /// Number of common figures.
        count: usize,
    },
    /// All common figures measure functions that no program calls.
    #[error(
        "cannot compare: the {count} figures that are in both are of the tuner's trials, or of kernels \
         that only haul calls; name them with --only copy.tune, or --subject avx2"
    )]
    LeftOut {
        /// Number of common figures.
        count: usize,
    },
    /// Two files of records of different machines.
    #[error(
        "cannot compare {old} with {new}: they were measured on different machines; compare files of one \
         machine, or add --across-machines"
    )]
    OtherMachine {
        /// The earlier file.
        old: String,
        /// The later file.
        new: String,
    },
    /// A figure that `--fail-on` names was found.
    #[error(
        "{count} {} {what}, which --fail-on {option} makes an error; see the table for them, or leave \
         --fail-on out",
        if *count == 1 { "figure" } else { "figures" }
    )]
    Changed {
        /// The value of `--fail-on`.
        option: &'static str,
        /// Number of such figures.
        count: usize,
        /// The predicate of the message.
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
    /// Records of several estimates, but only one can be compared.
    #[error(
        "{name} holds several estimates; keep the lines of one, or name a rate that occurs once"
    )]
    SeveralEstimates {
        /// The file.
        name: String,
    },
    /// Records without a map.
    #[error("{name} holds no map of a heap; name a file that `haul heap map --json` wrote")]
    NoMap {
        /// The file.
        name: String,
    },
}
