//! One suite over every mechanism, and everything bad that a peer can do.

mod conformance;
mod death;
mod hostile;
mod limits;
mod polling;
mod raw;
mod support;
