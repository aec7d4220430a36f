//! `haul channel`: one module a subcommand.
//!
//! What `send` and `recv` speak over a channel: messages of 1 MiB at most, an empty one as the end,
//! and an empty one back when everything is where it should be. A channel that closes without the
//! empty message was cut short.
//!
//! From the bottom up:
//!
//! - `drive`: `haul channel drive`;
//! - `list`: `haul channel list`;
//! - `bench`: `haul channel bench`;
//! - `took`: what a stream took, as records and as a line;
//! - `send`: `haul channel send`;
//! - `recv`: `haul channel recv`.

mod bench;
mod drive;
mod list;
mod recv;
mod send;
mod took;

pub(super) use bench::{driver, ways_of_this_system};

use super::Command;
use crate::arguments::channel::Channel;
use crate::error::Error;

/// Bytes of a message: large enough that its cost is the copy, small enough to fit the ring.
const MESSAGE_BYTES: usize = 1 << 20;

/// The subcommand that the arguments ask for.
///
/// # Errors
/// A mechanism does not work here, or not for a size.
pub(super) fn of(arguments: Channel) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Channel::Bench(arguments) => Box::new(bench::Bench::check(arguments)?),
        Channel::Drive(arguments) => Box::new(drive::Drive::new(arguments)),
        Channel::List(arguments) => Box::new(list::List::new(arguments)),
        Channel::Send(arguments) => Box::new(send::Send::new(arguments)),
        Channel::Recv(arguments) => Box::new(recv::Recv::new(arguments)),
    })
}
