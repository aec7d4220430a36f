//! Packets through a virtual machine's network card: haul's forwarder compared with DPDK's testpmd
//! and Open vSwitch, all restarted and interleaved in one run.
//!
//! From the bottom up:
//!
//! - [`flow`]: the path of the packets;
//! - [`protocol`]: the messages between a run and haul's own processes;
//! - `library`: a library that a switch loads in addition, or in place of its own;
//! - [`testpmd`]: DPDK's testpmd as switch and as guest;
//! - [`openvswitch`]: Open vSwitch with DPDK as switch;
//! - [`qemu`]: a Linux kernel under QEMU as guest;
//! - `ceiling`: copies that move no bytes;
//! - `gate`: the end of a flow, which packets come from or go to;
//! - `meter`: the time of calls at a ring;
//! - `trial`: a load that is offered for a time, and its outcome;
//! - `worker`: a thread in which haul forwards;
//! - [`driver`]: the process in which haul forwards;
//! - [`search`]: the highest load without loss;
//! - `waits`: whether a polling thread was the only one on its processor;
//! - [`sides`]: the two sides of a flow, and the programs that can be a side;
//! - [`ledger`]: the stages at which packets were lost;
//! - [`mod@bench`]: what is measured;
//! - `counted`: a switch's statistics, compared with the packets of its guest;
//! - `run`: restarts of every subject in turn;
//! - `records`: from restarts to records;
//! - `throughput`: the highest loads that meet a goal, and latency below them;
//! - `sweep`: many sizes, in sequence;
//! - `measurement`: a flow as an experiment.

pub mod bench;
mod ceiling;
mod counted;
pub mod driver;
pub mod flow;
mod gate;
pub mod ledger;
mod library;
mod measurement;
mod meter;
pub mod openvswitch;
pub mod protocol;
pub mod qemu;
mod records;
mod run;
pub mod search;
pub mod sides;
mod sweep;
pub mod testpmd;
mod throughput;
mod trial;
mod waits;
mod worker;

pub use bench::{Bench, Subject};
pub use ceiling::{is_ceiling, method_named, method_names};
pub use flow::{Buffers, Flow, GUEST_ROOM_BYTES, Layout};
pub use library::Library;
pub use openvswitch::{OpenVswitch, VhostPort};
pub use protocol::Source;
pub use qemu::Qemu;
pub use sides::{Forwarder, is_library};
pub use testpmd::Testpmd;
