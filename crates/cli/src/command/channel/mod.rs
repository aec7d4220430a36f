//! `haul channel`: one module per subcommand.
//!
//! The protocol of `send` and `recv` over a channel: messages of at most 1 MiB, an empty message
//! as the end, and an empty message in reply when the receiver has stored everything. A channel
//! that closes without the empty message was interrupted. While `recv` waits for the reader of
//! its output, it sends a message of one byte every second, which distinguishes a slow reader
//! from a stopped receiver.
//!
//! From the bottom up:
//!
//! - `drive`: `haul channel drive`;
//! - `list`: `haul channel list`;
//! - `bench`: `haul channel bench`;
//! - `cost`: time and cost of a stream, as records and as a line;
//! - `explain`: `haul channel explain`;
//! - `send`: `haul channel send`;
//! - `recv`: `haul channel recv`.

mod bench;
mod cost;
mod drive;
mod explain;
mod list;
mod recv;
mod send;

pub(super) use bench::{driver, transports_of_this_system};

use std::time::Duration;

use haul_model::Bytes;

use super::Command;
use crate::arguments::channel::Channel;
use crate::error::{Error, TransferError};

/// Bytes of a message: large enough that its cost is the copy, small enough to fit the ring.
const MESSAGE_BYTES: usize = 1 << 20;

/// Interval at which a wait polls for Ctrl-C, or for a message of the other end.
const POLL: Duration = Duration::from_millis(100);

/// The error if the other end fails or closes, after `done` bytes of the stream. Even an orderly
/// close is too early, because the final message must come before it.
fn ended(attempt: &'static str, done: u64) -> impl Fn(haul::channel::Error) -> Error {
    move |error| match error {
        haul::channel::Error::Closed => TransferError::Ended { attempt, done: Bytes(done) }.into(),
        // Before the two ends have met, the reason may be that this user is not allowed. The
        // error's own text then says so.
        haul::channel::Error::PeerGone { attempt: at, done: part, .. } if at != "connect" => {
            TransferError::Died { attempt, done: Bytes(done + part.0) }.into()
        }
        haul::channel::Error::GivenUp { done: part, .. } => {
            TransferError::Ended { attempt, done: Bytes(done + part.0) }.into()
        }
        haul::channel::Error::Deadline { attempt: at, done: part, waited, limit, .. }
            if at != "connect" && at != "accept" =>
        {
            TransferError::Stopped { attempt, done: Bytes(done + part.0), waited, limit }.into()
        }
        error => error.into(),
    }
}

/// Twice the address space that a channel needs in addition to a message: its memory (about 4
/// MiB), a pool (2 MiB), two threads (2.3 MiB), and small allocations, whose failure a program
/// cannot see.
const BESIDE_BYTES: usize = 16 << 20;

/// Allocates a message, if there is enough memory for the rest of the channel as well.
///
/// # Errors
/// There is not enough memory.
fn message() -> Result<Vec<u8>, Error> {
    let wanted = MESSAGE_BYTES + BESIDE_BYTES;
    let mut room: Vec<u8> = Vec::new();
    let had = room.try_reserve_exact(wanted);
    had.map_err(|_| TransferError::NoMemory { wanted: Bytes(wanted as u64) })?;
    drop(room);
    Ok(vec![0; MESSAGE_BYTES])
}

/// The subcommand that the arguments name.
///
/// # Errors
/// A mechanism does not work here, or not for a size.
pub(super) fn of(arguments: Channel) -> Result<Box<dyn Command>, Error> {
    Ok(match arguments {
        Channel::Bench(arguments) => Box::new(bench::Bench::check(arguments)?),
        Channel::Drive(arguments) => Box::new(drive::Drive::new(arguments)),
        Channel::Explain(arguments) => Box::new(explain::Explain::check(arguments)?),
        Channel::List(arguments) => Box::new(list::List::new(arguments)),
        Channel::Send(arguments) => Box::new(send::Send::new(arguments)),
        Channel::Recv(arguments) => Box::new(recv::Recv::new(arguments)),
    })
}
