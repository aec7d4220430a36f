//! The command line.
//!
//! From the bottom up:
//!
//! - `number`: how a whole number is;
//! - `time`: how a time is written;
//! - `users`: how users are named that other processes may have;
//! - `copy`: of `haul copy`;
//! - `channel`: of `haul channel`;
//! - `forward`: of `haul forward`;
//! - `heap`: of `haul heap`;
//! - `pcie`: of `haul pcie`;
//! - `sim`: of `haul sim`.

pub(crate) mod channel;
pub(crate) mod copy;
#[cfg(test)]
mod documents;
pub(crate) mod forward;
pub(crate) mod heap;
mod number;
pub(crate) mod pcie;
pub(crate) mod sim;
pub(crate) mod time;
pub(crate) mod users;

use std::path::PathBuf;

use clap::{Arg, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::error::Error;
use crate::terminal;

/// Moves bulk data on a server for the least cost, and proves it.
#[derive(Debug, Parser)]
#[command(name = "haul", version, arg_required_else_help = true, max_term_width = 100)]
#[command(
    after_help = "Start with `haul survey`: it measures this machine and writes a page about it.\n\
    Exit codes: 0 done, 1 failed, 2 used wrongly; cut short by a signal (Ctrl-C, SIGTERM, SIGHUP or \
    SIGQUIT), 128 and its number: 130 for Ctrl-C. What was measured until then is kept; a second signal, a \
    second later or more, ends haul at once. What runs until Ctrl-C anyway ends by it with 0."
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
    Copy(copy::Copy),
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

impl Verb {
    /// Whether it is a process that another haul starts, and ends.
    pub(crate) fn is_driver(&self) -> bool {
        match self {
            Self::Heap(heap::Heap::Drive(_)) | Self::Channel(channel::Channel::Drive(_)) => true,
            Self::Forward(forward) => matches!(forward.command, Some(forward::Verb::Drive)),
            _ => false,
        }
    }
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

/// Compares the figures of earlier runs with those of later ones, such as surveys before and after
/// an update: which became faster or slower, and of which the runs cannot tell. Runs of one program
/// come apart by up to a quarter and more; three of each side say by how much, and the chance of a
/// false alarm among all figures is then 5%. With one of each, all of haul's figures of a part are
/// judged together, and single ones only where they doubled. Ratios are those to the baseline of
/// the same run, so that a machine which is slower today is no change. Exit code 0 whatever
/// changed, but for --fail-on.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul compare before/survey.jsonl after/survey.jsonl --out changes.html\n  \
    haul compare --old main-*.jsonl --new branch-*.jsonl --fail-on slower\n  \
    haul compare main.jsonl.gz branch.jsonl --only copy --subject haul\n\n\
    Exit codes: 0 compared, 1 --fail-on found what it looks for or the files have nothing in common, 2 used wrongly."
)]
pub(crate) struct Compare {
    /// The earlier records, as they are or compressed by gzip; - is standard input
    #[arg(value_name = "OLD", required_unless_present = "old_runs", conflicts_with_all = ["old_runs", "new_runs"])]
    pub(crate) old: Option<PathBuf>,
    /// The later records
    #[arg(value_name = "NEW", required_unless_present = "new_runs", conflicts_with_all = ["old_runs", "new_runs"])]
    pub(crate) new: Option<PathBuf>,
    /// Files of several earlier runs, instead of OLD: three or more say how far runs come apart
    #[arg(long = "old", value_name = "FILES", num_args = 1.., requires = "new_runs")]
    pub(crate) old_runs: Vec<PathBuf>,
    /// Files of several later runs, instead of NEW
    #[arg(long = "new", value_name = "FILES", num_args = 1.., requires = "old_runs")]
    pub(crate) new_runs: Vec<PathBuf>,
    /// Compare these experiments alone: whole names, or their first part (copy); several may be
    /// given, and copy.tune is compared only so
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Compare these subjects alone; several may be given, and kernels that only haul calls are
    /// compared only so
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) subject: Vec<String>,
    /// Write a page with every figure
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) export_markdown: Option<PathBuf>,
    /// Show figures that stayed, or of which the runs cannot tell, and baselines as well
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit code 1 where figures became slower, changed in either direction, are missing in NEW, or
    /// where the runs cannot tell; several may be given
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
    /// The runs cannot tell of a figure.
    CannotTell,
    /// A figure is in the old runs alone.
    Missing,
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

    /// The standard library's words name no range: "invalid digit found in string".
    #[test]
    fn what_is_no_number_is_refused_with_a_remedy() {
        fn check(command: &clap::Command, path: &[&str]) {
            for inner in command.get_subcommands() {
                check(inner, &[path, &[inner.get_name()]].concat());
            }
            for argument in command.get_arguments().filter(|one| one.get_action().takes_values()) {
                for value in ["x", "-1", "99999999999999999999999"] {
                    let option = argument.get_long().map(|name| format!("--{name}={value}"));
                    let words = path.iter().copied().chain([option.as_deref().unwrap_or(value)]);
                    let Err(error) = Arguments::command().try_get_matches_from(words) else {
                        continue;
                    };
                    let said = error.to_string();
                    let is_bare = ["invalid digit", "target type", "is not in "];
                    assert!(!is_bare.iter().any(|bare| said.contains(bare)), "{path:?}: {said}");
                }
            }
        }
        check(&Arguments::command(), &["haul"]);
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
}
