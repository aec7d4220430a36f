//! Runs real programs under the library, recording and not.
//!
//! - `setup`: the library, a file for a recording, and compiled programs;
//! - `contracts`: each function does what libc's does;
//! - `early`: calls before the library is relocated, and in constructors;
//! - `beside`: other preloaded libraries, valgrind, and programs that stay unrecorded;
//! - `object`: the symbols of the library.

mod beside;
mod contracts;
mod early;
mod object;
mod setup;
