//! Whatever counts a NIC's traffic on this machine, behind one trait.
//!
//! A source says what it counts in which unit, of what (a port, a device, a socket), and which
//! traps are known; [`Meter`] makes rates of what it reads, and states a gap where a counter
//! vanished, wrapped beyond recognition or was set back. Files are read under a root that tests
//! replace, and the kernel's counters come through [`perf::Counters`], which tests play from a
//! file.
//!
//! From the bottom up:
//!
//! - `tree`: `/sys` and `/proc` under a root;
//! - [`perf`]: counters of the kernel's perf events;
//! - `pmu`: a unit that counts, as `/sys` describes it;
//! - [`contract`]: the trait, what is read, and why it cannot be;
//! - [`meter`]: rates, gaps, and counters that cannot be right;
//! - [`iio`]: Intel's uncore, by the stack of root ports that a device is below;
//! - [`others`]: AMD's and Arm's, which nobody has tested;
//! - [`kernel`]: what the kernel counts of an interface;
//! - [`ethtool`]: what a driver counts of its device: mlx5's stalls of the link;
//! - [`ethdev`]: what DPDK counts of a port;
//! - [`nic`]: what a modelled NIC counts of its link.

mod tree;

pub mod perf;

mod pmu;

pub mod contract;

pub mod meter;

pub mod iio;

pub mod others;

pub mod kernel;

pub mod ethtool;

pub mod ethdev;

pub mod nic;

pub use contract::{About, Count, Quantity, Source, SourceError};
pub use meter::{Gap, Meter, Rate, suspicion};
pub use tree::Tree;

/// The sources that count a device at this address or behind these interfaces, and why others
/// cannot: sentences for a person.
#[must_use]
pub fn of_device(
    tree: &Tree,
    counters: &dyn perf::Counters,
    address: Option<&str>,
    interfaces: &[String],
) -> (Vec<Box<dyn Source>>, Vec<String>) {
    let (mut sources, mut why): (Vec<Box<dyn Source>>, Vec<String>) = (Vec::new(), Vec::new());
    let mut add = |found: Result<Option<Box<dyn Source>>, SourceError>| match found {
        Ok(Some(source)) => sources.push(source),
        Ok(None) => {}
        Err(error) => why.push(error.to_string()),
    };
    if let Some(address) = address {
        add(iio::Iio::open(tree, counters, address).map(|source| source.map(boxed)));
    }
    add(others::Other::open(tree, counters, address).map(|source| source.map(boxed)));
    for interface in interfaces {
        add(Ok(kernel::Kernel::open(tree, interface).map(boxed)));
        add(ethtool::Ethtool::open(interface).map(|source| source.map(boxed)));
    }
    (sources, why)
}

fn boxed<S: Source + 'static>(source: S) -> Box<dyn Source> {
    Box::new(source)
}
