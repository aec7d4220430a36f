//! Memory for received messages.

use std::ffi::c_void;
use std::ptr;

use haul_rust::channel::Buffer;

use crate::account::{haul_channel_account, report};
use crate::argument::{give, take};
use crate::status::haul_status;

/// A received message, or memory to receive one into. The memory is private and writable.
#[derive(Debug)]
pub struct haul_channel_buffer {
    pub(crate) buffer: Buffer,
}

/// Creates zeroed memory of size bytes to receive into and writes it to buffer. Pass the address of
/// haul_channel_buffer_data(), or of any page after it, to haul_channel_recv_into(): if a message
/// is already in separate pages, these replace the pages of this memory without a copy. Memory of
/// 64 KiB and more gets pages from the system only when they are accessed.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM.
/// buffer is written only on HAUL_OK. The caller must free it with haul_channel_buffer_free().
///
/// # Safety
/// buffer is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_create(
    size: usize,
    buffer: *mut *mut haul_channel_buffer,
) -> haul_status {
    if size > isize::MAX as usize {
        return haul_status::HAUL_ERROR_ARGUMENT;
    }
    // SAFETY: the caller's promise.
    unsafe { give(buffer, || Ok(haul_channel_buffer { buffer: Buffer::new(size)? })) }
}

/// Returns the address of a received message; NULL for NULL. The address of an empty message must
/// not be read.
///
/// # Safety
/// buffer is NULL or a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_data(buffer: *mut haul_channel_buffer) -> *mut c_void {
    // SAFETY: the caller's promise.
    let buffer = unsafe { buffer.as_mut() };
    buffer.map_or(ptr::null_mut(), |buffer| buffer.buffer.as_mut_ptr().cast())
}

/// Returns the size of a received message in bytes; 0 for NULL.
///
/// # Safety
/// buffer is NULL or a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_size(buffer: *const haul_channel_buffer) -> usize {
    // SAFETY: the caller's promise.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.buffer.len())
}

/// Announces that the caller will write to size bytes of a received message from offset on. A
/// sealed message from a peer without trust is a view: the first write to each page of 4 KiB causes
/// a page fault that copies the page. haul_channel_buffer_will_write() copies the pages at once,
/// in a quarter of the time for 2 MiB and more. The call copies a whole huge page of 2 MiB if 1
/// MiB of it or more is announced. The content does not change. For other messages the call does
/// nothing. haul_channel_buffer_account() counts the copied bytes.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT if the bytes are not inside the message.
///
/// # Safety
/// buffer is NULL or a buffer that no other thread writes to meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_will_write(
    buffer: *mut haul_channel_buffer,
    offset: usize,
    size: usize,
) -> haul_status {
    // SAFETY: the caller's promise.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    match offset.checked_add(size).filter(|end| *end <= buffer.buffer.len()) {
        Some(end) => {
            buffer.buffer.will_write(offset..end);
            haul_status::HAUL_OK
        }
        None => haul_status::HAUL_ERROR_ARGUMENT,
    }
}

/// Writes the costs of a received message at this end to account.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL.
///
/// # Safety
/// buffer is NULL or a buffer; account is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_account(
    buffer: *const haul_channel_buffer,
    account: *mut haul_channel_account,
) -> haul_status {
    // SAFETY: the caller's promise.
    let Some(buffer) = (unsafe { buffer.as_ref() }).filter(|_| !account.is_null()) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    // SAFETY: the caller's promise.
    unsafe { report(Ok(buffer.buffer.account().clone()), account) }
}

/// Frees a received message. buffer may be NULL.
///
/// # Safety
/// buffer is NULL or a buffer that the caller does not use again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_free(buffer: *mut haul_channel_buffer) {
    // SAFETY: the caller's promise.
    unsafe { take(buffer) };
}
