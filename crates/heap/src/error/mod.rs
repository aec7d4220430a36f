//! Why a heap could not be built or attached to: the attempt, the value, the limit and the remedy.
//!
//! From the bottom up:
//!
//! - `name`: the name of a shared heap;
//! - `limit`: the system limit that an operation exceeded;
//! - `message`: the messages.

mod limit;
mod message;
mod name;

use crate::sys::Errno;

pub use limit::Limit;
pub use name::{NAME_BYTES_MAX, Name, NameProblem};

/// The operation that the system refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attempt {
    /// Creating a memory file.
    CreateFile,
    /// Opening the file of a named heap.
    OpenFile,
    /// Opening a heap's second file, which contains the huge pages.
    OpenHugeFile,
    /// Inspecting an open file.
    InspectFile,
    /// Setting the size of the heap's file.
    SizeFile,
    /// Removing a heap's name.
    RemoveName,
    /// Mapping a file or anonymous memory.
    Map,
    /// Getting memory for the first pages of metadata.
    Populate,
    /// Duplicating a descriptor of the heap's file.
    Duplicate,
    /// Installing a SIGBUS handler, which is needed because another process can remove memory
    /// from the heap's file.
    Guard,
}

/// Why a heap could not be built or attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The requested size limit is too small or too large.
    BadLimit {
        /// The number of requested bytes.
        bytes: u64,
        /// The least that works.
        least: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// The requested number of NUMA nodes is 0, or more than a heap distinguishes.
    BadNodes {
        /// The requested number.
        nodes: u32,
        /// The largest allowed value.
        most: u32,
    },
    /// The name is not valid.
    BadName(NameProblem),
    /// A heap of this name already exists.
    NameTaken(Name),
    /// No heap has this name.
    NoSuchName(Name),
    /// The system refused the addresses, even for the smallest size that is tried.
    NoAddressSpace {
        /// The number of bytes requested first.
        bytes: u64,
        /// The number of bytes requested last.
        least: u64,
        /// The system's error number.
        errno: i32,
        /// The system limit that was exceeded, if it is known.
        limit: Option<Limit>,
    },
    /// The system refused an operation.
    Refused {
        /// The operation.
        attempt: Attempt,
        /// The number of bytes that the operation needs, if that matters; else 0.
        bytes: u64,
        /// The system's error number.
        errno: i32,
        /// The system limit that was exceeded, if it is known.
        limit: Option<Limit>,
    },
    /// The file belongs to another user.
    OtherUser {
        /// The file's owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Users other than its owner may open the file.
    OpenToOthers {
        /// Its permission bits.
        mode: u32,
    },
    /// The file's size is not sealed, so another process can truncate the file. An access to the
    /// missing part would raise a signal.
    NotSealed,
    /// The file does not begin with a heap's header.
    NotAHeap {
        /// The eight bytes found there.
        magic: u64,
    },
    /// The heap was made by another version of haul.
    OtherVersion {
        /// The layout version of the heap.
        found: u32,
        /// The layout version of this program.
        ours: u32,
    },
    /// The file ends before the heap does.
    Truncated {
        /// Its size in bytes.
        bytes: u64,
        /// The size that its header requires, or the size of a header.
        needed: u64,
    },
    /// A field of the header is invalid.
    BadHeader {
        /// Which field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The expected value, or the largest allowed one.
        expected: u64,
    },
    /// The creator of the heap has not finished it, or died before it finished.
    Unfinished,
    /// Live processes hold all process slots.
    TooManyProcesses {
        /// The number of process slots.
        most: u32,
    },
    /// The memory that [`Builder::ready`](crate::Builder::ready) requests is not available.
    NotReady {
        /// The number of bytes that were requested.
        asked: u64,
        /// The number of bytes that are ready, on the nodes from the first to the node that lacks
        /// memory.
        ready: u64,
    },
    /// The caller's memory is not suitable for a heap.
    BadExternal {
        /// What is wrong with it.
        field: &'static str,
        /// Its value.
        value: u64,
        /// The expected value, or the smallest allowed one.
        expected: u64,
    },
    /// This kind of heap does not support the operation.
    Unsupported {
        /// The operation.
        what: &'static str,
        /// The remedy.
        instead: &'static str,
    },
}

impl Error {
    /// The error of an operation that the system refused.
    pub(crate) fn refused(attempt: Attempt, bytes: u64, errno: Errno) -> Self {
        let limit = Limit::behind(bytes, errno);
        Self::Refused { attempt, bytes, errno: errno.raw_os_error(), limit }
    }

    /// The error if the system refused `needed` bytes of addresses. The builder first tried a
    /// heap of `bytes`, and last one of `least` bytes.
    pub(crate) fn no_addresses(bytes: u64, least: u64, needed: u64, errno: Errno) -> Self {
        let limit = Limit::behind(needed, errno);
        Self::NoAddressSpace { bytes, least, errno: errno.raw_os_error(), limit }
    }
}

impl core::error::Error for Error {}
