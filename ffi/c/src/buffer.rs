//! Memory for messages that arrive.

use std::ffi::c_void;
use std::ptr;

use haul_rust::channel::Buffer;

use crate::account::{haul_channel_account, tell};
use crate::argument::{give, take};
use crate::status::haul_status;

/// A received message, or memory for one: private, to read and to write.
#[derive(Debug)]
pub struct haul_channel_buffer {
    pub(crate) buffer: Buffer,
}

/// Zeroed memory of size bytes to receive into, written to buffer: give haul_channel_recv_into()
/// what haul_channel_buffer_data() says of it. Where a message stands in pages of its own already,
/// those take the place of this memory's from its beginning, or any page in it, on, without a copy.
/// Of 64 KiB and more, nothing is taken from the system before it is touched.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM.
/// buffer is written on HAUL_OK alone, and is to be given back with haul_channel_buffer_free().
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

/// Where a received message stands; NULL for NULL. Some address, not to be read, for one of no
/// bytes.
///
/// # Safety
/// buffer is NULL or a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_data(buffer: *mut haul_channel_buffer) -> *mut c_void {
    // SAFETY: the caller's promise.
    let buffer = unsafe { buffer.as_mut() };
    buffer.map_or(ptr::null_mut(), |buffer| buffer.buffer.as_mut_ptr().cast())
}

/// How many bytes a received message has; 0 for NULL.
///
/// # Safety
/// buffer is NULL or a buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_size(buffer: *const haul_channel_buffer) -> usize {
    // SAFETY: the caller's promise.
    unsafe { buffer.as_ref() }.map_or(0, |buffer| buffer.buffer.len())
}

/// Says that size bytes of a received message from offset on will be written to. What came sealed,
/// from a peer without trust, is a view of which each page of 4 KiB is copied as it is first
/// written to, by a page fault; told ahead, these are copied now, which takes a quarter of the time
/// for 2 MiB and more. Copies the whole of a huge page, 2 MiB, for 1 MiB of it or more. Nothing
/// changes in what the bytes are, and of other memory nothing is done.
/// haul_channel_buffer_account() counts what was copied.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT where that is not inside the message.
///
/// # Safety
/// buffer is NULL or a buffer, to which nobody writes meanwhile.
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

/// Writes to account what a received message took at this end.
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
    unsafe { tell(Ok(buffer.buffer.account().clone()), account) }
}

/// Gives a received message's memory back. NULL is fine.
///
/// # Safety
/// buffer is NULL or a buffer that is given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_buffer_free(buffer: *mut haul_channel_buffer) {
    // SAFETY: the caller's promise.
    unsafe { take(buffer) };
}
