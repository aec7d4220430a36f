//! NICs and their drivers, as data. A new NIC needs an entry in [`NICS`] and in its test.
//!
//! - `version`: the version of a driver;
//! - `rules`: the behaviours of drivers and devices, as types;
//! - `data`: the NICs, with a source for each number.

mod data;
mod rules;
mod version;

pub use data::NICS;
pub use rules::{
    Choice, Completion, CompletionDoorbells, Fetch, Inline, Mode, Nic, RxDoorbell, Thresholds,
    TxDescriptors, TxDoorbell, WriteBack,
};
pub use version::Version;
