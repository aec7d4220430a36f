//! What a transfer experiment measures: one size, its subjects, and the number of messages.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::pair::Launch;
use super::peers::Found;
use super::protocol::Kind;
use super::transport::without_engine;

/// A sample has this many bytes in total, or is one message. This size is small enough for the
/// caches and for verifying every message, and large enough for the precision of the clock.
const SAMPLE_BYTES: usize = 1 << 20;

/// `SAMPLE_BYTES` with a busy processor. A sample of this size spans several time slices of the
/// program that keeps the processor busy. Chance would decide whether a time slice of that
/// program falls into a shorter sample.
const SAMPLE_BYTES_BUSY: usize = 16 << 20;

/// The largest number of messages per sample.
const MESSAGES_MAX: usize = 1024;

/// `MESSAGES_MAX` with a busy processor. With a busy processor, a transport that polls waits for
/// a time slice at each message.
const MESSAGES_MAX_BUSY: usize = 64;

/// The largest number of round trips per sample. Each round trip takes a microsecond or more.
const ECHOES_MAX: usize = 256;

/// The largest message whose latency is measured.
pub const ECHO_BYTES_MAX: usize = 64 << 10;

/// The largest message that fits into its descriptor (haul's `inline`).
const INLINE_BYTES_MAX: usize = 8192;

/// Below this size, no program would build a message in a memory file, because the file and its
/// mapping each take longer than the copy.
const SEALED_BYTES_MIN: usize = 64 << 10;

/// The state of B's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Memory that was used before.
    Warm,
    /// New memory, whose page faults are part of the transfer.
    Cold,
}

/// A transport that is measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The transport's name in records: `haul:ring`, `ucx`.
    pub name: String,
    /// The transport's own drivers; `None` if haul's drivers contain this transport.
    pub found: Option<Found>,
}

/// Transfers of one size.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The size of a message in bytes.
    pub size: usize,
    /// The state of B's memory.
    pub target: Target,
    /// Whether another program keeps one of the two processors busy.
    pub is_busy: bool,
    /// The transports to measure; see [`baseline_first`].
    pub subjects: Vec<Subject>,
    /// The command that starts haul's own drivers.
    pub driver: Launch,
    /// Requested peers that are not installed.
    pub left_out: Vec<String>,
    /// The longest time of an attempt.
    pub budget: Duration,
    /// The largest number of attempts. An attempt that the hypervisor or another program disturbs
    /// is repeated, because a disturbance delays two processes that wait for each other more than
    /// it delays a single process. The last attempt counts.
    pub tries: u32,
    /// The seed of the messages' content and of the order of the subjects.
    pub seed: u64,
}

/// The subjects in the order that comparisons need: the baseline first. Every system has the
/// baseline.
#[must_use]
pub fn baseline_first(mut subjects: Vec<Subject>) -> Vec<Subject> {
    const FIRST: [&str; 2] = ["pipe", "unix"];
    let rank = |subject: &Subject| FIRST.iter().position(|name| *name == subject.name);
    subjects.sort_by_key(|subject| rank(subject).unwrap_or(FIRST.len()));
    subjects
}

impl Bench {
    pub(super) fn kinds(&self) -> Vec<Kind> {
        let has_echo = self.size <= ECHO_BYTES_MAX && self.target == Target::Warm;
        if has_echo { vec![Kind::Transfer, Kind::Echo] } else { vec![Kind::Transfer] }
    }

    /// The largest number of messages in a sample.
    pub(super) fn count(&self, kind: Kind) -> usize {
        let (bytes, most) = match kind {
            _ if self.is_busy => (SAMPLE_BYTES_BUSY, MESSAGES_MAX_BUSY),
            Kind::Echo => (SAMPLE_BYTES, ECHOES_MAX),
            Kind::Transfer => (SAMPLE_BYTES, MESSAGES_MAX),
        };
        (bytes / self.size.max(1)).clamp(1, most)
    }

    /// The subjects that can move messages of the bench's size into its target.
    pub(super) fn entrants(&self) -> impl Iterator<Item = &Subject> {
        self.subjects.iter().filter(|subject| can_move(&subject.name, self.size, self.target))
    }
}

/// Whether a transport moves messages of this size into this kind of target. A leased or sealed
/// message arrives in separate memory that was used before, so its transfer does not touch new
/// memory at B.
#[must_use]
pub fn can_move(name: &str, size: usize, target: Target) -> bool {
    match without_engine(name) {
        "haul:inline" => size <= INLINE_BYTES_MAX,
        name if is_sealed(name) => size >= SEALED_BYTES_MIN && target == Target::Warm,
        "haul:lease" => target == Target::Warm,
        _ => true,
    }
}

/// Whether a transport hands over the memory in which the message was built.
pub(super) fn is_sealed(name: &str) -> bool {
    name.starts_with("haul:sealed")
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Warm { "warm" } else { "cold" })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "warm" => Ok(Self::Warm),
            "cold" => Ok(Self::Cold),
            _ => Err(format!("unknown target {text:?}; the targets are warm and cold")),
        }
    }
}
