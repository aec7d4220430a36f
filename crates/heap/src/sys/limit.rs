//! Limits of this process (getrlimit(2)).

pub(crate) use rustix::process::Resource;

/// The limit in force; `u64::MAX` if there is none.
pub(crate) fn of(resource: Resource) -> u64 {
    if cfg!(miri) {
        return u64::MAX;
    }
    rustix::process::getrlimit(resource).current.unwrap_or(u64::MAX)
}
