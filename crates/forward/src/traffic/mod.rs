//! Packets that are made, numbered and timed here, and looked at as they come back.
//!
//! From the bottom up:
//!
//! - `stamp`: what a payload says: stream, sequence number, time;
//! - `size`: the sizes of packets, one after the other;
//! - `frame`: Ethernet, IPv4 and UDP around it, with lengths and checksums;
//! - `order`: which sequence numbers came: lost, out of order, twice;
//! - `sink`: the port that looks at packets;
//! - `generator`: the port that makes them.

pub(crate) mod frame;
pub(crate) mod generator;
pub(crate) mod order;
pub(crate) mod sink;
pub(crate) mod size;
pub(crate) mod stamp;
