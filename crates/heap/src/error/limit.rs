//! The system limit that an operation exceeded.

use core::fmt;

use crate::sys::limit::{self, Resource};
use crate::sys::{Errno, machine};

/// A system limit that an operation exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Bytes of a file (RLIMIT_FSIZE, `ulimit -f`).
    FileSize(u64),
    /// Bytes of addresses (RLIMIT_AS, `ulimit -v`).
    Addresses(u64),
    /// Bytes of private writable memory (RLIMIT_DATA, `ulimit -d`).
    Data(u64),
    /// Bytes of locked memory (RLIMIT_MEMLOCK, `ulimit -l`).
    Locked(u64),
    /// Open files (RLIMIT_NOFILE, `ulimit -n`).
    OpenFiles(u64),
    /// The memory that the machine commits to all processes (`vm.overcommit_memory` is 2).
    Commit,
}

impl Limit {
    /// The limit that an allocation of `bytes` more would exceed, given the system's error;
    /// `None` if no limit explains the error.
    pub(super) fn behind(bytes: u64, errno: Errno) -> Option<Self> {
        let is_limited = |limit| limit != u64::MAX;
        let of = |resource| Some(limit::of(resource)).filter(|limit| is_limited(*limit));
        match errno {
            Errno::FBIG => of(Resource::Fsize).map(Self::FileSize),
            Errno::MFILE => of(Resource::Nofile).map(Self::OpenFiles),
            Errno::AGAIN => of(Resource::Memlock).map(Self::Locked),
            Errno::NOMEM => {
                let [addresses, data] = machine::used_bytes();
                let is_beyond = |used: u64| move |most: &u64| used.saturating_add(bytes) > *most;
                let by_addresses = of(Resource::As).filter(is_beyond(addresses));
                let by_data = || of(Resource::Data).filter(is_beyond(data)).map(Self::Data);
                let by_commit = || machine::is_commit_strict().then_some(Self::Commit);
                by_addresses.map(Self::Addresses).or_else(by_data).or_else(by_commit)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Limit {
    /// The limit, its value, and how to raise it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, most, option) = match *self {
            Self::FileSize(most) => ("RLIMIT_FSIZE", most, "-f"),
            Self::Addresses(most) => ("RLIMIT_AS", most, "-v"),
            Self::Data(most) => ("RLIMIT_DATA", most, "-d"),
            Self::Locked(most) => ("RLIMIT_MEMLOCK", most, "-l"),
            Self::OpenFiles(most) => {
                return write!(f, "RLIMIT_NOFILE allows {most} open files: raise it (ulimit -n)");
            }
            Self::Commit => {
                return f.write_str(
                    "vm.overcommit_memory is 2, and the machine commits no more memory: raise \
                     vm.overcommit_ratio",
                );
            }
        };
        write!(f, "{name} allows {most} bytes: raise it (ulimit {option})")
    }
}
