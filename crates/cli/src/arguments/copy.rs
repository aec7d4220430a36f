//! The command line of `haul copy`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use haul_experiments::copy::workload::Branches;
use haul_experiments::copy::{Function, ThenRead};
use haul_measure::Level;
use haul_model::{SizeClass, Sizes};

use super::copy_preload::{Profile, Run};
use super::copy_record::Record;
use super::number::number;
use super::time::budget;
use crate::summary::Printing;

#[derive(Debug, Subcommand)]
pub(crate) enum Copy {
    List(List),
    Bench(Box<Bench>),
    Advise(Advise),
    Tune(Tune),
    Record(Record),
    Run(Run),
    Profile(Profile),
}

/// The kernels, which of them run here, and the thresholds in use.
///
/// Lists the kernels that copy and fill, which of them this processor runs, and the sizes at which
/// haul changes from one kernel to the next.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul copy list\n  HAUL_TUNING=haul-survey/haul.toml haul copy list"
)]
pub(crate) struct List {
    /// Print the machine, with kernels and thresholds as facts, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures copies and fills side by side with the installed C library.
///
/// Measures haul's copies and fills side by side with the installed C library's, interleaved in
/// one run, with the library against itself as the noise floor. Without --stream, --distribution,
/// --size-class or --sizes, the built-in distribution `service` is measured.
///
/// On streams and distributions, `haul` is the code in programs that are compiled with haul, in
/// Rust or with haul.h: up to 64 bytes are copied inline, larger sizes by one call. `haul-c` is
/// called through C at every size. On size classes and single sizes, where functions are compared,
/// `haul` is called through C as libc is, and `haul-inline` is the inline code. The parameter
/// `call` of each record of streams and drawn sizes says which one it is. On streams, `empty` calls
/// a function that does nothing, with the same loop and reads.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul copy bench --size-class 0-16 --level l1\n  \
    haul copy bench --distribution sizes.csv --level all --json > bench.jsonl\n  \
    haul copy bench --distribution service --then-read nothing,first\n  \
    haul copy bench --stream bench/streams\n  \
    haul copy bench --sizes 2KiB..1GiB --kernel avx2 --kernel rep_movsb\n  \
    haul copy bench --handed --sizes 4KiB,64KiB")]
pub(crate) struct Bench {
    /// memcpy, memmove or memset; several may be given [default: memcpy]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) function: Vec<Function>,
    /// Sizes drawn from a file (one line of probabilities, index = size in bytes) or a built-in
    /// distribution; several may be given
    #[arg(long, value_name = "FILE|NAME")]
    pub(crate) distribution: Vec<OsString>,
    /// Sizes drawn evenly from FIRST to LAST bytes, such as 17-64; several may be given
    #[arg(long, value_name = "FIRST-LAST", value_delimiter = ',')]
    pub(crate) size_class: Vec<SizeClass>,
    /// Calls of a recorded program, in their order: a file of `haul copy record`, a folder for all
    /// its *.stream, or a name that haul contains; several may be given. Sizes, alignments and
    /// reads are those of the program, so that options for these do not apply
    #[arg(long, value_name = "FILE|FOLDER|NAME")]
    pub(crate) stream: Vec<OsString>,
    /// Sizes to measure one after the other: a list such as 64,4KiB, or a range FIRST..LAST[:STEP]
    #[arg(long, value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    /// Location of the bytes: l1, l2, llc, cold, mixed or all; several may be given [default: l1,
    /// and nearest for --sizes: a copy's own two buffers, in the nearest cache that holds both]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',', value_parser = level)]
    pub(crate) level: Vec<Levels>,
    /// Take each of --sizes for a message: one processor copies it into a buffer, and another one
    /// copies it out, in turns. The time is that of both copies. As in a queue between processes,
    /// the buffers lie in the cache of the other processor
    #[arg(long, requires = "sizes", conflicts_with_all = ["function", "distribution",
        "size_class", "stream", "level", "threads", "branches", "then_read", "misaligned", "overlap"])]
    pub(crate) handed: bool,
    /// Number of concurrent threads, each pinned to its own processor
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = number::<u16, 1, 65_535>)]
    pub(crate) threads: u16,
    /// Whether branch predictors can learn the calls: random (no sequence of sizes and alignments
    /// repeats within half a million calls), or repeating (64 calls again and again). With --sizes,
    /// all calls of a measurement have one size, and only the alignments are random or repeat
    /// [default: random]
    #[arg(long, value_name = "HOW", value_parser = branches)]
    pub(crate) branches: Option<Branches>,
    /// Bytes of each target that are read right after its call, within the measured time: nothing,
    /// the first or the last 8 bytes, or all; several may be given [default: nothing]
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) then_read: Vec<ThenRead>,
    /// Share of addresses that are odd; the others are multiples of 8 [default: 0.27, as published]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) misaligned: Option<f64>,
    /// Share of memmove's calls with overlapping source and target; only for drawn sizes [default:
    /// 0.008, as published]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) overlap: Option<f64>,
    /// Kernels, haul-c or haul-inline to measure in addition to libc, instead of the default
    /// subjects; several may be given
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) kernel: Vec<String>,
    /// Total measuring time [default: 2s for each measurement]; the expected setup time is printed
    /// first
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<Duration>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Answers which copy to use at a call site.
///
/// Measures haul inlined, haul called by a pointer, and libc on calls as your call site makes them,
/// interleaved in one run, and names the best with its ratio and interval. The answer is libc
/// if libc is faster, and "no difference" if there is none. For a stream, it is for all its calls
/// together, and for each of its ten busiest call sites alone. Takes a few seconds.
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("calls").required(true).args(["sizes", "stream"])),
    after_help = "Example:\n  haul copy advise --sizes 200 --predictable --read\n  \
    haul copy advise --stream bench/streams/git.stream"
)]
pub(crate) struct Advise {
    /// Sizes of the calls, each with an answer of its own: a list such as 64,4KiB, or a range
    /// FIRST..LAST[:STEP]
    #[arg(long, value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    /// Calls of a recorded program: a file of `haul copy record`, a folder for all its *.stream, or
    /// a name that haul contains; several may be given
    #[arg(long, value_name = "FILE|FOLDER|NAME")]
    pub(crate) stream: Vec<OsString>,
    /// The calls repeat, so that branch predictors know them; otherwise, their alignments never
    /// repeat
    #[arg(long, conflicts_with = "stream")]
    pub(crate) predictable: bool,
    /// The caller reads the first 8 bytes of the target right after the call
    #[arg(long, conflicts_with = "stream")]
    pub(crate) read: bool,
    /// memcpy, memmove or memset [default: memcpy]
    #[arg(long, value_name = "NAME", conflicts_with = "stream")]
    pub(crate) function: Option<Function>,
    /// Total measuring time [default: 2s for each size or stream, and 500ms for each call site]
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<Duration>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Finds the thresholds of this machine and writes haul.toml.
///
/// Finds how this machine copies and fills best: the shape of small copies, the instruction set,
/// the limits of string instructions, and the sizes at which the kernel changes. Checks the result
/// on sizes and distributions that it was not derived from, keeps the defaults unless they lose,
/// and writes haul.toml with the evidence. Takes under 60 seconds.
///
/// With --profile, the sizes are those of a program that `haul copy profile` profiled, each by its
/// share of the time, and the file is for this program.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul copy tune --out-file ~/.config/haul/haul.toml\n  \
    haul copy tune --profile sort.jsonl --out-file sort.toml\n  \
    HAUL_TUNING=sort.toml haul copy run -- sort words > sorted")]
pub(crate) struct Tune {
    /// Output file. The measurements behind this file are written next to it, as FILE with the
    /// suffix .jsonl (.records.jsonl if FILE itself ends in .jsonl, and .tune.jsonl with --profile)
    #[arg(long, value_name = "FILE", default_value = "haul.toml")]
    pub(crate) out_file: PathBuf,
    /// The profile of a program, as `haul copy profile` writes it, whose sizes are tuned to instead
    /// of a fleet's; with several profiles, those of all programs together
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) profile: Vec<PathBuf>,
    /// Total measuring time; at least what the fewest rounds of large sizes need (about 8 s). The
    /// expected time is printed first
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "50s")]
    pub(crate) budget: Duration,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The levels that one `--level` means.
#[derive(Clone, Debug)]
pub(crate) struct Levels(pub(crate) Vec<Level>);

fn level(text: &str) -> Result<Levels, haul_measure::Error> {
    if text == "all" {
        return Ok(Levels(Level::ALL.to_vec()));
    }
    if text == Level::Nearest.name() {
        return Ok(Levels(vec![Level::Nearest]));
    }
    Ok(Levels(vec![text.parse()?]))
}

fn branches(text: &str) -> Result<Branches, String> {
    let all = [Branches::Random, Branches::Repeating];
    let found = all.into_iter().find(|branches| branches.name() == text);
    found.ok_or_else(|| "write random or repeating".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("write a share from 0 to 1, such as 0.27".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_means_all_or_one() {
        assert_eq!(level("all").unwrap().0.len(), 5);
        assert_eq!(level("llc").unwrap().0, [Level::Llc]);
        assert_eq!(level("nearest").unwrap().0, [Level::Nearest]);
        let message = level("l9").unwrap_err().to_string();
        assert!(message.contains("l1, l2, llc, cold and mixed"), "{message}");
    }
}
