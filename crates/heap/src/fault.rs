//! Errors of a request for a block, and of a pointer that a caller passes in.

use core::fmt;

use crate::layout::ALIGN_MAX;

/// Why a block was not allocated. The enum is as wide as a pointer, so that a `Result` with it is
/// returned in two registers and not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum AllocError {
    /// The size, rounded up to the alignment, is larger than the heap's limit.
    TooLarge,
    /// The alignment is not a power of two, or is above 1 GiB.
    BadAlign,
    /// No contiguous free memory is long enough, or the kernel provides no more memory.
    Exhausted,
    /// The heap has no such NUMA node.
    NoNode,
    /// All cache records are in use, including the spare ones.
    TooManyThreads,
    /// This process is a child of fork, and live processes hold all process slots.
    TooManyProcesses,
    /// A part of the heap's file has lost its memory: another process has truncated the file, or
    /// punched a hole into it, and the kernel has no page for the hole.
    Gone,
}

impl AllocError {
    /// All errors, by number.
    pub(crate) const ALL: [Self; 7] = [
        Self::TooLarge,
        Self::BadAlign,
        Self::Exhausted,
        Self::NoNode,
        Self::TooManyThreads,
        Self::TooManyProcesses,
        Self::Gone,
    ];
}

const _: () = {
    let mut number = 0;
    while number < AllocError::ALL.len() {
        assert!(AllocError::ALL[number] as usize == number);
        number += 1;
    }
};

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => {
                f.write_str("the size is above the heap's limit: raise the limit in the builder")
            }
            Self::BadAlign => write!(
                f,
                "the alignment is not a power of two up to {ALIGN_MAX}: request one that is"
            ),
            Self::Exhausted => f.write_str(
                "no free run of memory is long enough: free blocks, raise the heap's limit, or give \
                 the machine more memory",
            ),
            Self::NoNode => {
                f.write_str("the heap has no such NUMA node: request one of the heap's nodes")
            }
            Self::TooManyThreads => f.write_str(
                "every cache of the heap belongs to a live thread: end threads, or build the heap \
                 with more caches",
            ),
            Self::TooManyProcesses => f.write_str(
                "every process slot belongs to a live process: end a process that shares the heap",
            ),
            Self::Gone => f.write_str(
                "memory of the heap's file is gone, because another process truncated the file or \
                 punched a hole into it: drop the heap, find that process, and create a new heap",
            ),
        }
    }
}

impl core::error::Error for AllocError {}

/// What is wrong with a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The pointer is the start of a block that is already free.
    Double,
    /// The pointer is in the heap's address range, but not in a block.
    Wild,
    /// The pointer is inside a block, but not at its start.
    Interior,
    /// The pointer is outside the heap's address range.
    Foreign,
    /// The metadata of the block or, in debug mode, the bytes around it were overwritten.
    Scribbled,
}

impl Fault {
    /// The fault's name in reports: one word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Double => "double",
            Self::Wild => "wild",
            Self::Interior => "interior",
            Self::Foreign => "foreign",
            Self::Scribbled => "scribbled",
        }
    }
}

/// The error for a pointer that does not name a live block of the heap, or for a block that was
/// written past its end. A call that returns this error has not changed the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misuse {
    /// What was wrong.
    pub fault: Fault,
    /// The address that was passed in.
    pub address: usize,
    /// The block size of the span that the address points into; `None` if it points into no span.
    pub class_bytes: Option<usize>,
    /// The owner of the block.
    pub owner: Owner,
}

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// The block has no owner, or the owner is not known.
    Unknown,
    /// The cache of a thread, identified by its number: the block is free.
    Cache(u16),
    /// A process, identified by its slot in the heap, and the tag that the process set: the block
    /// is live.
    Process {
        /// Slot of the process.
        process: u8,
        /// Number of the tag.
        tag: u8,
    },
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "freeing {:#x}: ", self.address)?;
        match self.fault {
            Fault::Double => f.write_str("double: the block is already free")?,
            Fault::Wild => f.write_str("wild: it lies in no block")?,
            Fault::Interior => f.write_str("interior: it is not the start of a block")?,
            Fault::Foreign => f.write_str("foreign: it is outside the heap")?,
            Fault::Scribbled => {
                f.write_str("scribbled: the block's surroundings were overwritten")?
            }
        }
        if let Some(bytes) = self.class_bytes {
            write!(f, "; blocks there have {bytes} bytes")?;
        }
        match self.owner {
            Owner::Unknown => {}
            Owner::Cache(cache) => write!(f, "; held by cache {cache}")?,
            Owner::Process { process, tag } => {
                write!(f, "; live for process {process} under tag {tag}")?;
            }
        }
        f.write_str("; free each block once, with the pointer that its allocation returned")
    }
}

impl core::error::Error for Misuse {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn misuse_message_names_address_class_and_owner() {
        let misuse = Misuse {
            fault: Fault::Double,
            address: 0x1000,
            class_bytes: Some(4096),
            owner: Owner::Cache(7),
        };
        let text = misuse.to_string();
        for part in ["0x1000", "double", "4096 bytes", "cache 7"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn result_fits_two_registers() {
        assert!(size_of::<Result<core::ptr::NonNull<u8>, AllocError>>() <= 16);
    }
}
