//! The tests of the program `vhost` with an engine that copies every burst to the guest, and tests
//! of what only such a port does.
//!
//! - `held`: an engine whose copies end when a test says so;
//! - `guest`: a guest that reads packets, with split or packed rings;
//! - `order`: bursts arrive in order, and only whole ones;
//! - `ending`: rings, memory and ports that end while packets are on their way.

#[path = "../vhost/chains.rs"]
mod chains;
#[path = "../vhost/closing.rs"]
mod closing;
#[path = "../vhost/dying.rs"]
mod dying;
mod ending;
#[allow(dead_code, reason = "shared with the tests of haul-dpdk-vhost")]
#[path = "../vhost/front.rs"]
mod front;
mod guest;
#[path = "../../../channel/tests/channel/held.rs"]
mod held;
#[path = "../vhost/held_up.rs"]
mod held_up;
#[path = "../vhost/killed.rs"]
mod killed;
#[path = "../vhost/killed_chains.rs"]
mod killed_chains;
#[path = "../vhost/messages.rs"]
mod messages;
mod order;
#[path = "../vhost/packed.rs"]
mod packed;
#[path = "../vhost/pairs.rs"]
mod pairs;
#[path = "../vhost/random.rs"]
mod random;
#[path = "../vhost/silent.rs"]
mod silent;
#[path = "../vhost/slots.rs"]
mod slots;
#[path = "../../../channel/tests/channel/slow.rs"]
mod slow;
#[path = "../vhost/stopping.rs"]
mod stopping;
#[path = "../vhost/victim.rs"]
mod victim;

use std::sync::OnceLock;

use haul_engine::Queue;

/// The engine of all ports of this program.
fn engine() -> Option<Queue> {
    static ENGINE: OnceLock<Queue> = OnceLock::new();
    Some(ENGINE.get_or_init(|| Queue::worker().unwrap()).clone())
}
