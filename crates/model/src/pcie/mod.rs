//! The PCIe traffic of a packet workload: named transactions, their sums, and the link's limit.
//!
//! Every cost is a list of [`Transaction`]s a second that is summed at the end, so that a page can
//! show the terms and a reader can check them. From the bottom up:
//!
//! - `error`: the errors of links, workloads and NICs;
//! - `number`: the text form of rates and counts on the command line;
//! - `link`: a link's usable bytes, and the headers of a read or a write;
//! - `transaction`: a term, and the sums over terms;
//! - `workload`: rate, sizes and batches;
//! - `capture`: the sizes of a capture's packets;
//! - `nic`: NICs and their drivers, as data;
//! - `line`: the line behind a port, and rates in its bits;
//! - `doorbells`: the number of doorbells for each packet;
//! - `estimate`: the terms according to the drivers' rules;
//! - `explain`: the causes of traffic, and the differences between two lists of terms;
//! - `advise`: changes that let a link carry more packets;
//! - `fracture`: the rate at which a curve of outbound writes breaks, and the cause;
//! - `device`: a modelled NIC and driver that count transactions one by one;
//! - `recipe`: the terms according to VTune's cookbook recipe;
//! - `bench`: the public model of pcie-bench, as published and corrected.

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
