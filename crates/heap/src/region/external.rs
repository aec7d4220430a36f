//! External memory: a heap in the address range of another allocator, such as DPDK's. Its
//! metadata is in an area that the caller shares between its processes.

use core::ptr::NonNull;

use crate::error::Error;
use crate::layout::{ALIGN_MAX, DATA_MAX, Geometry, Layout, PAGE, SLICE};

/// A provider of memory for a heap. An extent ends at a multiple of [`EXTENT_BYTES`]. It begins
/// at a multiple of [`EXTENT_STEP`]. If this is not a multiple of [`EXTENT_BYTES`], the provider
/// keeps the part of the page before the extent.
///
/// If a process dies after [`Extents::take`] returns and before the heap records the extent, the
/// extent is lost for the provider and the heap. There is no other effect.
///
/// # Safety
///
/// The heap reads, writes and hands out the returned memory. So:
///
/// - an extent is in the range of the [`External`] that contains this provider, has the number of
///   bytes that [`Extents::take`] returns, and overlaps no other extent that the heap holds;
/// - when [`Extents::take`] returns, the extent is readable and writable at the same address in
///   every process of the heap. This does not change until the heap gives the extent back or no
///   longer exists. Until then, only the heap and the owners of its blocks use the extent;
/// - no method calls the heap that the provider serves, and no method unwinds.
pub unsafe trait Extents: Sync {
    /// Returns an extent of at least `bytes` within the heap's range, and its size in bytes;
    /// `None` if there is no such extent. If the provider keeps a part of the first page, this
    /// part counts towards `bytes`, but not towards the returned size.
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)>;

    /// Takes back whole pages that begin and end at a multiple of [`EXTENT_BYTES`], including the
    /// parts that the provider kept. If this returns false, the heap keeps the pages.
    fn give_back(&self, start: NonNull<u8>, bytes: usize) -> bool;

    /// The bus address of a byte in the heap's range; `None` if it is not known.
    fn bus_address(&self, _address: NonNull<u8>) -> Option<u64> {
        None
    }
}

/// Extents end at multiples of this many bytes: 2 MiB.
pub const EXTENT_BYTES: usize = PAGE;

/// Extents begin at multiples of this many bytes: 64 KiB.
pub const EXTENT_STEP: usize = SLICE;

/// The caller's memory for a heap.
#[derive(Clone, Copy)]
pub struct External {
    /// The start of the range that contains all extents. It is the same address in every process.
    pub base: NonNull<u8>,
    /// The length of the range in bytes: at most 256 GiB minus the distance from the next lower
    /// multiple of 1 GiB to `base`.
    pub bytes: usize,
    /// The provider of extents.
    pub extents: &'static dyn Extents,
    /// The area for the metadata, which all processes share. It must contain only zeros when the
    /// first process builds the heap, be aligned to 4 KiB, and have at least
    /// [`External::metadata_bytes`] bytes. The heap makes its second 64 KiB, which it does not
    /// use, inaccessible while it lives. Otherwise a lock of all memory (mlockall) would populate
    /// the part after them. `None` is for a heap of one process, with private metadata.
    pub metadata: Option<(NonNull<u8>, usize)>,
}

impl core::fmt::Debug for External {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("External")
            .field("base", &self.base)
            .field("bytes", &self.bytes)
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

// SAFETY: the pointers name areas that the caller shares between threads; this type only carries
// them, and the extents are `Sync`.
unsafe impl Send for External {}

impl External {
    /// How many bytes of metadata a heap in `[base, base + bytes)` needs, if `caches` threads can
    /// have a cache.
    ///
    /// # Errors
    ///
    /// [`Error::BadExternal`] if the range is not suitable for a heap.
    pub fn metadata_bytes(base: usize, bytes: usize, caches: u32) -> Result<usize, Error> {
        let (_, geometry) = shape(base, bytes, caches)?;
        Ok(Layout::of(&geometry).bytes)
    }

    /// The base of the data range, aligned like the base of every heap, and the heap's shape.
    pub(super) fn shape(&self, caches: u32) -> Result<(usize, Geometry), Error> {
        shape(self.base.addr().get(), self.bytes, caches)
    }

    /// Whether an address is in the range.
    pub(crate) fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.base.addr().get()) < self.bytes
    }

    /// The pages that are entirely in the range, as `[first, end)`, counted from the data's base.
    pub(super) fn pages(&self) -> (usize, usize) {
        let base = self.base.addr().get();
        let data = base & !(ALIGN_MAX - 1);
        let first = (base - data).div_ceil(PAGE);
        (first, (base - data).saturating_add(self.bytes) / PAGE)
    }
}

fn shape(base: usize, bytes: usize, caches: u32) -> Result<(usize, Geometry), Error> {
    let bad = |field, value: usize, expected: usize| {
        Err(Error::BadExternal { field, value: value as u64, expected: expected as u64 })
    };
    let data = base & !(ALIGN_MAX - 1);
    let Some(reach) = bytes.checked_add(base - data).filter(|reach| *reach <= DATA_MAX) else {
        return bad("the range's size in bytes", bytes, DATA_MAX);
    };
    if bytes < 2 * PAGE {
        return bad("the range's size in bytes", bytes, 2 * PAGE);
    }
    if base.checked_add(bytes).is_none() {
        return bad("the range's base", base, usize::MAX - bytes);
    }
    let geometry = Geometry { nodes: 1, node_pages: (reach / PAGE) as u32, caches };
    if !geometry.is_valid() {
        return bad(
            "the number of caches",
            caches as usize,
            crate::protocol::word::CACHES_MAX as usize,
        );
    }
    Ok((data, geometry))
}
