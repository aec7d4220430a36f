//! Which programs there are.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::conversation::Telemetry;
use super::error::Error;

/// What DPDK's socket is called; programs that share a prefix (`--in-memory`) add `:1`, `:2` and so
/// on.
const NAME: &str = "dpdk_telemetry.v2";

/// Root's runtime folder.
const ROOT: &str = "/var/run";
/// haul's folder in it.
const OWN: &str = "haul";

/// More programs than one machine runs.
const SOCKETS_MAX: usize = 1024;

/// Which program is wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// The only one.
    #[default]
    Any,
    /// The one behind this socket.
    Socket(PathBuf),
    /// The one with this process.
    Process(u32),
    /// The one that was started with this `--file-prefix`.
    Prefix(String),
}

/// A socket that a DPDK program made, or a forwarder of haul's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The socket.
    pub path: PathBuf,
    /// The program's `--file-prefix`: `rte` unless it was given one.
    pub prefix: String,
}

/// Where programs make theirs: DPDK's `/var/run/dpdk` as root, a user's runtime folder or `/tmp`
/// else; haul's beside it, but never in `/tmp`.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let (root, other) = (PathBuf::from(ROOT), PathBuf::from("/tmp"));
    let homes = [Some(root), runtime_folder()].into_iter().flatten();
    let mut folders: Vec<PathBuf> =
        homes.clone().chain([other]).map(|home| home.join("dpdk")).collect();
    folders.extend(homes.map(|home| home.join(OWN)));
    folders.dedup();
    folders
}

/// The folder of this process's own telemetry: one to each, below root's or the user's runtime
/// folder; `None` where there is no such place.
pub(super) fn own_place() -> Option<PathBuf> {
    let home =
        if rustix::process::geteuid().is_root() { Some(ROOT.into()) } else { runtime_folder() };
    Some(home?.join(OWN).join(format!("forward-{}", std::process::id())).join(NAME))
}

fn runtime_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    folder.map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// The sockets below these folders, sorted. Whether anybody listens is not asked.
#[must_use]
pub fn sockets(folders: &[PathBuf]) -> Vec<Found> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found = Vec::new();
    for prefix in folders.iter().flat_map(|folder| entries(folder)) {
        for socket in entries(&prefix.path()) {
            let name = socket.file_name().to_string_lossy().into_owned();
            let rest = name.strip_prefix(NAME);
            let is_name = rest.is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_prefix(':').is_some_and(|number| number.parse::<u32>().is_ok())
            });
            let is_socket = socket.file_type().is_ok_and(|kind| kind.is_socket());
            if is_name && is_socket && found.len() < SOCKETS_MAX {
                let prefix = prefix.file_name().to_string_lossy().into_owned();
                found.push(Found { path: socket.path(), prefix });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

impl Telemetry {
    /// Connects to the program that is wanted; no single wait is longer than `deadline`.
    ///
    /// Sockets whose program has ended are passed over.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Several`], and those of [`connect`](Self::connect) where a
    /// socket is named or only one is there.
    pub fn find(wish: &Wish, deadline: Duration) -> Result<Self, Error> {
        Self::find_in(&folders(), wish, deadline)
    }

    /// The same below these folders.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_in(folders: &[PathBuf], wish: &Wish, deadline: Duration) -> Result<Self, Error> {
        if let Wish::Socket(path) = wish {
            return Self::connect(path, deadline);
        }
        let mut found = sockets(folders);
        if let Wish::Prefix(prefix) = wish {
            found.retain(|found| found.prefix == *prefix);
        }
        let (mut there, mut failed) = (Vec::new(), Vec::new());
        for socket in found {
            match Self::connect(&socket.path, deadline) {
                Ok(telemetry) => there.push(telemetry),
                Err(error) => failed.push(error),
            }
        }
        if let Wish::Process(process) = wish {
            there.retain(|telemetry| telemetry.process() == *process);
        }
        let wanted = match wish {
            Wish::Any | Wish::Socket(_) => None,
            Wish::Process(process) => Some(format!("with process {process}")),
            Wish::Prefix(prefix) => Some(format!("with the file prefix {prefix:?}")),
        };
        let looked = folders.iter().map(|folder| folder.display().to_string());
        let looked = looked.collect::<Vec<_>>().join(", ");
        match there.len() {
            1 => Ok(there.remove(0)),
            // The one socket that is there says why better than "none".
            0 if failed.len() == 1 && !matches!(wish, Wish::Process(_)) => Err(failed.remove(0)),
            0 => Err(Error::NotFound { wanted, looked }),
            count => {
                let each = |telemetry: &Self| {
                    format!("{} (process {})", telemetry.path().display(), telemetry.process())
                };
                let listed = there.iter().map(each).collect::<Vec<_>>().join(", ");
                Err(Error::Several { count, listed })
            }
        }
    }
}
