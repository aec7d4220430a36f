//! libhaul: the C interface of haul. cbindgen generates `include/haul.h` from these files.
//!
//! Every function is `haul_*`. A function checks its pointers for NULL and writes an output only on
//! success. A status code keeps its number. No panic unwinds into C, because `extern "C"` aborts
//! the process first.
//!
//! - [`status`]: the result of a function that can fail;
//! - `argument`: text and bytes from C, results and objects to C;
//! - [`library`]: version and start;
//! - [`copy`]: memcpy, memmove and memset, their variants with a hint, and the copies of a burst;
//! - [`thresholds`]: the sizes at which the copying method changes, by name;
//! - [`heap`]: creates, shares, maintains and destroys heaps;
//! - [`block`]: the blocks of a heap;
//! - [`options`]: the settings of a channel, and its mechanisms;
//! - [`channel`]: opens and closes channels between processes;
//! - [`account`]: the costs of a transfer;
//! - [`buffer`]: memory for received messages;
//! - [`message`]: sends and receives messages;
//! - [`sending`]: messages in flight, for an event loop;
//! - [`engine`]: opens and closes copy engines, and finds conflicts with pending operations;
//! - [`operation`]: submits operations to an engine;
//! - [`completion`]: polls and waits for operations of an engine, and takes their results;
//! - [`notification`]: notifies of the end of operations by a descriptor or a callback.
#![allow(non_camel_case_types, reason = "C names its types like this")]

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

pub mod engine;

pub mod operation;

pub mod completion;

pub mod notification;
