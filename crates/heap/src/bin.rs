//! The blocks of one class that a thread holds, ready to be handed out.
//!
//! A request takes the block that the last free left. That free knows its bin only after three
//! lookups. Some processors (seen on Intel 6-167) forward an earlier store to a load before either
//! address is known, but only if both compute their address from one register and a constant. So a
//! bin and its entries are addressed like this. With an index register, each request and its free
//! waited for the lookups of the one before (64 B: 8.6 ns, otherwise 3.6).

use crate::protocol::class::BIN_SLOTS_MAX;
use crate::protocol::word::SliceWord;
use crate::sync::AtomicU32;

/// Blocks by their offsets in units. A free stores for the next request a value that depends on the
/// block's address alone, so the request does not wait for the lookup of the block's class.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Bin {
    /// How many of `units` are held, from the first on.
    pub(crate) count: AtomicU32,
    pub(crate) units: [AtomicU32; BIN_SLOTS_MAX],
}

/// Bytes from one bin to the next, for each byte from one form to the next.
const BIN_PER_FORM: usize = size_of::<Bin>() / SliceWord::FORM_UNIT;

impl Bin {
    /// The address at which the bin of form 0 would be if there were one, from the start of a
    /// cache's bins.
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

    /// The entry at an index; `None` if a bin has no such entry.
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

/// The same reference, with an address that the compiler must compute before it is used.
#[inline(always)]
fn by_one_register<T>(value: &T) -> &T {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::ptr;
        let mut address = ptr::from_ref(value).addr();
        // SAFETY: no instruction at all, so the register keeps its value.
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
