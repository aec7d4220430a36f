//! vhost-user's messages, through the crate `vhost`, which no other module uses.
//!
//! Both roles: [`Backend`] answers a front end through [`Conversation`]; [`Frontend`] sends
//! requests to a back end. All calls wait for the other side; a shutdown of the socket ends them.
//!
//! From the bottom up:
//!
//! - `backend`: a device, as its front end uses it;
//! - `handler`: a parsed request, as a call of the device;
//! - `conversation`: the conversation of a device with its front end;
//! - `frontend`: requests to a device.

mod backend;
mod conversation;
mod frontend;
mod handler;

pub(crate) use backend::{AreaAt, Backend, Refusal, RequestResult, refuse};
pub(crate) use conversation::{Conversation, close};
pub(crate) use frontend::{Frontend, Kick, RingAt};
