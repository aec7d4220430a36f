//! Device addresses and their kind. The addresses are physical if the kernel shows them to this
//! process. External memory has the addresses that its provider reports. Otherwise the addresses
//! are virtual, for a device behind an IOMMU or an emulated device.

use core::ptr::NonNull;

use crate::fault::AllocError;
use crate::heap::Heap;
use crate::layout::PAGE;
use crate::protocol::word::PageWord;
use crate::region::backing::Backing;
use crate::request::Request;
use crate::sys::machine;

/// A device address and its kind. The kind decides which devices may use the address. With an
/// address of the wrong kind, a device reads and writes memory that does not belong to the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Iova {
    /// A physical address that the kernel reported. For memory from the pool of huge pages, the
    /// address is valid while the block lives. The kernel may move other pages unless they are
    /// locked. (DPDK: IOVA as PA.)
    Physical(u64),
    /// The address that the provider of the heap's external memory reports: see
    /// [`Extents::bus_address`](crate::Extents::bus_address).
    Provided(u64),
    /// The process's own virtual address, because no physical address is known: the process lacks
    /// `CAP_SYS_ADMIN`, or the page was not touched yet. Valid only for a device behind an IOMMU
    /// that maps this process's addresses (DPDK: IOVA as VA), and for an emulated device.
    Virtual(u64),
}

impl Iova {
    /// The address as a number, without its kind.
    pub const fn address(self) -> u64 {
        match self {
            Self::Physical(address) | Self::Provided(address) | Self::Virtual(address) => address,
        }
    }

    /// The physical address; `None` if it is not known.
    pub const fn physical(self) -> Option<u64> {
        match self {
            Self::Physical(address) => Some(address),
            Self::Provided(_) | Self::Virtual(_) => None,
        }
    }
}

/// The most blocks that are tried to find a contiguous one.
const TRIES: usize = 16;

impl Heap {
    /// The device address of a byte in the heap, and the kind of the address. Three system calls,
    /// or one call to the provider of external memory.
    ///
    /// ```
    /// use haul_heap::{Heap, Iova, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).build()?;
    /// let buffer = heap.alloc_contiguous(Request::new(4096).aligned(4096))?;
    /// match heap.iova(buffer) {
    ///     Iova::Physical(address) => println!("a device may use {address:#x}"),
    ///     other => println!("only a device behind an IOMMU may use {:#x}", other.address()),
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn iova(&self, pointer: NonNull<u8>) -> Iova {
        let address = pointer.as_ptr().addr();
        let known = match self.memory.region.external() {
            Some(external) if external.has(address) => {
                external.extents.bus_address(pointer).map(Iova::Provided)
            }
            // The provider knows only the addresses in its own range.
            Some(_) => None,
            None => machine::physical_address(address).map(Iova::Physical),
        };
        known.unwrap_or(Iova::Virtual(address as u64))
    }

    /// How many bytes from `pointer` on, at most `limit`, also have contiguous device addresses.
    /// Three system calls per 4 KiB, or per 2 MiB of memory from the pool.
    pub fn contiguous(&self, pointer: NonNull<u8>, limit: usize) -> usize {
        let first = self.iova(pointer);
        let mut length = 0;
        while length < limit {
            let Some(next) = NonNull::new(pointer.as_ptr().wrapping_add(length)) else { break };
            let iova = self.iova(next);
            let follows = iova.address() == first.address().wrapping_add(length as u64);
            let is_alike = core::mem::discriminant(&iova) == core::mem::discriminant(&first);
            if !follows || !is_alike {
                break;
            }
            // The bytes of one backing page are contiguous.
            let step = self.backing_bytes(next);
            length += step - next.addr().get() % step;
        }
        length.min(limit)
    }

    /// Allocates a block with contiguous device addresses. Any block of up to 2 MiB from the pool
    /// of huge pages has them, like any block with virtual addresses. For other memory, the call
    /// tries several blocks.
    ///
    /// # Errors
    /// Those of [`Heap::alloc`]; [`AllocError::Exhausted`] if none of the blocks tried is
    /// contiguous.
    pub fn alloc_contiguous(&self, request: Request) -> Result<NonNull<u8>, AllocError> {
        let size = request.size;
        let mut tried: [Option<NonNull<u8>>; TRIES] = [None; TRIES];
        let mut result = Err(AllocError::Exhausted);
        for slot in &mut tried {
            let block = match self.alloc_within_page(request) {
                Ok(block) => block,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            self.touch(block, size);
            if self.contiguous(block, size) >= size {
                result = Ok(block);
                break;
            }
            *slot = Some(block);
        }
        for block in tried.into_iter().flatten() {
            // SAFETY: allocated above and not handed out. A free of a live block cannot fail.
            let _ = unsafe { self.free(block) };
        }
        result
    }

    /// Writes to each page of a new block, because a page without memory has no physical address.
    fn touch(&self, block: NonNull<u8>, size: usize) {
        let step = machine::page_bytes();
        for offset in (0..size).step_by(step) {
            // SAFETY: within the block, which was just allocated and has no other user.
            let byte = unsafe { block.add(offset) };
            // SAFETY: as above.
            unsafe { byte.write_volatile(0) };
        }
    }

    /// Bytes of the memory page that contains a byte of the heap.
    fn backing_bytes(&self, pointer: NonNull<u8>) -> usize {
        let offset =
            pointer.as_ptr().addr().wrapping_sub(self.memory.region.data().as_ptr().addr());
        let word = self.memory.tables.pages().get(offset / PAGE);
        let word = word.map(|word| PageWord(word.load(crate::sync::Ordering::Relaxed)));
        match word.map(|word| Backing::from_number(word.backing())) {
            Some(Backing::Huge2M | Backing::Huge1G) => PAGE,
            _ => machine::page_bytes(),
        }
    }
}
