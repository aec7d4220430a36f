//! Packets through a virtual machine's network card: haul's forwarder beside DPDK's testpmd and
//! Open vSwitch, all restarted and interleaved in one run.
//!
//! From the bottom up:
//!
//! - [`flow`]: what packets go through;
//! - [`protocol`]: what a run and haul's own processes say to each other;
//! - [`testpmd`]: DPDK's testpmd as switch and as guest;
//! - [`openvswitch`]: Open vSwitch with DPDK as switch;
//! - [`qemu`]: a Linux kernel under QEMU as guest;
//! - `ceiling`: copies that move no bytes;
//! - `gate`: the end of a flow that packets come from or go to;
//! - `meter`: how long calls at a ring take;
//! - `trial`: a load that is offered for a time, and what came of it;
//! - `worker`: a thread that haul forwards in;
//! - [`driver`]: the process that haul forwards in;
//! - [`search`]: the highest load without loss;
//! - `waits`: whether a thread that polls had its processor for itself;
//! - [`sides`]: the two sides of a flow, whichever program each is;
//! - [`ledger`]: where packets were lost;
//! - [`mod@bench`]: what is measured;
//! - `run`: restarts of every subject in turn;
//! - `records`: from restarts to records;
//! - `throughput`: the highest loads that hold a goal, and latency below them;
//! - `sweep`: many sizes, one after the other;
//! - `measurement`: a flow as an experiment.

pub mod bench;
mod ceiling;
pub mod driver;
pub mod flow;
mod gate;
pub mod ledger;
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
pub use flow::{Flow, Layout};
pub use openvswitch::OpenVswitch;
pub use protocol::Source;
pub use qemu::Qemu;
pub use sides::{Forwarder, is_library};
pub use testpmd::Testpmd;
