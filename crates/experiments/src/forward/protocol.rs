//! What a run and the processes that haul forwards in say to each other: a line of JSON there, and
//! one back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Which side of the rings a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The back end, and the physical side with it.
    Switch,
    /// The front end: what a virtual machine's driver is.
    Guest,
}

/// Where packets come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A generator that numbers each and notes when it was due.
    Generator,
    /// Packets with whatever bytes their buffers held, as of DPDK's `net_null`.
    Null,
}

impl Source {
    /// Its name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Generator => "gen",
            Self::Null => "null",
        }
    }
}

/// What a process forwards, until it is ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// Which side it is.
    pub role: Role,
    /// The flow's name: see [`super::Flow`].
    pub flow: String,
    /// The layout's name: see [`super::Layout`].
    pub layout: String,
    /// The size of the packets that it makes, if it makes any.
    pub size_bytes: usize,
    /// Who copies, by name.
    pub copy: String,
    /// Where packets come from.
    pub source: Source,
    /// The socket between switch and guest.
    pub socket: PathBuf,
    /// Queue pairs between switch and guest.
    pub queues: u16,
    /// The processors of the threads that forward, at most one for each queue pair.
    pub cpus: Vec<usize>,
    /// Whether the other side is a virtual machine's kernel: it may hold packets for longer than a
    /// process that polls.
    pub is_to_kernel: bool,
}

/// What a process is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// To wait until it sees the other side.
    Await,
    /// To begin: to make packets from now on, where it makes any; this many a second, or as many
    /// as it can.
    Go(Option<f64>),
    /// To make packets of this size from now on.
    Resize(usize),
    /// To count the cycles of calls at the ring as well, or no longer.
    Meter(bool),
    /// To say what it has counted so far.
    Count,
    /// To make so many packets a second for a time, numbered anew, to wait for them, and to say
    /// what came of them.
    Trial {
        /// Packets a second.
        rate: f64,
        /// How long, in seconds.
        seconds: f64,
    },
    /// To make no more packets, to let those arrive that are under way, to end, and to say what it
    /// has counted.
    Halt,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// It is there.
    Ready,
    /// It was done.
    Done,
    /// What it has counted.
    Counted(Counted),
    /// It failed.
    Failed(String),
}

/// What a process has counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// When, by the clock that all processes share.
    pub time_ns: u64,
    /// Packets that it made: numbered from 0.
    pub made: u64,
    /// Of these, how many it could not send at the moment at which they were due.
    pub unsent: u64,
    /// Packets from the other side's ring.
    pub rx_packets: u64,
    /// Packets into the other side's ring.
    pub tx_packets: u64,
    /// Packets that came out at its end: of the physical side, or dropped on purpose.
    pub returned: u64,
    /// What it dropped, by `port.reason`.
    pub drops: BTreeMap<String, u64>,
    /// What numbers say: how many never came, and how many came late.
    pub missing: u64,
    /// See there.
    pub reordered: u64,
    /// Nanoseconds from when a packet was due to when it was back, by quantile.
    pub latency_ns: Vec<(f64, f64)>,
    /// Of each queue pair, receive calls by the number of packets, from 0.
    pub rx_batches: BTreeMap<u16, Vec<u64>>,
    /// Cycles of its threads for a packet; nothing where none came.
    pub cycles_per_packet: f64,
    /// Cycles in rounds that moved packets.
    pub busy_cycles: u64,
    /// Of calls at the ring that moved packets, while these were metered: those that received, and
    /// those that sent.
    pub metered: [Metered; 2],
    /// What both sides agreed on, as virtio's feature bits.
    pub features: u64,
    /// Descriptors of a ring.
    pub ring_size: u32,
    /// The size of its pages.
    pub page_bytes: u64,
}

/// Calls of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    /// What they took.
    pub cycles: u64,
    /// What they moved.
    pub packets: u64,
}
