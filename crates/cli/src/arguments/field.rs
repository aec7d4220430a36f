//! The command line of `haul field`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use haul_experiments::field::{Change, Expression, Metric};
use haul_report::Format;

use super::number::number;
use super::time::time;

/// Runs a program with a change and without, and says whether the change makes it faster.
///
/// In each round, the program runs without the change, with it, and without it again, each time
/// with a new start, in an order in which each takes each place equally often. The program without
/// the change is compared with itself as well, which gives the noise floor. The verdict is faster,
/// slower, no difference, or cannot tell, with the ratio and its 95% interval. A figure is read
/// from each run: its time, a number that it prints, or another.
///
/// No process is left behind, however a run or haul ends. Ctrl-C ends the present run, and the
/// verdict is that of the complete rounds.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, arg_required_else_help = true)]
#[command(
    after_help = "Example:\n  haul field --change env:MALLOC_ARENA_MAX=1 -- sort -n numbers\n  \
    haul field --change 'arg:-9=>-6' --metric cpu --runs 9 -- gzip -9 -k -f -c big\n  \
    haul field --change preload:./libmine.so --until-decided --budget 10m -- ./my-program\n  \
    haul field --change copy --server 'redis-server --save \"\"' --ready 'Ready to accept' \\\n    \
    --load 'redis-benchmark -q -t get -d 100000' --metric 'stdout:GET: ([0-9.]+)' --higher-is-better\n\n\
    Changes:\n  \
    copy              haul's memcpy, memmove and memset, preloaded\n  \
    preload:PATH      a library, preloaded before others (LD_PRELOAD)\n  \
    env:NAME=VALUE    a variable of the environment\n  \
    arg:OLD=>NEW      an argument that equals OLD, or else OLD within arguments; an empty NEW\n                    \
    removes the argument\n  \
    cmd:COMMAND       another command\n\n\
    Metrics:\n  \
    wall              time from start to end, of the load if there is a server\n  \
    cpu, max-rss      processor time, and largest resident memory of one process; of the server\n                    \
    if there is one\n  \
    stdout:REGEX      the first group, or the whole, of the last match in what the command (or the\n                    \
    load) prints on standard output; the last MiB is searched\n  \
    file:PATH:REGEX   the same in a file that the run writes\n  \
    cmd:COMMAND       the number that another command prints after the run, while a server still\n                    \
    runs\n\n\
    Exit codes: 0 done, whatever the verdict; 1 failed; 2 wrong usage; 3 a verdict that --fail-on names."
)]
pub(crate) struct Field {
    #[command(subcommand)]
    pub(crate) command: Option<Verb>,
    #[command(flatten)]
    pub(crate) test: Option<Test>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Supervises one run; `haul field` starts it
    #[command(hide = true)]
    Drive,
}

/// The program, its change, and how they are compared.
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// The change; see below. All are made together if several are given
    #[arg(long, value_name = "CHANGE", required = true)]
    pub(crate) change: Vec<Change>,
    /// What is compared; see below
    #[arg(long, value_name = "METRIC", default_value = "wall")]
    pub(crate) metric: Metric,
    /// More of the metric is better, as of requests a second
    #[arg(long)]
    pub(crate) higher_is_better: bool,
    /// Runs of each side; with --until-decided the most [default: 15, and 60 with --until-decided]
    #[arg(long, value_name = "N", value_parser = number::<u16, 1, 10_000>)]
    pub(crate) runs: Option<u16>,
    /// End as soon as there is a verdict. The interval allows for the repeated analyses
    #[arg(long)]
    pub(crate) until_decided: bool,
    /// Time after which no round begins; at least three rounds are made
    #[arg(long, value_name = "TIME", value_parser = time::<1, 604_800>)]
    pub(crate) budget: Option<Duration>,
    /// Difference in percent on which you would act: there is no difference only if a larger one
    /// is excluded
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * haul_model::MATTERS,
        value_parser = matters)]
    pub(crate) matters: f64,
    /// A server, instead of CMD. It is started for each run, and ended by SIGTERM
    #[arg(long, value_name = "CMD", requires_all = ["ready", "load"], conflicts_with = "program")]
    pub(crate) server: Option<String>,
    /// Regular expression of a text that the server prints when it is ready
    #[arg(long, value_name = "REGEX", requires = "server")]
    pub(crate) ready: Option<Expression>,
    /// Program that loads the server; the run ends with it
    #[arg(long, value_name = "CMD", requires = "server")]
    pub(crate) load: Option<String>,
    /// Longest time of one run
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = time::<1, 604_800>)]
    pub(crate) timeout: Duration,
    /// Accept runs that end with an exit code other than 0
    #[arg(long)]
    pub(crate) allow_failure: bool,
    /// Exit with code 3 if the verdict is slower, faster or slower (changed), or cannot tell;
    /// several may be given
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    pub(crate) fail_on: Vec<FailOn>,
    /// Print the verdict in a format that other programs read
    #[arg(long, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) export: Option<Exported>,
    /// Folder for the records (field.jsonl) and the page (report.html)
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments, after --
    #[arg(last = true, required_unless_present = "server", value_name = "CMD")]
    pub(crate) program: Vec<OsString>,
}

/// What makes `haul field` fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    /// The change makes the program slower.
    Slower,
    /// The change makes the program slower or faster.
    Changed,
    /// The test cannot tell.
    CannotTell,
}

/// A format of other programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Exported {
    /// Bencher Metric Format
    Bencher,
    /// The list of smaller-is-better figures of github-action-benchmark
    Github,
    /// A table in Markdown
    Markdown,
    /// A list of objects
    Json,
}

impl Exported {
    /// The format as the report writes it.
    pub(crate) fn format(self) -> Format {
        match self {
            Self::Bencher => Format::Bencher,
            Self::Github => Format::Github,
            Self::Markdown => Format::Markdown,
            Self::Json => Format::Json,
        }
    }
}

fn matters(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if (0.01..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("write a percentage from 0.01 to 1000, such as 2".to_owned()),
    }
}
