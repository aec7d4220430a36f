//! Messages in flight, for an event loop: starts, advances and finishes them.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use haul_rust::channel::{Sender, Sending};

use crate::account::{haul_channel_account, report};
use crate::argument::{bytes_of, give, put, take};
use crate::channel::haul_channel;
use crate::status::haul_status;

/// A message in flight. The caller must not change its bytes until it is complete. The message
/// holds the sending half of its channel until it is finished or freed.
#[derive(Debug)]
pub struct haul_channel_sending {
    /// `None` only while this is being destroyed. The sending borrows `sender` and the caller's
    /// bytes.
    sending: Option<Sending<'static>>,
    /// The half that the channel lent. `give_back` returns the half.
    sender: NonNull<Sender>,
    channel: NonNull<haul_channel>,
}

impl haul_channel_sending {
    /// Lends the channel's sending half to a new message.
    ///
    /// # Safety
    /// The bytes live and do not change until the message is complete or abandoned; the channel
    /// lives until the returned value is finished or freed.
    unsafe fn start(
        channel: NonNull<haul_channel>,
        bytes: &'static [u8],
    ) -> Result<Self, haul_status> {
        // SAFETY: a channel, which no other thread uses meanwhile.
        let sender = unsafe { &mut *channel.as_ptr() }.sender.take();
        let sender = NonNull::from(Box::leak(sender.ok_or(haul_status::HAUL_ERROR_ARGUMENT)?));
        let mut this = Self { sending: None, sender, channel };
        // SAFETY: just leaked; only this message borrows it, and the message ends before it.
        match unsafe { &mut *sender.as_ptr() }.start_send(bytes) {
            Ok(sending) => this.sending = Some(sending),
            Err(error) => {
                this.give_back();
                return Err(error.into());
            }
        }
        Ok(this)
    }

    /// Ends the message and returns the sending half to the channel.
    fn give_back(self) {
        // The message borrows the half, so the message ends first. A message that is not complete
        // is abandoned here.
        drop(self.sending);
        // SAFETY: leaked by `start`, and no borrow of it remains.
        let sender = unsafe { Box::from_raw(self.sender.as_ptr()) };
        // SAFETY: the channel lives by the caller's promise, and no other thread uses it meanwhile.
        unsafe { &mut *self.channel.as_ptr() }.sender = Some(sender);
    }
}

/// Starts to send a message, proceeds as far as it can without waiting, and writes the message in
/// flight to sending. Until sending is finished or freed, the channel can receive but not send, and
/// must not be closed or split. The bytes must not be changed until the message is complete.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT, also if the channel has no sending half
/// or another message is in flight; HAUL_ERROR_TOO_LONG; HAUL_ERROR_UNAVAILABLE; HAUL_ERROR_BROKEN.
/// sending is written only on HAUL_OK.
///
/// # Safety
/// channel is NULL or a channel that lives until sending is finished or freed; data is NULL or has
/// size readable bytes that do not change until the message is complete or abandoned; sending is
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_start_send(
    channel: *mut haul_channel,
    data: *const c_void,
    size: usize,
    sending: *mut *mut haul_channel_sending,
) -> haul_status {
    let Some(channel) = NonNull::new(channel).filter(|_| !sending.is_null()) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    // SAFETY: the caller's promise for data.
    let bytes = match unsafe { bytes_of(data, size) } {
        Ok(bytes) => bytes,
        Err(status) => return status,
    };
    // SAFETY: the caller's promises for channel and data.
    let started = unsafe { haul_channel_sending::start(channel, bytes) };
    // SAFETY: the caller's promise for sending.
    unsafe { give(sending, || started) }
}

/// Advances a message without waiting, and writes to is_complete whether the message is complete,
/// so that the caller may change its bytes. If the message is not complete, the caller must poll
/// haul_channel_sending_fd() for reading before the next call. The deadline does not apply; the
/// caller must enforce its own time limit.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL; HAUL_ERROR_BROKEN;
/// HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. After an error the message is not complete; the caller
/// may change its bytes and can only free sending. is_complete is written only on HAUL_OK.
///
/// # Safety
/// sending is NULL or a message in flight; is_complete is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_sending_advance(
    sending: *mut haul_channel_sending,
    is_complete: *mut bool,
) -> haul_status {
    // SAFETY: the caller's promise for sending.
    let sending = unsafe { sending.as_mut() }.filter(|_| !is_complete.is_null());
    let Some(sending) = sending.and_then(|sending| sending.sending.as_mut()) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    // SAFETY: the caller's promise for is_complete.
    unsafe { put(is_complete, || Ok(sending.advance()?)) }
}

/// Returns the descriptor to poll for reading before haul_channel_sending_advance() is called
/// again, the same as that of haul_channel_fd(); -1 for NULL.
///
/// # Safety
/// sending is NULL or a message in flight.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_sending_fd(sending: *const haul_channel_sending) -> c_int {
    // SAFETY: the caller's promise.
    let sending = unsafe { sending.as_ref() }.and_then(|sending| sending.sending.as_ref());
    sending.map_or(-1, |sending| sending.as_fd().as_raw_fd())
}

/// Waits until a message is complete and frees sending, so that the channel can send again. Returns
/// at once if the message is complete already. The library owns sending from this call on, also
/// after an error. account may be NULL; it is written only on HAUL_OK.
///
/// Returns the codes of haul_channel_send().
///
/// # Safety
/// sending is NULL or a message in flight, and the caller does not use it again; account is NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_sending_finish(
    sending: *mut haul_channel_sending,
    account: *mut haul_channel_account,
) -> haul_status {
    // SAFETY: the caller's promise.
    let Some(mut sending) = (unsafe { take(sending) }) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    let Some(result) = sending.sending.take().map(Sending::finish) else {
        return haul_status::HAUL_ERROR_NULL;
    };
    sending.give_back();
    // SAFETY: the caller's promise for account.
    unsafe { report(result, account) }
}

/// Frees a message without waiting. A message that is not complete is abandoned: the receiver gets
/// an error, and the channel cannot be used any more. sending may be NULL.
///
/// # Safety
/// sending is NULL or a message in flight, and the caller does not use it again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_sending_free(sending: *mut haul_channel_sending) {
    // SAFETY: the caller's promise.
    if let Some(sending) = unsafe { take(sending) } {
        sending.give_back();
    }
}
