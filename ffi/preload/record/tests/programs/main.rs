//! Records real programs and reads their traces.
//!
//! - `recording`: a program under the recorder, and its traces;
//! - `whole`: programs that end normally;
//! - `early`: calls before the real allocator is known;
//! - `forks`: programs that fork or execute other programs;
//! - `deaths`: programs that end abnormally;
//! - `confined`: programs that give up rights, and traces that are truncated;
//! - `refused`: names and folders to which no trace can be written.

mod confined;
mod deaths;
mod early;
mod forks;
mod recording;
mod refused;
mod whole;
