//! `libhaul_dpdk_burst.so`: counts the packets of each burst of an unmodified DPDK program.
//!
//! `program -d libhaul_dpdk_burst.so ...`: DPDK loads it like a driver. The constructor of this
//! library registers telemetry commands and does nothing else. One command attaches a callback to
//! every queue of every port. From then on each burst increments the counter of its size. Only
//! the polling thread writes this counter. Another command removes the callbacks.
//!
//! The build needs no DPDK. The library does not link DPDK, because this could load a second copy
//! of DPDK into the process. Modules, lowest first:
//!
//! - `notice`: a line on standard error;
//! - `clock`: the processor's time counter;
//! - `dpdk`: DPDK's functions, and the fields of its structures that the probe reads;
//! - `slot`: the counters of one queue in one direction;
//! - `threads`: whether every thread has left a removed callback;
//! - `ports`: the attached queues, and the removed callbacks that wait to be freed;
//! - `answer`: the reply to a telemetry command;
//! - `commands`: the commands;
//! - `start`: the constructor.

mod answer;
mod clock;
mod commands;
mod dpdk;
mod notice;
mod ports;
mod slot;
mod start;
mod threads;
