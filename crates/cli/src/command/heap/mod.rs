//! `haul heap`: one module per subcommand.
//!
//! From the bottom up:
//!
//! - `drive`: `haul heap drive`;
//! - `course`: the course of a replay for a terminal;
//! - `picture`: a heap's pages and shares for a terminal;
//! - `bench`: `haul heap bench`;
//! - `replay`: `haul heap replay`;
//! - `map`: `haul heap map`;
//! - `left`: the traces that a recording left;
//! - `record`: `haul heap record`;
//! - `info`: `haul heap info`;
//! - `list`: `haul heap list`.

mod bench;
mod course;
mod drive;
mod info;
mod left;
mod list;
mod map;
mod picture;
mod record;
mod replay;

pub(super) use bench::{driver, installed};

use super::Command;
use crate::arguments::heap::Heap;
use crate::error::Error;

/// The subcommand that the arguments name.
///
/// # Errors
/// A name is unknown, an input cannot be read, or a value is beyond this machine's limits.
pub(super) fn of(arguments: Heap) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Heap::Bench(arguments) => Box::new(bench::Bench::check(arguments)?),
        Heap::Replay(arguments) => Box::new(replay::Replay::check(arguments)?),
        Heap::Map(arguments) => Box::new(map::Map::check(arguments)?),
        Heap::Record(arguments) => Box::new(record::Record::check(arguments)?),
        Heap::Info(arguments) => Box::new(info::Info::check(arguments)?),
        Heap::List(arguments) => Box::new(list::List::read(arguments)?),
        Heap::Drive(arguments) => Box::new(drive::Drive::new(arguments)),
    })
}
