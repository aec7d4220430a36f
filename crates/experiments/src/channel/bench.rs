//! What is measured: one size, by whom, and how much of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::pair::Launch;
use super::peers::Found;
use super::protocol::Kind;

/// Messages of a sample are so many bytes together, or one: small enough for the caches, long
/// enough against the clock, and each of them is verified.
const SAMPLE_BYTES: usize = 1 << 20;

/// The same with a busy processor: several time slices of the program that keeps it busy, for a
/// sample shorter than one says by luck whether it met that program.
const SAMPLE_BYTES_BUSY: usize = 16 << 20;

/// The most messages of a sample.
const MESSAGES_MAX: usize = 1024;

/// The same with a busy processor: transports that poll then wait for a time slice at each of them.
const MESSAGES_MAX_BUSY: usize = 64;

/// Round trips of a sample: each takes a microsecond or more.
const ECHOES_MAX: usize = 256;

/// The largest message whose latency is asked for.
pub const ECHO_BYTES_MAX: usize = 64 << 10;

/// The largest message that fits its own descriptor (haul's `inline`).
const INLINE_BYTES_MAX: usize = 8192;

/// Below this size nobody builds a message in memory of its own: a memory file and a mapping each
/// take longer than the copy.
const SEALED_BYTES_MIN: usize = 64 << 10;

/// What B's memory is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Used before.
    Warm,
    /// New, so that its page faults are part of the transfer.
    Cold,
}

/// Who is measured.
#[derive(Clone, Debug)]
pub struct Subject {
    /// As records spell it: `haul:ring`, `ucx`.
    pub name: String,
    /// Its own drivers; `None` where haul's have it.
    pub found: Option<Found>,
}

/// Transfers of one size.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The size of a message in bytes.
    pub size: usize,
    /// What B's memory is like.
    pub target: Target,
    /// Whether another program keeps one of the two processors busy.
    pub is_busy: bool,
    /// Who is measured; see [`baseline_first`].
    pub subjects: Vec<Subject>,
    /// How haul's own drivers are started.
    pub driver: Launch,
    /// Peers that were asked for and are not there.
    pub left_out: Vec<String>,
    /// How long a try may take.
    pub budget: Duration,
    /// How often it is measured at most until neither the hypervisor nor another program disturbs
    /// it: what two processes that wait for each other lose by it is more than what one does. The
    /// last try counts.
    pub tries: u32,
    /// What content and orders are drawn from.
    pub seed: u64,
}

/// The subjects in the order that comparisons want: what every system has stands first.
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

    /// Messages of a sample, at most.
    pub(super) fn count(&self, kind: Kind) -> usize {
        let (bytes, most) = match kind {
            _ if self.is_busy => (SAMPLE_BYTES_BUSY, MESSAGES_MAX_BUSY),
            Kind::Echo => (SAMPLE_BYTES, ECHOES_MAX),
            Kind::Transfer => (SAMPLE_BYTES, MESSAGES_MAX),
        };
        (bytes / self.size.max(1)).clamp(1, most)
    }

    /// Subjects that can move such messages.
    pub(super) fn entrants(&self) -> impl Iterator<Item = &Subject> {
        self.subjects.iter().filter(|subject| can_move(&subject.name, self.size, self.target))
    }
}

/// Whether a transport is one for messages of this size to such memory. What is leased or handed
/// over comes into memory of its own, which was used before: new memory at B is nothing that it
/// touches.
#[must_use]
pub fn can_move(name: &str, size: usize, target: Target) -> bool {
    match name {
        "haul:inline" => size <= INLINE_BYTES_MAX,
        name if is_sealed(name) => size >= SEALED_BYTES_MIN && target == Target::Warm,
        "haul:lease" => target == Target::Warm,
        _ => true,
    }
}

/// Whether a transport hands over what was built in place.
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
            _ => Err(format!("no target is {text:?}; targets are warm and cold")),
        }
    }
}
