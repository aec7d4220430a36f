//! vhost-user's messages, through the crate `vhost`, which no other module uses.
//!
//! Both roles: [`Backend`] answers a front end through [`Conversation`]; [`Frontend`] sends
//! requests to a back end. All calls wait for the other side; a shutdown of the socket ends them.
//!
//! From the bottom up:
//!
//! - `backend`: a device that answers a front end;
//! - `frontend`: requests to a device.

mod backend;
mod frontend;

pub(crate) use backend::{AreaAt, Backend, Conversation, Refusal, RequestResult, close, refuse};
pub(crate) use frontend::{Frontend, Kick, RingAt};
