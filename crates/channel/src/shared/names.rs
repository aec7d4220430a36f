//! The mechanisms by name.

use std::fmt;
use std::str::FromStr;

/// How bytes get from one process to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mechanism {
    /// A small message is copied inside its slot: two copies.
    #[default]
    Inline,
    /// The message goes piece by piece through 1 to 1.75 MiB of shared memory: two copies that
    /// overlap.
    Ring,
    /// The whole message goes through shared memory: two copies, one after the other.
    Staged,
    /// The receiver reads the sender's memory: one copy.
    Pull,
    /// The message is built in shared memory, sealed and mapped: no copy.
    Sealed,
    /// The sender writes to the receiver's memory while the receiver reads the sender's memory:
    /// one copy.
    Double,
    /// The sender copies into receiver memory that it has mapped: one copy.
    Lease,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Self; 7] = [
        Self::Inline,
        Self::Ring,
        Self::Staged,
        Self::Pull,
        Self::Sealed,
        Self::Double,
        Self::Lease,
    ];

    /// The mechanism's name in settings, records and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "inline",
            Self::Ring => "ring",
            Self::Staged => "staged",
            Self::Pull => "pull",
            Self::Sealed => "sealed",
            Self::Double => "double",
            Self::Lease => "lease",
        }
    }

    /// A summary in one line.
    #[must_use]
    pub fn summary(self) -> &'static str {
        match self {
            Self::Inline => "up to 8 KiB inside the message's slot",
            Self::Ring => "1 to 1.75 MiB of shared memory, both copies overlapped",
            Self::Staged => "the whole message copied into shared memory, then out of it",
            Self::Pull => "process_vm_readv by the receiver; the ring if it is refused",
            Self::Sealed => {
                "built in place, write-sealed, mapped private; with trust, handed over unsealed"
            }
            Self::Double => "process_vm_writev and process_vm_readv at once, by one counter",
            Self::Lease => "copied by the sender into mapped, warm memory of the receiver",
        }
    }

    /// The mechanism's requirements.
    #[must_use]
    pub fn needs(self) -> &'static str {
        match self {
            Self::Inline | Self::Ring => "sealed memory",
            Self::Staged => "sealed memory, as much again as the message",
            Self::Pull => "trust at both ends, process_vm_readv, ptrace permission",
            Self::Double => "as pull, both ways, and a processor for each end",
            Self::Lease => "trust at both ends, a target in the receiver's pool",
            Self::Sealed => "sealed memory, a producer that builds there",
        }
    }

    /// How often each byte is copied, at both ends together.
    #[must_use]
    pub fn copies(self) -> u32 {
        match self {
            Self::Inline | Self::Ring | Self::Staged => 2,
            Self::Pull | Self::Double | Self::Lease => 1,
            Self::Sealed => 0,
        }
    }

    /// Whether the mechanism needs permission to access the other process's memory.
    #[must_use]
    pub fn reads_the_peer(self) -> bool {
        matches!(self, Self::Pull | Self::Double)
    }

    /// The mechanism's number in a header.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Inline => 1,
            Self::Ring => 2,
            Self::Staged => 3,
            Self::Pull => 4,
            Self::Sealed => 5,
            Self::Double => 6,
            Self::Lease => 7,
        }
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.number() == number)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mechanism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == text).ok_or_else(|| {
            format!("no mechanism has the name {text:?}; the names are {}", names.join(", "))
        })
    }
}
