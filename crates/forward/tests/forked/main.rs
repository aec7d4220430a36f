//! Processes that fork with channels and listeners, and what a program does not notice by itself:
//! each in a child of its own.

mod apart;
mod child;
mod ports;
mod serving;
#[path = "../../../channel/tests/channel/support.rs"]
mod support;
mod unnoticed;
