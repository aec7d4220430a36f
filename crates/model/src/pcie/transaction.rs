//! One named term of a cost, and the sums over many.

/// Who starts a transaction, and which way its data goes. The names are those of the four metrics
/// that processors' counters give for each root port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The device reads memory.
    InboundRead,
    /// The device writes memory.
    InboundWrite,
    /// A processor reads the device.
    OutboundRead,
    /// A processor writes the device.
    OutboundWrite,
}

/// One of the two directions of a link's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the device to the host.
    ToHost,
    /// From the host to the device.
    ToDevice,
}

/// A named transaction, a second of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// What it is for: `rx descriptor fetch`.
    pub what: &'static str,
    /// Who starts it.
    pub direction: Direction,
    /// How many a second.
    pub count_per_s: f64,
    /// Data of one, in bytes; the mean where they differ.
    pub payload_bytes: f64,
    /// Headers, framing and padding of one, both ways together, in bytes; the mean likewise.
    pub header_bytes: f64,
    /// The part of [`header_bytes`](Self::header_bytes) that goes against the data: a read's
    /// requests. 0 for a write.
    pub request_bytes: f64,
}

/// Sums by direction, in bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    payload: [f64; 4],
    headers: [f64; 4],
    to_host: f64,
    to_device: f64,
}

impl Direction {
    /// All four.
    pub const ALL: [Self; 4] =
        [Self::InboundRead, Self::InboundWrite, Self::OutboundRead, Self::OutboundWrite];

    /// `inbound_read`, `inbound_write`, `outbound_read`, `outbound_write`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::InboundRead => "inbound_read",
            Self::InboundWrite => "inbound_write",
            Self::OutboundRead => "outbound_read",
            Self::OutboundWrite => "outbound_write",
        }
    }

    /// Which way the data goes; a read's requests go the other way.
    #[must_use]
    pub fn way(self) -> Way {
        match self {
            Self::InboundWrite | Self::OutboundRead => Way::ToHost,
            Self::InboundRead | Self::OutboundWrite => Way::ToDevice,
        }
    }
}

impl Way {
    /// `to_host` or `to_device`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ToHost => "to_host",
            Self::ToDevice => "to_device",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::ToHost => Self::ToDevice,
            Self::ToDevice => Self::ToHost,
        }
    }
}

impl Transaction {
    /// Data and headers, both ways, in bytes a second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.count_per_s * (self.payload_bytes + self.header_bytes)
    }

    /// What it sends one way, in bytes a second.
    #[must_use]
    pub fn bytes_per_s_on(&self, way: Way) -> f64 {
        if way == self.direction.way() {
            self.count_per_s * (self.payload_bytes + self.header_bytes - self.request_bytes)
        } else {
            self.count_per_s * self.request_bytes
        }
    }
}

impl Sums {
    /// Of these terms.
    #[must_use]
    pub fn of(terms: &[Transaction]) -> Self {
        let mut sums = Self::default();
        for term in terms {
            let at = term.direction as usize;
            sums.payload[at] += term.count_per_s * term.payload_bytes;
            sums.headers[at] += term.count_per_s * term.header_bytes;
            sums.to_host += term.bytes_per_s_on(Way::ToHost);
            sums.to_device += term.bytes_per_s_on(Way::ToDevice);
        }
        sums
    }

    /// Data alone: what a processor's counters show.
    #[must_use]
    pub fn payload_bytes_per_s(&self, direction: Direction) -> f64 {
        self.payload[direction as usize]
    }

    /// Headers, framing and padding, both ways.
    #[must_use]
    pub fn header_bytes_per_s(&self, direction: Direction) -> f64 {
        self.headers[direction as usize]
    }

    /// Everything that goes one way: what the link has to carry.
    #[must_use]
    pub fn bytes_per_s_on(&self, way: Way) -> f64 {
        match way {
            Way::ToHost => self.to_host,
            Way::ToDevice => self.to_device,
        }
    }

    /// The way that carries more, and what it carries.
    #[must_use]
    pub fn busier(&self) -> (Way, f64) {
        let way = if self.to_host > self.to_device { Way::ToHost } else { Way::ToDevice };
        debug_assert!(self.bytes_per_s_on(way) >= self.bytes_per_s_on(way.other()));
        (way, self.bytes_per_s_on(way))
    }
}

/// The rate at which a link is full that carries these terms at `packets_per_s`, batches and sizes
/// staying as they are, and the way that is full first. `None` where the terms carry nothing.
#[must_use]
pub fn rate_max(sums: &Sums, packets_per_s: f64, usable_bytes_per_s: f64) -> Option<(f64, Way)> {
    let (way, busy) = sums.busier();
    (busy > 0.0).then(|| (packets_per_s * usable_bytes_per_s / busy, way))
}
