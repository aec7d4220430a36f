//! `malloc` and related functions, under libc's names. Each of these functions calls the real
//! function and records the call.

use core::ffi::c_void;
use core::ptr::{self, NonNull};

use haul_model::trace::Call;

use crate::recorder::Recorder;
use crate::{early, real};

type Block = *mut c_void;

/// Calls `real` and records its result.
fn allocation(size: usize, align: usize, zeroed: bool, real: impl FnOnce() -> Block) -> Block {
    let Some(recorder) = Recorder::current() else { return real() };
    let start = Recorder::now();
    let block = real();
    let align_log2 = if align > 1 { align.trailing_zeros() as u8 } else { 0 };
    let (address, size) = (block.addr() as u64, size as u64);
    recorder.record_since(start, Call::Allocate { address, size, align_log2, zeroed, tag: 0 });
    block
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> Block {
    if !real::is_ready() {
        return early::allocate(size, 0).cast();
    }
    // SAFETY: the caller's promise.
    allocation(size, 0, false, || unsafe { real::malloc(size) })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> Block {
    if !real::is_ready() {
        return count
            .checked_mul(size)
            .map_or(ptr::null_mut(), |size| early::allocate(size, 0).cast());
    }
    // SAFETY: the caller's promise.
    allocation(count.saturating_mul(size), 0, true, || unsafe { real::calloc(count, size) })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: Block, size: usize) -> Block {
    let Some(held) = NonNull::new(block.cast::<u8>()) else {
        // SAFETY: the caller's promise; without a block, realloc is malloc.
        return unsafe { malloc(size) };
    };
    if let Some(old_size) = early::size_of(held) {
        // SAFETY: the caller's promise.
        let new = unsafe { malloc(size) };
        if !new.is_null() {
            // SAFETY: both blocks have at least that many bytes, and the new one does not overlap
            // the old one.
            unsafe { ptr::copy_nonoverlapping(held.as_ptr(), new.cast(), old_size.min(size)) };
        }
        return new;
    }
    if !real::is_ready() {
        // Before the real functions are known, every valid block is an early one.
        return ptr::null_mut();
    }
    let Some(recorder) = Recorder::current() else {
        // SAFETY: the caller's promise. A block that is not early came from the real functions.
        return unsafe { real::realloc(block, size) };
    };
    let start = Recorder::now();
    // SAFETY: as above.
    let new = unsafe { real::realloc(block, size) };
    let (old, address) = (block.addr() as u64, new.addr() as u64);
    if new.is_null() && size == 0 {
        // glibc has freed the old block.
        recorder.record_since(start, Call::Free { address: old });
    } else {
        let call = Call::Reallocate { old, new: address, size: size as u64, align_log2: 0, tag: 0 };
        recorder.record_since(start, call);
    }
    new
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: Block) {
    let Some(held) = NonNull::new(block.cast::<u8>()) else { return };
    if early::size_of(held).is_some() || !real::is_ready() {
        return;
    }
    // The free is recorded before the real call, because another thread may get the address after
    // that call.
    if let Some(recorder) = Recorder::current() {
        recorder.record(Call::Free { address: block.addr() as u64 });
    }
    // SAFETY: the caller's promise.
    unsafe { real::free(block) };
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(target: *mut Block, align: usize, size: usize) -> i32 {
    if !real::is_ready() {
        let block = early::allocate(size, align);
        if block.is_null() {
            return libc::ENOMEM;
        }
        // SAFETY: the caller's promise.
        unsafe { target.write(block.cast()) };
        return 0;
    }
    let mut status = libc::ENOMEM;
    allocation(size, align, false, || {
        // SAFETY: the caller's promise.
        status = unsafe { real::posix_memalign(target, align, size) };
        // SAFETY: if the call succeeded, it has written the block's address there.
        if status == 0 { unsafe { *target } } else { ptr::null_mut() }
    });
    status
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> Block {
    if !real::is_ready() {
        return early::allocate(size, align).cast();
    }
    // SAFETY: the caller's promise.
    allocation(size, align, false, || unsafe { real::aligned_alloc(align, size) })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> Block {
    if !real::is_ready() {
        return early::allocate(size, align).cast();
    }
    // SAFETY: the caller's promise.
    allocation(size, align, false, || unsafe { real::memalign(align, size) })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> Block {
    if !real::is_ready() {
        return early::allocate(size, page_bytes()).cast();
    }
    // SAFETY: the caller's promise.
    allocation(size, page_bytes(), false, || unsafe { real::valloc(size) })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> Block {
    if !real::is_ready() {
        return early::allocate(size, page_bytes()).cast();
    }
    // SAFETY: the caller's promise.
    allocation(size, page_bytes(), false, || unsafe { real::pvalloc(size) })
}

/// # Safety
/// The obligations of libc's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: Block) -> usize {
    let Some(held) = NonNull::new(block.cast::<u8>()) else { return 0 };
    if let Some(size) = early::size_of(held) {
        return size;
    }
    if !real::is_ready() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let size = unsafe { real::malloc_usable_size(block) };
    if let Some(recorder) = Recorder::current() {
        recorder.record(Call::Usable { address: block.addr() as u64, size: size as u64 });
    }
    size
}

fn page_bytes() -> usize {
    // SAFETY: the call reads the auxiliary vector that the kernel gave the process.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}
