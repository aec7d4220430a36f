//! Packets that are generated, numbered and timed here, and inspected when they return.
//!
//! From the bottom up:
//!
//! - `stamp`: the content of a payload: stream, sequence number, time;
//! - `size`: the sizes of packets, in turn;
//! - `frame`: Ethernet, IPv4 and UDP around a stamp, with lengths and checksums;
//! - `order`: which sequence numbers arrived: lost, out of order, twice;
//! - `sink`: a port that inspects packets;
//! - `generator`: a port that generates packets.

pub(crate) mod frame;
pub(crate) mod generator;
pub(crate) mod order;
pub(crate) mod sink;
pub(crate) mod size;
pub(crate) mod stamp;
