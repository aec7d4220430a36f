//! `haul forward pvp`: the whole flow through a guest, with copies and switches compared.

use std::path::PathBuf;
use std::time::Duration;

use haul_experiments::Experiment;
use haul_experiments::drive::Program;
use haul_experiments::forward::search::Goal;
use haul_experiments::forward::{Bench, Buffers, Flow, Forwarder, Qemu, Source};
use haul_machine::sys::Sys;
use haul_model::experiment::name;
use haul_model::{Bytes, Record};

use super::fits::{self, is_asked, warn_of_threads};
use super::switches::{self, Peers};
use super::{RECORDS, sentences};
use crate::arguments::forward::{Pvp as Arguments, PvpSettings};
use crate::command::Command;
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

/// Size of a page and its records together.
const ROOM: Bytes = Bytes(4 << 20);

/// The number of huge pages that DPDK's two sides need, with a margin.
const HUGE_PAGES: u64 = 320;
/// The number of huge pages that DPDK's two sides need if one of them is Open vSwitch.
const HUGE_PAGES_OF_OVS: u64 = 450;

/// Measured time of a restart, and of one size of a sweep: see `--for`. Forwarders publish their
/// counts every 20 ms.
const OF_RESTART: Duration = Duration::from_millis(500);
const OF_SIZE: Duration = Duration::from_millis(50);
const OF_SIZE_MIN: Duration = Duration::from_millis(40);

/// Shorter trials than this are unreliable, because a scheduler's time slice lasts some
/// milliseconds.
const TRIAL_SHORT_MIN: Duration = Duration::from_millis(100);

pub(super) struct Pvp {
    steps: Steps,
    out: Option<PathBuf>,
    json: bool,
}

impl Pvp {
    /// Resolves every name, looks for the peers, and lists the steps.
    ///
    /// # Errors
    /// A copy or a size is not possible, or a needed program is missing.
    pub(super) fn check(arguments: Arguments) -> Result<Self, Error> {
        let settings: PvpSettings = arguments.settings.read()?;
        fits::check(&arguments, &settings)?;
        let buffers = settings.buffers.unwrap_or(Buffers::of(settings.layout));
        let sizes = fits::sizes(&arguments, &settings, buffers)?;
        let mut left_out = Vec::new();
        let peers = Peers::find(&arguments, &settings, &mut left_out)?;
        let subjects = switches::subjects(&arguments, &peers)?;
        let guest = match &peers.testpmd {
            Some(found) if arguments.guest == "testpmd" => Forwarder::Testpmd(found.clone()),
            _ if arguments.is_to_kernel() => {
                let found = Qemu::find(settings.guest_image.as_deref());
                Forwarder::Qemu(found.map_err(|reason| Error::Qemu { reason })?)
            }
            _ => Forwarder::Haul,
        };
        let has_ovs = peers.ovs.is_some();
        let beside_dpdk = subjects.iter().any(|subject| subject.switch != Forwarder::Haul);
        let source = match settings.source.as_deref() {
            Some("gen") => Source::Generator,
            Some(_) => Source::Null,
            // DPDK's source makes packets without content, so haul's source does so in the same
            // run. In `Flow::Return`, the guest makes the packets.
            None if beside_dpdk && arguments.flow != Flow::Return => Source::Null,
            None => Source::Generator,
        };
        let restarts = arguments.restarts();
        let bench = Bench {
            flow: arguments.flow,
            layout: settings.layout,
            queues: settings.queues,
            size_bytes: 0,
            subjects,
            guest,
            buffers,
            source,
            is_huge: huge_pages_free() >= if has_ovs { HUGE_PAGES_OF_OVS } else { HUGE_PAGES },
            driver: driver(),
            left_out,
            restarts: (restarts, restarts),
            window: match (arguments.time, &arguments.sweep) {
                (Some(time), Some(_)) => time.max(OF_SIZE_MIN),
                (None, Some(_)) => OF_SIZE,
                (time, None) => time.unwrap_or(OF_RESTART),
            },
            budget: Duration::ZERO,
            searches: searches(&arguments, &settings)?,
            searches_each: settings.searches.into(),
            latency: settings.latency,
            sweep: Vec::new(),
            seed: 1,
        };
        warn_of_threads(&bench);
        let steps = match arguments.sweep {
            Some(_) => vec![step(&bench, 0, sizes)],
            None => sizes.into_iter().map(|size| step(&bench, size, Vec::new())).collect(),
        };
        Ok(Self { steps, out: arguments.out, json: arguments.json })
    }
}

impl Command for Pvp {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        let folder = self.out.clone().map(|folder| (folder, RECORDS.to_owned()));
        Outputs { json: self.json, folder, room: ROOM, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, None, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        let records: Vec<&Record> = journal
            .records()
            .filter(|record| record.experiment.starts_with(name::FORWARD))
            .collect();
        if records.is_empty() {
            return Ok(());
        }
        let page = super::write_page(self.out.as_deref(), journal)?;
        let mut lines = sentences::of(&records);
        lines.extend(page.map(|page| format!("page: {} (records: {RECORDS})", page.display())));
        let text = lines.join("\n");
        if self.json {
            terminal::say(&text);
            return Ok(());
        }
        terminal::print(&text)
    }
}

/// The command that starts this program as one side of a flow.
pub(in crate::command) fn driver() -> Program {
    steps::this_program(["forward", "drive"])
}

/// The goals of searches, with their names.
///
/// # Errors
/// No load can be set.
fn searches(
    arguments: &Arguments,
    settings: &PvpSettings,
) -> Result<Vec<(&'static str, Goal)>, Error> {
    let can_search = match arguments.flow {
        Flow::Pvp => is_asked(arguments, "haul"),
        flow => flow == Flow::Return,
    };
    if !can_search && !arguments.search.is_empty() {
        let (belongs, remedy) = ("--flow pvp with --switch haul, and --flow return", "name these");
        return Err(Error::Unused { option: "--search", belongs, remedy });
    }
    let goals = arguments.search.iter().filter_map(|name| {
        let minute = Duration::from_secs(60);
        let (name, goal) = match name.as_str() {
            "ndr" => ("ndr", Goal::default()),
            "pdr" => ("pdr", Goal { loss_ratio: 0.005, ..Goal::default() }),
            "rfc2544" => (
                "rfc2544",
                Goal { exceed_ratio: 0.0, trial: minute, sum: minute, ..Goal::default() },
            ),
            _ => return None,
        };
        let trial = settings.trial.unwrap_or(goal.trial);
        let sum = settings.trial_sum.unwrap_or(goal.sum).max(trial);
        let trial_short = (trial / 5).max(TRIAL_SHORT_MIN).min(trial);
        Some((name, Goal { trial, sum, trial_short, ..goal }))
    });
    Ok(goals.collect())
}

/// Free pages of 2 MiB in the kernel's pool.
fn huge_pages_free() -> u64 {
    let pools = Sys::new().huge_pages().pools;
    pools.iter().find(|pool| pool.page_bytes == 2 << 20).map_or(0, |pool| pool.free)
}

/// The step for one size of a flow, or for a sweep.
fn step(bench: &Bench, size_bytes: usize, sweep: Vec<usize>) -> Box<dyn Experiment> {
    // The guest's buffers must hold the longest packets of a sweep.
    let size_bytes = sweep.iter().copied().max().unwrap_or(size_bytes);
    let mut bench = Bench { size_bytes, sweep, ..bench.clone() };
    bench.budget = bench.time_of(bench.restarts.1);
    Box::new(bench)
}
