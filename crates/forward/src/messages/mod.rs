//! vhost-user's messages, by the crate `vhost`, which nothing else sees.
//!
//! Both roles: [`Backend`] is asked by a front end that [`Conversation`] listens to; [`Frontend`]
//! asks a back end. All calls wait for the other side; a shutdown of the socket ends them.
//!
//! From the bottom up:
//!
//! - `backend`: a device that a front end asks;
//! - `frontend`: a device that is asked.

mod backend;
mod frontend;

pub(crate) use backend::{AreaAt, Backend, Conversation, Done, Refused, leave, refuse};
pub(crate) use frontend::{Frontend, Kick, RingAt};
