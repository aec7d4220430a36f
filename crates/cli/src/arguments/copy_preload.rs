//! The arguments of `haul copy run` and `haul copy profile`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use haul_model::Bytes;

/// Runs a program with haul's memcpy, memmove and memset.
///
/// Starts a program with libhaul_copy.so preloaded: its calls of libc's copy functions, and those
/// of the programs that it starts, use haul's kernels and the policy of haul.toml. haul then
/// becomes the program, so that input, output, signals and exit code are the program's.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul copy run -- sort words > sorted\n  \
    HAUL_TUNING=haul-survey/haul.toml haul copy run -- redis-server --port 7000\n\n\
    For a program that haul does not start, set LD_PRELOAD to the path of libhaul_copy.so.")]
pub(crate) struct Run {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub(crate) program: Vec<OsString>,
}

/// Runs a program and profiles what it copies and fills.
///
/// Runs a program as `haul copy run` does, and samples its calls: how many bytes each call site,
/// each size and each thread copies. All processes of the run share one profile. The samples cost a
/// call about a nanosecond. FILE holds records, which `haul report` draws.
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("what").required(true).args(["from", "program"])),
    after_help = "Example:\n  haul copy profile -o sort.jsonl -- sort words > sorted\n  \
    haul report sort.jsonl --out-file sort.html\n\n\
    A daemon: LD_PRELOAD=/usr/local/lib/libhaul_copy.so HAUL_COPY_PROFILE=/var/tmp/d.mapped daemon\n  \
    haul copy profile --from /var/tmp/d.mapped -o d.jsonl\n\n\
    Exit codes: the program's own, or 128 plus the signal that ended it; 1 if nothing was profiled."
)]
pub(crate) struct Profile {
    /// File for the records; it must not exist yet. Meanwhile, the program writes FILE.mapped
    /// beside it, which remains if haul is killed
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out_file: Option<PathBuf>,
    /// Mean work of a thread between two samples: the bytes of its calls, and 1 KiB for each call.
    /// With 1B, every call is sampled
    #[arg(long = "sample-every", value_name = "SIZE", default_value = "4MiB")]
    pub(crate) every: Bytes,
    /// Profiles that programs have written, instead of running one; several may be given
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) program: Vec<OsString>,
}
