//! The command line of `haul sim`.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use haul_experiments::sim::Setting;
use haul_experiments::sim::sweep;

use super::number::number;

#[derive(Debug, Subcommand)]
pub(crate) enum Sim {
    List(List),
    Run(Run),
    Reproduce(Reproduce),
    Sweep(Sweep),
    Task(Task),
    Collect(Collect),
}

/// Lists the settings of the simulated machine, with their values.
///
/// The settings of the machine's workload are listed, too. A value is the paper's unless
/// --machine or --set changes it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul sim list\n  haul sim list --machine my-machine.toml --json"
)]
pub(crate) struct List {
    /// File of settings in TOML; a setting that it omits has the paper's value
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
    /// Setting by its name; overrides the file; several may be given
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Print the machine, with the settings as facts, as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs one program on one simulated machine, and draws which instructions waited for which
/// others.
///
/// Runs a program on the simulated server: a RISC-V ELF file (RV64IM, bare metal), or a workload
/// that is part of haul: receive (TCP through lwIP) or values (a store of values). Shows cycles and
/// every counter that is not 0; with --window also a picture of the pipeline and of memory's
/// transactions in a window of cycles.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul sim run my-program.elf --argument 1000\n  \
    haul sim run --set copying=engine --set engine.policy=async --packets 2000\n  \
    haul sim run --set copying=engine --window 400000-400400\n  \
    haul sim run --machine my-machine.toml --json\n  \
    haul sim run --functional --packets 100000\n\n\
    Settings: haul sim list shows every name with its value.")]
pub(crate) struct Run {
    /// The program, or the name of a workload, `receive` or `values`; a file of that name is
    /// written ./receive [default: receive]
    #[arg(value_name = "ELF")]
    pub(crate) program: Option<PathBuf>,
    /// Argument of the program, in a0, a1 and so on; several may be given
    #[arg(long, value_name = "N", requires = "program", value_parser = word)]
    pub(crate) argument: Vec<u64>,
    /// Packets of the receive workload [default: 1000]
    #[arg(long, value_name = "N", value_parser = number::<u64, 1, 10_000_000>)]
    pub(crate) packets: Option<u64>,
    /// File of settings in TOML; a setting that it omits has the paper's value
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
    /// Setting by its name; overrides the file; several may be given
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// Instructions after which the run stops [default: 20000000000, which need one to two hours]
    #[arg(long, value_name = "N", value_parser = word)]
    pub(crate) limit: Option<u64>,
    /// Draw what happened in this window of cycles
    #[arg(long, value_name = "FROM-TO", value_parser = window)]
    pub(crate) window: Option<Range<u64>>,
    /// Only interpret the program: shows its results and the simulation speed, without cycles
    #[arg(long, conflicts_with = "window")]
    pub(crate) functional: bool,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Repeats the copy-engine paper: 48 machines, Table 2, Figures 6 to 8, and every error.
///
/// Runs the 48 machines of "Hardware Support for Bulk Data Movement in Server Platforms" (ICCD
/// 2005) on all cores: three packet sizes, in order and out of order, with copies by the processor
/// and by three engines. Then runs the machines again with one parameter, compute per packet,
/// fitted to BASE's copy shares alone. Writes sim.jsonl (every record) and report.html (Table 2
/// side by side, Figures 6 to 8) into a folder. The workload is part of haul; no other file is
/// needed.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul sim reproduce --quick\n  haul sim reproduce --out paper --json > paper.jsonl"
)]
pub(crate) struct Reproduce {
    /// Run fewer packets: under 30 seconds on two cores, within one percentage point of the full
    /// run
    #[arg(long, conflicts_with = "packets")]
    pub(crate) quick: bool,
    /// Packets of each trace [default: 100000, as in the paper]
    #[arg(long, value_name = "N", value_parser = number::<u64, 20, 10_000_000>)]
    pub(crate) packets: Option<u64>,
    /// Runs at once [default: one per processor]
    #[arg(long, value_name = "N", value_parser = number::<u16, 1, 1024>)]
    pub(crate) threads: Option<u16>,
    /// Workload built by scripts/sim-workload in haul's repository [default: the one in haul]
    #[arg(long, value_name = "ELF")]
    pub(crate) program: Option<PathBuf>,
    /// Folder for the results; created if it does not exist; earlier results in it are replaced
    #[arg(long, value_name = "DIR", default_value = "haul-sim")]
    pub(crate) out: PathBuf,
    /// Print each record as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes a plan of tasks over ranges of settings.
///
/// Writes a plan: one task for every combination of the ranges' values. Tasks are independent and
/// idempotent: any array engine may run them in any order, repeat them, or kill and rerun them.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  haul sim sweep --vary engine.share_percent=5..50:5 --vary core.issue=in-order,out-of-order \\\n    \
    --set copying=engine --out-file plan.jsonl --run\n  \
    haul sim sweep --vary memory.latency_ns=70..170:10 --out-file plan.jsonl\n  \
    hq submit --array 0-10 sh -c 'haul sim task plan.jsonl $HQ_TASK_ID'\n  \
    haul sim collect plan.jsonl --json"
)]
pub(crate) struct Sweep {
    /// Setting to vary: NAME=A,B,C or NAME=FIRST..LAST:STEP; several may be given
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    pub(crate) vary: Vec<sweep::Range>,
    /// Setting of all tasks; several may be given
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<Setting>,
    /// File of settings in TOML for all tasks
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
    /// Your own program, or the workload values, instead of receive
    #[arg(long, value_name = "ELF")]
    pub(crate) program: Option<PathBuf>,
    /// Argument of that program; several may be given
    #[arg(long, value_name = "N", requires = "program", value_parser = word)]
    pub(crate) argument: Vec<u64>,
    /// File for the plan
    #[arg(long, value_name = "FILE", default_value = "plan.jsonl")]
    pub(crate) out_file: PathBuf,
    /// Run the tasks here, on all cores; finished tasks are not repeated
    #[arg(long)]
    pub(crate) run: bool,
    /// Tasks at once [default: one per processor]
    #[arg(long, value_name = "N", value_parser = number::<u16, 1, 1024>)]
    pub(crate) threads: Option<u16>,
    /// Print the records of the tasks as JSON
    #[arg(long, requires = "run")]
    pub(crate) json: bool,
}

/// Runs one task of a plan.
///
/// The task's record file is written atomically into the folder PLAN.d. A finished task is not
/// repeated.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  haul sim task plan.jsonl 17\n  \
    hq submit --array 0-199 sh -c 'haul sim task plan.jsonl $HQ_TASK_ID'")]
pub(crate) struct Task {
    /// The plan
    #[arg(value_name = "PLAN")]
    pub(crate) plan: PathBuf,
    /// Number of the task, from 0
    #[arg(value_name = "INDEX", value_parser = number::<usize, 0, { u32::MAX as u64 }>)]
    pub(crate) index: usize,
    /// Print the task's records as JSON as well
    #[arg(long)]
    pub(crate) json: bool,
}

/// Joins the records of a plan's tasks, and names missing ones.
///
/// Joins the record files of a plan's tasks in the plan's order. Names missing or damaged files,
/// prints the records of the other tasks, and then exits with code 1.
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

/// A number in the form of an address: decimal, or hexadecimal after 0x.
fn word(text: &str) -> Result<u64, String> {
    let plain = text.replace('_', "");
    let parsed = match plain.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => plain.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not a whole number; write one such as 4096 or 0x1000"))
}

fn window(text: &str) -> Result<Range<u64>, String> {
    let parsed = text.split_once('-').and_then(|(from, to)| Some(word(from).ok()?..word(to).ok()?));
    match parsed {
        Some(window) if window.start < window.end => Ok(window),
        _ => Err(format!("{text:?} is not a window of cycles; write one such as 400000-400400")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_and_words_parse() {
        assert_eq!(window("10-0x20"), Ok(10..32));
        for bad in ["10", "20-10", "a-b", "5-5", "10..20"] {
            assert!(window(bad).is_err(), "{bad}");
        }
        assert_eq!(word("1_000"), Ok(1000));
        assert!(word("-1").is_err());
    }
}
