//! The trait of a source, its counts, and its errors.

use std::io;

use haul_model::pcie::{Direction, Way};

/// The quantity of a count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quantity {
    /// Bytes of data of one kind of transaction.
    Traffic(&'static str),
    /// Bytes of data in one direction, independent of the side that requested them.
    Payload(&'static str),
    /// Packets.
    Packets(String),
    /// Bytes of packets.
    PacketBytes(String),
    /// A share of time, in percent.
    Percent(String),
    /// The number of events.
    Events(String),
}

/// One count.
#[derive(Clone, Debug, PartialEq)]
pub struct Count {
    /// The quantity that is counted.
    pub quantity: Quantity,
    /// The value in the quantity's unit: the sum since some moment, or the present value of a
    /// share.
    pub value: f64,
    /// The size of the counter's unit, for counters that count larger pieces. The value divided
    /// by this size is the value of the counter, which may wrap.
    pub unit: f64,
}

/// The description of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// The unit of a count: `4 B of data, no headers`.
    pub unit: &'static str,
    /// The devices or ports that the source sums up: `all devices below the stack of 0000:5d`.
    pub granularity: String,
    /// The source's known errors.
    pub traps: Vec<&'static str>,
    /// Whether haul's authors have compared the source with a known transfer.
    pub is_tested: bool,
}

/// A source of counts.
pub trait Source: Send {
    /// The source's name, such as `intel-iio`.
    fn name(&self) -> &'static str;

    /// The source's description.
    fn about(&self) -> &About;

    /// The present values of all counters of the source.
    ///
    /// # Errors
    /// [`SourceError`]; the next read may succeed.
    fn read(&mut self) -> Result<Vec<Count>, SourceError>;
}

/// The reason why a source cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system forbids the access.
    #[error(
        "counters of {what} exist, but this user may not read them ({reason}): run haul as \
         root, or give it CAP_PERFMON, or allow it to all users: sysctl \
         kernel.perf_event_paranoid=0"
    )]
    Forbidden {
        /// The unit.
        what: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The system refuses the counters.
    #[error(
        "counters of {what} cannot be opened: {reason}; check whether another profiler uses them"
    )]
    Refused {
        /// The unit.
        what: String,
        /// The system's error.
        reason: io::Error,
    },
    /// The source existed before and has vanished.
    #[error("{what} has vanished: {reason}; check whether the device was removed or reset")]
    Gone {
        /// The unit.
        what: String,
        /// The system's error.
        reason: io::Error,
    },
    /// `/sys` describes the unit in a form that haul does not know.
    #[error("/sys describes {what} in a form that haul does not know: it has no {missing}")]
    Unknown {
        /// The unit.
        what: String,
        /// The missing part.
        missing: &'static str,
    },
}

impl SourceError {
    /// Turns the system's error into the error for a counter that cannot be opened.
    pub(super) fn opening(what: &str, reason: io::Error) -> Self {
        let what = what.to_owned();
        match reason.kind() {
            io::ErrorKind::PermissionDenied => Self::Forbidden { what, reason },
            _ => Self::Refused { what, reason },
        }
    }
}

impl Quantity {
    /// The bytes of the traffic in one direction.
    #[must_use]
    pub fn of(direction: Direction) -> Self {
        Self::Traffic(direction.name())
    }

    /// The data in one direction.
    #[must_use]
    pub fn one_way(way: Way) -> Self {
        Self::Payload(way.name())
    }

    /// The quantity's name in records.
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

    /// The unit of the quantity's rate.
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
