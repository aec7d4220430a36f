//! Memory of the caller's: a heap whose data lies in the address range of another allocator, DPDK's
//! for one, and whose metadata lies in an area that the caller shares between its processes.

use core::ptr::NonNull;

use crate::error::Error;
use crate::layout::{ALIGN_MAX, DATA_MAX, Geometry, Layout, PAGE, SLICE};

/// Gives a heap memory, and takes it back. Extents end at a multiple of [`EXTENT_BYTES`] and begin
/// at one, or later in that page at a multiple of [`EXTENT_STEP`]: what lies before stays the
/// provider's.
///
/// A process that dies between [`Extents::take`] and the heap's own record of it loses the extent
/// to the provider; nothing else depends on it.
///
/// # Safety
///
/// The heap reads, writes and hands out what an implementation returns. So
///
/// - an extent lies in the range of the [`External`] that names the implementation, has as many
///   bytes as [`Extents::take`] says, and overlaps no other extent that the heap has;
/// - when [`Extents::take`] returns, an extent is readable and writable at the same address in
///   every process of the heap; it stays so until the heap gives it back or is gone, and only the
///   heap and the owners of its blocks use it;
/// - no method calls the heap that the implementation serves, and none unwinds.
pub unsafe trait Extents: Sync {
    /// An extent of at least `bytes` within the heap's range, with the bytes that it has; `None`
    /// where there is none. What the provider keeps of the first page counts for `bytes`, and not
    /// for what the extent has.
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)>;

    /// Takes whole pages back that begin and end at a multiple of [`EXTENT_BYTES`], what the
    /// provider kept of them included; false where it will not, and the heap keeps them then.
    fn give_back(&self, start: NonNull<u8>, bytes: usize) -> bool;

    /// The bus address of a byte in the heap's range; `None` where it is not known.
    fn bus_address(&self, _address: NonNull<u8>) -> Option<u64> {
        None
    }
}

/// What extents begin and end at multiples of: 2 MiB.
pub const EXTENT_BYTES: usize = PAGE;

/// What extents can begin at multiples of: 64 KiB.
pub const EXTENT_STEP: usize = SLICE;

/// The caller's memory.
#[derive(Clone, Copy)]
pub struct External {
    /// Where the range begins that extents lie in; the same in every process.
    pub base: NonNull<u8>,
    /// How long the range is, in bytes: at most 256 GiB less what `base` lies above a multiple of
    /// 1 GiB.
    pub bytes: usize,
    /// Where extents come from.
    pub extents: &'static dyn Extents,
    /// Where the metadata goes: an area that was all zeros when the first process came, seen by all
    /// of them, aligned to 4 KiB and of at least [`External::metadata_bytes`]. Its second 64 KiB
    /// are not used, and inaccessible while the heap lives, so that a lock of all memory (mlockall)
    /// does not populate what lies behind. `None` keeps the metadata private, for a heap of one
    /// process.
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

// SAFETY: the pointers name areas that the caller shares between threads anyway; this type only
// carries them, and the extents are `Sync`.
unsafe impl Send for External {}

impl External {
    /// Bytes that the metadata of a heap over `[base, base + bytes)` with `caches` threads needs.
    ///
    /// # Errors
    ///
    /// [`Error::BadExternal`] for a range that no heap can have.
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
