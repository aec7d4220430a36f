//! NICs and their drivers, as data: a new one is an entry of [`NICS`] and its test.
//!
//! - `version`: a driver's version;
//! - `rules`: what a driver or a device can do, as types;
//! - `data`: the NICs, each number with its source.

mod data;
mod rules;
mod version;

pub use data::NICS;
pub use rules::{
    Choice, Completion, CompletionDoorbells, Fetch, Inline, Mode, Nic, RxDoorbell, Thresholds,
    TxDescriptors, TxDoorbell, WriteBack,
};
pub use version::Version;
