//! Messages through a channel.

use std::ffi::c_void;
use std::io::IoSlice;
use std::ptr;

use haul_rust::channel::Building;

use crate::account::{haul_channel_account, tell};
use crate::argument::{bytes_of, give, put, take};
use crate::buffer::haul_channel_buffer;
use crate::channel::{haul_channel, receiver_of, sender_of};
use crate::status::haul_status;

/// A message that is built where it will be handed over from.
#[derive(Debug)]
pub struct haul_channel_building {
    building: Building,
}

/// One of several parts that make one message.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_channel_part {
    /// Where it stands; may be NULL where it has no bytes.
    pub data: *const c_void,
    /// How many bytes it has.
    pub size: usize,
}

/// Sends a message and returns as its bytes are the caller's again: nothing that is written to them
/// afterwards is ever seen by the receiver. HAUL_OK does not say that the receiver has it. A peer
/// that closed, or died 0.1 ms or more before, is HAUL_ERROR_PEER_GONE at once. account may be
/// NULL; it is written on HAUL_OK alone.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_TOO_LONG and
/// HAUL_ERROR_UNAVAILABLE: nothing happened; HAUL_ERROR_DEADLINE; HAUL_ERROR_PEER_GONE;
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
        Ok(bytes) => unsafe { tell(sender.send(bytes), account) },
        Err(status) => status,
    }
}

/// Sends several parts as one message, as haul_channel_send().
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
    unsafe { tell(sender.send_vectored(&slices), account) }
}

/// Waits for a message, and writes its size to size; the message stays.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_CLOSED where there will be no more;
/// HAUL_ERROR_DEADLINE; HAUL_ERROR_TOO_LONG; HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL;
/// HAUL_ERROR_BROKEN. size is written on HAUL_OK alone.
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

/// Waits for a message and copies it to data, which has room for size bytes. account may be NULL,
/// and has the message's size; it is written on HAUL_OK alone.
///
/// As haul_channel_wait_size(), and HAUL_ERROR_TOO_SMALL: the message stays; HAUL_ERROR_INTEGRITY;
/// HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. What data holds after an error is indeterminate. Where
/// the peer is trusted and was stopped in the middle of HAUL_CHANNEL_DOUBLE, it can still write up
/// to 1 MiB to data as it goes on: keep that memory until the peer is gone, or use
/// haul_channel_recv(), which does.
///
/// # Safety
/// channel is NULL or a channel; data is NULL or has size writable bytes, and after an error it is
/// kept as just said; account is NULL or writable.
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
    // SAFETY: `size` writable bytes by the caller's promise, or none at all. That they may never
    // have been written before does not matter, as they are only written.
    let target = unsafe { std::slice::from_raw_parts_mut(data, size) };
    // SAFETY: the caller keeps the target after an error, as it promised.
    let received = unsafe { receiver.recv_into_exposed(target) };
    // SAFETY: the caller's promise for account.
    unsafe { tell(received, account) }
}

/// Waits for a message and writes it, in memory of its own, to buffer.
///
/// As haul_channel_recv_into(). buffer is written on HAUL_OK alone, and is to be given back with
/// haul_channel_buffer_free().
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

/// As haul_channel_recv(), and never waits: writes NULL to buffer where haul_channel_fd() is to be
/// polled for reading first. The deadline is the caller's to keep.
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

/// Memory for a message of size bytes, 1 at least, that is built in place; written to building.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. building is written
/// on HAUL_OK alone.
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

/// Where a message is built: zeroed memory; NULL for NULL.
///
/// # Safety
/// building is NULL or one that was not sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_building_data(
    building: *mut haul_channel_building,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let building = unsafe { building.as_mut() };
    building.map_or(ptr::null_mut(), |building| building.building.as_mut_ptr().cast())
}

/// Hands over what was built, without a copy. The building is the library's from here on, whatever
/// is returned. account may be NULL.
///
/// As haul_channel_send().
///
/// # Safety
/// channel is NULL or a channel; building is NULL or one that was not sent, and is given up;
/// account is NULL or writable.
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
    unsafe { tell(sender.send_built(building.building), account) }
}

/// Gives up what was built and not sent. NULL is fine.
///
/// # Safety
/// building is NULL or one that was not sent, and is given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_building_free(building: *mut haul_channel_building) {
    // SAFETY: the caller's promise.
    unsafe { take(building) };
}
