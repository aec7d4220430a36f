//! libhaul: the C face of haul. `include/haul.h` is made from these files by cbindgen.
//!
//! Every function is `haul_*`. A pointer is checked for NULL, an output is written only on success,
//! a code once given keeps its meaning, and nothing unwinds out: `extern "C"` ends the process
//! before it would.
//!
//! - [`status`]: what a function returns that can fail;
//! - [`library`]: version, start;
//! - [`copy`]: memcpy, memmove, memset, and the same with a hint;
//! - [`thresholds`]: the sizes at which the way to copy changes, by name;
//! - [`heap`]: heaps, made, shared and left;
//! - [`block`]: their blocks;
//! - [`channel`]: channels between processes, made and left;
//! - [`message`]: what goes through them;
//! - [`sending`]: messages on their way, for an event loop.
#![allow(non_camel_case_types, reason = "types are named as C names them")]

pub mod status;

pub mod library;

pub mod copy;

pub mod thresholds;

pub mod heap;

pub mod block;

pub mod channel;

pub mod message;

pub mod sending;
