//! The settings of a channel.

use std::sync::OnceLock;
use std::time::Duration;

use super::layout;
use super::machine;
use super::names::Mechanism;
use haul_engine::Queue;
use haul_peer::users::Users;

/// The settings of one end of a channel. The other end has its own settings.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The longest duration of the handshake, and of a transfer, counted from the moment when the
    /// peer begins it.
    pub deadline: Duration,
    /// The longest time that a call waits for the peer to begin: for a message, or for room. `None`
    /// waits as long as the peer lives.
    pub wait: Option<Duration>,
    /// Users whose processes may be at the other end. haul refuses processes of other users
    /// before it sends any packet.
    pub users: Users,
    /// The largest message to send or to receive, in bytes.
    pub size_max: u64,
    /// Whether this end trusts the peer. If both ends trust each other, haul may use mechanisms
    /// that a hostile peer could abuse: `pull`, `double`, `lease`. haul may also hand over,
    /// unsealed, messages that were built in place.
    pub trusts_peer: bool,
    /// The part of a message, 0 to 1, that the receiver will probably write to. Without trust,
    /// handing over a message that was built in place is cheap only if this part is small. Above
    /// the limit in `haul.toml`, or 0.11, the receiver copies the message.
    pub dirty_fraction: f64,
    /// Whether each message carries a checksum, which the receiver compares with the bytes that
    /// it keeps. If the processor copies, the checksum is fused into the copy; if the kernel
    /// copies, it is a separate pass.
    pub integrity: bool,
    /// The mechanism of all messages; `None` for haul's choice. Messages of length zero are
    /// always inline.
    pub mechanism: Option<Mechanism>,
    /// The engine that copies pieces of 64 KiB and more of this end: into the ring, out of the
    /// ring, and into the target of `lease`. `None`: the calling thread alone. An engine that
    /// fails or disappears is replaced by the CPU. Messages with a checksum do not use it.
    ///
    /// In [`send`](crate::Channel::send) and [`recv_into`](crate::Channel::recv_into), which wait,
    /// the calling thread takes part in the copy. With
    /// [`start_send_shared`](crate::Channel::start_send_shared), it does something else meanwhile.
    pub engine: Option<Queue>,
}

impl Default for Settings {
    /// The defaults: 30 seconds to begin, 30 to end; the calling user and root; 64 GiB; no trust;
    /// a receiver that does not write; no checksum; haul's choice of the mechanism; no engine.
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
            engine: None,
        }
    }
}

impl Settings {
    /// The length of a ring chunk in bytes: a quarter of a core's L2, a power of two.
    pub(crate) fn chunk_bytes(&self) -> usize {
        static BYTES: OnceLock<usize> = OnceLock::new();
        *BYTES.get_or_init(|| {
            let quarter = machine::second_level_cache_bytes().unwrap_or(1 << 20) / layout::CHUNKS;
            let floor = 1_usize << quarter.max(1).ilog2();
            floor.clamp(layout::CHUNK_BYTES_MIN, layout::CHUNK_BYTES_MAX)
        })
    }
}
