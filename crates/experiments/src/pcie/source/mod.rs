//! The counters of a NIC's traffic on this machine, through one trait.
//!
//! A source reports its unit, the device, port or socket that it counts, and its known errors.
//! [`Meter`] turns a source's counts into rates, and reports a gap if a counter vanished, wrapped
//! beyond recognition or was reset. All files are below a root folder that tests replace. The
//! kernel's counters are read through [`perf::Counters`], which tests replay from a file.
//!
//! From the bottom up:
//!
//! - `tree`: `/sys` and `/proc` under a root;
//! - [`perf`]: counters of the kernel's perf events;
//! - `pmu`: a unit with counters, as `/sys` describes it;
//! - [`contract`]: the trait of a source, its counts, and its errors;
//! - [`meter`]: rates, gaps, and counters that are probably wrong;
//! - [`iio`]: Intel's uncore, by the stack of root ports above a device;
//! - [`others`]: AMD's and Arm's counters, which are not tested;
//! - [`kernel`]: the kernel's counters of an interface;
//! - [`ethtool`]: a driver's counters of its device: mlx5's stalls of the link;
//! - [`ethdev`]: DPDK's counters of a port;
//! - [`nic`]: a modelled NIC's counters of its link.

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

/// The sources that count a device at this address or behind these interfaces, and sentences for
/// the user about the sources that cannot be read.
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
