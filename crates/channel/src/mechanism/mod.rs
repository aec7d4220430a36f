//! The mechanisms and the choice of one. Each mechanism is a file or a folder with two types,
//! `Sending` and `Receiving`: its parts at the two ends.
//!
//! From the bottom up:
//!
//! - `contract`: the interface of a mechanism at each end;
//! - `window`: how much memory circulates between the two ends;
//! - `inline`: in the slot of the message;
//! - `ring`: piece by piece through shared memory;
//! - `staged`: the whole message through shared memory;
//! - `pull`: the receiver reads the sender's memory;
//! - `sealed`: built in shared memory, and handed over;
//! - `double`: both ends copy at once, the receiver by reading, the sender by writing;
//! - `lease`: copied by the sender into the receiver's memory;
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
