//! A term of a cost, and the sums over terms.

/// The initiator of a transaction and the direction of its data. The names are those of the four
/// metrics that processors' counters provide for each root port.
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

/// A named kind of transaction, as a rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Transaction {
    /// The purpose: `rx descriptor fetch`.
    pub what: &'static str,
    /// The initiator and the direction of the data.
    pub direction: Direction,
    /// The number of transactions a second.
    pub count_per_s: f64,
    /// The data of one transaction in bytes; the mean if they differ.
    pub payload_bytes: f64,
    /// The headers, framing and padding of one transaction, in both directions together, in bytes;
    /// the mean if they differ.
    pub header_bytes: f64,
    /// The part of [`header_bytes`](Self::header_bytes) in the direction opposite to the data: a
    /// read's requests. 0 for a write.
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
    /// All four directions.
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

    /// The direction of the link that carries the data. The other one carries a read's requests.
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
    /// Data and headers in both directions, in bytes a second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.count_per_s * (self.payload_bytes + self.header_bytes)
    }

    /// Data and headers in one direction of the link, in bytes a second.
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
    /// The sums of these terms.
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

    /// The data, which processors' counters show.
    #[must_use]
    pub fn payload_bytes_per_s(&self, direction: Direction) -> f64 {
        self.payload[direction as usize]
    }

    /// Headers, framing and padding, in both directions of the link.
    #[must_use]
    pub fn header_bytes_per_s(&self, direction: Direction) -> f64 {
        self.headers[direction as usize]
    }

    /// All bytes in one direction of the link.
    #[must_use]
    pub fn bytes_per_s_on(&self, way: Way) -> f64 {
        match way {
            Way::ToHost => self.to_host,
            Way::ToDevice => self.to_device,
        }
    }

    /// The direction of the link that carries more bytes, and its bytes a second.
    #[must_use]
    pub fn busier(&self) -> (Way, f64) {
        let way = if self.to_host > self.to_device { Way::ToHost } else { Way::ToDevice };
        debug_assert!(self.bytes_per_s_on(way) >= self.bytes_per_s_on(way.other()));
        (way, self.bytes_per_s_on(way))
    }
}

/// The rate at which the link is full, and the direction that is full first. `sums` must be those
/// at `packets_per_s`; batches and sizes are assumed to stay the same. `None` if the terms have no
/// bytes.
#[must_use]
pub fn rate_max(sums: &Sums, packets_per_s: f64, usable_bytes_per_s: f64) -> Option<(f64, Way)> {
    let (way, busy) = sums.busier();
    (busy > 0.0).then(|| (packets_per_s * usable_bytes_per_s / busy, way))
}
