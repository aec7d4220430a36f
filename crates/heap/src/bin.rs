//! The blocks of one class that a thread holds, ready to be handed out.
//!
//! A request takes the block that the last free left. The free knows the block's bin only after
//! three lookups. Some processors (seen on Intel 6-167) forward an earlier store to a load before
//! either address is known, but only if both compute their address from one register and a
//! constant. So the code computes the addresses of a bin and its entries from one register and a
//! constant. With an additional index register, each request and its free waited for the lookups
//! of the previous free (64 B: 8.6 ns instead of 3.6).

use crate::protocol::class::BIN_SLOTS_MAX;
use crate::protocol::word::SliceWord;
use crate::sync::AtomicU32;

/// The blocks, as offsets in units. This offset is what a free stores for the next request. It
/// depends on the block's address alone, so the request does not wait for the lookup of the
/// block's class.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bin {
    /// How many of `units`, from the first on, hold a block.
    pub(crate) count: AtomicU32,
    pub(crate) units: [AtomicU32; BIN_SLOTS_MAX],
}

/// The distance of consecutive bins in memory, divided by the distance of consecutive forms. A
/// form is part of a slice word.
const BIN_PER_FORM: usize = size_of::<Bin>() / SliceWord::FORM_UNIT;

impl Bin {
    /// The address that a bin for form 0 would have if a cache had one. It is computed from the
    /// address of the cache's first bin.
    pub(crate) fn origin(bins: &[Self]) -> *const Self {
        bins.as_ptr().wrapping_byte_sub(SliceWord::form_of_span(0) * BIN_PER_FORM)
    }

    /// The bin for the class with this span form.
    ///
    /// # Safety
    /// `form` is the form of a class's span. `origin` is the origin of a cache's bins, which
    /// contain a bin for each class and live as long as `'a`.
    #[inline(always)]
    pub(crate) unsafe fn of_form<'a>(origin: *const Self, form: usize) -> &'a Self {
        let bin = origin.wrapping_byte_add(form * BIN_PER_FORM);
        // SAFETY: one of the cache's bins, as the caller promises, and made of atomics.
        by_one_register(unsafe { &*bin })
    }

    /// The entry at an index; `None` if the index is at least [`BIN_SLOTS_MAX`].
    #[inline(always)]
    pub(crate) fn entry(&self, index: usize) -> Option<&AtomicU32> {
        self.units.get(index).map(by_one_register)
    }

    /// The entry at an index.
    ///
    /// # Safety
    /// The index is below [`BIN_SLOTS_MAX`].
    #[inline(always)]
    pub(crate) unsafe fn entry_at(&self, index: usize) -> &AtomicU32 {
        // SAFETY: within the bin, as the caller promises.
        by_one_register(unsafe { self.units.get_unchecked(index) })
    }
}

/// Returns `value`, but makes the compiler compute its address before the address is used.
#[inline(always)]
fn by_one_register<T>(value: &T) -> &T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::ptr;
        let mut address = ptr::from_ref(value).addr();
        // SAFETY: the assembly contains no instruction, so the register keeps its value.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inout(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: still the address of `value`, with its provenance.
        unsafe { &*ptr::from_ref(value).with_addr(address) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    value
}

const _: () = assert!(size_of::<Bin>() == 256);
