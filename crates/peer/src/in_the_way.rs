//! Describes a file that prevents this process from creating a file or a socket: its kind, its
//! owner and the remedy.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::foreign::lock_holder;
use rustix::fd::AsFd;

/// The description of the file, and the remedy. This is the inner error of an [`io::Error`] of
/// kind [`AddrInUse`](io::ErrorKind::AddrInUse).
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
    /// Wraps this in an [`io::Error`].
    pub fn into_reason(self) -> io::Error {
        io::Error::new(io::ErrorKind::AddrInUse, self)
    }

    /// Describes the file at the path where the socket should be: a socket that a process may
    /// still have open, or another file.
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
            () => "a file that is not a socket is there, which is".to_owned(),
        };
        Self::of_owner(&what, status.uid())
    }

    /// Describes a socket that no process has open and that this process may not remove.
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

    /// Describes another process's lock of a folder (flock(2)). Any process that may read the
    /// folder can take it.
    pub fn of_lock(folder: &impl AsFd) -> Self {
        let what = format!("{} has locked the folder of the socket (flock)", lock_holder(folder));
        let remedy = "end that process, or name a path in a folder that only you may read";
        Self { what, remedy }
    }
}

/// The remedy if `reason` contains an [`InTheWay`]; else `None`.
pub fn remedy(reason: &io::Error) -> Option<&'static str> {
    reason.get_ref()?.downcast_ref::<InTheWay>().map(|it| it.remedy)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    #[test]
    fn of_lock_names_holder() {
        let folder = tempfile::tempdir().unwrap();
        let held = fs::File::open(folder.path()).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let said = InTheWay::of_lock(&held).to_string();
        // If the kernel does not show the lock, the text names no process.
        let own = format!("process {} of user", std::process::id());
        assert!(said.contains(&own) || said.contains("another process"), "{said}");
    }

    #[test]
    fn of_socket_names_file_at_path_with_owner() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "").unwrap();
        std::os::unix::fs::symlink("/gone", at("link")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (name, part) in [
            ("file", "not a socket is there"),
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
