//! Messages on their way, for an event loop: begun, moved on, completed.

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use haul_rust::channel::{Sender, Sending};

use crate::account::{haul_channel_account, tell};
use crate::argument::{bytes_of, give, put, take};
use crate::channel::haul_channel;
use crate::status::haul_status;

/// A message on its way. Its bytes stay the library's until it is complete, and so does the sending
/// half of its channel until this is finished or freed.
#[derive(Debug)]
pub struct haul_channel_sending {
    /// `None` only while this is taken apart. It borrows `sender`, and the caller's bytes.
    sending: Option<Sending<'static>>,
    /// What the channel lent; given back in the end.
    sender: NonNull<Sender>,
    channel: NonNull<haul_channel>,
}

impl haul_channel_sending {
    /// Lends the channel's sending half to a new message.
    ///
    /// # Safety
    /// The bytes live and do not change until the message is complete or given up; the channel
    /// lives until what this returns was ended.
    unsafe fn start(
        channel: NonNull<haul_channel>,
        bytes: &'static [u8],
    ) -> Result<Self, haul_status> {
        // SAFETY: a channel, which nobody else uses meanwhile.
        let sender = unsafe { &mut *channel.as_ptr() }.sender.take();
        let sender = NonNull::from(Box::leak(sender.ok_or(haul_status::HAUL_ERROR_ARGUMENT)?));
        let mut this = Self { sending: None, sender, channel };
        // SAFETY: just leaked, and borrowed by nothing but this message, which ends before it.
        match unsafe { &mut *sender.as_ptr() }.start_send(bytes) {
            Ok(sending) => this.sending = Some(sending),
            Err(error) => {
                this.give_back();
                return Err(error.into());
            }
        }
        Ok(this)
    }

    /// The message is over: the channel can send again.
    fn give_back(self) {
        // What borrows the half, first: a message that is not complete is given up here.
        drop(self.sending);
        // SAFETY: leaked by `start`, and nothing borrows it any more.
        let sender = unsafe { Box::from_raw(self.sender.as_ptr()) };
        // SAFETY: the channel lives by the caller's promise, and nobody else uses it meanwhile.
        unsafe { &mut *self.channel.as_ptr() }.sender = Some(sender);
    }
}

/// Begins to send a message, does what can be done without waiting, and writes what is left of it
/// to sending. Until that was finished or freed the channel can receive, but not send, and must not
/// be closed or split; until the message is complete its bytes must not be changed.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT, also where the channel has no sending
/// half or another message is on its way; HAUL_ERROR_TOO_LONG; HAUL_ERROR_UNAVAILABLE;
/// HAUL_ERROR_BROKEN. sending is written on HAUL_OK alone.
///
/// # Safety
/// channel is NULL or a channel that lives until sending was ended; data is NULL or has size
/// readable bytes that nobody changes until the message is complete or given up; sending is NULL or
/// writable.
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

/// Moves a message on without waiting, and writes to is_complete whether it is complete and its
/// bytes are the caller's again; where it is not, haul_channel_sending_fd() is to be polled for
/// reading first. The deadline is the caller's to keep.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_PEER_GONE; HAUL_ERROR_PROTOCOL; HAUL_ERROR_BROKEN;
/// HAUL_ERROR_NO_MEMORY; HAUL_ERROR_SYSTEM. After an error the message is not complete, its bytes
/// are the caller's, and nothing is left but to free it. is_complete is written on HAUL_OK alone.
///
/// # Safety
/// sending is NULL or a message on its way; is_complete is NULL or writable.
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

/// What to poll for reading before haul_channel_sending_advance() is called again; -1 for NULL. It
/// is that of haul_channel_fd().
///
/// # Safety
/// sending is NULL or a message on its way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_sending_fd(sending: *const haul_channel_sending) -> c_int {
    // SAFETY: the caller's promise.
    let sending = unsafe { sending.as_ref() }.and_then(|sending| sending.sending.as_ref());
    sending.map_or(-1, |sending| sending.as_fd().as_raw_fd())
}

/// Waits until a message is complete, at once if it is, and ends it: the channel can send again.
/// sending is the library's from here on, whatever is returned. account may be NULL; it is written
/// on HAUL_OK alone.
///
/// As haul_channel_send().
///
/// # Safety
/// sending is NULL or a message on its way, and is given up; account is NULL or writable.
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
    unsafe { tell(result, account) }
}

/// Ends a message without waiting. One that is not complete is given up: the receiver gets an
/// error, and the channel can do no more. NULL is fine.
///
/// # Safety
/// sending is NULL or a message on its way, and is given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_channel_sending_free(sending: *mut haul_channel_sending) {
    // SAFETY: the caller's promise.
    if let Some(sending) = unsafe { take(sending) } {
        sending.give_back();
    }
}
