//! Sends and receives messages.

use std::ffi::c_void;
use std::io::IoSlice;
use std::ptr;

use haul_rust::channel::Building;

use crate::account::{haul_channel_account, report};
use crate::argument::{bytes_of, give, put, take};
use crate::buffer::haul_channel_buffer;
use crate::channel::{haul_channel, receiver_of, sender_of};
use crate::status::haul_status;

/// Memory in which a message is built in place, to be sent without a copy.
#[derive(Debug)]
pub struct haul_channel_building {
    building: Building,
}

/// One of several parts that make one message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_channel_part {
    /// The address of the part; may be NULL if size is 0.
    pub data: *const c_void,
    /// The size of the part in bytes.
    pub size: usize,
}

/// Sends a message. When the call returns, the caller may change the bytes: the receiver never sees
/// a later change. HAUL_OK does not mean that the receiver has the message. If the peer has closed
/// the channel, or died 0.1 ms or more before, the call returns HAUL_ERROR_PEER_GONE at once.
/// account may be NULL; it is written only on HAUL_OK.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_TOO_LONG or
/// HAUL_ERROR_UNAVAILABLE, if nothing was sent; HAUL_ERROR_DEADLINE; HAUL_ERROR_PEER_GONE;
/// HAUL_ERROR_PROTOCOL; HAUL_ERROR_BROKEN; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM.
///
/// # Safety
/// channel is NULL or a channel; data is NULL or has size readable bytes; account is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_send(
    channel: *mut haul_channel,
    data: *const c_void,
    size: usize,
    account: *mut haul_channel_account,
) -> haul_status {
    // SAFETY: the caller's promise for channel.
    let sender = match unsafe { sender_of(channel) } {
        Ok(sender) => sender,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for data.
    match unsafe { bytes_of(data, size) } {
        // SAFETY: the caller's promise for account.
        Ok(bytes) => unsafe { report(sender.send(bytes), account) },
        Err(status) => status,
    }
}

/// Sends several parts as one message; otherwise like haul_channel_send().
///
/// # Safety
/// channel is NULL or a channel; parts is NULL or has count readable parts, each of which has size
/// readable bytes; account is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_send_parts(
    channel: *mut haul_channel,
    parts: *const haul_channel_part,
    count: usize,
    account: *mut haul_channel_account,
) -> haul_status {
    // SAFETY: the caller's promise for channel.
    let sender = match unsafe { sender_of(channel) } {
        Ok(sender) => sender,
        Err(status) => return status,
    };
    if parts.is_null() && count > 0 {
        return haul_status::HAUL_ERROR_NULL;
    }
    if count > isize::MAX as usize / size_of::<haul_channel_part>() {
        return haul_status::HAUL_ERROR_ARGUMENT;
    }
    let mut slices = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: inside the parts, by the caller's promise.
        let part = unsafe { parts.add(index) };
        // SAFETY: likewise.
        let part = unsafe { part.read() };
        // SAFETY: the caller's promise for each part.
        match unsafe { bytes_of(part.data, part.size) } {
            Ok(bytes) => slices.push(IoSlice::new(bytes)),
            Err(status) => return status,
        }
    }
    // SAFETY: the caller's promise for account.
    unsafe { report(sender.send_vectored(&slices), account) }
}

/// Waits for a message and writes its size to size. The message is not received yet.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_CLOSED if the peer sends no more messages;
/// HAUL_ERROR_DEADLINE; HAUL_ERROR_TOO_LONG; HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL;
/// HAUL_ERROR_BROKEN. size is written only on HAUL_OK.
///
/// # Safety
/// channel is NULL or a channel; size is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_wait_size(
    channel: *mut haul_channel,
    size: *mut usize,
) -> haul_status {
    // SAFETY: the caller's promise for channel.
    let receiver = unsafe { receiver_of(channel) };
    // SAFETY: the caller's promise for size.
    unsafe { put(size, || Ok(receiver?.wait_length()?)) }
}

/// Waits for a message and copies it to data, which has room for size bytes. account contains the
/// size of the message; it may be NULL and is written only on HAUL_OK.
///
/// Returns the codes of haul_channel_wait_size(), HAUL_ERROR_TOO_SMALL, after which the message
/// can still be received; HAUL_ERROR_INTEGRITY; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. After an
/// error the content of data is indeterminate. If the peer is trusted and was stopped in the
/// middle of HAUL_CHANNEL_DOUBLE, the peer can still write up to 1 MiB to data when it continues.
/// The caller must then keep that memory until the peer is gone; haul_channel_recv() does so by
/// itself.
///
/// # Safety
/// channel is NULL or a channel; data is NULL or has size writable bytes, which the caller keeps
/// after an error as described; account is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_recv_into(
    channel: *mut haul_channel,
    data: *mut c_void,
    size: usize,
    account: *mut haul_channel_account,
) -> haul_status {
    // SAFETY: the caller's promise for channel.
    let receiver = match unsafe { receiver_of(channel) } {
        Ok(receiver) => receiver,
        Err(status) => return status,
    };
    if size > isize::MAX as usize {
        return haul_status::HAUL_ERROR_ARGUMENT;
    }
    if data.is_null() && size > 0 {
        return haul_status::HAUL_ERROR_NULL;
    }
    let data = if size == 0 { ptr::NonNull::dangling().as_ptr() } else { data.cast() };
    // SAFETY: `size` writable bytes by the caller's promise, or no bytes. They may be
    // uninitialized, because they are only written.
    let target = unsafe { std::slice::from_raw_parts_mut(data, size) };
    // SAFETY: the caller keeps the target after an error, as it promised.
    let received = unsafe { receiver.recv_into_exposed(target) };
    // SAFETY: the caller's promise for account.
    unsafe { report(received, account) }
}

/// Waits for a message and writes it, in new memory, to buffer.
///
/// Returns the codes of haul_channel_recv_into(). buffer is written only on HAUL_OK. The caller
/// must free it with haul_channel_buffer_free().
///
/// # Safety
/// channel is NULL or a channel; buffer is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_recv(
    channel: *mut haul_channel,
    buffer: *mut *mut haul_channel_buffer,
) -> haul_status {
    // SAFETY: the caller's promise for channel.
    let receiver = unsafe { receiver_of(channel) };
    // SAFETY: the caller's promise for buffer.
    unsafe { give(buffer, || Ok(haul_channel_buffer { buffer: receiver?.recv()? })) }
}

/// Like haul_channel_recv(), but never waits: writes NULL to buffer if the caller has to poll
/// haul_channel_fd() for reading first. The deadline does not apply; the caller must enforce its
/// own time limit.
///
/// # Safety
/// channel is NULL or a channel; buffer is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_try_recv(
    channel: *mut haul_channel,
    buffer: *mut *mut haul_channel_buffer,
) -> haul_status {
    // SAFETY: the caller's promise for channel.
    let receiver = unsafe { receiver_of(channel) };
    let make = || {
        let got = receiver?.try_recv()?;
        let boxed = got.map(|buffer| Box::into_raw(Box::new(haul_channel_buffer { buffer })));
        Ok(boxed.unwrap_or_else(ptr::null_mut))
    };
    // SAFETY: the caller's promise for buffer.
    unsafe { put(buffer, make) }
}

/// Creates memory for a message of size bytes, at least 1, that is built in place, and writes it to
/// building.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. building is written
/// only on HAUL_OK.
///
/// # Safety
/// building is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_building_create(
    size: usize,
    building: *mut *mut haul_channel_building,
) -> haul_status {
    // SAFETY: the caller's promise.
    unsafe { give(building, || Ok(haul_channel_building { building: Building::new(size)? })) }
}

/// Returns the address of the message that is built, in zeroed memory; NULL for NULL.
///
/// # Safety
/// building is NULL or was not sent yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_building_data(
    building: *mut haul_channel_building,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let building = unsafe { building.as_mut() };
    building.map_or(ptr::null_mut(), |building| building.building.as_mut_ptr().cast())
}

/// Sends a message that was built in place, without a copy. The library owns building from this
/// call on, also after an error. account may be NULL.
///
/// Returns the codes of haul_channel_send().
///
/// # Safety
/// channel is NULL or a channel; building is NULL or was not sent yet, and the caller does not
/// use it again; account is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_send_built(
    channel: *mut haul_channel,
    building: *mut haul_channel_building,
    account: *mut haul_channel_account,
) -> haul_status {
    // SAFETY: the caller's promise for building.
    let building = unsafe { take(building) };
    let Some(building) = building else { return haul_status::HAUL_ERROR_NULL };
    // SAFETY: the caller's promise for channel.
    let sender = match unsafe { sender_of(channel) } {
        Ok(sender) => sender,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for account.
    unsafe { report(sender.send_built(building.building), account) }
}

/// Frees a message that was built and not sent. building may be NULL.
///
/// # Safety
/// building is NULL or was not sent yet, and the caller does not use it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_building_free(building: *mut haul_channel_building) {
    // SAFETY: the caller's promise.
    unsafe { take(building) };
}
