//! The errors of a transfer to another process.

use std::path::PathBuf;
use std::time::Duration;

use haul_model::Bytes;

/// Why a transfer did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransferError {
    /// A receiver that reads nothing and does not report that it waits.
    #[error(
        "cannot send to {}: it has read nothing for {waited:.1?}, and the limit is {limit:?}; check whether \
         it is stopped or its machine is busy, or allow more with --deadline",
        process.map_or("the receiver".to_owned(), |process| format!("process {process}"))
    )]
    Stalled {
        /// The receiver's process ID, if visible.
        process: Option<i32>,
        /// Time without progress.
        waited: Duration,
        /// The limit of that time.
        limit: Duration,
    },
    /// The other end closed the channel too early.
    #[error(
        "cannot {attempt}: the other end closed before everything had arrived, after {}; read its message, and \
         connect again",
        done.approximate()
    )]
    Ended {
        /// `send` or `receive`.
        attempt: &'static str,
        /// Bytes transferred until then.
        done: Bytes,
    },
    /// The other end died or was killed before it had announced the end of the stream.
    #[error(
        "cannot {attempt}: the other end died after {} of the stream; start both ends again",
        done.approximate()
    )]
    Died {
        /// `send` or `receive`.
        attempt: &'static str,
        /// Bytes transferred until then.
        done: Bytes,
    },
    /// The other end is alive, but has stopped in the middle.
    #[error(
        "cannot {attempt}: the other end has stopped after {} of the stream, for {waited:.1?}, and the limit is \
         {limit:?}; check whether it is stopped or waits for something, or allow more with --deadline",
        done.approximate()
    )]
    Stopped {
        /// `send` or `receive`.
        attempt: &'static str,
        /// Bytes transferred until then.
        done: Bytes,
        /// Time without progress.
        waited: Duration,
        /// The limit of that time.
        limit: Duration,
    },
    /// The reader of the received stream has closed it.
    #[error(
        "cannot write what is received: the reader of {target} closed it after {}; the rest of the stream is \
         lost. This is expected if the reader had enough (head); otherwise read its message",
        done.approximate()
    )]
    ConsumerGone {
        /// `standard output`, or a FIFO's name.
        target: String,
        /// Bytes written to it until then.
        done: Bytes,
    },
    /// No receiver started in time.
    #[error(
        "cannot connect to {}: no receiver started within {waited:?}; start `haul channel recv {}`, or wait \
         longer with --wait=SECONDS",
        path.display(), path.display()
    )]
    NoReceiver {
        /// The receiver's socket.
        path: PathBuf,
        /// The time waited.
        waited: Duration,
    },
    /// The system has no memory for messages and the rest of a channel.
    #[error(
        "cannot allocate {wanted} of memory for messages; free memory, or raise the limit of addresses \
         (ulimit -v) or the container's"
    )]
    NoMemory {
        /// Bytes asked for.
        wanted: Bytes,
    },
}
