//! What a packet workload moves across PCIe: named transactions, their sums, and the link's limit.
//!
//! Every cost is a list of [`Transaction`]s a second, summed at the end, so that a page can show
//! the terms and a reader can check them. From the bottom up:
//!
//! - `error`: why a link, a workload or a NIC is refused;
//! - `number`: rates and counts as a command line writes them;
//! - `link`: a link's usable bytes, and what a read or a write adds in headers;
//! - `transaction`: one named term, and the sums over many;
//! - `workload`: rate, sizes and batches;
//! - `capture`: the sizes of a capture's packets;
//! - `nic`: NICs and their drivers, as data;
//! - `line`: the line behind a port, and rates in its bits;
//! - `doorbells`: how many of them a packet costs;
//! - `estimate`: the terms by the drivers' rules;
//! - `explain`: what bytes go to, and which term two lists differ in;
//! - `advise`: what would let a link carry more;
//! - `fracture`: where a curve of outbound writes breaks, and why;
//! - `device`: a NIC and its driver that count transactions one by one;
//! - `recipe`: the terms by VTune's cookbook recipe;
//! - `bench`: the public model of pcie-bench, as it is and mended.

mod advise;
mod bench;
mod capture;
mod device;
mod doorbells;
mod error;
mod estimate;
mod explain;
mod fracture;
mod line;
mod link;
mod nic;
mod number;
mod recipe;
mod transaction;
mod workload;

pub use advise::{Advice, Limit, advise, limit};
pub use bench::{Bench, BenchNic};
pub use capture::Capture;
pub use device::{Count, Counts, Device, Setup};
pub use error::PcieError;
pub use estimate::{Estimate, estimate};
pub use explain::{Cause, Difference, Term, busiest, differences};
pub use fracture::{Fracture, Swept, fracture};
pub use line::{LineRate, Offered, check_rate, line_rate, packets_per_s};
pub use link::{Completions, Generation, Link, Overhead, Read, Settings};
pub use nic::{
    Choice, Completion, CompletionDoorbells, Fetch, Inline, Mode, NICS, Nic, RxDoorbell,
    Thresholds, TxDescriptors, TxDoorbell, Version, WriteBack,
};
pub use number::Rate;
pub use recipe::{Recipe, recipe};
pub use transaction::{Direction, Sums, Transaction, Way, rate_max};
pub use workload::{Histogram, Packets, Traffic, Workload};
