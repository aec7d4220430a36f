//! `haul copy`: one module per subcommand.
//!
//! From the bottom up:
//!
//! - `list`: `haul copy list`;
//! - `table`: the table of `haul copy bench`;
//! - `bench`: `haul copy bench`;
//! - `advise`: `haul copy advise`;
//! - `profiled`: the calls of profiled programs;
//! - `tune`: `haul copy tune`;
//! - `record`: `haul copy record`;
//! - `run`: `haul copy run`;
//! - `profile`: `haul copy profile`.

mod advise;
mod bench;
mod list;
mod profile;
mod profiled;
mod record;
mod run;
mod table;
mod tune;

pub(super) use tune::policy;

use super::Command;
use crate::arguments::copy::Copy;
use crate::error::Error;

/// The library that copies and profiles.
const LIBRARY: &str = "libhaul_copy.so";

/// The subcommand that the arguments name.
///
/// # Errors
/// A name is unknown, an input cannot be read, or a value is beyond this machine's limits.
pub(super) fn of(arguments: Copy) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Copy::List(arguments) => Box::new(list::List::new(arguments)),
        Copy::Tune(arguments) => Box::new(tune::Tune::check(arguments)?),
        Copy::Advise(arguments) => Box::new(advise::Advise::check(arguments)?),
        Copy::Record(arguments) => Box::new(record::Record::check(arguments)?),
        Copy::Run(arguments) => Box::new(run::Run::check(arguments)?),
        Copy::Profile(arguments) => Box::new(profile::Profile::check(arguments)?),
        Copy::Bench(arguments) => Box::new(bench::Bench::check(*arguments)?),
    })
}
