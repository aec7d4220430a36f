//! What a function returns that can fail.

use std::ffi::{CStr, c_char, c_int};

/// What a function returns that can fail. New codes are added at the end; none changes its number.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_status {
    /// It worked.
    HAUL_OK = 0,
    /// An argument that must point somewhere is NULL.
    HAUL_ERROR_NULL = 1,
    /// No threshold has this name: haul_thresholds_name() lists them.
    HAUL_ERROR_NO_SUCH_THRESHOLD = 2,
    /// There is a haul.toml, and it was ignored: it is unreadable, malformed or another machine's.
    /// The defaults are in force, and standard error says what is wrong.
    HAUL_ERROR_TUNING_IGNORED = 3,
    /// A defect of haul's own, told on standard error. What was in force before still is.
    HAUL_ERROR_INTERNAL = 4,
    /// An argument is outside what it may be.
    HAUL_ERROR_ARGUMENT = 5,
    /// A heap of this name, or a file at this path, is there already.
    HAUL_ERROR_EXISTS = 6,
    /// No heap has this name, or nobody listens at this path.
    HAUL_ERROR_NOT_FOUND = 7,
    /// The heap belongs to another user, or others may write to it; or the socket is not to be
    /// used; or the peer is of a user that is not allowed.
    HAUL_ERROR_FORBIDDEN = 8,
    /// The file is no heap, of another version, cut, unfinished or damaged.
    HAUL_ERROR_NOT_A_HEAP = 9,
    /// The system refused addresses or memory, or a limit of the process does.
    HAUL_ERROR_NO_MEMORY = 10,
    /// All places for processes are taken by live ones.
    HAUL_ERROR_FULL = 11,
    /// The system refused something else.
    HAUL_ERROR_SYSTEM = 12,
    /// The block is free already.
    HAUL_ERROR_DOUBLE_FREE = 13,
    /// No block is there.
    HAUL_ERROR_WILD_POINTER = 14,
    /// The pointer leads into a block, not to its start.
    HAUL_ERROR_INTERIOR_POINTER = 15,
    /// The pointer is outside the heap.
    HAUL_ERROR_FOREIGN_POINTER = 16,
    /// The heap's metadata is not what haul wrote.
    HAUL_ERROR_DAMAGED = 17,
    /// The peer left before the transfer was complete; nothing of it counts.
    HAUL_ERROR_PEER_GONE = 18,
    /// The peer closed the channel after a whole message: there is nothing more to come.
    HAUL_ERROR_CLOSED = 19,
    /// The peer lives and did not move in time.
    HAUL_ERROR_DEADLINE = 20,
    /// The target is smaller than the message, which stays where it is.
    HAUL_ERROR_TOO_SMALL = 21,
    /// The message is over the limit of one of the two ends.
    HAUL_ERROR_TOO_LONG = 22,
    /// The mechanism that was asked for cannot be had with this peer.
    HAUL_ERROR_UNAVAILABLE = 23,
    /// What the peer says or hands over cannot be right; the channel is closed.
    HAUL_ERROR_PROTOCOL = 24,
    /// A transfer failed or was given up earlier, and nothing after it can be believed; or another
    /// process, which a fork gave a copy of the channel, uses it.
    HAUL_ERROR_BROKEN = 25,
    /// The message changed on its way: its checksum is another.
    HAUL_ERROR_INTEGRITY = 26,
    /// The process may not make a file as long as the heap (RLIMIT_FSIZE).
    HAUL_ERROR_FILE_SIZE = 27,
    /// The size of the heap's file is not sealed, so that whoever has it could cut it short.
    HAUL_ERROR_NOT_SEALED = 28,
}

impl haul_status {
    const ALL: [Self; 29] = [
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
    ];

    const fn message(self) -> &'static CStr {
        match self {
            Self::HAUL_OK => c"success",
            Self::HAUL_ERROR_NULL => c"an argument is NULL; pass a pointer to what it describes",
            Self::HAUL_ERROR_NO_SUCH_THRESHOLD => {
                c"no threshold has this name; haul_thresholds_name() lists them"
            }
            Self::HAUL_ERROR_TUNING_IGNORED => {
                c"haul.toml was ignored and the defaults hold; write it anew with `haul copy tune`"
            }
            Self::HAUL_ERROR_INTERNAL => {
                c"a defect of haul; please report what standard error says"
            }
            Self::HAUL_ERROR_FILE_SIZE => {
                c"the process may not make a file so long; raise ulimit -f, lower the limit, or make a heap of one process"
            }
            Self::HAUL_ERROR_NOT_SEALED => {
                c"the heap's file is not sealed, so that it could be cut short; attach to a named heap by its name, or send the descriptor of haul_heap_fd()"
            }
            other if (other as c_int) > Self::HAUL_ERROR_DAMAGED as c_int => {
                other.channel_message()
            }
            other => other.heap_message(),
        }
    }
}

impl haul_status {
    /// The messages of what heaps return.
    const fn heap_message(self) -> &'static CStr {
        match self {
            Self::HAUL_ERROR_ARGUMENT => {
                c"an argument is outside its range; the header says what it may be"
            }
            Self::HAUL_ERROR_EXISTS => {
                c"a heap of this name or a file at this path is there already; attach to it, remove it, or choose another"
            }
            Self::HAUL_ERROR_NOT_FOUND => {
                c"no heap has this name, or nobody listens at this path; create or start it first, as the same user"
            }
            Self::HAUL_ERROR_FORBIDDEN => {
                c"the heap, socket or peer is another user's or open to others; run both programs as one user, or allow a peer's user in the options"
            }
            Self::HAUL_ERROR_NOT_A_HEAP => {
                c"the file is no heap of this version, or is cut or damaged; remove it and create it again"
            }
            Self::HAUL_ERROR_NO_MEMORY => {
                c"the system refused addresses or memory; raise ulimit -v, -d or -f or vm.max_map_count, or lower the limit"
            }
            Self::HAUL_ERROR_FULL => {
                c"all places for processes are taken by live ones; end one that shares the heap"
            }
            Self::HAUL_ERROR_SYSTEM => {
                c"the system refused a call; look for open files, /dev/shm and permissions"
            }
            Self::HAUL_ERROR_DOUBLE_FREE => {
                c"the block is free already; free a block once"
            }
            Self::HAUL_ERROR_WILD_POINTER => {
                c"no block of the heap is there; free what was allocated"
            }
            Self::HAUL_ERROR_INTERIOR_POINTER => {
                c"the pointer is not the start of a block; free the pointer that was allocated"
            }
            Self::HAUL_ERROR_FOREIGN_POINTER => {
                c"the pointer is outside the heap; use the heap that it came from"
            }
            _ => c"the heap's metadata was overwritten; stop what shares the heap and make it anew",
        }
    }
}

impl haul_status {
    /// The messages of what channels return.
    const fn channel_message(self) -> &'static CStr {
        match self {
            Self::HAUL_ERROR_PEER_GONE => {
                c"the peer left before the transfer was complete; connect anew and send it again"
            }
            Self::HAUL_ERROR_CLOSED => {
                c"the peer closed the channel; connect anew for more"
            }
            Self::HAUL_ERROR_DEADLINE => {
                c"the peer did not move in time; look what it does, or allow more in the options"
            }
            Self::HAUL_ERROR_TOO_SMALL => {
                c"the message does not fit; give a larger target, or call haul_channel_recv()"
            }
            Self::HAUL_ERROR_TOO_LONG => {
                c"the message is over size_max; send it in parts, or raise size_max at both ends"
            }
            Self::HAUL_ERROR_UNAVAILABLE => {
                c"the mechanism cannot be had with this peer; leave the choice to haul"
            }
            Self::HAUL_ERROR_PROTOCOL => {
                c"what the peer said or handed over was refused; use one version of haul, and do not trust this peer"
            }
            Self::HAUL_ERROR_BROKEN => {
                c"a transfer failed or was given up earlier, or another process uses the channel since a fork; connect anew"
            }
            _ => c"the message changed on its way; connect anew and send it again, and look at this machine's memory",
        }
    }
}

/// What a status means, with the remedy, as one line of English. Never NULL; the text is static and
/// not to be freed. Any number is fine: one that is no status gets a text that says so.
#[unsafe(no_mangle)]
pub extern "C" fn haul_strerror(status: c_int) -> *const c_char {
    let known = haul_status::ALL.into_iter().find(|known| *known as c_int == status);
    known.map_or(c"not a status of this version of libhaul", haul_status::message).as_ptr()
}
