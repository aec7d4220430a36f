//! `haul sim`: one module per subcommand.
//!
//! From the bottom up:
//!
//! - `plan`: `haul sim sweep`, `task` and `collect`;
//! - `list`: `haul sim list`;
//! - `table`: the results of a reproduction, as text;
//! - `trace`: a window of cycles, row by row;
//! - `picture`: that window as text;
//! - `reproduce`: `haul sim reproduce`;
//! - `run`: `haul sim run`.

mod list;
mod picture;
mod plan;
mod reproduce;
mod run;
mod table;
mod trace;

use super::Command;
use crate::arguments::sim::Sim;
use crate::error::Error;

/// The subcommand that the arguments name.
///
/// # Errors
/// A file cannot be read, or a setting is wrong.
pub(super) fn of(arguments: Sim) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Sim::List(arguments) => Box::new(list::List::check(arguments)?),
        Sim::Run(arguments) => Box::new(run::Run::check(arguments)?),
        Sim::Reproduce(arguments) => Box::new(reproduce::Reproduce::new(arguments)),
        Sim::Sweep(arguments) => Box::new(plan::Sweep::check(arguments)?),
        Sim::Task(arguments) => Box::new(plan::Task::check(arguments)?),
        Sim::Collect(arguments) => Box::new(plan::Collect::check(arguments)?),
    })
}
