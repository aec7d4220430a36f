//! What keeps a transfer to another process from its end.

use std::path::PathBuf;
use std::time::Duration;

use haul_model::Bytes;

/// Why a transfer did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// A receiver that does nothing, and does not say that it waits either.
    #[error(
        "cannot send to {}: it has taken nothing for {waited:.1?}, and the limit is {limit:?}; look whether it \
         is stopped or its machine is busy, or allow more with --deadline",
        process.map_or("the receiver".to_owned(), |process| format!("process {process}"))
    )]
    Stalled {
        /// Its number, where it can be seen.
        process: Option<i32>,
        /// How long nothing was heard.
        waited: Duration,
        /// How long that may last.
        limit: Duration,
    },
    /// The other end closed in good order, and too early.
    #[error(
        "cannot {attempt}: the other end closed before everything had arrived, after {}; look what it says, and \
         connect anew",
        done.approximate()
    )]
    Ended {
        /// `send` or `receive`.
        attempt: &'static str,
        /// How much had gone through.
        done: Bytes,
    },
    /// The other end died, or was killed, before it had said that this was all.
    #[error(
        "cannot {attempt}: the other end died after {} of the stream; start both ends again",
        done.approximate()
    )]
    Died {
        /// `send` or `receive`.
        attempt: &'static str,
        /// How much had gone through.
        done: Bytes,
    },
    /// The other end lives, and stopped in the middle.
    #[error(
        "cannot {attempt}: the other end has stopped after {} of the stream, for {waited:.1?}, and the limit is \
         {limit:?}; look what it does, or allow more with --deadline",
        done.approximate()
    )]
    Stopped {
        /// `send` or `receive`.
        attempt: &'static str,
        /// How much had gone through.
        done: Bytes,
        /// How long it did not move.
        waited: Duration,
        /// How long that may last.
        limit: Duration,
    },
    /// Whoever read what was received has gone.
    #[error(
        "cannot pass on what is received: whoever read {target} closed it after {}; the rest of the stream is \
         lost, which is as it should be if the reader had enough (head), else look why it ended",
        done.approximate()
    )]
    ConsumerGone {
        /// `standard output`, or a FIFO's name.
        target: String,
        /// How much it had been given.
        done: Bytes,
    },
    /// A receiver that did not come in time.
    #[error(
        "cannot connect to {}: no receiver came within {waited:?}; start `haul channel recv {}`, or wait longer \
         with --wait=SECONDS",
        path.display(), path.display()
    )]
    NobodyCame {
        /// Its socket.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// The system has no memory for messages and what else a channel takes.
    #[error(
        "cannot have {wanted} of memory for messages; free memory, or raise the limit of addresses \
         (ulimit -v) or the container's"
    )]
    NoMemory {
        /// How much was asked for.
        wanted: Bytes,
    },
}
