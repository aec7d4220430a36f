//! The arguments of `haul copy record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use haul_model::Bytes;
use haul_model::stream::CALLS_MAX;

use super::number::number;

/// Runs a program and records what it copies and fills.
///
/// Runs a program under libhaul_copy_record.so, which records the program's calls to memcpy,
/// memmove and memset. The program's input, output and exit code are unchanged. FILE holds a
/// stream: the calls of one thread in their order, with sizes, call sites, and offsets that keep
/// alignments, overlap and reuse, but without addresses and contents. The thread is the one with
/// the most calls, of the process with the most calls, unless --all-threads asks for every one.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul copy record -o sort.stream -- sort words > sorted\n  \
    haul copy record --skip 100000 --calls 20000 -o git.stream -- git log -p > log\n  \
    haul copy record --all-threads streams -- make -j2\n\n\
    Exit codes: the program's own, or 128 plus the signal that ended it; 1 if nothing was recorded. Ctrl-C \
    goes to the program: haul asks it to end after 5 s, and ends it at a second Ctrl-C.")]
pub(crate) struct Record {
    /// File for the stream; it must not exist yet [default: the program's name with .stream, in
    /// this folder]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out_file: Option<PathBuf>,
    /// Folder for the streams of all threads of all processes, instead of FILE
    #[arg(long = "all-threads", value_name = "FOLDER", conflicts_with = "out_file")]
    pub(crate) all: Option<PathBuf>,
    /// Calls that are kept of each thread
    #[arg(long, value_name = "N", default_value_t = 300_000,
        value_parser = number::<u64, 1, { CALLS_MAX as u64 }>)]
    pub(crate) calls: u64,
    /// Calls of each thread that are skipped first
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = number::<u64, 0, 1_000_000_000_000>)]
    pub(crate) skip: u64,
    /// Mean distance of the calls whose target is watched for a read, in calls of a thread; 0 for
    /// none
    #[arg(long, value_name = "N", default_value_t = 1000,
        value_parser = number::<u64, 0, 1_000_000_000>)]
    pub(crate) sample: u64,
    /// Disk space for the calls of all processes during the run: 24 bytes for each kept call, and
    /// at least 32 KiB for each thread
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(crate) room: Bytes,
    /// Text about the run, which the stream keeps
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) about: String,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub(crate) program: Vec<OsString>,
}
