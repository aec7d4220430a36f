//! Whose a file is that was opened by a name.

use core::ffi::CStr;

use rustix::fd::BorrowedFd;

use crate::error::{Attempt, Error};
use crate::sys::file;
use crate::sys::process;

/// That a file which was opened by name is this user's, and nobody else's to open. Such a file
/// cannot be sealed: who can cut it short is who could end this process as well.
pub(super) fn check_owner(file: BorrowedFd<'_>) -> Result<(), Error> {
    let facts =
        file::facts(file).map_err(|errno| Error::refused(Attempt::InspectFile, 0, errno))?;
    let user = process::own_user();
    if facts.owner != user {
        return Err(Error::OtherUser { owner: facts.owner, user });
    }
    // Read and write for its owner is the most.
    if facts.mode & !0o600 != 0 {
        return Err(Error::OpenToOthers { mode: facts.mode });
    }
    Ok(())
}

/// What is wrong where a name is taken: by another user, whose file or link it is, or else `other`.
pub(super) fn taken_by(path: &CStr, other: Error) -> Error {
    let user = process::own_user();
    match file::owner_at(path) {
        Ok(owner) if owner != user => Error::OtherUser { owner, user },
        _ => other,
    }
}
