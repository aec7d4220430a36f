//! The result of a function that can fail.

use std::ffi::{CStr, c_char, c_int};

/// The result of a function that can fail. New codes are added at the end; no code changes its
/// number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_status {
    /// Success.
    HAUL_OK = 0,
    /// A pointer argument is NULL.
    HAUL_ERROR_NULL = 1,
    /// No threshold has this name: haul_thresholds_name() lists them.
    HAUL_ERROR_NO_SUCH_THRESHOLD = 2,
    /// haul.toml was ignored because it is unreadable, malformed or for another machine. The
    /// defaults apply, and standard error says what is wrong.
    HAUL_ERROR_TUNING_IGNORED = 3,
    /// A defect of haul, reported on standard error. The thresholds are unchanged.
    HAUL_ERROR_INTERNAL = 4,
    /// An argument is outside its range.
    HAUL_ERROR_ARGUMENT = 5,
    /// A heap of this name, or a file at this path, exists already.
    HAUL_ERROR_EXISTS = 6,
    /// No heap has this name, or no process listens at this path.
    HAUL_ERROR_NOT_FOUND = 7,
    /// The heap belongs to another user, or other users may write to it; or the permissions of the
    /// socket forbid its use; or the peer is of a user that is not allowed.
    HAUL_ERROR_FORBIDDEN = 8,
    /// The file is not a heap, or it is a heap of another version, truncated, unfinished or
    /// damaged.
    HAUL_ERROR_NOT_A_HEAP = 9,
    /// The system, or a limit of the process, refused addresses or memory.
    HAUL_ERROR_NO_MEMORY = 10,
    /// The largest possible number of live processes share the heap already.
    HAUL_ERROR_FULL = 11,
    /// Another system call failed.
    HAUL_ERROR_SYSTEM = 12,
    /// The block is free already.
    HAUL_ERROR_DOUBLE_FREE = 13,
    /// There is no block at the address.
    HAUL_ERROR_WILD_POINTER = 14,
    /// The pointer is inside a block, not at its start.
    HAUL_ERROR_INTERIOR_POINTER = 15,
    /// The pointer is outside the heap.
    HAUL_ERROR_FOREIGN_POINTER = 16,
    /// The heap's metadata was overwritten.
    HAUL_ERROR_DAMAGED = 17,
    /// The peer left before the transfer was complete. No part of the message is delivered.
    HAUL_ERROR_PEER_GONE = 18,
    /// The peer closed the channel after a whole message and sends no more.
    HAUL_ERROR_CLOSED = 19,
    /// The peer is alive but made no progress in time.
    HAUL_ERROR_DEADLINE = 20,
    /// The target is smaller than the message, which can still be received.
    HAUL_ERROR_TOO_SMALL = 21,
    /// The message is longer than the limit of one of the two ends.
    HAUL_ERROR_TOO_LONG = 22,
    /// The requested mechanism is not available with this peer.
    HAUL_ERROR_UNAVAILABLE = 23,
    /// The peer sent an invalid value or descriptor. The channel is closed.
    HAUL_ERROR_PROTOCOL = 24,
    /// An earlier transfer failed or was abandoned, so that the channel is unusable; or another
    /// process uses its copy of the channel after a fork.
    HAUL_ERROR_BROKEN = 25,
    /// The message changed in transfer: its checksum does not match.
    HAUL_ERROR_INTEGRITY = 26,
    /// The process may not make a file as long as the heap (RLIMIT_FSIZE).
    HAUL_ERROR_FILE_SIZE = 27,
    /// The size of the heap's file is not sealed, so that another process could truncate it.
    HAUL_ERROR_NOT_SEALED = 28,
    /// This machine has no engine of this name, or the process may not use it.
    HAUL_ERROR_NO_ENGINE = 29,
    /// No operation of the engine has this ticket, or its result was taken.
    HAUL_ERROR_NO_TICKET = 30,
    /// The operation has not ended in this time. Its ticket stays valid.
    HAUL_ERROR_PENDING = 31,
    /// The engine could not access an address, and did only the first bytes of the operation.
    HAUL_ERROR_PARTIAL = 32,
    /// The engine did none of the operation.
    HAUL_ERROR_REFUSED = 33,
    /// The engine disappeared. Some bytes of the target may be written, in any order.
    HAUL_ERROR_ENGINE_GONE = 34,
}

impl haul_status {
    const ALL: [Self; 35] = [
        Self::HAUL_OK,
        Self::HAUL_ERROR_NULL,
        Self::HAUL_ERROR_NO_SUCH_THRESHOLD,
        Self::HAUL_ERROR_TUNING_IGNORED,
        Self::HAUL_ERROR_INTERNAL,
        Self::HAUL_ERROR_ARGUMENT,
        Self::HAUL_ERROR_EXISTS,
        Self::HAUL_ERROR_NOT_FOUND,
        Self::HAUL_ERROR_FORBIDDEN,
        Self::HAUL_ERROR_NOT_A_HEAP,
        Self::HAUL_ERROR_NO_MEMORY,
        Self::HAUL_ERROR_FULL,
        Self::HAUL_ERROR_SYSTEM,
        Self::HAUL_ERROR_DOUBLE_FREE,
        Self::HAUL_ERROR_WILD_POINTER,
        Self::HAUL_ERROR_INTERIOR_POINTER,
        Self::HAUL_ERROR_FOREIGN_POINTER,
        Self::HAUL_ERROR_DAMAGED,
        Self::HAUL_ERROR_PEER_GONE,
        Self::HAUL_ERROR_CLOSED,
        Self::HAUL_ERROR_DEADLINE,
        Self::HAUL_ERROR_TOO_SMALL,
        Self::HAUL_ERROR_TOO_LONG,
        Self::HAUL_ERROR_UNAVAILABLE,
        Self::HAUL_ERROR_PROTOCOL,
        Self::HAUL_ERROR_BROKEN,
        Self::HAUL_ERROR_INTEGRITY,
        Self::HAUL_ERROR_FILE_SIZE,
        Self::HAUL_ERROR_NOT_SEALED,
        Self::HAUL_ERROR_NO_ENGINE,
        Self::HAUL_ERROR_NO_TICKET,
        Self::HAUL_ERROR_PENDING,
        Self::HAUL_ERROR_PARTIAL,
        Self::HAUL_ERROR_REFUSED,
        Self::HAUL_ERROR_ENGINE_GONE,
    ];

    const fn message(self) -> &'static CStr {
        match self {
            Self::HAUL_OK => c"success",
            Self::HAUL_ERROR_NULL => c"a pointer argument is NULL; pass the address that the header asks for",
            Self::HAUL_ERROR_NO_SUCH_THRESHOLD => {
                c"no threshold has this name; haul_thresholds_name() lists them"
            }
            Self::HAUL_ERROR_TUNING_IGNORED => {
                c"haul.toml was ignored and the defaults apply; write a new one with `haul copy tune`"
            }
            Self::HAUL_ERROR_INTERNAL => {
                c"a defect of haul; please report what standard error says"
            }
            Self::HAUL_ERROR_FILE_SIZE => {
                c"the process may not make a file as long as the heap; raise ulimit -f, lower the limit, or make a private heap"
            }
            Self::HAUL_ERROR_NOT_SEALED => {
                c"the size of the heap's file is not sealed; attach to a named heap by its name, or send the descriptor of haul_heap_fd()"
            }
            other if (other as c_int) > Self::HAUL_ERROR_NOT_SEALED as c_int => {
                other.engine_message()
            }
            other if (other as c_int) > Self::HAUL_ERROR_DAMAGED as c_int => {
                other.channel_message()
            }
            other => other.heap_message(),
        }
    }
}

impl haul_status {
    /// The messages of the codes that heaps return.
    const fn heap_message(self) -> &'static CStr {
        match self {
            Self::HAUL_ERROR_ARGUMENT => {
                c"an argument is outside its range; see the range in haul.h"
            }
            Self::HAUL_ERROR_EXISTS => {
                c"a heap of this name or a file at this path exists already; attach to it, remove it, or choose another"
            }
            Self::HAUL_ERROR_NOT_FOUND => {
                c"no heap has this name, or no process listens at this path; create the heap or start the listener first, as the same user"
            }
            Self::HAUL_ERROR_FORBIDDEN => {
                c"the heap, socket or peer belongs to another user or is open to others; run both programs as one user, or allow the user of the peer in the options"
            }
            Self::HAUL_ERROR_NOT_A_HEAP => {
                c"the file is no heap of this version, or is truncated or damaged; remove it and create the heap again"
            }
            Self::HAUL_ERROR_NO_MEMORY => {
                c"the system refused addresses or memory; raise ulimit -v, -d or -f or vm.max_map_count, or lower the limit"
            }
            Self::HAUL_ERROR_FULL => {
                c"as many live processes as possible share the heap; end one of them"
            }
            Self::HAUL_ERROR_SYSTEM => {
                c"a system call failed; check the number of open files, /dev/shm and permissions"
            }
            Self::HAUL_ERROR_DOUBLE_FREE => {
                c"the block is free already; free a block once"
            }
            Self::HAUL_ERROR_WILD_POINTER => {
                c"the heap has no block at this address; free a pointer that was allocated"
            }
            Self::HAUL_ERROR_INTERIOR_POINTER => {
                c"the pointer is not the start of a block; free the pointer that was allocated"
            }
            Self::HAUL_ERROR_FOREIGN_POINTER => {
                c"the pointer is outside the heap; use the heap that it came from"
            }
            _ => c"the heap's metadata was overwritten; stop the processes that share the heap and create it again",
        }
    }
}

impl haul_status {
    /// The messages of the codes that channels return.
    const fn channel_message(self) -> &'static CStr {
        match self {
            Self::HAUL_ERROR_PEER_GONE => {
                c"the peer left before the transfer was complete; connect again and send the message again"
            }
            Self::HAUL_ERROR_CLOSED => {
                c"the peer closed the channel; connect again to receive more"
            }
            Self::HAUL_ERROR_DEADLINE => {
                c"the peer made no progress in time; check whether it is stopped or its machine is busy, or allow more time in the options"
            }
            Self::HAUL_ERROR_TOO_SMALL => {
                c"the message does not fit; pass a larger target, or call haul_channel_recv()"
            }
            Self::HAUL_ERROR_TOO_LONG => {
                c"the message is longer than size_max; send it in parts, or raise size_max at both ends"
            }
            Self::HAUL_ERROR_UNAVAILABLE => {
                c"the mechanism is not available with this peer; leave the choice to haul"
            }
            Self::HAUL_ERROR_PROTOCOL => {
                c"the peer sent an invalid value or descriptor; use one version of haul at both ends, and do not trust this peer"
            }
            Self::HAUL_ERROR_BROKEN => {
                c"an earlier transfer failed or was abandoned, or another process uses the channel after a fork; connect again"
            }
            _ => c"the message changed in transfer; connect again and send it again, and test this machine's memory",
        }
    }
}

impl haul_status {
    /// The messages of the codes that engines return.
    const fn engine_message(self) -> &'static CStr {
        match self {
            Self::HAUL_ERROR_NO_ENGINE => {
                c"this machine has no engine of this name that the process may use; `haul engine list` prints the names, and `haul doctor` the remedy"
            }
            Self::HAUL_ERROR_NO_TICKET => {
                c"no operation of this engine has this ticket; take the result of an operation once, from the engine that it was submitted to"
            }
            Self::HAUL_ERROR_PENDING => {
                c"the operation has not ended in this time; wait again"
            }
            Self::HAUL_ERROR_PARTIAL => {
                c"the engine could not access an address; map the page that the result names, then submit the rest"
            }
            Self::HAUL_ERROR_REFUSED => {
                c"the engine refused the operation; submit it again without HAUL_ENGINE_REPORT_FAULTS, or to the engine worker"
            }
            _ => c"the engine disappeared with the operation pending; copy again with the CPU; `haul doctor` prints the remedy",
        }
    }
}

/// Returns the meaning of a status and the remedy, as one line of English. Never returns NULL. The
/// text is static and must not be freed. For a number that is not a status, the text says so.
#[unsafe(no_mangle)]
pub extern "C" fn haul_strerror(status: c_int) -> *const c_char {
    let known = haul_status::ALL.into_iter().find(|known| *known as c_int == status);
    known.map_or(c"not a status of this version of libhaul", haul_status::message).as_ptr()
}
