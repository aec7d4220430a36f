//! The profile of a program's copies and fills, as `libhaul_copy.so` writes it.
//!
//! The file comes from other processes, which may still write it, or may have left anything in it:
//! [`Profile::parse`] accepts all bytes without harm.
//!
//! - [`layout`]: the file that all profiled processes map;
//! - [`summary`]: [`Profile`], the content of the file;
//! - `calls`: [`Calls`], the calls by function and size;
//! - [`records`]: the content as records.

pub mod layout;

#[cfg(feature = "records")]
mod calls;

#[cfg(feature = "records")]
pub mod summary;

#[cfg(feature = "records")]
pub mod records;

#[cfg(feature = "records")]
pub use calls::{Calls, CallsOfSize};
#[cfg(feature = "records")]
pub use summary::{Process, Profile, ProfileError, Site, Thread};
