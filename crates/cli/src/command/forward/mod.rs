//! `haul forward`: between two ports, and through a whole guest.
//!
//! From the bottom up:
//!
//! - `drive`: `haul forward drive`;
//! - `modelled`: a modelled NIC as a person names it;
//! - `spec`: a port as a person names it;
//! - `ports`: from there to the ports of each worker;
//! - `workers`: as many as both ports have queue pairs for;
//! - `picture`: counters and batches for a terminal;
//! - `between`: `haul forward --port A --port B`;
//! - `fits`: which options of `pvp` fit together;
//! - `sentences`: a plain sentence for each comparison;
//! - `pvp`: `haul forward pvp`.

mod between;
mod drive;
mod fits;
mod modelled;
mod picture;
mod ports;
mod pvp;
mod sentences;
mod spec;
mod workers;

pub(super) use pvp::driver;

use std::path::{Path, PathBuf};

use super::Command;
use crate::arguments::forward::{Forward, Verb};
use crate::error::Error;
use crate::journal::Journal;

/// What a folder for results gets.
const RECORDS: &str = "forward.jsonl";
const PAGE: &str = "report.html";

/// What the arguments ask for.
///
/// # Errors
/// A port, a copy or a size is not possible, or a program is not there.
pub(super) fn of(arguments: Forward) -> Result<Box<dyn Command>, Error> {
    Ok(match (arguments.command, arguments.between) {
        (Some(Verb::Pvp(arguments)), _) => Box::new(pvp::Pvp::check(*arguments)?),
        (Some(Verb::Drive), _) => Box::new(drive::Drive),
        (None, Some(arguments)) => Box::new(between::Between::check(arguments)?),
        (None, None) => unreachable!("the command line requires ports or a command"),
    })
}

/// Writes the page into the folder for results, if there is one.
///
/// # Errors
/// It cannot be written.
fn write_page(folder: Option<&Path>, journal: &Journal) -> Result<Option<PathBuf>, Error> {
    let Some(folder) = folder else { return Ok(None) };
    let page = folder.join(PAGE);
    haul_machine::file::write_atomically(&page, haul_report::html(journal.lines()).as_bytes())?;
    Ok(Some(page))
}
