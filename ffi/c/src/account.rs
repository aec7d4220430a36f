//! The costs of a transfer.

use haul_rust::channel::{Account, Error};

use crate::argument::put;
use crate::options::number_of;
use crate::status::haul_status;

/// The costs of one transfer at one end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_channel_account {
    /// The message's size in bytes.
    pub size: u64,
    /// Bytes that this end, or the kernel on its behalf, copied.
    pub copied: u64,
    /// Processor time of the calling thread in nanoseconds; UINT64_MAX if it was not measured, as
    /// for small messages.
    pub cpu_ns: u64,
    /// Page faults of the calling thread; UINT64_MAX if they were not counted.
    pub faults: u64,
    /// System calls of the transfer.
    pub system_calls: u64,
    /// Bytes of memory that this end used for the transfer, beyond source and target.
    pub extra_memory: u64,
    /// The haul_channel_mechanism that moved the message.
    pub mechanism: u32,
    /// The mechanism that the transfer began with, if this end abandoned it; else
    /// HAUL_CHANNEL_AUTO.
    pub fell_back_from: u32,
    /// 1 if the receiver compared a checksum, else 0.
    pub is_checked: u32,
    /// Always 0.
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

/// Writes the costs of a transfer to `target`, unless that is NULL.
///
/// # Safety
/// `target` is NULL or writable.
pub(crate) unsafe fn report(
    result: Result<Account, Error>,
    target: *mut haul_channel_account,
) -> haul_status {
    match result {
        Ok(_) if target.is_null() => haul_status::HAUL_OK,
        // SAFETY: the caller's promise.
        Ok(account) => unsafe { put(target, || Ok(haul_channel_account::of(&account))) },
        Err(error) => error.into(),
    }
}
