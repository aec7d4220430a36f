//! `haul sim reproduce`: the paper again.

use std::path::PathBuf;
use std::time::Duration;

use haul_experiments::sim::{self, measure_reproduce, pool};
use haul_model::Bytes;

use super::table;
use crate::arguments::sim::Reproduce as Arguments;
use crate::command::steps::stage::Runner;
use crate::command::{Command, this_machine};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

const RECORDS: &str = "sim.jsonl";
const PAGE: &str = "report.html";
/// More than the page and the records of the whole paper take together (2 MB).
const ROOM: Bytes = Bytes(4 << 20);

/// Packets of each trace: the paper's, and those that two cores do in five seconds. A quarter warms
/// up: less than a turn of the NIC's 256 buffers (400 packets in all) was up to 1.5 points off.
const PACKETS: u64 = 100_000;
const PACKETS_QUICK: u64 = 1200;

/// A run is in its steady state after some hundred packets, so the second round needs no more.
const PACKETS_CALIBRATED_MAX: u64 = 5_000;

/// What a packet of all runs takes on one core, for the time left: some 100 ns an instruction, 48
/// runs of about 1,700 instructions a packet.
const TIME_OF_PACKET: Duration = Duration::from_micros(48 * 170);

pub(super) struct Reproduce {
    plan: sim::Reproduce,
    out: PathBuf,
    json: bool,
}

impl Reproduce {
    pub(super) fn new(arguments: Arguments) -> Self {
        let Arguments { quick, packets, threads, program, out, json } = arguments;
        let packets = packets.unwrap_or(if quick { PACKETS_QUICK } else { PACKETS });
        let plan = sim::Reproduce {
            packets,
            packets_calibrated: packets.min(PACKETS_CALIBRATED_MAX),
            threads: pool::threads(threads.map(usize::from)),
            program,
        };
        Self { plan, out, json }
    }

    fn budget(&self) -> Duration {
        TIME_OF_PACKET * self.plan.packets as u32 / self.plan.threads as u32
    }
}

impl Command for Reproduce {
    fn outputs(&self) -> Outputs {
        Outputs {
            json: self.json,
            folder: Some((self.out.clone(), RECORDS.to_owned())),
            room: ROOM,
            ..Outputs::default()
        }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        let machine = this_machine();
        let budget = self.budget();
        let mut runner = Runner::new(&machine, journal, 1, budget)?;
        runner.step("the paper's machines", budget, |context| {
            measure_reproduce(&self.plan, context).map(|_| ())
        })
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if journal.records().next().is_none() {
            return Ok(());
        }
        let page = self.out.join(PAGE);
        haul::file::write_atomically(&page, haul_report::html(journal.lines()).as_bytes())?;
        let text = table::text(journal.records(), &page);
        if self.json {
            terminal::say(&text);
            return Ok(());
        }
        terminal::print(&text)
    }
}
