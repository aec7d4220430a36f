//! Runs real programs under the library, profiled and not.
//!
//! - `setup`: the library and compiled programs;
//! - `contracts`: each function does what libc's does, in the tests of the recorder too;
//! - `kernels`: long copies at every offset and at the end of a page, registers, and the cost of a
//!   call;
//! - `early`: calls before the library is relocated, without its constructor, and in constructors;
//! - `policy`: `haul.toml`, good and bad;
//! - `profile`: the numbers of a profile, and its file in bad conditions;
//! - `beside`: other preloaded libraries, valgrind, filters of system calls, and real programs;
//! - `elsewhere`: programs of musl, and a recorder;
//! - `real`: real programs at work, a debugger and a sanitizer;
//! - `object`: the symbols of the library.

mod beside;
#[path = "../../../copy-record/tests/programs/contracts.rs"]
mod contracts;
mod early;
mod elsewhere;
mod kernels;
mod object;
mod policy;
mod profile;
mod real;
mod setup;
