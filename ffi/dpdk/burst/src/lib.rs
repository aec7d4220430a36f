//! `libhaul_dpdk_burst.so`: how many packets each burst of an unmodified DPDK program has.
//!
//! `program -d libhaul_dpdk_burst.so ...`: DPDK loads it as it loads its drivers. Its constructor
//! registers telemetry commands and does nothing else. A command attaches a callback to every
//! queue of every port; from then on each burst adds one to a counter of its own size, which only
//! the thread that polls the queue writes. Another command takes the callbacks off again.
//!
//! Nothing of DPDK is needed to build this, and nothing of it is linked: a second copy of DPDK
//! would come into the process otherwise. Modules, lowest first:
//!
//! - `notice`: a line on standard error;
//! - `clock`: the processor's counter of time;
//! - `dpdk`: DPDK's functions, and what of its structures is read;
//! - `slot`: the counters of one queue in one direction;
//! - `threads`: whether every thread has left a callback that was taken off;
//! - `ports`: which queues are attached, and which wait to be freed;
//! - `answer`: what a telemetry command answers;
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
