//! `haul channel`: one module a subcommand.
//!
//! What `send` and `recv` speak over a channel: messages of 1 MiB at most, an empty one as the end,
//! and an empty one back when everything is where it should be. A channel that closes without the
//! empty message was cut short.

mod list;
mod recv;
mod send;
mod took;

use super::Command;
use crate::arguments::channel::Channel;

/// Bytes of a message: large enough that its cost is the copy, small enough to fit the ring.
const MESSAGE_BYTES: usize = 1 << 20;

/// The subcommand that the arguments ask for.
pub(super) fn of(arguments: Channel) -> Box<dyn Command> {
    match arguments {
        Channel::List(arguments) => Box::new(list::List::new(arguments)),
        Channel::Send(arguments) => Box::new(send::Send::new(arguments)),
        Channel::Recv(arguments) => Box::new(recv::Recv::new(arguments)),
    }
}
