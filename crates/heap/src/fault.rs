//! What goes wrong: with a request, and with a pointer that a caller brings back.

use core::fmt;

use crate::layout::ALIGN_MAX;

/// Why a block was not allocated. As wide as a pointer, so that a `Result` of one comes back in
/// two registers and not in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[non_exhaustive]
pub enum AllocError {
    /// The size, rounded up to its alignment, is larger than the heap's limit.
    TooLarge,
    /// The alignment is not a power of two, or is above 1 GiB.
    BadAlign,
    /// No run of free memory is long enough, or the kernel gives no more.
    Exhausted,
    /// The heap has no such NUMA node.
    NoNode,
    /// All cache records are taken, also those that are kept for threads which find no other.
    TooManyThreads,
    /// This process came from a fork, and all places for processes are taken by live ones.
    TooManyProcesses,
    /// Memory of the heap's file was gone as it was touched: another process has cut the file
    /// short, or punched a hole into it where no page is left.
    Gone,
}

impl AllocError {
    /// By number.
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
                "the alignment is not a power of two up to {ALIGN_MAX}: ask for one that is"
            ),
            Self::Exhausted => f.write_str(
                "no free run of memory is long enough: free blocks, raise the heap's limit, or give \
                 the machine more memory",
            ),
            Self::NoNode => {
                f.write_str("the heap has no such NUMA node: name one that it was built with")
            }
            Self::TooManyThreads => f.write_str(
                "every cache of the heap belongs to a thread that lives: end threads, or build the \
                 heap with more caches",
            ),
            Self::TooManyProcesses => f.write_str(
                "every place for a process belongs to one that lives: end processes that share the heap",
            ),
            Self::Gone => f.write_str(
                "memory of the heap's file is gone, for another process has cut the file short or \
                 punched a hole into it: drop the heap, find that process, and make a new one",
            ),
        }
    }
}

impl core::error::Error for AllocError {}

/// What a wrong pointer was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The start of a block that is free already.
    Double,
    /// In the heap's range, where no block is.
    Wild,
    /// Within a block, not at its start.
    Interior,
    /// Outside the heap's range.
    Foreign,
    /// The metadata of the block, or (in debug mode) the bytes around it, are not what the heap
    /// wrote.
    Scribbled,
}

impl Fault {
    /// The fault in a word, as reports spell it.
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

/// A pointer that does not name a live block of the heap, or a block that was written beside.
/// Nothing was changed when it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Misuse {
    /// What was wrong.
    pub fault: Fault,
    /// The address that was brought.
    pub address: usize,
    /// Bytes of the blocks in the span that it points into; `None` where it points into none.
    pub class_bytes: Option<usize>,
    /// Who holds the block.
    pub owner: Owner,
}

/// Who holds a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Owner {
    /// Nobody, or it is not known.
    Nobody,
    /// The cache of a thread, by its number: the block is free.
    Cache(u16),
    /// A process, by its slot in the heap, and the tag that it gave: the block is live.
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
            Fault::Double => f.write_str("double: the block is free already")?,
            Fault::Wild => f.write_str("wild: no block is there")?,
            Fault::Interior => f.write_str("interior: it is not the start of a block")?,
            Fault::Foreign => f.write_str("foreign: it is outside the heap")?,
            Fault::Scribbled => f.write_str("scribbled: something wrote beside its own block")?,
        }
        if let Some(bytes) = self.class_bytes {
            write!(f, "; blocks there have {bytes} bytes")?;
        }
        match self.owner {
            Owner::Nobody => {}
            Owner::Cache(cache) => write!(f, "; held by cache {cache}")?,
            Owner::Process { process, tag } => {
                write!(f, "; live for process {process} under tag {tag}")?;
            }
        }
        f.write_str("; free a block once, by the pointer that it was allocated as")
    }
}

impl core::error::Error for Misuse {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn a_misuse_says_address_class_and_owner() {
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
    fn a_result_comes_back_in_two_registers() {
        assert!(size_of::<Result<core::ptr::NonNull<u8>, AllocError>>() <= 16);
    }
}
