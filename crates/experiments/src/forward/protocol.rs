//! The messages between a run and the processes in which haul forwards: a line of JSON for a
//! task, and a line for the answer.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The side of the rings that a process implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The back end, together with the physical side.
    Switch,
    /// The front end, which is the driver in a virtual machine.
    Guest,
}

/// The source of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A generator that numbers each packet and notes its due time.
    Generator,
    /// Packets that contain arbitrary bytes of their buffers, like those of DPDK's `net_null`.
    Null,
}

impl Source {
    /// The source's name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Generator => "gen",
            Self::Null => "null",
        }
    }
}

/// The settings of a process until it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The side.
    pub role: Role,
    /// The flow's name: see [`super::Flow`].
    pub flow: String,
    /// The layout's name: see [`super::Layout`].
    pub layout: String,
    /// The size of the packets that the process makes, if it makes packets.
    pub size_bytes: usize,
    /// The name of the process's copy function.
    pub copy: String,
    /// The engine that copies long bursts to the guest.
    pub engine: Option<String>,
    /// The source of packets.
    pub source: Source,
    /// The socket between switch and guest.
    pub socket: PathBuf,
    /// Queue pairs between switch and guest.
    pub queues: u16,
    /// The processors of the threads that forward, at most one for each queue pair.
    pub cpus: Vec<usize>,
    /// Whether the other side is a virtual machine's kernel, which may hold packets for longer than
    /// a process that polls.
    pub is_to_kernel: bool,
    /// Whether the guest listens on the socket; otherwise the switch does.
    pub guest_listens: bool,
}

/// What follows the name of a copy beside an engine, before the engine's name.
pub(super) const ENGINE: &str = "+engine=";

/// A copy without its engine, and the engine.
pub(super) fn copy_and_engine(copy: &str) -> (&str, Option<&str>) {
    copy.split_once(ENGINE).map_or((copy, None), |(copy, engine)| (copy, Some(engine)))
}

/// A task for a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Task {
    /// Waits until the process sees the other side.
    Await,
    /// Begins to forward. A process that makes packets makes this number of packets per second,
    /// or as many as it can if there is no number.
    Go(Option<f64>),
    /// Makes packets of this size from now on.
    Resize(usize),
    /// Makes no more packets, but forwards those of the other side.
    Pause,
    /// Starts or stops counting the cycles of calls at the ring.
    Meter(bool),
    /// Answers with the process's counters so far.
    Count,
    /// Makes packets with new numbers at this rate for a time, waits for their arrival, and
    /// answers with the counters.
    Trial {
        /// Packets per second.
        rate: f64,
        /// The time in seconds.
        seconds: f64,
    },
    /// Makes no more packets, waits for the packets in transit, ends, and answers with its
    /// counters.
    Halt,
}

/// An answer of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// The process has started.
    Ready,
    /// The task is done.
    Done,
    /// The counters of the process.
    Counted(Counted),
    /// The task failed.
    Failed(String),
}

/// The counters of a process since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The time of the counters, by the clock that all processes share.
    pub time_ns: u64,
    /// The number of packets that the process made, numbered from 0.
    pub made: u64,
    /// The number of these packets that the process could not send at their due time.
    pub unsent: u64,
    /// The number of packets from the other side's ring.
    pub rx_packets: u64,
    /// The number of packets into the other side's ring.
    pub tx_packets: u64,
    /// The number of packets that arrived at the process's end of the flow: at the physical side,
    /// or dropped on purpose.
    pub returned: u64,
    /// The packets that the process dropped, by `port.reason`.
    pub drops: BTreeMap<String, u64>,
    /// The number of packets that never arrived, according to their numbers.
    pub missing: u64,
    /// The number of packets that arrived late, according to their numbers.
    pub reordered: u64,
    /// Nanoseconds from a packet's due time to its return, by quantile.
    pub latency_ns: Vec<(f64, f64)>,
    /// For each queue pair, the number of receive calls by their number of packets, from 0.
    pub rx_batches: BTreeMap<u16, Vec<u64>>,
    /// Cycles of the process's threads per packet; 0 if no packet arrived.
    pub cycles_per_packet: f64,
    /// The number of cycles in rounds that moved packets.
    pub busy_cycles: u64,
    /// The processor time of all threads of the process.
    pub cpu_ns: u64,
    /// Metered calls at the ring that moved packets: calls that received packets, and calls that
    /// sent packets.
    pub metered: [Metered; 2],
    /// The features that both sides agreed on, as virtio's bits.
    pub features: u64,
    /// The number of descriptors of a ring.
    pub ring_size: u32,
    /// The size of the process's pages.
    pub page_bytes: u64,
}

/// Calls of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metered {
    /// The cycles of the calls.
    pub cycles: u64,
    /// The packets of the calls.
    pub packets: u64,
}
