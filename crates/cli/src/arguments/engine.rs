//! The arguments of `haul engine`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum Engine {
    Fake(Fake),
}

/// Runs a program with a fake DSA, or shows one until Ctrl-C.
///
/// Runs a program under libhaul_engine_fake.so, which shows it an Intel DSA: the device and its
/// queues below /sys/bus/dsa, and device files below /dev/dsa that open, map and accept real
/// descriptors. Threads in the program execute them on its memory and write real completion
/// records. No root, no driver and no device is needed. Faults, full queues, every status, delays,
/// a removal and a halt are injected on request.
///
/// A line of the settings has a word and its values, separated by spaces or commas: device, queue
/// or inject. The page docs/engine-dsa.md lists them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul engine fake -- ./my-dsa-program\n  \
    haul engine fake --queue mode=dedicated,size=8 --device portal=no,batches=no -- ./my-dsa-program\n  \
    haul engine fake --inject at=3,fault=4096,access=write --inject every=10,status=0x20 -- ./my-dsa-program\n  \
    haul engine fake --dir /tmp/dsa   (then start programs with the two variables that it prints)\n\n\
    Exit codes: the program's own, or 128 plus the signal that ended it; 2 for settings that are wrong. \
    Without CMD, 0 after Ctrl-C.")]
pub(crate) struct Fake {
    /// File with lines of settings; the options below are added to it
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// The device: engines=N, batches=, portal=, sva= and strict=yes|no
    #[arg(long, value_name = "WORDS")]
    pub(crate) device: Option<String>,
    /// A queue: mode=shared|dedicated, size=N, transfer=BYTES, batch=N, enabled=, block=yes|no,
    /// type=user|kernel; several may be given [default: one of each mode, with 16 descriptors]
    #[arg(long, value_name = "WORDS")]
    pub(crate) queue: Vec<String>,
    /// Something that goes wrong: at=N, every=N or from=N,to=N, and one of fault=BYTE (with
    /// access=read|write), status=BYTE (with bytes=N), delay_us=N, full, remove, halt, wedge;
    /// several may be given
    #[arg(long, value_name = "WORDS")]
    pub(crate) inject: Vec<String>,
    /// Folder for the fake's files; it must not exist [default: a temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub(crate) program: Vec<OsString>,
}
