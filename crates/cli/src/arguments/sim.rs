//! The command line of `haul sim`.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use haul_experiments::sim::Setting;
use haul_experiments::sim::sweep;

use super::number::number;

#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    /// One program on one simulated machine, with a picture of what waited for what
    Run(Run),
    /// The copy-engine paper again: 48 machines, Table 2, Figures 6 to 8, and every error
    Reproduce(Reproduce),
    /// Writes a plan of tasks over ranges of settings
    Sweep(Sweep),
    /// Does one task of a plan
    Task(Task),
    /// Joins the records of a plan's tasks, and names what is missing
    Collect(Collect),
}

/// Runs a program on the simulated server: a RISC-V ELF file (RV64IM, bare metal), or a workload
/// that haul holds: receive (TCP through lwIP) or values (a store of values). Shows cycles and
/// every counter that is not 0; with --trace a picture of the pipeline and of memory's transactions
/// in a window of cycles.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul sim run my-program.elf --argument 1000\n  \
    haul sim run --set copying=engine --set engine.policy=async --packets 2000\n  \
    haul sim run --set copying=engine --trace 400000..400400\n  \
    haul sim run --machine my-machine.toml --json\n  \
    haul sim run --functional --packets 100000\n\n\
    Settings: haul sim run --list shows every name, its value and so its kind.")]
pub(crate) struct Run {
    /// The program, or the workload `receive` or `values` by its name: a file of that name is
    /// ./receive [default: receive]
    #[arg(value_name = "ELF")]
    pub(crate) program: Option<PathBuf>,
    /// An argument of the program, in a0 and on; several may be given
    #[arg(long, value_name = "N", requires = "program", value_parser = word)]
    pub(crate) argument: Vec<u64>,
    /// Packets that receive takes [default: 1000]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 10_000_000>)]
    pub(crate) packets: Option<u64>,
    /// A file of settings in TOML; what it leaves out is as in the paper
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
    /// A setting by its name, after the file's; several may be given
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Instructions after which the program is given up [default: 20000000000, which take an hour
    /// or two]
    #[arg(long, value_name = "N", value_parser = word)]
    pub(crate) limit: Option<u64>,
    /// Draw what happened in this window of cycles
    #[arg(long, value_name = "FROM..TO", value_parser = window)]
    pub(crate) trace: Option<Range<u64>>,
    /// Interpret the program alone: what it does and how fast that is simulated, without any time
    #[arg(long, conflicts_with_all = ["trace", "list"])]
    pub(crate) functional: bool,
    /// Show every setting, and run nothing
    #[arg(long, conflicts_with_all = ["trace", "json"])]
    pub(crate) list: bool,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs the 48 machines of "Hardware Support for Bulk Data Movement in Server Platforms" (ICCD
/// 2005) on all cores: three packet sizes, in order and out of order, by the processor and by three
/// engines; then again with one knob, compute per packet, fitted to BASE's copy shares alone.
/// Writes sim.jsonl (every record) and report.html (Table 2 side by side, Figures 6 to 8) into a
/// folder. The workload travels with haul: nothing else is needed.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul sim reproduce --quick\n  haul sim reproduce --out paper --json > paper.jsonl"
)]
pub(crate) struct Reproduce {
    /// Fewer packets: under 30 seconds on two cores, and within a point of the whole
    #[arg(long, conflicts_with = "packets")]
    pub(crate) quick: bool,
    /// Packets of each trace [default: 100000, as the paper]
    #[arg(long, value_name = "N", value_parser = number::<u64, 20, 10_000_000>)]
    pub(crate) packets: Option<u64>,
    /// Runs at once [default: one a processor]
    #[arg(long, value_name = "N", value_parser = number::<u16, 1, 1024>)]
    pub(crate) threads: Option<u16>,
    /// A workload that scripts/sim-workload of haul's repository built [default: the one that haul
    /// holds]
    #[arg(long, value_name = "ELF")]
    pub(crate) program: Option<PathBuf>,
    /// The folder for the results; created if need be, earlier results in it replaced
    #[arg(long, value_name = "DIR", default_value = "haul-sim")]
    pub(crate) out: PathBuf,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes a plan: one task for every combination of the ranges' values. Tasks are independent and
/// idempotent: any array engine may run them, in any order, twice, or killed halfway.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul sim sweep --vary engine.share_percent=5..50:5 --vary core.issue=in-order,out-of-order \\\n    \
    --set copying=engine --out plan.jsonl --run\n  \
    haul sim sweep --vary memory.latency_ns=70..170:10 --out plan.jsonl\n  \
    hq submit --array 0-10 sh -c 'haul sim task plan.jsonl $HQ_TASK_ID'\n  \
    haul sim collect plan.jsonl --json"
)]
pub(crate) struct Sweep {
    /// What varies: NAME=A,B,C or NAME=FIRST..LAST:STEP; several may be given
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    pub(crate) vary: Vec<sweep::Range>,
    /// A setting of all tasks; several may be given
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// A file of settings in TOML for all tasks
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
    /// A program of one's own, or the workload values, instead of receive
    #[arg(long, value_name = "ELF")]
    pub(crate) program: Option<PathBuf>,
    /// An argument of that program; several may be given
    #[arg(long, value_name = "N", requires = "program", value_parser = word)]
    pub(crate) argument: Vec<u64>,
    /// The plan
    #[arg(long, value_name = "FILE", default_value = "plan.jsonl")]
    pub(crate) out: PathBuf,
    /// Do the tasks here, on all cores; those that are done already are left as they are
    #[arg(long)]
    pub(crate) run: bool,
    /// Tasks at once [default: one a processor]
    #[arg(long, value_name = "N", value_parser = number::<u16, 1, 1024>)]
    pub(crate) threads: Option<u16>,
    /// Print the records of the tasks as JSON
    #[arg(long, requires = "run")]
    pub(crate) json: bool,
}

/// Does one task of a plan and writes its record file into the folder PLAN.d, in one step. A task
/// that is done already is left as it is.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul sim task plan.jsonl 17\n  \
    hq submit --array 0-199 sh -c 'haul sim task plan.jsonl $HQ_TASK_ID'")]
pub(crate) struct Task {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// The task's number, from 0
    #[arg(value_name = "INDEX", value_parser = number::<usize, 0, { u32::MAX as u64 }>)]
    pub(crate) index: usize,
    /// Print the task's records as JSON as well
    #[arg(long)]
    pub(crate) json: bool,
}

/// Joins the record files of a plan's tasks in the plan's order. Exit code 1 where some are missing
/// or damaged, which it names; the others are kept.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul sim collect plan.jsonl --json > sweep.jsonl\n  haul report sweep.jsonl --csv"
)]
pub(crate) struct Collect {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A number, as programs write addresses: decimal, or hexadecimal behind 0x.
fn word(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let parsed = match plain.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => plain.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no whole number, such as 4096 or 0x1000"))
}

fn window(text: &str) -> Result<Range<u64>, String> {
    let parsed =
        text.split_once("..").and_then(|(from, to)| Some(word(from).ok()?..word(to).ok()?));
    match parsed {
        Some(window) if window.start < window.end => Ok(window),
        _ => Err(format!("{text:?} is no window of cycles, such as 400000..400400")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_words() {
        assert_eq!(window("10..0x20"), Ok(10..32));
        for bad in ["10", "20..10", "a..b", "5..5"] {
            assert!(window(bad).is_err(), "{bad}");
        }
        assert_eq!(word("1_000"), Ok(1000));
        assert!(word("-1").is_err());
    }
}
