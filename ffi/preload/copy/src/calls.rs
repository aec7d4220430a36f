//! memcpy and related functions, under libc's names and with libc's contracts; memcpy is memmove,
//! so that it serves old programs, whose `memcpy@GLIBC_2.2.5` may overlap.
//!
//! No function here unwinds. The convention `C-unwind` says otherwise, because the compiler would
//! add code to every other function that ends the process on unwinding, and that code would link
//! the standard library, with its thread-local storage, to this one.

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use haul_kernels::{c, early};
use haul_model::profile::layout::{WORK_OF_A_CALL, kind};

use crate::sys::ThreadWords;
use crate::{profile, ready};

unsafe extern "C" {
    /// Reports an overflow and aborts, for the functions with a check.
    fn __chk_fail() -> !;
}

/// Exports functions. The text `$first` brings the arguments into the order of memmove or memset.
/// If the mode is plain, a jump to `$kernel` follows. If calls are profiled, the function counts
/// the work of the call down, and the same jump follows until the count is over; it is here
/// because nearly all calls of a profiled program take this path. Otherwise the function jumps to
/// `$otherwise`, and passes on the kind `$kind` and its return address as the fourth and fifth
/// argument. A signal handler that counts meanwhile loses at most its own count.
macro_rules! exported {
    ($($name:ident, $first:literal, $kernel:path, $otherwise:path, $kind:path;)*) => {$(
        /// # Safety
        /// The obligations of libc's function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            naked_asm!(
                ".cfi_startproc",
                $first,
                "cmp byte ptr [rip + {mode}], {unready}",
                "jae 2f",
                "jmp {kernel}",
                "2:",
                "je 3f",
                "mov r9, qword ptr [rip + haul_copy_thread@GOTTPOFF]",
                "lea r10, [rdx + {work}]",
                "sub qword ptr fs:[r9], r10",
                "jle 3f",
                "jmp {kernel}",
                "3:",
                "mov ecx, {kind}",
                "mov r8, qword ptr [rsp]",
                "jmp {otherwise}",
                "4:",
                "jmp {fail}",
                ".cfi_endproc",
                mode = sym ready::MODE, unready = const ready::UNREADY,
                work = const WORK_OF_A_CALL, kind = const $kind,
                kernel = sym $kernel, otherwise = sym $otherwise, fail = sym fail,
            );
            #[cfg(target_arch = "aarch64")]
            naked_asm!(
                ".cfi_startproc",
                $first,
                "adrp x9, {mode}",
                "ldrb w9, [x9, :lo12:{mode}]",
                "cmp w9, {unready}",
                "b.hs 2f",
                "b {kernel}",
                "2:",
                "b.eq 3f",
                "mrs x9, tpidr_el0",
                "adrp x10, :gottprel:haul_copy_thread",
                "ldr x10, [x10, :gottprel_lo12:haul_copy_thread]",
                "add x11, x2, {work}",
                "ldr x12, [x9, x10]",
                "subs x12, x12, x11",
                "str x12, [x9, x10]",
                "b.le 3f",
                "b {kernel}",
                "3:",
                "mov w3, {kind}",
                "mov x4, x30",
                "b {otherwise}",
                "4:",
                "b {fail}",
                ".cfi_endproc",
                mode = sym ready::MODE, unready = const ready::UNREADY,
                work = const WORK_OF_A_CALL, kind = const $kind,
                kernel = sym $kernel, otherwise = sym $otherwise, fail = sym fail,
            );
        }
    )*};
}

// One comparison distinguishes the three modes. The countdown is the first word of a thread, and
// an instruction of aarch64 adds at most 4095.
const _: () = assert!(ready::PLAIN < ready::UNREADY && ready::UNREADY < ready::PROFILED);
const _: () = assert!(offset_of!(ThreadWords, countdown) == 0 && WORK_OF_A_CALL < 4096);

#[cfg(target_arch = "x86_64")]
exported! {
    memcpy, "", c::memcpy, copy, kind::MEMCPY;
    memmove, "", c::memmove, copy, kind::MEMMOVE;
    memset, "", c::memset, fill, kind::FILL;
    bcopy, "xchg rdi, rsi", c::memmove, copy, kind::MEMMOVE;
    bzero, "mov rdx, rsi\nxor esi, esi", c::memset, fill, kind::FILL;
    __bzero, "mov rdx, rsi\nxor esi, esi", c::memset, fill, kind::FILL;
    explicit_bzero, "mov rdx, rsi\nxor esi, esi", c::memset, fill, kind::FILL;
    mempcpy, "", copy_to_end, copy_to_end_otherwise, kind::MEMCPY;
    __mempcpy, "", copy_to_end, copy_to_end_otherwise, kind::MEMCPY;
    __memcpy_chk, "cmp rcx, rdx\njb 4f", c::memcpy, copy, kind::MEMCPY;
    __memmove_chk, "cmp rcx, rdx\njb 4f", c::memmove, copy, kind::MEMMOVE;
    __mempcpy_chk, "cmp rcx, rdx\njb 4f", copy_to_end, copy_to_end_otherwise, kind::MEMCPY;
    __memset_chk, "cmp rcx, rdx\njb 4f", c::memset, fill, kind::FILL;
    __explicit_bzero_chk, "cmp rdx, rsi\njb 4f\nmov rdx, rsi\nxor esi, esi", c::memset, fill,
        kind::FILL;
}

#[cfg(target_arch = "aarch64")]
exported! {
    memcpy, "", c::memcpy, copy, kind::MEMCPY;
    memmove, "", c::memmove, copy, kind::MEMMOVE;
    memset, "", c::memset, fill, kind::FILL;
    bcopy, "mov x9, x0\nmov x0, x1\nmov x1, x9", c::memmove, copy, kind::MEMMOVE;
    bzero, "mov x2, x1\nmov w1, wzr", c::memset, fill, kind::FILL;
    __bzero, "mov x2, x1\nmov w1, wzr", c::memset, fill, kind::FILL;
    explicit_bzero, "mov x2, x1\nmov w1, wzr", c::memset, fill, kind::FILL;
    mempcpy, "", copy_to_end, copy_to_end_otherwise, kind::MEMCPY;
    __mempcpy, "", copy_to_end, copy_to_end_otherwise, kind::MEMCPY;
    __memcpy_chk, "cmp x3, x2\nb.lo 4f", c::memcpy, copy, kind::MEMCPY;
    __memmove_chk, "cmp x3, x2\nb.lo 4f", c::memmove, copy, kind::MEMMOVE;
    __mempcpy_chk, "cmp x3, x2\nb.lo 4f", copy_to_end, copy_to_end_otherwise, kind::MEMCPY;
    __memset_chk, "cmp x3, x2\nb.lo 4f", c::memset, fill, kind::FILL;
    __explicit_bzero_chk, "cmp x2, x1\nb.lo 4f\nmov x2, x1\nmov w1, wzr", c::memset, fill,
        kind::FILL;
}

/// A copy that is sampled, or that comes before kernels may run.
///
/// # Safety
/// The obligations of memmove.
#[cold]
unsafe extern "C-unwind" fn copy(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    kind: u32,
    site: usize,
) -> *mut c_void {
    if !ready::is_profiled() {
        // SAFETY: the caller's promise.
        return unsafe { first_copy(target, source, size) };
    }
    profile::sample(target.addr(), source.addr(), size, kind, site);
    // SAFETY: the caller's promise.
    unsafe { c::memmove(target, source, size) }
}

/// A copy before kernels may run.
///
/// # Safety
/// The obligations of memmove.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn first_copy(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
) -> *mut c_void {
    if !ready::may_run() {
        // SAFETY: the caller's promise.
        unsafe { early::copy(target.cast(), source.cast(), size) };
        return target;
    }
    // SAFETY: the caller's promise.
    unsafe { c::memmove(target, source, size) }
}

/// A fill that is sampled, or that comes before kernels may run.
///
/// # Safety
/// The obligations of memset.
#[cold]
unsafe extern "C-unwind" fn fill(
    target: *mut c_void,
    byte: c_int,
    size: usize,
    kind: u32,
    site: usize,
) -> *mut c_void {
    if !ready::is_profiled() {
        // SAFETY: the caller's promise.
        return unsafe { first_fill(target, byte, size) };
    }
    let kind = if byte as u8 == 0 { kind::ZERO } else { kind };
    profile::sample(target.addr(), 0, size, kind, site);
    // SAFETY: the caller's promise.
    unsafe { c::memset(target, byte, size) }
}

/// A fill before kernels may run.
///
/// # Safety
/// The obligations of memset.
#[cold]
#[inline(never)]
unsafe extern "C-unwind" fn first_fill(
    target: *mut c_void,
    byte: c_int,
    size: usize,
) -> *mut c_void {
    if !ready::may_run() {
        // memset uses the lowest eight bits.
        // SAFETY: the caller's promise.
        unsafe { early::fill(target.cast(), byte as u8, size) };
        return target;
    }
    // SAFETY: the caller's promise.
    unsafe { c::memset(target, byte, size) }
}

/// mempcpy's copy: returns the end of the target.
///
/// # Safety
/// The obligations of memmove.
unsafe extern "C-unwind" fn copy_to_end(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { c::memmove(target, source, size) }.wrapping_byte_add(size)
}

/// [`copy`] for mempcpy.
///
/// # Safety
/// The obligations of memmove.
unsafe extern "C-unwind" fn copy_to_end_otherwise(
    target: *mut c_void,
    source: *const c_void,
    size: usize,
    kind: u32,
    site: usize,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { copy(target, source, size, kind, site) }.wrapping_byte_add(size)
}

/// Ends the process as libc does if the target is smaller than the call.
unsafe extern "C-unwind" fn fail() -> ! {
    // SAFETY: the call has no conditions.
    unsafe { __chk_fail() }
}
