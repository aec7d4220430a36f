//! `haul pcie`: one module per subcommand.
//!
//! From the bottom up:
//!
//! - `list`: `haul pcie list`;
//! - `subject`: the subject of an estimate;
//! - `nics`: the known NICs, for a terminal;
//! - `estimate`: `haul pcie estimate`;
//! - `by_size`: `haul pcie estimate --sizes FIRST..LAST:STEP`;
//! - `explain`: `haul pcie explain`;
//! - `sweep`: `haul pcie sweep`;
//! - `bandwidth`: `haul pcie bandwidth`;
//! - `view`: an interval of a running program, for a terminal;
//! - `watch`: `haul pcie watch`.

mod bandwidth;
mod by_size;
mod estimate;
mod explain;
mod list;
mod nics;
mod subject;
mod sweep;
mod view;
mod watch;

use haul_model::pcie::{Link, Settings};
use haul_model::units::three_digits;

use super::Command;
use crate::arguments::pcie::{LinkArguments, Pcie};
use crate::error::Error;
use crate::terminal;

/// The subcommand that the arguments name.
///
/// # Errors
/// A link, a size or a threshold cannot exist.
pub(super) fn of(arguments: Pcie) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Pcie::List(arguments) if arguments.nics => Box::new(nics::Nics),
        Pcie::List(arguments) => Box::new(list::List::new(arguments)),
        Pcie::Explain(arguments) => Box::new(explain::Explain::check(*arguments)?),
        Pcie::Estimate(arguments) => match &arguments.subject.sizes {
            Some(sizes) if sizes.0.len() > 1 => Box::new(by_size::BySize::check(*arguments)?),
            _ => Box::new(estimate::Estimate::check(*arguments)?),
        },
        Pcie::Watch(arguments) => Box::new(watch::Watch::check(*arguments)?),
        Pcie::Sweep(arguments) => Box::new(sweep::Sweep::check(*arguments)?),
        Pcie::Bandwidth(arguments) => Box::new(bandwidth::Bandwidth::check(arguments)?),
    })
}

/// The requested link, with its settings checked.
fn link_of(arguments: &LinkArguments, others: Settings) -> Result<Link, Error> {
    let settings = Settings { mps: arguments.mps, mrrs: arguments.mrrs, ..others };
    Ok(Link::new(&arguments.link.to_string(), settings)?)
}

/// Shows the notes on an estimate: below the estimate, or on standard error if the estimate was
/// printed as records.
fn show_notes(notes: &[String], json: bool) -> Result<(), Error> {
    let width = terminal::width();
    notes.iter().try_for_each(|note| {
        let text = terminal::wrap(&format!("note: {note}"), width, 2);
        if json {
            terminal::say(&text);
            return Ok(());
        }
        terminal::print(&text)
    })
}

/// A count with three digits and its suffix.
fn count(value: f64) -> String {
    for (unit, name) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= unit * 0.9995 {
            return format!("{} {name}", three_digits(value / unit));
        }
    }
    three_digits(value)
}
