//! What recorded processes leave, and its conversion to streams.
//!
//! All processes of a run write into one file, a recording. It has addresses, so it never leaves
//! the machine; [`Recording::stream`] makes a stream of one thread.
//!
//! - [`layout`]: the layout of the file;
//! - `event`: one event;
//! - `modules`: the files that a process has mapped;
//! - `file`: the tables and the events of a file;
//! - `reads`: when targets were read;
//! - `arena`: the pages of the calls;
//! - `convert`: a thread's events as a stream.

mod arena;
mod convert;
mod event;
mod file;
pub mod layout;
mod modules;
mod reads;

pub use convert::About;
pub use event::{Event, Kind, Sample};
pub use file::{Process, Recording, Thread};
pub use modules::Modules;

#[cfg(test)]
mod tests;
