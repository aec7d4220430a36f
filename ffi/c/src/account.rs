//! What a transfer took.

use haul_rust::channel::{Account, Error};

use crate::argument::put;
use crate::options::number_of;
use crate::status::haul_status;

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

/// Writes what a transfer took to where C wants it; where that is NULL, nobody asked.
///
/// # Safety
/// `target` is NULL or writable.
pub(crate) unsafe fn tell(
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
