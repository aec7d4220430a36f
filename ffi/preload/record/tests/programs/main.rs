//! Records real programs and reads what they left.
//!
//! - `recording`: a program under the recorder, and its traces;
//! - `whole`: programs that end as they should;
//! - `early`: calls that come before there is an allocator;
//! - `forks`: programs that become several;
//! - `deaths`: programs that do not end as they should;
//! - `confined`: programs that give up what they may do, and traces that are cut;
//! - `refused`: names and places that no trace can be written to.

mod confined;
mod deaths;
mod early;
mod forks;
mod recording;
mod refused;
mod whole;
