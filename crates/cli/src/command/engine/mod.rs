//! `haul engine`: one module per subcommand.

mod fake;

use super::Command;
use crate::arguments::engine::Engine;
use crate::error::Error;

/// The subcommand that the arguments name.
///
/// # Errors
/// A value is wrong, or an input cannot be read.
pub(super) fn of(arguments: Engine) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Engine::Fake(arguments) => Box::new(fake::Fake::check(arguments)?),
    })
}
