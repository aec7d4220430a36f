//! The blocks of one class that a thread holds, ready to be handed out.
//!
//! A request takes what the last free left, and that free knows its bin only after three lookups.
//! Some processors (seen on Intel 6-167) give a load what an earlier store holds before either
//! address is known, but only where both name their address by one register and a constant. So a
//! bin and its entries are addressed that way: where a register for an index was added, each pair
//! of a request and a free waited for the lookups of the pair before it (64 B: 8.6 ns, else 3.6).

use crate::protocol::class::BIN_SLOTS_MAX;
use crate::protocol::word::SliceWord;
use crate::sync::AtomicU32;

/// Blocks by their offsets in units. What a free stores for the next request so comes of the
/// block's address alone: the time of a pair is not that of finding the block's class.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bin {
    /// How many of `units` are held, from the first on.
    pub(crate) count: AtomicU32,
    pub(crate) units: [AtomicU32; BIN_SLOTS_MAX],
}

/// From one bin to the next, for each byte from one form to the next.
const BIN_PER_FORM: usize = size_of::<Bin>() / SliceWord::FORM_UNIT;

impl Bin {
    /// From where a cache's bins start to where that of form 0 would be, if there were one.
    pub(crate) fn origin(bins: &[Self]) -> *const Self {
        bins.as_ptr().wrapping_byte_sub(SliceWord::form_of_span(0) * BIN_PER_FORM)
    }

    /// The bin of the class whose spans have this form.
    ///
    /// # Safety
    /// The form is that of a span of a class, and the origin that of a cache's bins, which has one
    /// for each class and lives as long as `'a`.
    #[inline(always)]
    pub(crate) unsafe fn of_form<'a>(origin: *const Self, form: usize) -> &'a Self {
        let bin = origin.wrapping_byte_add(form * BIN_PER_FORM);
        // SAFETY: one of the cache's bins, as the caller promises, and made of atomics.
        by_one_register(unsafe { &*bin })
    }

    /// The entry at an index; `None` where no bin has one.
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

/// The same place, whose address the compiler has to compute before it is used.
#[inline(always)]
fn by_one_register<T>(place: &T) -> &T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::ptr;
        let mut address = ptr::from_ref(place).addr();
        // SAFETY: no instruction at all, so the register keeps its value.
        unsafe {
            core::arch::asm!(
                "/* {0} */",
                inout(reg) address,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        // SAFETY: still the address of `place`, with its provenance.
        unsafe { &*ptr::from_ref(place).with_addr(address) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    place
}

const _: () = assert!(size_of::<Bin>() == 256);
