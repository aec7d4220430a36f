//! The settings of a channel, and the numbers of the mechanisms.

use std::time::Duration;

use haul_rust::channel::{Mechanism, Settings, Users};
use haul_rust::engine::Queue;

use crate::status::haul_status;

/// The mechanisms that move bytes from one process to another.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_channel_mechanism {
    /// haul chooses.
    HAUL_CHANNEL_AUTO = 0,
    /// The bytes of a small message follow its header.
    HAUL_CHANNEL_INLINE = 1,
    /// Both ends copy chunks that stay in the cache, at the same time.
    HAUL_CHANNEL_RING = 2,
    /// The whole message is in shared memory.
    HAUL_CHANNEL_STAGED = 3,
    /// The receiver reads the sender's memory; needs trust.
    HAUL_CHANNEL_PULL = 4,
    /// The sender builds the message in place: haul_channel_send_built().
    HAUL_CHANNEL_SEALED = 5,
    /// Each end copies a part at the same time; needs trust.
    HAUL_CHANNEL_DOUBLE = 6,
    /// The sender copies into a pool of the receiver; needs trust.
    HAUL_CHANNEL_LEASE = 7,
}

/// This end trusts the peer: see flags in haul_channel_options.
pub const HAUL_CHANNEL_TRUST: u32 = 1;
/// Each sent message carries a checksum.
pub const HAUL_CHANNEL_INTEGRITY: u32 = 2;
/// The peer may be of any user, not only of this user and root.
pub const HAUL_CHANNEL_ANY_USER: u32 = 4;
/// The peer may also be of the user in haul_channel_options.
pub const HAUL_CHANNEL_ALLOW_USER: u32 = 8;

/// A helper thread of this end takes part in large copies: see flags in haul_channel_options.
pub const HAUL_CHANNEL_ENGINE_WORKER: u32 = 16;
/// The engine auto: a helper thread takes part where that is worth its wake-up.
pub const HAUL_CHANNEL_ENGINE_AUTO: u32 = 32;
/// The first queue of a DSA that this process may use makes large copies.
pub const HAUL_CHANNEL_ENGINE_DSA: u32 = 64;

/// Options of a channel at this end. All zeros select the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_channel_options {
    /// The largest message in bytes to send or to receive; 0: 64 GiB.
    pub size_max: u64,
    /// Milliseconds that a transfer may take from the moment the peer begins it; 0: 30,000.
    pub deadline_ms: u64,
    /// Milliseconds that a call waits for the peer to begin; 0: 30,000; UINT64_MAX: as long as the
    /// peer lives.
    pub wait_ms: u64,
    /// HAUL_CHANNEL_TRUST | HAUL_CHANNEL_INTEGRITY | HAUL_CHANNEL_ANY_USER |
    /// HAUL_CHANNEL_ALLOW_USER, or 0. If both ends trust each other, they may use mechanisms that a
    /// hostile peer could abuse. One of HAUL_CHANNEL_ENGINE_WORKER, HAUL_CHANNEL_ENGINE_AUTO and
    /// HAUL_CHANNEL_ENGINE_DSA makes an engine copy pieces of 64 KiB and more for ring and lease.
    pub flags: u32,
    /// The haul_channel_mechanism to send with, instead of haul's choice.
    pub mechanism: u32,
    /// The part of a message, in percent, that the receiver probably writes to.
    pub dirty_percent: u32,
    /// The number of the user to allow with HAUL_CHANNEL_ALLOW_USER; else 0.
    pub user: u32,
}

const _: () = assert!(size_of::<haul_channel_options>() == 40);

impl haul_channel_options {
    /// The users that may be at the other end. Opens no engine.
    pub(crate) fn users(&self) -> Result<Users, haul_status> {
        let settings = Self { flags: self.flags & !ENGINES, ..*self }.settings();
        settings.map(|settings| settings.users)
    }

    pub(crate) fn settings(&self) -> Result<Settings, haul_status> {
        let default = Settings::default();
        let known = HAUL_CHANNEL_TRUST
            | HAUL_CHANNEL_INTEGRITY
            | HAUL_CHANNEL_ANY_USER
            | HAUL_CHANNEL_ALLOW_USER
            | ENGINES;
        let users = match self.flags & (HAUL_CHANNEL_ANY_USER | HAUL_CHANNEL_ALLOW_USER) {
            0 => Users::Own,
            HAUL_CHANNEL_ALLOW_USER => Users::OwnAnd(vec![self.user]),
            _ => Users::Any,
        };
        let has_stray_user = self.flags & HAUL_CHANNEL_ALLOW_USER == 0 && self.user != 0;
        let mechanism = match self.mechanism {
            0 => None,
            number => Some(mechanism_of(number).ok_or(haul_status::HAUL_ERROR_ARGUMENT)?),
        };
        if self.flags & !known != 0 || self.dirty_percent > 100 || has_stray_user {
            return Err(haul_status::HAUL_ERROR_ARGUMENT);
        }
        let or = |milliseconds, default| match milliseconds {
            0 => default,
            milliseconds => Duration::from_millis(milliseconds),
        };
        Ok(Settings {
            size_max: if self.size_max == 0 { default.size_max } else { self.size_max },
            deadline: or(self.deadline_ms.min(FOREVER_MS), default.deadline),
            wait: match self.wait_ms {
                u64::MAX => None,
                wait => Some(or(wait.min(FOREVER_MS), default.wait.unwrap_or_default())),
            },
            trusts_peer: self.flags & HAUL_CHANNEL_TRUST != 0,
            integrity: self.flags & HAUL_CHANNEL_INTEGRITY != 0,
            dirty_fraction: f64::from(self.dirty_percent) / 100.0,
            users,
            mechanism,
            engine: engine_of(self.flags)?,
        })
    }
}

const ENGINES: u32 =
    HAUL_CHANNEL_ENGINE_WORKER | HAUL_CHANNEL_ENGINE_AUTO | HAUL_CHANNEL_ENGINE_DSA;

/// The engine that the flags name.
fn engine_of(flags: u32) -> Result<Option<Queue>, haul_status> {
    let name = match flags & ENGINES {
        0 => return Ok(None),
        HAUL_CHANNEL_ENGINE_WORKER => "worker",
        HAUL_CHANNEL_ENGINE_AUTO => "auto",
        HAUL_CHANNEL_ENGINE_DSA => "dsa",
        _ => return Err(haul_status::HAUL_ERROR_ARGUMENT),
    };
    Ok(Some(Queue::by_name(name)?))
}

/// A hundred years in milliseconds; longer times would overflow the clock.
const FOREVER_MS: u64 = 100 * 365 * 24 * 3600 * 1000;

pub(crate) fn mechanism_of(number: u32) -> Option<Mechanism> {
    Mechanism::ALL.into_iter().find(|mechanism| number_of(*mechanism) == number)
}

pub(crate) fn number_of(mechanism: Mechanism) -> u32 {
    use haul_channel_mechanism as C;
    let number = match mechanism {
        Mechanism::Inline => C::HAUL_CHANNEL_INLINE,
        Mechanism::Ring => C::HAUL_CHANNEL_RING,
        Mechanism::Staged => C::HAUL_CHANNEL_STAGED,
        Mechanism::Pull => C::HAUL_CHANNEL_PULL,
        Mechanism::Sealed => C::HAUL_CHANNEL_SEALED,
        Mechanism::Double => C::HAUL_CHANNEL_DOUBLE,
        Mechanism::Lease => C::HAUL_CHANNEL_LEASE,
    };
    number as u32
}
