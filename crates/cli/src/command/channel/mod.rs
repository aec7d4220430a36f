//! `haul channel`: one module a subcommand.
//!
//! What `send` and `recv` speak over a channel: messages of 1 MiB at most, an empty one as the end,
//! and an empty one back when everything is where it should be. A channel that closes without the
//! empty message was cut short. While what it received waits for whoever reads its output, `recv`
//! says so every second by a message of one byte, so that a slow reader is told from a receiver
//! that is stopped.
//!
//! From the bottom up:
//!
//! - `drive`: `haul channel drive`;
//! - `list`: `haul channel list`;
//! - `bench`: `haul channel bench`;
//! - `took`: what a stream took, as records and as a line;
//! - `explain`: `haul channel explain`;
//! - `send`: `haul channel send`;
//! - `recv`: `haul channel recv`.

mod bench;
mod drive;
mod explain;
mod list;
mod recv;
mod send;
mod took;

pub(super) use bench::{driver, transports_of_this_system};

use std::time::Duration;

use haul_model::Bytes;

use super::Command;
use crate::arguments::channel::Channel;
use crate::error::{Error, TransferError};

/// Bytes of a message: large enough that its cost is the copy, small enough to fit the ring.
const MESSAGE_BYTES: usize = 1 << 20;

/// How often a wait looks for Ctrl-C, or for what the other end says.
const LOOK: Duration = Duration::from_millis(100);

/// What the other end did: closed in good order it is still too early, for the last word comes
/// before. So much of the stream had gone through.
fn ended(attempt: &'static str, done: u64) -> impl Fn(haul::channel::Error) -> Error {
    move |error| match error {
        haul::channel::Error::Closed => TransferError::Ended { attempt, done: Bytes(done) }.into(),
        // Before the two had met it may be that this user is not allowed: its own error says so.
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

/// Addresses that a channel takes beside a message, twice over: its memory (some 4 MiB), a pool (2
/// MiB), two threads (2.3 MiB), and what is allocated in small pieces, of which a program cannot
/// know that it fails.
const BESIDE_BYTES: usize = 16 << 20;

/// Memory for a message, where there is enough for all else as well.
///
/// # Errors
/// There is not.
fn message() -> Result<Vec<u8>, Error> {
    let wanted = MESSAGE_BYTES + BESIDE_BYTES;
    let mut room: Vec<u8> = Vec::new();
    let had = room.try_reserve_exact(wanted);
    had.map_err(|_| TransferError::NoMemory { wanted: Bytes(wanted as u64) })?;
    drop(room);
    Ok(vec![0; MESSAGE_BYTES])
}

/// The subcommand that the arguments ask for.
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
