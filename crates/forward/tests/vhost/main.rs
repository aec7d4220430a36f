//! The vhost port against hostile front ends, and the virtio port against hostile back ends.
//!
//! - `front`: a front end that sends and writes anything that a test requests;
//! - `victim`: the port, driven and checked;
//! - `chains`: invalid chains of descriptors: each costs only its packet;
//! - `packed`: invalid chains in packed rings;
//! - `dying`: back ends that die, and others that resume in their rings;
//! - `messages`: invalid messages: the conversation ends, and the next one is served;
//! - `stopping`: rings that are stopped, and rings that are enabled early;
//! - `killed`: a back end's process that is killed under load;
//! - `killed_chains`: a killed back end whose chains have several descriptors;
//! - `pairs`: queue pairs, of which the guest enables only some;
//! - `random`: random rings and messages;
//! - `offloads`: packets that ask for checksums or segments;
//! - `silent`: silent peers;
//! - `slots`: memory that comes and goes region by region;
//! - `closing`: descriptors whose close takes long;
//! - `held_up`: attempts of a peer to block a worker.

mod chains;
mod closing;
mod dying;
#[allow(dead_code, reason = "shared with the tests of haul-dpdk-vhost")]
mod front;
mod held_up;
mod killed;
mod killed_chains;
mod messages;
mod offloads;
mod packed;
mod pairs;
mod random;
mod silent;
mod slots;
#[path = "../../../channel/tests/channel/slow.rs"]
mod slow;
mod stopping;
mod victim;

/// The engine that copies packets to the guest. The program `vhost_beside` runs the same tests with
/// one.
fn engine() -> Option<haul_engine::Queue> {
    None
}
