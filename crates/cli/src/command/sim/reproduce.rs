//! `haul sim reproduce`: repeats the paper.

use std::path::PathBuf;

use haul_experiments::sim::{self, pool};
use haul_model::Bytes;

use super::table;
use crate::arguments::sim::Reproduce as Arguments;
use crate::command::Command;
use crate::command::steps::{self, Steps};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::stop::Stops;
use crate::terminal;

const RECORDS: &str = "sim.jsonl";
const PAGE: &str = "report.html";
/// More than the page and the records of the whole paper need together (2 MB).
const ROOM: Bytes = Bytes(4 << 20);

/// Packets of each trace: the paper's number, and a number that two cores simulate in five
/// seconds. A quarter of the packets warm up the machine: with fewer warm-up packets than the
/// NIC's 256 buffers (400 packets in total), results differed by up to 1.5 points.
const PACKETS: u64 = 100_000;
const PACKETS_QUICK: u64 = 1200;

/// A run is in its steady state after some hundred packets, so the second round needs no more
/// packets.
const PACKETS_CALIBRATED_MAX: u64 = 5_000;

pub(super) struct Reproduce {
    steps: Steps,
    out: PathBuf,
    json: bool,
}

impl Reproduce {
    pub(super) fn new(arguments: Arguments) -> Self {
        let Arguments { quick, packets, threads, program, out, json } = arguments;
        let packets = packets.unwrap_or(if quick { PACKETS_QUICK } else { PACKETS });
        let reproduce = sim::Reproduce {
            packets,
            packets_calibrated: packets.min(PACKETS_CALIBRATED_MAX),
            threads: pool::threads(threads.map(usize::from)),
            program,
        };
        Self { steps: vec![Box::new(reproduce)], out, json }
    }
}

impl Command for Reproduce {
    fn stops(&self) -> Stops {
        Stops::WithWhatThereIs
    }

    fn outputs(&self) -> Outputs {
        Outputs {
            json: self.json,
            folder: Some((self.out.clone(), RECORDS.to_owned())),
            room: ROOM,
            ..Outputs::default()
        }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        steps::measure(&mut self.steps, None, journal)
    }

    fn render(&self, journal: &Journal) -> Result<(), Error> {
        if journal.records().next().is_none() {
            return Ok(());
        }
        let page = self.out.join(PAGE);
        haul_machine::file::write_atomically(&page, haul_report::html(journal.lines()).as_bytes())?;
        let text = table::text(journal.records(), &page);
        if self.json {
            terminal::say(&text);
            return Ok(());
        }
        terminal::print(&text)
    }
}
