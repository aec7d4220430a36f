//! How a channel behaves, as its owner wants it.

use std::sync::OnceLock;
use std::time::Duration;

use super::layout;
use super::machine;
use super::names::Mechanism;
use haul_peer::users::Users;

/// How a channel behaves at this end. The other end has its own.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Longest that a transfer may take from the moment the peer begins with it, and longest that
    /// the two ends may take to meet.
    pub deadline: Duration,
    /// Longest that a call waits for the peer to begin: a message to come, or room to be made.
    /// `None` is for as long as the peer lives.
    pub wait: Option<Duration>,
    /// Users whose processes may be at the other end: others are refused before a word is said.
    pub users: Users,
    /// Largest message, in bytes, to send or to take.
    pub size_max: u64,
    /// Whether the peer is one of one's own. If both ends say so, mechanisms are allowed that a
    /// hostile peer could abuse: `pull`, `double`, `lease`, `vmsplice`; and what was built in place
    /// changes hands as it is.
    pub trusts_peer: bool,
    /// The part of a message, 0 to 1, that the receiver is expected to write to. Where the ends do
    /// not trust each other, handing over what was built in place is cheap only while that is
    /// small; above what `haul.toml` says, or 0.11, the receiver copies it.
    pub dirty_fraction: f64,
    /// Whether what is sent carries a checksum of the whole message, which the receiver compares
    /// with the bytes that it keeps. It is fused into the copies that the processors make, and a
    /// pass of its own where the kernel makes them.
    pub integrity: bool,
    /// The mechanism to send by, whatever haul would choose. Messages of length zero are inline.
    pub mechanism: Option<Mechanism>,
}

impl Default for Settings {
    /// 30 seconds to begin, 30 to end; one's own user and root; 64 GiB; no trust; nothing written
    /// to; no checksum; haul's choice.
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(30),
            wait: Some(Duration::from_secs(30)),
            users: Users::Own,
            size_max: 64 << 30,
            trusts_peer: false,
            dirty_fraction: 0.0,
            integrity: false,
            mechanism: None,
        }
    }
}

impl Settings {
    /// A chunk of the ring in bytes: a quarter of the core's own L2, a power of two.
    pub(crate) fn chunk_bytes(&self) -> usize {
        static BYTES: OnceLock<usize> = OnceLock::new();
        *BYTES.get_or_init(|| {
            let quarter = machine::second_level_cache_bytes().unwrap_or(1 << 20) / layout::CHUNKS;
            let floor = 1_usize << quarter.max(1).ilog2();
            floor.clamp(layout::CHUNK_BYTES_MIN, layout::CHUNK_BYTES_MAX)
        })
    }
}
