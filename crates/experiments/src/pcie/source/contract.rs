//! The trait, what is read, and why it cannot be.

use std::io;

use haul_model::pcie::{Direction, Way};

/// What a source counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Bytes of data that one kind of transaction moves.
    Traffic(&'static str),
    /// Bytes of data one way, whoever asked for them.
    Payload(&'static str),
    /// Packets.
    Packets(String),
    /// Bytes of packets.
    PacketBytes(String),
    /// A share of time, in percent.
    Percent(String),
    /// Times that something happened.
    Events(String),
}

/// One of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// Of what.
    pub quantity: Quantity,
    /// So much, in the quantity's own unit: since some moment, or now where it is a share.
    pub value: f64,
    /// What the value is a multiple of, for counters that count larger pieces; what wraps is the
    /// value over it.
    pub unit: f64,
}

/// What a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// What one count is: `4 B of data, no headers`.
    pub unit: &'static str,
    /// Of what it is the sum: `all devices below the stack of 0000:5d`.
    pub granularity: String,
    /// What is known to go wrong.
    pub traps: Vec<&'static str>,
    /// Whether it was ever compared with a known transfer by us.
    pub is_tested: bool,
}

/// Whatever counts.
pub trait Source: Send {
    /// `intel-iio`.
    fn name(&self) -> &'static str;

    /// What it is.
    fn about(&self) -> &About;

    /// All its counters now.
    ///
    /// # Errors
    /// [`SourceError`]; the next read may succeed.
    fn read(&mut self) -> Result<Vec<Count>, SourceError>;
}

/// Why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system forbids it.
    #[error(
        "counters of {what} are there, and this user may not read them ({reason}): run haul as \
         root, or give it CAP_PERFMON, or allow everybody: sysctl kernel.perf_event_paranoid=0"
    )]
    Forbidden {
        /// The unit.
        what: String,
        /// What the system said.
        reason: io::Error,
    },
    /// The system refuses it.
    #[error(
        "counters of {what} cannot be opened: {reason}; look whether another profiler holds them"
    )]
    Refused {
        /// The unit.
        what: String,
        /// What the system said.
        reason: io::Error,
    },
    /// It was there and is not any more.
    #[error("{what} is gone: {reason}; look whether the device was removed or reset")]
    Gone {
        /// The unit.
        what: String,
        /// What the system said.
        reason: io::Error,
    },
    /// `/sys` describes it in a way that we do not know.
    #[error("{what} is described in a way that haul does not know: it has no {missing}")]
    Unknown {
        /// The unit.
        what: String,
        /// What is missing.
        missing: &'static str,
    },
}

impl SourceError {
    /// Of what the system said as a counter was opened.
    pub(super) fn opening(what: &str, reason: io::Error) -> Self {
        let what = what.to_owned();
        match reason.kind() {
            io::ErrorKind::PermissionDenied => Self::Forbidden { what, reason },
            _ => Self::Refused { what, reason },
        }
    }
}

impl Quantity {
    /// The traffic of a direction.
    #[must_use]
    pub fn of(direction: Direction) -> Self {
        Self::Traffic(direction.name())
    }

    /// The data that goes one way.
    #[must_use]
    pub fn one_way(way: Way) -> Self {
        Self::Payload(way.name())
    }

    /// What a record calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Traffic(name) | Self::Payload(name) => name,
            Self::Packets(name)
            | Self::PacketBytes(name)
            | Self::Percent(name)
            | Self::Events(name) => name,
        }
    }

    /// The unit of its rate.
    #[must_use]
    pub fn rate_unit(&self) -> &'static str {
        match self {
            Self::Traffic(_) | Self::Payload(_) | Self::PacketBytes(_) => "bytes/s",
            Self::Packets(_) => "packets/s",
            Self::Percent(_) => "%",
            Self::Events(_) => "events/s",
        }
    }
}
