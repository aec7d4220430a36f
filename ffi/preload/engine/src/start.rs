//! The constructor: the handlers of fork.

use haul_peer::fork::Here;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

/// Runs before the program's own code. The handlers of a child run in the order in which they were
/// installed: so this library's lock is free when a handler of the program closes a queue.
extern "C" fn constructor() {
    Here::now();
}
