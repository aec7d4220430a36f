//! Whose a file is that was opened by a name.

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
