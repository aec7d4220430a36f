//! Processes that fork with channels and listeners, and failures that a program does not notice by
//! itself. Each test runs in a child process.

mod child;
mod interfering;
mod ports;
mod serving;
#[path = "../../../channel/tests/channel/support.rs"]
mod support;
mod unnoticed;
