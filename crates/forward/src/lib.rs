//! Forwards packets in bursts between ports, such as a virtual machine's.
//!
//! A port is a queue pair that one worker drives: [`Port::rx_burst`] appends packets to a
//! [`Burst`], [`Port::tx_burst`] removes them from its front. Packets are buffers of a [`Pool`]
//! that belongs to the worker. The pool's memory is a memory file, so that a virtual machine can
//! use the file as its memory.
//!
//! ```
//! # mod haul { pub mod forward { pub use haul_forward::*; } }
//! use haul::forward::{Burst, Null, Pool, Port};
//! # fn main() -> Result<(), haul::forward::Error> {
//! let mut pool = Pool::new(1024)?;
//! let (mut source, mut target) = (Null::source("in", 64), Null::new("out"));
//! let mut burst = Burst::new();
//! source.rx_burst(&mut pool, &mut burst);
//! target.tx_burst(&mut pool, &mut burst);
//! assert_eq!(target.counters().tx.packets, 32);
//! # Ok(()) }
//! ```
//!
//! # From the bottom up
//!
//! - `error`: the errors of a port;
//! - `copy`: the function that copies a burst, a setting of each port;
//! - `offloads`: work that goes with a packet: a checksum, the division of a long packet;
//! - `pool`: packet buffers in memory that can be shared;
//! - `packets`: packets and a guest's memory, as a ring's code uses them;
//! - `counters`: what a port counts: packets, bytes, drops by reason, sizes of bursts;
//! - `contract`: the interface of every port;
//! - `null`: a port that generates packets without content and discards all;
//! - `clock`: time stamps of packets and cycles of workers;
//! - `pcap`: captures, read and written;
//! - `interface`: network interfaces of this machine;
//! - `afpacket`: a network interface through an AF_PACKET socket;
//! - `afxdp`: a network interface through an AF_XDP socket;
//! - `nic`: a modelled NIC, which counts what would cross PCIe;
//! - `traffic`: a generator and a sink of packets;
//! - `run`: a worker that forwards between two ports;
//! - `ring`: virtio's rings, in memory that both sides write;
//! - `messages`: vhost-user's messages;
//! - `user_socket`: the sockets that carry these messages;
//! - `vhost`: the host's side of a virtual machine's device;
//! - `virtio`: the guest's side of such a device;
//! - [`telemetry`]: a client of DPDK's telemetry.

mod afpacket;
mod afxdp;
mod clock;
mod contract;
mod copy;
mod counters;
mod error;
mod interface;
mod messages;
mod nic;
mod null;
mod offloads;
mod packets;
mod pcap;
mod pool;
mod ring;
mod run;
pub mod telemetry;
mod traffic;
mod user_socket;
mod vhost;
mod virtio;

pub use afpacket::AfPacket;
pub use afxdp::AfXdp;
pub use contract::{Agreement, Link, Port};
pub use copy::{Copier, CopyMethod, CustomCopy, Part};
pub use counters::{Counters, Direction, DropReason};
pub use error::Error;
pub use haul_model::pcie::Counts;
pub use haul_peer::users::Users;
pub use nic::{ModelledCore, Nic, NicSettings, Time};
pub use null::Null;
pub use offloads::{Checksum, Header, Offloads};
pub use packets::{GuestMemory, Incoming, Outgoing};
pub use pcap::{Pcap, PcapSettings, Replay};
pub use pool::{
    BURST_MAX, Burst, HEADROOM_BYTES, PACKET_BYTES_MAX, Packet, Pool, ROOM_BYTES, Segment,
};
pub use run::{Host, Mode, Observer, Retry, Running, Settings, Snapshot};
pub use traffic::frame::Addresses;
pub use traffic::generator::{Generator, Pace, Traffic};
pub use traffic::order::Order;
pub use traffic::sink::{Findings, Sink, Watch};
pub use traffic::size::Sizes;
pub use user_socket::Role;
pub use vhost::{DeviceRing, KeptDevice, Progress, Vhost, VhostSettings};
pub use virtio::{Virtio, VirtioSettings};

/// The example of the crate's README, which must keep working.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
