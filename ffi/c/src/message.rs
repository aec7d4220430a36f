//! Messages through a channel.

use std::ffi::c_void;
use std::io::IoSlice;
use std::ptr;

use haul_rust::channel::{Account, Buffer, Building, Error};

use crate::channel::{give, haul_channel, number_of, receiver_of, sender_of, status_of, take};
use crate::status::haul_status;

/// A received message, or memory for one: private, to read and to write.
#[derive(Debug)]
pub struct haul_channel_buffer {
    buffer: Buffer,
}

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

/// What one end of one transfer took.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_channel_account {
    /// The message's size in bytes.
    pub size: u64,
    /// Bytes that this end copied, or the kernel on its behalf.
    pub copied: u64,
    /// Nanoseconds of the calling thread; UINT64_MAX where it was not measured, for small messages.
    pub cpu_ns: u64,
    /// Page faults of the calling thread; UINT64_MAX where they were not counted.
    pub faults: u64,
    /// System calls of the transfer.
    pub system_calls: u64,
    /// Bytes beyond source and target that this end had for it.
    pub extra_memory: u64,
    /// The haul_channel_mechanism.
    pub mechanism: u32,
    /// The one that it began with, where that was given up; else HAUL_CHANNEL_AUTO.
    pub fell_back_from: u32,
    /// 1 where a checksum was compared.
    pub is_checked: u32,
    /// 0.
    pub reserved: u32,
}

const _: () = assert!(size_of::<haul_channel_account>() == 64);

impl haul_channel_account {
    fn of(account: &Account) -> Self {
        Self {
            size: account.size_bytes,
            copied: account.copied_bytes,
            cpu_ns: account
                .cpu
                .map_or(u64::MAX, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            faults: account.faults.unwrap_or(u64::MAX),
            system_calls: account.system_calls,
            extra_memory: account.extra_memory_bytes,
            mechanism: number_of(account.mechanism),
            fell_back_from: account.fell_back_from.map_or(0, number_of),
            is_checked: account.is_checked.into(),
            reserved: 0,
        }
    }
}

/// Sends a message and returns as its bytes are the caller's again: nothing that is written to them
/// afterwards is ever seen by the receiver. account may be NULL; it is written on HAUL_OK alone.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_TOO_LONG and
/// HAUL_ERROR_UNAVAILABLE: nothing happened; HAUL_ERROR_DEADLINE; HAUL_ERROR_PEER_GONE;
/// HAUL_ERROR_PROTOCOL; HAUL_ERROR_BROKEN; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM.
///
/// # Safety
/// channel is NULL or a channel; data is NULL or has size readable bytes; account is NULL or writable.
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
    if size.is_null() {
        return haul_status::HAUL_ERROR_NULL;
    }
    // SAFETY: the caller's promise for channel.
    let receiver = match unsafe { receiver_of(channel) } {
        Ok(receiver) => receiver,
        Err(status) => return status,
    };
    match receiver.wait_length() {
        Ok(length) => {
            // SAFETY: not NULL, so writable by the caller's promise.
            unsafe { ptr::write(size, length) };
            haul_status::HAUL_OK
        }
        Err(error) => status_of(&error),
    }
}

/// Waits for a message and copies it to data, which has room for size bytes. account may be NULL, and
/// has the message's size; it is written on HAUL_OK alone.
///
/// As haul_channel_wait_size(), and HAUL_ERROR_TOO_SMALL: the message stays; HAUL_ERROR_INTEGRITY;
/// HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. What data holds after an error is nothing. Where the peer is
/// trusted and was stopped in the middle of HAUL_CHANNEL_DOUBLE, it can still write up to 1 MiB to data
/// as it goes on: keep that memory until the peer is gone, or use haul_channel_recv(), which does.
///
/// # Safety
/// channel is NULL or a channel; data is NULL or has size writable bytes; account is NULL or writable.
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
    // SAFETY: the caller's promise for account.
    unsafe { tell(receiver.recv_into(target), account) }
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
    let receiver = match unsafe { receiver_of(channel) } {
        Ok(receiver) => receiver,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for buffer.
    unsafe { give(buffer, || Ok(haul_channel_buffer { buffer: receiver.recv()? })) }
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
    if buffer.is_null() {
        return haul_status::HAUL_ERROR_NULL;
    }
    // SAFETY: the caller's promise for channel.
    let receiver = match unsafe { receiver_of(channel) } {
        Ok(receiver) => receiver,
        Err(status) => return status,
    };
    match receiver.try_recv() {
        // SAFETY: the caller's promise for buffer.
        Ok(Some(got)) => unsafe { give(buffer, || Ok(haul_channel_buffer { buffer: got })) },
        Ok(None) => {
            // SAFETY: not NULL, so writable by the caller's promise.
            unsafe { ptr::write(buffer, ptr::null_mut()) };
            haul_status::HAUL_OK
        }
        Err(error) => status_of(&error),
    }
}

/// Zeroed memory of size bytes to receive into, written to buffer: give haul_channel_recv_into() what
/// haul_channel_buffer_data() says of it. Where a message stands in pages of its own already, those take
/// the place of this memory's from its beginning, or any page in it, on, without a copy. Of 64 KiB and
/// more, nothing is taken from the system before it is touched.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. buffer
/// is written on HAUL_OK alone, and is to be given back with haul_channel_buffer_free().
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

/// Where a received message stands; NULL for NULL. Some address, not to be read, for one of no bytes.
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

/// Memory for a message of size bytes, 1 at least, that is built in place; written to building.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. building is written on
/// HAUL_OK alone.
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

/// Hands over what was built, without a copy. The building is the library's from here on, whatever is
/// returned. account may be NULL.
///
/// As haul_channel_send().
///
/// # Safety
/// channel is NULL or a channel; building is NULL or one that was not sent, and is given up; account is
/// NULL or writable.
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

/// # Safety
/// `data` is NULL or has `size` readable bytes.
pub(crate) unsafe fn bytes_of<'a>(
    data: *const c_void,
    size: usize,
) -> Result<&'a [u8], haul_status> {
    match size {
        0 => Ok(&[]),
        _ if data.is_null() => Err(haul_status::HAUL_ERROR_NULL),
        _ if size > isize::MAX as usize => Err(haul_status::HAUL_ERROR_ARGUMENT),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) }),
    }
}

/// # Safety
/// `target` is NULL or writable.
pub(crate) unsafe fn tell(
    result: Result<Account, Error>,
    target: *mut haul_channel_account,
) -> haul_status {
    match result {
        Ok(account) => {
            if !target.is_null() {
                // SAFETY: not NULL, so writable by the caller's promise.
                unsafe { ptr::write(target, haul_channel_account::of(&account)) };
            }
            haul_status::HAUL_OK
        }
        Err(error) => status_of(&error),
    }
}
