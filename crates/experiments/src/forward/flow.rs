//! The path of the packets, the layout of the rings between switch and guest, and the buffers of a
//! guest.

use std::fmt;
use std::str::FromStr;

/// The source and the direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Generator, switch, guest, switch, sink: physical, virtual, physical.
    Pvp,
    /// The switch makes packets, and the guest drops them.
    Enqueue,
    /// The guest makes packets, and the switch drops them.
    Dequeue,
    /// A fixed number of packets circulates between switch and guest.
    Loopback,
    /// The guest makes packets, and the switch returns them. Only in this flow can haul set the
    /// load for any switch.
    Return,
}

impl Flow {
    /// All flows.
    pub const ALL: [Self; 5] =
        [Self::Pvp, Self::Enqueue, Self::Dequeue, Self::Loopback, Self::Return];

    /// The flow's name in commands, and after `forward.` in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pvp => "pvp",
            Self::Enqueue => "enqueue",
            Self::Dequeue => "dequeue",
            Self::Loopback => "loopback",
            Self::Return => "return",
        }
    }

    /// Whether the guest makes the packets. Otherwise the switch makes them.
    #[must_use]
    pub fn is_from_guest(self) -> bool {
        matches!(self, Self::Dequeue | Self::Return)
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Flow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|flow| flow.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown flow {text:?}; the flows are {names}")
        })
    }
}

/// The properties of a ring's layout on which switch and guest agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Split rings with mergeable buffers, which most guests use.
    Split,
    /// Split rings without mergeable buffers, so that DPDK's guest receives with vector
    /// instructions.
    SplitVector,
    /// Split rings, mergeable buffers, used in order.
    SplitInOrder,
    /// Packed rings, mergeable buffers.
    Packed,
    /// Packed rings, mergeable buffers, used in order.
    PackedInOrder,
    /// Packed rings without mergeable buffers, used in order, so that DPDK's guest receives and
    /// sends with vector instructions if the processor has AVX-512.
    PackedVector,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 6] = [
        Self::Split,
        Self::SplitVector,
        Self::SplitInOrder,
        Self::Packed,
        Self::PackedInOrder,
        Self::PackedVector,
    ];

    /// The layout's name in commands and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::SplitVector => "split-vector",
            Self::SplitInOrder => "split-in-order",
            Self::Packed => "packed",
            Self::PackedInOrder => "packed-in-order",
            Self::PackedVector => "packed-vector",
        }
    }

    /// Whether a packet may take several buffers.
    #[must_use]
    pub fn is_mergeable(self) -> bool {
        !matches!(self, Self::SplitVector | Self::PackedVector)
    }

    /// Whether buffers are used in the order in which they were made available.
    #[must_use]
    pub fn is_in_order(self) -> bool {
        matches!(self, Self::SplitInOrder | Self::PackedInOrder | Self::PackedVector)
    }

    /// Whether available and used descriptors share one ring.
    #[must_use]
    pub fn is_packed(self) -> bool {
        matches!(self, Self::Packed | Self::PackedInOrder | Self::PackedVector)
    }
}

/// How testpmd as guest holds a packet that is longer than [`GUEST_ROOM_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// One buffer for each packet, which the guest makes as long as the longest packet.
    One,
    /// Several buffers of the usual size: the switch merges buffers for a packet to the guest, and
    /// a packet from the guest is a chain.
    Several,
}

/// The number of a packet's bytes that fit into one buffer of the usual size: DPDK's
/// RTE_MBUF_DEFAULT_DATAROOM (lib/mbuf/rte_mbuf_core.h), and haul's as well.
pub const GUEST_ROOM_BYTES: usize = 2048;

const _: () = assert!(GUEST_ROOM_BYTES == haul::forward::ROOM_BYTES);

impl Buffers {
    /// The buffers of a guest with this layout: several, if a packet may take several.
    #[must_use]
    pub fn of(layout: Layout) -> Self {
        if layout.is_mergeable() { Self::Several } else { Self::One }
    }

    /// The name in commands and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Several => "several",
        }
    }
}

impl FromStr for Buffers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = [Self::One, Self::Several].into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| "write one or several".into())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|layout| layout.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown layout {text:?}; the layouts are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_and_layout_names_parse() {
        for flow in Flow::ALL {
            assert_eq!(flow.to_string().parse(), Ok(flow));
        }
        for layout in Layout::ALL {
            assert_eq!(layout.to_string().parse(), Ok(layout));
        }
        for layout in Layout::ALL {
            let buffers = Buffers::of(layout);
            assert_eq!(buffers == Buffers::Several, layout.is_mergeable());
            assert_eq!(buffers.name().parse(), Ok(buffers));
        }
        assert!("two".parse::<Buffers>().unwrap_err().contains("several"));
        assert!("circle".parse::<Flow>().unwrap_err().contains("loopback"));
        assert!("round".parse::<Layout>().unwrap_err().contains("split-vector"));
    }
}
