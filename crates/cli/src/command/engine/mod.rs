//! `haul engine`: one module per subcommand.
//!
//! From the bottom up:
//!
//! - `list`: `haul engine list`;
//! - `tuning`: the break-even sizes in a `haul.toml`;
//! - `bench`: `haul engine bench`;
//! - `fake`: `haul engine fake`.

mod bench;
mod fake;
mod list;
mod tuning;

pub(super) use bench::add_break_even;

use super::Command;
use crate::arguments::engine::Engine;
use crate::error::Error;

/// The subcommand that the arguments name.
///
/// # Errors
/// A value is wrong, or an input cannot be read.
pub(super) fn of(arguments: Engine) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Engine::List(arguments) => Box::new(list::List::new(&arguments)),
        Engine::Bench(arguments) => Box::new(bench::Bench::check(arguments)?),
        Engine::Fake(arguments) => Box::new(fake::Fake::check(arguments)?),
    })
}
