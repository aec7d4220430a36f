//! The functions under test: every kernel that this processor can run, and every entry of the
//! dispatch, with one signature.

use haul_copy::kernel::{self, CopyFn, FillFn};
use haul_copy::{Hint, Isa};

/// A function that copies.
#[derive(Clone, Copy)]
pub(crate) struct Copier {
    pub(crate) name: &'static str,
    pub(crate) call: CopyFn,
    /// Whether source and target may overlap. Rust's slices cannot.
    pub(crate) may_overlap: bool,
    /// Whether this function only calls code that is tested under another name.
    pub(crate) is_alias: bool,
}

/// A function that fills.
#[derive(Clone, Copy)]
pub(crate) struct Filler {
    pub(crate) name: &'static str,
    pub(crate) call: FillFn,
}

/// Every kernel that can run here, then every entry of the dispatch.
pub(crate) fn copiers() -> Vec<Copier> {
    let kernels = kernel::copies().iter().filter_map(|kernel| {
        let call = kernel.function()?;
        Some(Copier { name: kernel.name(), call, may_overlap: true, is_alias: false })
    });
    let all = kernels.chain(dispatching_copiers());
    // Miri interprets every instruction, so aliases are not tested under Miri.
    all.filter(|copier| !(cfg!(miri) && copier.is_alias)).collect()
}

/// Every kernel that can run here, then every entry of the dispatch.
pub(crate) fn fillers() -> Vec<Filler> {
    let kernels = kernel::fills().iter().filter_map(|kernel| {
        let call = kernel.function()?;
        Some(Filler { name: kernel.name(), call })
    });
    kernels.chain(dispatching_fillers()).collect()
}

/// The public functions, which choose a kernel themselves.
pub(crate) fn dispatching_copiers() -> [Copier; 10] {
    let of = |name, call| Copier { name, call, may_overlap: true, is_alias: false };
    let alias = |name, call| Copier { name, call, may_overlap: true, is_alias: true };
    [
        of("raw::memcpy", raw_memcpy),
        of("raw::memmove", raw_memmove),
        of("c::memcpy", c_memcpy),
        // The same source as memcpy, compiled a second time.
        alias("c::memmove", c_memmove),
        of("c::memmove_above_64", c_memmove_above_64),
        alias("hinted unknown", hinted_unknown),
        alias("hinted streamed", hinted_streamed),
        alias("hinted read soon", hinted_read_soon),
        alias("hinted handover", hinted_handover),
        Copier { name: "copy", call: safe_copy, may_overlap: false, is_alias: false },
    ]
}

/// The public functions, which choose a kernel themselves.
pub(crate) fn dispatching_fillers() -> [Filler; 7] {
    let of = |name, call| Filler { name, call };
    [
        of("raw::memset", raw_memset),
        of("c::memset", c_memset),
        of("c::memset_above_64", c_memset_above_64),
        of("fill", safe_fill),
        of("hinted unknown", fill_unknown),
        of("hinted streamed", fill_streamed),
        of("hinted read soon", fill_read_soon),
    ]
}

/// Prints the instruction sets that were not tested, in the form that `scripts/test` counts.
pub(crate) fn report_missing_kernels() {
    let missing = kernel::copies().iter().filter(|kernel| !kernel.is_available());
    for kernel in missing {
        let feature = match kernel.isa() {
            Isa::Avx2 => "avx2",
            Isa::Avx512vl => "avx512vl",
            Isa::Avx512 => "avx512bw",
            _ => continue,
        };
        eprintln!(
            "SKIPPED: kernel {} natively: no CPU feature {feature}: run it on a processor that has it",
            kernel.name()
        );
    }
}

macro_rules! copy_entries {
    ($($name:ident: |$target:ident, $source:ident, $length:ident| $call:expr;)*) => {$(
        unsafe extern "C" fn $name(
            $target: *mut u8,
            $source: *const u8,
            $length: usize,
        ) -> *mut u8 {
            // SAFETY: the caller's promise is that of every copy.
            unsafe { $call }
        }
    )*};
}

copy_entries! {
    raw_memcpy: |target, source, length| {
        haul_copy::memcpy(target, source, length);
        target
    };
    raw_memmove: |target, source, length| {
        haul_copy::memmove(target, source, length);
        target
    };
    c_memcpy: |target, source, length| {
        haul_copy::c::memcpy(target.cast(), source.cast(), length).cast()
    };
    c_memmove: |target, source, length| {
        haul_copy::c::memmove(target.cast(), source.cast(), length).cast()
    };
    c_memmove_above_64: |target, source, length| {
        if length > 64 {
            haul_copy::c::memmove_above_64(target.cast(), source.cast(), length).cast()
        } else {
            haul_copy::c::memmove(target.cast(), source.cast(), length).cast()
        }
    };
    hinted_unknown: |target, source, length| {
        Hint::Unknown.copy_raw(target, source, length);
        target
    };
    hinted_streamed: |target, source, length| {
        Hint::Streamed.copy_raw(target, source, length);
        target
    };
    hinted_read_soon: |target, source, length| {
        Hint::ReadSoon.copy_raw(target, source, length);
        target
    };
    hinted_handover: |target, source, length| {
        Hint::Handover.copy_raw(target, source, length);
        target
    };
    safe_copy: |target, source, length| {
        let to = core::slice::from_raw_parts_mut(target, length);
        let from = core::slice::from_raw_parts(source, length);
        haul_copy::copy(to, from);
        target
    };
}

macro_rules! fill_entries {
    ($($name:ident: |$target:ident, $byte:ident, $length:ident| $call:expr;)*) => {$(
        unsafe extern "C" fn $name($target: *mut u8, $byte: i32, $length: usize) -> *mut u8 {
            // SAFETY: the caller's promise is that of every fill.
            unsafe { $call }
        }
    )*};
}

fill_entries! {
    raw_memset: |target, byte, length| {
        haul_copy::memset(target, byte as u8, length);
        target
    };
    c_memset: |target, byte, length| haul_copy::c::memset(target.cast(), byte, length).cast();
    c_memset_above_64: |target, byte, length| {
        if length > 64 {
            haul_copy::c::memset_above_64(target.cast(), byte, length).cast()
        } else {
            haul_copy::c::memset(target.cast(), byte, length).cast()
        }
    };
    safe_fill: |target, byte, length| {
        haul_copy::fill(core::slice::from_raw_parts_mut(target, length), byte as u8);
        target
    };
    fill_unknown: |target, byte, length| {
        Hint::Unknown.fill_raw(target, byte as u8, length);
        target
    };
    fill_streamed: |target, byte, length| {
        Hint::Streamed.fill_raw(target, byte as u8, length);
        target
    };
    fill_read_soon: |target, byte, length| {
        Hint::ReadSoon.fill_raw(target, byte as u8, length);
        target
    };
}
