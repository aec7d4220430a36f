//! The owner check for a file that was opened by name.

use core::ffi::CStr;

use rustix::fd::BorrowedFd;

use crate::error::{Attempt, Error};
use crate::sys::file;
use crate::sys::process;

/// Checks that a file that was opened by name belongs to this user and that no other user may open
/// it. Such a file cannot be sealed, so another process of this user can truncate it. But a
/// process of this user could also kill this process.
pub(super) fn check_owner(file: BorrowedFd<'_>) -> Result<(), Error> {
    let facts =
        file::facts(file).map_err(|errno| Error::refused(Attempt::InspectFile, 0, errno))?;
    let user = process::own_user();
    if facts.owner != user {
        return Err(Error::OtherUser { owner: facts.owner, user });
    }
    // Only the file's owner may read and write it.
    if facts.mode & !0o600 != 0 {
        return Err(Error::OpenToOthers { mode: facts.mode });
    }
    Ok(())
}

/// The error if the name is in use: [`Error::OtherUser`] if another user owns the file or link,
/// else `other`.
pub(super) fn taken_by(path: &CStr, other: Error) -> Error {
    let user = process::own_user();
    match file::owner_at(path) {
        Ok(owner) if owner != user => Error::OtherUser { owner, user },
        _ => other,
    }
}
