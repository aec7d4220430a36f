//! The vhost port against front ends that lie, and the virtio port against back ends that do.
//!
//! - `front`: a front end that says and writes whatever it is asked to;
//! - `victim`: the port, driven and accounted for;
//! - `chains`: chains of descriptors that are no good: each costs its packet alone;
//! - `packed`: the same in packed rings;
//! - `dying`: back ends that die, and others that go on in their rings;
//! - `messages`: messages that may not be: the conversation ends, and the next one is served;
//! - `stopping`: rings that are stopped, and enabled early;
//! - `killed`: the same with a process that is killed under load;
//! - `killed_chains`: the same with chains of several descriptors;
//! - `pairs`: queue pairs of which the guest enables some;
//! - `random`: rings and messages at random;
//! - `silent`: peers that say nothing;
//! - `closing`: descriptors that take long to be closed;
//! - `held_up`: what a peer may do to hold a worker up.

mod chains;
mod closing;
mod dying;
mod front;
mod held_up;
mod killed;
mod killed_chains;
mod messages;
mod packed;
mod pairs;
mod random;
mod silent;
#[path = "../../../channel/tests/channel/slow.rs"]
mod slow;
mod stopping;
mod victim;
