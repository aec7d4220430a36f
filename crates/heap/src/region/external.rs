//! External memory: a heap whose data lies in the address range of another allocator, such as
//! DPDK's, and whose metadata lies in an area that the caller shares between its processes.

use core::ptr::NonNull;

use crate::error::Error;
use crate::layout::{ALIGN_MAX, DATA_MAX, Geometry, Layout, PAGE, SLICE};

/// A provider of memory for a heap. An extent ends at a multiple of [`EXTENT_BYTES`]. It begins
/// at such a multiple, or later in a page at a multiple of [`EXTENT_STEP`]; then the provider
/// keeps the part of that page before the extent.
///
/// If a process dies between [`Extents::take`] and the heap's record of the extent, the provider
/// loses the extent. Nothing else depends on it.
///
/// # Safety
///
/// The heap reads, writes and hands out the returned memory. So
///
/// - an extent lies in the range of the [`External`] that names the implementation, has as many
///   bytes as [`Extents::take`] says, and overlaps no other extent that the heap holds;
/// - when [`Extents::take`] returns, an extent is readable and writable at the same address in
///   every process of the heap; it stays so until the heap gives it back or no longer exists, and
///   only the heap and the owners of its blocks use it;
/// - no method calls the heap that the implementation serves, and none unwinds.
pub unsafe trait Extents: Sync {
    /// Returns an extent of at least `bytes` within the heap's range, with its size in bytes, or
    /// `None` if there is none. The part of the first page that the provider keeps counts towards
    /// `bytes`, but not towards the returned size.
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)>;

    /// Takes back whole pages that begin and end at a multiple of [`EXTENT_BYTES`], including the
    /// parts that the provider kept. If it returns false, the heap keeps them.
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

/// Memory of the caller for a heap.
#[derive(Clone, Copy)]
pub struct External {
    /// The start of the range of the extents; the same address in every process.
    pub base: NonNull<u8>,
    /// The length of the range in bytes: at most 256 GiB, less the distance from the next lower
    /// multiple of 1 GiB to `base`.
    pub bytes: usize,
    /// The provider of extents.
    pub extents: &'static dyn Extents,
    /// The area of the metadata, which every process sees. It was all zeros when the first
    /// process built the heap, is aligned to 4 KiB, and has at least [`External::metadata_bytes`]
    /// bytes. Its second 64 KiB are not used and are inaccessible while the heap lives, so that a
    /// lock of all memory (mlockall) does not populate the part behind them. `None` keeps the
    /// metadata private, for a heap of one process.
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
    /// Bytes that the metadata of a heap over `[base, base + bytes)` with `caches` threads needs.
    ///
    /// # Errors
    ///
    /// [`Error::BadExternal`] if no heap can have this range.
    pub fn metadata_bytes(base: usize, bytes: usize, caches: u32) -> Result<usize, Error> {
        let (_, geometry) = shape(base, bytes, caches)?;
        Ok(Layout::of(&geometry).bytes)
    }

    /// The base of the data range, aligned as every heap's is, and the heap's shape.
    pub(super) fn shape(&self, caches: u32) -> Result<(usize, Geometry), Error> {
        shape(self.base.addr().get(), self.bytes, caches)
    }

    /// Whether an address lies in the range.
    pub(crate) fn has(&self, address: usize) -> bool {
        address.wrapping_sub(self.base.addr().get()) < self.bytes
    }

    /// The pages that the range covers entirely, as `[first, end)` counted from the data's base.
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
