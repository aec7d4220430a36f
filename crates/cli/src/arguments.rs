//! The command line.
//!
//! From the bottom up:
//!
//! - `time`: how a time is written;
//! - `channel`: of `haul channel`;
//! - `forward`: of `haul forward`;
//! - `heap`: of `haul heap`;
//! - `pcie`: of `haul pcie`;
//! - `sim`: of `haul sim`.

pub(crate) mod channel;
#[cfg(test)]
mod documents;
pub(crate) mod forward;
pub(crate) mod heap;
pub(crate) mod pcie;
pub(crate) mod sim;
mod time;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use haul_experiments::copy::workload::Branches;
use haul_experiments::copy::{Function, ThenRead};
use haul_measure::Level;
use haul_model::{SizeClass, Sizes};

use crate::error::Error;
use crate::summary::Printing;
use crate::terminal;
use time::budget;

/// Moves bulk data on a server for the least cost, and proves it.
#[derive(Debug, Parser)]
#[command(name = "haul", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "Start with `haul survey`: it measures this machine and writes a page about it.\n\
    Exit codes: 0 done, 1 failed or interrupted, 2 used wrongly, 130 aborted (Ctrl-C twice)."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Verb,
}

/// The command line of this process.
///
/// # Errors
/// [`Error::Usage`] where it is wrong; where it asked for help, which has been printed by then,
/// [`Error::ReaderGone`], or what became of printing it.
pub(crate) fn parse() -> Result<Arguments, Error> {
    let matches = with_negative_numbers(Arguments::command()).try_get_matches();
    match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Err(help) if !help.use_stderr() => Err(terminal::help(&help)),
        other => Ok(other?),
    }
}

/// The command, whose options take `-1` for a value: what reads it names the value and the limit,
/// where the parser itself would look for an option of that name.
fn with_negative_numbers(command: Command) -> Command {
    let taking = |arg: Arg| {
        let is_option = arg.get_long().is_some() && arg.get_action().takes_values();
        if is_option { arg.allow_negative_numbers(true) } else { arg }
    };
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(taking);
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, with_negative_numbers))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// What this machine offers, what is missing, and how to get it
    Doctor(Doctor),
    /// Measures how bytes are moved best on this machine
    Survey(Survey),
    /// Renders saved records as one page, or as CSV
    Report(Report),
    /// What became faster or slower from one file of records to another
    Compare(Compare),
    /// Copies by the processor: kernels, comparisons with libc, thresholds
    #[command(subcommand)]
    Copy(Copy),
    /// The huge-page heap: comparisons with malloc and with DPDK
    #[command(subcommand)]
    Heap(heap::Heap),
    /// Bulk transfer to another process
    #[command(subcommand)]
    Channel(channel::Channel),
    /// Forwards packets in bursts: between two ports, and through a whole virtual machine
    Forward(forward::Forward),
    /// PCIe traffic of packet workloads: links, estimates, limits
    #[command(subcommand)]
    Pcie(pcie::Pcie),
    /// The simulated server: copy engines, the paper that proposed them, and what comes after it
    #[command(subcommand)]
    Sim(sim::Sim),
    /// What a shell needs to complete haul's commands and options
    Completions(Completions),
    /// The manual, as pages for man
    Man(Manual),
}

/// Prints the script by which a shell completes haul's commands and options. `scripts/install`
/// installs those of bash, zsh and fish.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul completions bash > ~/.local/share/bash-completion/completions/haul\n  \
    haul completions fish > ~/.config/fish/completions/haul.fish"
)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub(crate) shell: Shell,
}

/// Prints the manual page of haul, or writes those of all commands, from the same source as --help.
/// `scripts/install` installs them.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul man | man -l -\n  haul man --out ~/.local/share/man/man1")]
pub(crate) struct Manual {
    /// The folder for a page of each command: haul.1, haul-copy-bench.1 and so on
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Copy {
    /// The kernels, which of them run here, and the thresholds in force
    List(List),
    /// Copies and fills side by side with the installed C library
    Bench(Box<Bench>),
    /// Finds the thresholds of this machine and writes haul.toml
    Tune(Tune),
}

/// What this machine offers for moving data: instruction sets, caches, huge pages, permissions,
/// engines, counters. Nothing that is missing stops haul; each line says how to get it. Then what
/// disturbs a measurement: load, steal time, frequency governor, turbo, threads that share a core.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul doctor\n  haul doctor --json | head -1")]
pub(crate) struct Doctor {
    /// Print the machine as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures memory, copies and fills on this machine, finds its thresholds, and writes
/// survey.jsonl (every record), report.html (the page) and haul.toml (the thresholds) into a
/// folder. Takes under 4 minutes, with --quick under 30 seconds. Ctrl-C keeps what was measured.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul survey --out my-server\n  HAUL_TUNING=my-server/haul.toml ./my-program"
)]
pub(crate) struct Survey {
    /// Fewer sizes and shorter runs: under 30 seconds
    #[arg(long)]
    pub(crate) quick: bool,
    /// The folder for the results; created if need be, an earlier page in it replaced, earlier
    /// records kept as survey.jsonl.old, .old.2 and so on
    #[arg(long, value_name = "DIR", default_value = "haul-survey")]
    pub(crate) out: PathBuf,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the steps and how long each takes, and measure nothing
    #[arg(long)]
    pub(crate) plan: bool,
}

/// Renders records that `haul survey` or `--json` saved, on any machine, as one HTML page that
/// needs nothing else.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul report survey.jsonl --out report.html\n  haul copy bench --json | haul report - --csv\n  \
    haul report survey.jsonl --compact --out survey.jsonl.gz"
)]
pub(crate) struct Report {
    /// Record files, as they are or compressed by gzip; - is standard input
    #[arg(required = true, value_name = "FILES")]
    pub(crate) files: Vec<PathBuf>,
    /// Where to write, compressed by gzip where the name ends in .gz [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// A table of every number instead of a page
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// The records themselves, checked and joined, one a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The same with five quantiles where a record has more samples: less room, the same page
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub(crate) compact: bool,
}

/// Compares the figures of two files of records, such as surveys before and after an update: which
/// became faster or slower beyond the noise of both runs. Where both runs measured a baseline
/// beside a figure, the figure changed only if its ratio to that baseline changed too, so that a
/// machine which is slower today is no change. Exit code 0 whatever changed, but for --fail-on.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul compare before/survey.jsonl after/survey.jsonl --out changes.html\n  \
    haul compare main.jsonl.gz branch.jsonl --fail-on slower --threshold 5\n\n\
    Exit codes: 0 compared, 1 --fail-on found what it looks for or the files have nothing in common, 2 used wrongly."
)]
pub(crate) struct Compare {
    /// The earlier records, as they are or compressed by gzip; - is standard input
    #[arg(value_name = "OLD")]
    pub(crate) old: PathBuf,
    /// The later records
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Write a page with every figure
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) export_markdown: Option<PathBuf>,
    /// Show figures that stayed as well
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit code 1 where figures became slower, changed in either direction, or are missing in NEW;
    /// several may be given
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
    /// Changes up to so many percent count as none, whatever the noise is
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    pub(crate) threshold: f64,
    /// Hold figures of one machine against those of another
    #[arg(long)]
    pub(crate) across_machines: bool,
    /// Print each figure's change as a record, one a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What makes `haul compare` fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// A figure became slower.
    Slower,
    /// A figure became slower or faster.
    Changed,
    /// A figure is in the old file alone.
    Missing,
}

/// The kernels that copy and fill, which of them this processor runs, and the sizes at which haul
/// changes from one to the next.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul copy list\n  HAUL_TUNING=haul-survey/haul.toml haul copy list"
)]
pub(crate) struct List {
    /// Print the machine, with kernels and thresholds as facts, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures haul's copies and fills side by side with the installed C library's, interleaved in
/// one run, with the library against itself as the noise floor. Without --distribution,
/// --size-class or --sizes, the built-in distribution `service` is measured.
///
/// On distributions, `haul` is what programs have that are compiled with it, in Rust or with
/// haul.h: up to 64 bytes are code in the caller, above there is one call; `haul-c` is called
/// through C at every size. On size classes and single sizes, where function is compared with
/// function, `haul` is called through C, as libc is; `haul-inline` is the code in the caller. Each
/// record of drawn sizes says in its parameter `call` which it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul copy bench --size-class 0-16 --level l1\n  \
    haul copy bench --against libc --distribution sizes.csv --level all --json > bench.jsonl\n  \
    haul copy bench --distribution service --then-read nothing,first\n  \
    haul copy bench --sizes 2KiB..1GiB --kernel avx2 --kernel rep_movsb")]
pub(crate) struct Bench {
    /// The baseline
    #[arg(long, value_name = "BASELINE", default_value = "libc", value_parser = ["libc"])]
    pub(crate) against: String,
    /// memcpy, memmove or memset; several may be given
    #[arg(long, value_name = "NAME", default_value = "memcpy", value_delimiter = ',')]
    pub(crate) function: Vec<Function>,
    /// Sizes drawn from a file (one line of probabilities, index = size in bytes) or a built-in
    /// distribution; several may be given
    #[arg(long, value_name = "FILE|NAME")]
    pub(crate) distribution: Vec<OsString>,
    /// Sizes drawn evenly from FIRST to LAST bytes, such as 17-64; several may be given
    #[arg(long, value_name = "FIRST-LAST", value_delimiter = ',')]
    pub(crate) size_class: Vec<SizeClass>,
    /// One size after the other: a list such as 64,4KiB, or FIRST..LAST for the powers of two
    #[arg(long, alias = "size", value_name = "SIZES")]
    pub(crate) sizes: Option<Sizes>,
    /// Where the bytes lie: l1, l2, llc, cold, mixed or all; several may be given [default: l1, and
    /// nearest for --sizes: a copy's own two buffers, in the nearest cache that holds both]
    #[arg(long, value_name = "LEVEL", value_delimiter = ',', value_parser = level)]
    pub(crate) level: Vec<Levels>,
    /// Threads at once, each pinned to a processor of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) threads: u16,
    /// Whether predictors can learn the sizes: random (none comes back before half a million
    /// others), or repeating (64 calls again and again); drawn sizes only
    #[arg(long, value_name = "HOW", default_value = "random", value_parser = branches)]
    pub(crate) branches: Branches,
    /// What of each target is read right after its call, within its time: nothing, the first or the
    /// last 8 bytes, or all; several may be given
    #[arg(long, value_name = "WHAT", default_value = "nothing", value_delimiter = ',')]
    pub(crate) then_read: Vec<ThenRead>,
    /// Share of addresses that are odd, the others being multiples of 8 [default: 0.27, as
    /// published]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) misaligned: Option<f64>,
    /// Share of memmove's calls whose source and target overlap; drawn sizes only [default: 0.008,
    /// as published]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) overlap: Option<f64>,
    /// Kernels to measure beside libc, or haul-c and haul-inline, instead of the usual subjects;
    /// several may be given
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub(crate) kernel: Vec<String>,
    /// Time for the rounds of everything together [default: 2s for each measurement]; what else it
    /// takes is printed before it begins
    #[arg(long, value_name = "TIME", value_parser = budget)]
    pub(crate) budget: Option<Duration>,
    #[command(flatten)]
    pub(crate) printing: Printing,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Finds how this machine copies and fills best (the shape of small copies, the instruction set,
/// where strings may lie, and the sizes at which the kernel changes), checks that on sizes and
/// distributions that it was not found on, keeps the defaults where they do not lose, and writes
/// haul.toml with its evidence. Takes under 60 seconds.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul copy tune --out ~/.config/haul/haul.toml")]
pub(crate) struct Tune {
    /// The file to write; the records it stands on go beside it, into haul.jsonl (FILE's name with
    /// .jsonl, or with .records.jsonl where FILE itself ends so)
    #[arg(long, value_name = "FILE", default_value = "haul.toml")]
    pub(crate) out: PathBuf,
    /// Time to spend, or what the fewest rounds of large sizes take (some 8), which is printed
    /// before
    #[arg(long, value_name = "TIME", value_parser = budget, default_value = "50s")]
    pub(crate) budget: Duration,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What one `--level` stands for.
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
    found.ok_or_else(|| "branches are random or repeating".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("a share is a number between 0 and 1".to_owned()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("a threshold is a number of percent between 0 and 1000, such as 5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_and_json() {
        fn check(command: &clap::Command) {
            if command.has_subcommands() {
                return command.get_subcommands().for_each(check);
            }
            if command.is_hide_set() {
                return;
            }
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Example:\n  "), "{}: {help}", command.get_name());
            let has_records = !["completions", "man", "record"].contains(&command.get_name());
            assert_eq!(help.contains("--json"), has_records, "{}: {help}", command.get_name());
        }
        check(&Arguments::command());
    }

    #[test]
    fn all_levels_or_one() {
        assert_eq!(level("all").unwrap().0.len(), 5);
        assert_eq!(level("llc").unwrap().0, [Level::Llc]);
        assert_eq!(level("nearest").unwrap().0, [Level::Nearest]);
        let message = level("l9").unwrap_err().to_string();
        assert!(message.contains("l1, l2, llc, cold and mixed"), "{message}");
    }
}
