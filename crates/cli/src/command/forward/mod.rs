//! `haul forward`: between two ports, and through a whole guest.
//!
//! From the bottom up:
//!
//! - `drive`: `haul forward drive`;
//! - `modelled`: a modelled NIC, as the command line names it;
//! - `spec`: a port, as the command line names it;
//! - `ports`: opens the ports of each worker;
//! - `workers`: the worker threads;
//! - `picture`: counters and batches for a terminal;
//! - `between`: `haul forward --port A --port B`;
//! - `fits`: the rules for combining options of `pvp`;
//! - `switches`: the switches that `pvp` compares;
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
mod switches;
mod workers;

pub(super) use pvp::driver;

use std::path::{Path, PathBuf};

use super::Command;
use crate::arguments::forward::{Forward, Verb};
use crate::error::Error;
use crate::journal::Journal;

/// Names of the files in a folder for results.
const RECORDS: &str = "forward.jsonl";
const PAGE: &str = "report.html";

/// The command that the arguments name.
///
/// # Errors
/// A port, a copy or a size is not possible, or a program is missing.
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
/// The page cannot be written.
fn write_page(folder: Option<&Path>, journal: &Journal) -> Result<Option<PathBuf>, Error> {
    let Some(folder) = folder else { return Ok(None) };
    let page = folder.join(PAGE);
    haul_machine::file::write_atomically(&page, haul_report::html(journal.lines()).as_bytes())?;
    Ok(Some(page))
}
