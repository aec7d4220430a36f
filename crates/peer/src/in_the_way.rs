//! What is in the way where this process wanted to make a file or a socket: what it is, whose it
//! is, and what helps.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::foreign::lock_holder;
use rustix::fd::AsFd;

/// What is in the way. It travels as the reason of an [`io::Error`], of kind
/// [`AddrInUse`](io::ErrorKind::AddrInUse).
#[derive(Debug)]
pub struct InTheWay {
    what: String,
    remedy: &'static str,
}

impl fmt::Display for InTheWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for InTheWay {}

impl InTheWay {
    /// As the reason of an error.
    pub fn into_reason(self) -> io::Error {
        io::Error::new(io::ErrorKind::AddrInUse, self)
    }

    /// A socket that processes may have, or anything else, where a socket was to be made.
    pub fn of_socket(path: &Path) -> Self {
        let Ok(status) = fs::symlink_metadata(path) else {
            let remedy = "try again, or name another path";
            return Self { what: "another process made and removed a file there".into(), remedy };
        };
        let kind = status.file_type();
        let what = match () {
            () if kind.is_socket() => "another process has it: the socket is".to_owned(),
            () if kind.is_symlink() => match fs::read_link(path) {
                Ok(target) => format!("a symbolic link to {} is there, which is", target.display()),
                Err(_) => "a symbolic link is there, which is".to_owned(),
            },
            () if kind.is_dir() => "a folder is there, which is".to_owned(),
            () => "a file that is no socket is there, which is".to_owned(),
        };
        Self::of_owner(&what, status.uid())
    }

    /// A socket that no process has any more, and that this process may not remove.
    pub fn of_abandoned(path: &Path, reason: io::Error) -> Self {
        let Ok(status) = fs::symlink_metadata(path) else { return Self::of_socket(path) };
        let what = format!("no process has the socket, but it cannot be removed ({reason}): it is");
        Self::of_owner(&what, status.uid())
    }

    fn of_owner(what: &str, owner: u32) -> Self {
        if owner == rustix::process::geteuid().as_raw() {
            let (what, remedy) = (format!("{what} this user's own"), "name another path");
            return Self { what, remedy };
        }
        let remedy = "name a path in a folder that only you may write to, or have it removed";
        Self { what: format!("{what} user {owner}'s"), remedy }
    }

    /// A lock of a folder, flock(2), that whoever may read it can take.
    pub fn of_lock(folder: &impl AsFd) -> Self {
        let what = format!("{} has locked the folder of the socket (flock)", lock_holder(folder));
        let remedy = "end that process, or name a path in a folder that only you may read";
        Self { what, remedy }
    }
}

/// What helps where something is in the way; `None` of any other reason.
pub fn remedy(reason: &io::Error) -> Option<&'static str> {
    reason.get_ref()?.downcast_ref::<InTheWay>().map(|it| it.remedy)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let held = fs::File::open(folder.path()).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let said = InTheWay::of_lock(&held).to_string();
        // Where the kernel shows no locks, or those of another file system alone, no one is named.
        let own = format!("process {} of user", std::process::id());
        assert!(said.contains(&own) || said.contains("another process"), "{said}");
    }

    #[test]
    fn what_stands_at_a_path_is_named_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("/gone", at("link")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (name, part) in [
            ("file", "no socket is there"),
            ("link", "a symbolic link to /gone"),
            ("folder", "a folder"),
        ] {
            let said = InTheWay::of_socket(&at(name)).to_string();
            assert!(said.contains(part) && said.ends_with("this user's own"), "{said}");
        }
        let reason = InTheWay::of_owner("it is", 54_321).into_reason();
        assert_eq!(reason.to_string(), "it is user 54321's");
        assert!(remedy(&reason).unwrap().contains("only you may write"));
        assert!(remedy(&io::ErrorKind::AddrInUse.into()).is_none());
    }
}
