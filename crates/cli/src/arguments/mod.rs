//! The command line.
//!
//! From the bottom up:
//!
//! - `number`: how a whole number is written;
//! - `time`: how a time is written;
//! - `sizes`: how sizes and their ranges are written;
//! - `users`: how users are named whose processes may connect;
//! - `switch`: how a switch of a flow is written;
//! - `settings`: options that few runs need, as a file in TOML;
//! - `copy_preload`: the arguments of `haul copy run` and `haul copy profile`;
//! - `copy_record`: the arguments of `haul copy record`;
//! - `copy`: the arguments of `haul copy`;
//! - `engine`: the arguments of `haul engine`;
//! - `channel`: the arguments of `haul channel`;
//! - `field`: the arguments of `haul field`;
//! - `forward`: the arguments of `haul forward`;
//! - `heap`: the arguments of `haul heap`;
//! - `pcie`: the arguments of `haul pcie`;
//! - `sim`: the arguments of `haul sim`.
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "these comments are the text of --help, in which [:STEP] is not a link"
)]

pub(crate) mod channel;
pub(crate) mod copy;
pub(crate) mod copy_preload;
pub(crate) mod copy_record;
#[cfg(test)]
mod documents;
pub(crate) mod engine;
pub(crate) mod field;
pub(crate) mod forward;
pub(crate) mod heap;
mod number;
pub(crate) mod pcie;
pub(crate) mod settings;
pub(crate) mod sim;
pub(crate) mod sizes;
pub(crate) mod switch;
#[cfg(test)]
mod table;
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
    Several values are separated by commas. FIRST..LAST is the powers of two between, FIRST..LAST:STEP every \
    STEP-th value, FIRST-LAST an interval.\n\
    Exit codes: 0 done, 1 failed, 2 wrong usage. A run that a signal ends (Ctrl-C, SIGTERM, SIGHUP or \
    SIGQUIT) exits with 128 plus the signal's number: 130 for Ctrl-C. haul keeps what it has measured until \
    then. A second signal, at least a second later, ends haul at once. A command that runs until Ctrl-C \
    anyway exits with 0."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Verb,
}

/// The command line of this process.
///
/// # Errors
///
/// [`Error::Usage`] if the command line is wrong. If it asks for help, the help has been printed,
/// and the error is [`Error::ReaderGone`] or the reason why printing failed.
pub(crate) fn parse() -> Result<Arguments, Error> {
    let matches = with_negative_numbers(Arguments::command()).try_get_matches();
    match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Err(help) if !help.use_stderr() => Err(terminal::help(&help)),
        other => Ok(other?),
    }
}

/// The command, with options that accept `-1` as a value. The option's own parser then refuses
/// the value and names the limit; clap would report an unknown option `-1`.
fn with_negative_numbers(command: Command) -> Command {
    let accepting = |arg: Arg| {
        let is_option = arg.get_long().is_some() && arg.get_action().takes_values();
        if is_option { arg.allow_negative_numbers(true) } else { arg }
    };
    let names: Vec<String> =
        command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let command = command.mut_args(accepting);
    names
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, with_negative_numbers))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Doctor(Doctor),
    Survey(Survey),
    Report(Report),
    Compare(Compare),
    /// Copies by the processor: kernels, comparisons with libc, thresholds
    #[command(subcommand)]
    Copy(copy::Copy),
    /// The huge-page heap: comparisons with malloc and with DPDK
    #[command(subcommand)]
    Heap(heap::Heap),
    /// Copies beside the CPU, and a fake DSA
    #[command(subcommand)]
    Engine(engine::Engine),
    /// Bulk transfers to another process
    #[command(subcommand)]
    Channel(channel::Channel),
    Field(Box<field::Field>),
    Forward(forward::Forward),
    /// PCIe traffic of packet workloads: links, estimates, limits
    #[command(subcommand)]
    Pcie(pcie::Pcie),
    /// The simulated server: copy engines, the paper that proposed them, and later experiments
    #[command(subcommand)]
    Sim(sim::Sim),
    Completions(Completions),
    Man(Manual),
}

impl Verb {
    /// Whether this command is a process that another haul starts and ends.
    pub(crate) fn is_driver(&self) -> bool {
        match self {
            Self::Heap(heap::Heap::Drive(_)) | Self::Channel(channel::Channel::Drive(_)) => true,
            Self::Forward(forward) => matches!(forward.command, Some(forward::Verb::Drive)),
            Self::Field(field) => field.command.is_some(),
            _ => false,
        }
    }
}

/// Prints a shell's completion script for haul's commands and options.
///
/// `scripts/install` installs the scripts of bash, zsh and fish.
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

/// Prints the manual page of haul, or writes the pages of all commands.
///
/// The pages are made from the same text as --help. `scripts/install` installs the pages.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul man | man -l -\n  haul man --out ~/.local/share/man/man1")]
pub(crate) struct Manual {
    /// Folder for the pages, one for each command: haul.1, haul-copy-bench.1 and so on
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// What this machine offers, what it lacks, and how to get that.
///
/// Shows what this machine offers for moving data: instruction sets, caches, huge pages,
/// permissions, engines, counters. haul works without any of them; each line says how to get what
/// is missing. Then shows what disturbs a measurement: load, steal time, frequency governor, turbo,
/// threads that share a core.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul doctor\n  haul doctor --json | head -1")]
pub(crate) struct Doctor {
    /// Print the machine as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measures how this machine moves bytes best.
///
/// Measures memory, copies and fills on this machine, finds its thresholds, and writes survey.jsonl
/// (every record), report.html (the page) and haul.toml (the thresholds) into a folder. Takes under
/// 4 minutes, with --quick under 30 seconds. Ctrl-C keeps the records measured until then.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul survey --out my-server\n  HAUL_TUNING=my-server/haul.toml ./my-program"
)]
pub(crate) struct Survey {
    /// Measure fewer sizes in shorter runs: under 30 seconds
    #[arg(long)]
    pub(crate) quick: bool,
    /// Folder for the results; created if it does not exist. An earlier page in it is replaced;
    /// earlier records are kept as survey.jsonl.old, .old.2 and so on
    #[arg(long, value_name = "DIR", default_value = "haul-survey")]
    pub(crate) out: PathBuf,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the steps and how long each takes, and measure nothing
    #[arg(long)]
    pub(crate) plan: bool,
}

/// Renders saved records as one page, or as CSV.
///
/// The records come from `haul survey`, or from any command's `--json`. The HTML page needs no
/// other file; any machine can render it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul report survey.jsonl --out-file report.html\n  haul copy bench --json | haul report - --csv\n  \
    haul report survey.jsonl --compact --out-file survey.jsonl.gz"
)]
pub(crate) struct Report {
    /// Record files, plain or compressed by gzip; - is standard input
    #[arg(required = true, value_name = "FILES")]
    pub(crate) files: Vec<PathBuf>,
    /// File to write, compressed by gzip if its name ends in .gz [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) out_file: Option<PathBuf>,
    /// Write a table of every number instead of a page
    #[arg(long, conflicts_with = "json")]
    pub(crate) csv: bool,
    /// Write the records themselves, checked and joined, one per line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the records with five quantiles instead of all samples: smaller, with the same page
    #[arg(long, conflicts_with_all = ["csv", "json"])]
    pub(crate) compact: bool,
}

/// Shows which figures became faster or slower between two files of records.
///
/// Compares earlier runs with later ones, such as surveys before and after an update, and also
/// shows where the runs cannot tell whether a figure changed.
///
/// Two runs of one program differ by up to a quarter and sometimes more. Three runs on each side
/// show by how much; the chance of a false alarm among all figures is then 5%. With one run on each
/// side, all of haul's figures of a part are judged together, and a single figure only if it
/// doubled. Every figure is a ratio to the baseline of its own run, so a machine that is slower
/// today does not count as a change. The exit code is 0 whatever changed, unless --fail-on is
/// given.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul compare before/survey.jsonl after/survey.jsonl --out-file changes.html\n  \
    haul compare --old main-*.jsonl --new branch-*.jsonl --fail-on slower\n  \
    haul compare main.jsonl.gz branch.jsonl --only copy --subject haul\n\n\
    Exit codes: 0 compared, 1 --fail-on found such a figure or the files have no figure in common, 2 wrong usage."
)]
pub(crate) struct Compare {
    /// The earlier records, plain or compressed by gzip; - is standard input
    #[arg(value_name = "OLD", required_unless_present = "old_runs", conflicts_with_all = ["old_runs", "new_runs"])]
    pub(crate) old: Option<PathBuf>,
    /// The later records
    #[arg(value_name = "NEW", required_unless_present = "new_runs", conflicts_with_all = ["old_runs", "new_runs"])]
    pub(crate) new: Option<PathBuf>,
    /// Files of several earlier runs, instead of OLD: three or more show how far runs differ
    #[arg(long = "old", value_name = "FILES", num_args = 1.., requires = "new_runs")]
    pub(crate) old_runs: Vec<PathBuf>,
    /// Files of several later runs, instead of NEW
    #[arg(long = "new", value_name = "FILES", num_args = 1.., requires = "old_runs")]
    pub(crate) new_runs: Vec<PathBuf>,
    /// Compare only these experiments: whole names, or their first part (copy); several may be
    /// given. copy.tune is compared only if it is named here
    #[arg(long, value_name = "EXPERIMENT", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Compare only these subjects; several may be given. Kernels that only haul calls are compared
    /// only if they are named here
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) subject: Vec<String>,
    /// File for a page with every figure
    #[arg(long, value_name = "FILE")]
    pub(crate) out_file: Option<PathBuf>,
    /// File for the table as Markdown
    #[arg(long, value_name = "FILE")]
    pub(crate) export_markdown: Option<PathBuf>,
    /// Print every figure in a format that other programs read, instead of the table
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) export: Option<field::Exported>,
    /// Show also baselines, unchanged figures, and figures for which the runs cannot tell whether
    /// they changed
    #[arg(long)]
    pub(crate) all: bool,
    /// Exit with code 1 if figures became slower, changed in either direction, are missing in
    /// NEW, or if the runs cannot tell whether figures changed; several may be given
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
    /// Changes up to this percentage count as no change, however small the noise is
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0, value_parser = percent)]
    pub(crate) threshold: f64,
    /// Compare figures of one machine with those of another
    #[arg(long)]
    pub(crate) across_machines: bool,
    /// Print each figure's change as a record, one per line of JSON
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
    /// The runs cannot tell whether a figure changed.
    CannotTell,
    /// A figure is only in the old runs.
    Missing,
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.0..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("write a percentage from 0 to 1000, such as 5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// The standard library's messages name no range: "invalid digit found in string".
    #[test]
    fn parsers_refuse_nonsense_with_a_remedy() {
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
                    let message = error.to_string();
                    let is_bare = ["invalid digit", "target type", "is not in "];
                    assert!(
                        !is_bare.iter().any(|bare| message.contains(bare)),
                        "{path:?}: {message}"
                    );
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
            // `haul copy run` becomes the program that it starts.
            let is_another = help.contains("Usage: run <CMD>");
            let has_none = ["completions", "man", "record", "fake"].contains(&command.get_name());
            let has_records = !has_none && !is_another;
            assert_eq!(help.contains("--json"), has_records, "{}: {help}", command.get_name());
        }
        check(&Arguments::command());
    }
}
