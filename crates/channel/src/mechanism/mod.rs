//! The mechanisms, and the choice of a mechanism. Each mechanism is a file or a folder with two
//! types, `Sending` and `Receiving`: its parts at the two ends.
//!
//! From the bottom up:
//!
//! - `contract`: the interface of a mechanism at each end;
//! - `window`: how much memory circulates between the two ends;
//! - `inline`: the message is in its slot;
//! - `ring`: the message goes piece by piece through shared memory;
//! - `staged`: the whole message goes through shared memory;
//! - `pull`: the receiver reads the sender's memory;
//! - `sealed`: the message is built in shared memory, and handed over;
//! - `double`: both ends copy at once, the receiver by reading, the sender by writing;
//! - `lease`: the sender copies the message into the receiver's memory;
//! - `dispatch`: calls to the mechanism of a message;
//! - `choose`: the choice of a message's mechanism.

pub(crate) mod choose;
pub(crate) mod contract;
pub(crate) mod dispatch;
pub(crate) mod double;
pub(crate) mod inline;
pub(crate) mod lease;
pub(crate) mod pull;
pub(crate) mod ring;
pub(crate) mod sealed;
pub(crate) mod staged;
pub(crate) mod window;
