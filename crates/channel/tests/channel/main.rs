//! Tests of every mechanism, and of hostile peers.

mod beside;
mod conformance;
mod deadlines;
mod death;
mod handed_over;
mod held;
mod hostile;
mod hostile_closing;
mod hostile_memory;
mod hostile_trusted;
mod limits;
mod permission;
mod polling;
mod raw;
mod slow;
mod starved;
mod support;
mod users;
mod watched;
