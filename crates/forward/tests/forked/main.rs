//! Processes that fork with channels and listeners, and failures that a program does not notice by
//! itself. Each test runs in a child process.

mod child;
#[allow(dead_code, reason = "shared with the program `vhost`")]
#[path = "../vhost/front.rs"]
mod front;
#[path = "../../../channel/tests/channel/held.rs"]
mod held;
mod interfering;
mod ports;
mod serving;
#[path = "../../../channel/tests/channel/support.rs"]
mod support;
mod unnoticed;
