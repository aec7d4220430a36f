//! libhaul: the C face of haul. `include/haul.h` is made from these files by cbindgen.
//!
//! Every function is `haul_*`. A pointer is checked for NULL, an output is written only on success,
//! a code once given keeps its meaning, and nothing unwinds out: `extern "C"` ends the process
//! before it would.
//!
//! - [`status`]: what a function returns that can fail;
//! - `argument`: text and bytes that come in, results and objects that go out;
//! - [`library`]: version, start;
//! - [`copy`]: memcpy, memmove, memset, the same with a hint, and the copies of a burst;
//! - [`thresholds`]: the sizes at which the way to copy changes, by name;
//! - [`heap`]: heaps, made, shared and left;
//! - [`block`]: their blocks;
//! - [`options`]: how a channel is asked to behave, and its mechanisms;
//! - [`channel`]: channels between processes, made and left;
//! - [`account`]: what a transfer took;
//! - [`buffer`]: memory for messages that arrive;
//! - [`message`]: what goes through them;
//! - [`sending`]: messages on their way, for an event loop.
#![allow(non_camel_case_types, reason = "types are named as C names them")]

pub mod status;

mod argument;

pub mod library;

pub mod copy;

pub mod thresholds;

pub mod heap;

pub mod block;

pub mod options;

pub mod channel;

pub mod account;

pub mod buffer;

pub mod message;

pub mod sending;
