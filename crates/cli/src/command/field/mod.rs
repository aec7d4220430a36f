//! `haul field`: a whole program with a change and without.
//!
//! From the bottom up:
//!
//! - `drive`: `haul field drive`;
//! - `test`: the test.

mod drive;
mod test;

use super::Command;
use crate::arguments::field::{Field, Verb};
use crate::error::Error;

/// The command that the arguments name.
///
/// # Errors
/// A change, a metric or a program is not possible.
pub(super) fn of(arguments: Field) -> Result<Box<dyn Command>, Error> {
    Ok(match (arguments.command, arguments.test) {
        (Some(Verb::Drive), _) => Box::new(drive::Drive),
        (None, Some(test)) => Box::new(test::Test::check(test)?),
        (None, None) => unreachable!("the command line requires a change or a command"),
    })
}
