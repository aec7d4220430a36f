//! Packets forwarded in bursts between ports, and a virtual machine's as one of them.
//!
//! A port is a queue pair that one worker drives: [`Port::rx_burst`] appends packets to a
//! [`Burst`], [`Port::tx_burst`] takes them from its front. Packets are buffers of a [`Pool`],
//! which belongs to the worker; its memory is a memory file, so that it can be a virtual machine's
//! memory.
//!
//! ```
//! # mod haul { pub use haul_forward as forward; }
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
//! - `error`: what can go wrong;
//! - `copy`: the copy of a burst, which is a parameter;
//! - `pool`: packet buffers in memory that can be shared;
//! - `counters`: what a port counts: packets, bytes, drops by reason, sizes of bursts;
//! - `contract`: what every port does;
//! - `null`: packets that come from nowhere and go nowhere;
//! - `clock`: time in packets and in workers;
//! - `pcap`: captures that are read and written;
//! - `interface`: network interfaces of this machine;
//! - `afpacket`: one of them, by a socket of packets;
//! - `afxdp`: one of them, by a socket of XDP;
//! - `nic`: a modelled NIC, which counts what would cross PCIe;
//! - `traffic`: packets that are made and looked at here: generator and sink;
//! - `run`: a worker that forwards between two ports;
//! - `ring`: virtio's rings, in memory that two sides write to;
//! - `messages`: vhost-user's messages;
//! - `user_socket`: the sockets that they go through;
//! - `vhost`: a virtual machine's device, from the host's side;
//! - `virtio`: the same, from the guest's;
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
pub use vhost::{KeptDevice, Vhost, VhostSettings};
pub use virtio::{Virtio, VirtioSettings};

/// The example of the crate's README, which must stay true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
