//! Finds running programs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::conversation::Telemetry;
use super::error::Error;
use super::processes;
use haul_peer::users::Users;

/// The name of DPDK's socket. Programs that share a prefix (`--in-memory`) append `:1`, `:2` and so
/// on.
const NAME: &str = "dpdk_telemetry.v2";

/// Root's runtime folder.
const ROOT: &str = "/var/run";
/// haul's folder in a runtime folder.
const OWN: &str = "haul";

/// The largest number of sockets per folder, and in all folders together: no machine runs as many
/// programs.
const SOCKETS_MAX: usize = 1024;

/// Selects a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// The only running program.
    #[default]
    Any,
    /// The program behind this socket.
    Socket(PathBuf),
    /// The program with this process ID.
    Process(u32),
    /// The program that was started with this `--file-prefix`.
    Prefix(String),
}

/// A socket of a DPDK program or of haul's forwarder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The socket.
    pub path: PathBuf,
    /// The program's `--file-prefix`: `rte` by default.
    pub prefix: String,
}

/// The folders in which programs create their sockets: first those in `RUNTIME_DIRECTORY`, which
/// a service manager sets, then DPDK's `/var/run/dpdk` for root, the user's runtime folder, and
/// `/tmp`. haul's folders lie beside DPDK's, but never in `/tmp`. The variables are those of this
/// process.
#[must_use]
pub fn folders() -> Vec<PathBuf> {
    let (root, other) = (PathBuf::from(ROOT), PathBuf::from("/tmp"));
    let homes = runtime_directories().into_iter().chain([root]).chain(runtime_folder());
    let mut folders: Vec<PathBuf> =
        homes.clone().chain([other]).map(|home| home.join("dpdk")).collect();
    folders.extend(homes.map(|home| home.join(OWN)));
    folders.dedup();
    folders
}

/// The path of this process's own telemetry socket, in a separate folder: below the folder that a
/// service manager created for this process, or else below root's or the user's runtime folder.
/// `None` if there is no such folder.
pub(super) fn own_place() -> Option<PathBuf> {
    let own = runtime_directories().into_iter().next();
    let home = own.or_else(|| match rustix::process::geteuid().is_root() {
        true => Some(ROOT.into()),
        false => runtime_folder(),
    });
    Some(home?.join(OWN).join(format!("forward-{}", std::process::id())).join(NAME))
}

/// The folders that a service manager created for this process: `RuntimeDirectory=` of systemd.
fn runtime_directories() -> Vec<PathBuf> {
    let folders = std::env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    std::env::split_paths(&folders).filter(|folder| folder.is_absolute()).collect()
}

fn runtime_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    folder.map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// The sockets below these folders, sorted. Does not check whether a process listens on them. The
/// limit applies to each folder, so that a user who fills one folder hides no socket in another.
#[must_use]
pub fn sockets(folders: &[PathBuf]) -> Vec<Found> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let below = |folder: &PathBuf| -> Vec<Found> {
        let all = entries(folder).flat_map(|prefix| entries(&prefix.path()));
        let named = all.filter(|socket| {
            let is_socket = socket.file_type().is_ok_and(|kind| kind.is_socket());
            is_name(&socket.file_name()) && is_socket
        });
        named.take(SOCKETS_MAX).map(|socket| Found::at(socket.path())).collect()
    };
    let mut found: Vec<Found> = folders.iter().flat_map(below).collect();
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Whether this is the name of a telemetry socket.
fn is_name(name: &OsStr) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(NAME));
    rest.is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix(':').is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

impl Found {
    /// The socket at this path. The prefix is the name of its folder.
    fn at(path: PathBuf) -> Self {
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        let prefix = folder.to_string_lossy().into_owned();
        Self { path, prefix }
    }
}

/// Removes duplicates of one file under several paths, and sorts the sockets of allowed users
/// first, so that another user's sockets cannot displace them.
fn distinct(found: Vec<Found>, users: &Users) -> Vec<Found> {
    let mut seen = BTreeSet::new();
    let facts = |found: Found| {
        let facts = fs::metadata(&found.path).ok()?;
        let is_new = seen.insert((facts.dev(), facts.ino()));
        // The owner of the file may differ from the listening user, which is checked later.
        is_new.then(|| (users.check("ask", None, facts.uid()).is_err(), found))
    };
    let mut found: Vec<(bool, Found)> = found.into_iter().filter_map(facts).collect();
    found.sort_by_key(|(is_others, _)| *is_others);
    found.into_iter().take(SOCKETS_MAX).map(|(_, found)| found).collect()
}

fn shown(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl Telemetry {
    /// Connects to the selected program; no single wait exceeds `deadline`.
    ///
    /// Searches the [`folders`] and the sockets on which processes listen, in any folder. A
    /// process is selected by its ID in this namespace, even if the process has another ID in its
    /// own namespace. Skips sockets whose program has ended. The client asks all programs
    /// concurrently, so that all silent programs together cost one `deadline`. Skips programs of
    /// users other than this one and root.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Several`], and the errors of [`connect`](Self::connect) if a
    /// socket is named or only one exists.
    pub fn find(wish: &Wish, deadline: Duration) -> Result<Self, Error> {
        Self::find_for(wish, &Users::Own, deadline)
    }

    /// Like [`find`](Self::find), but among programs of these users.
    ///
    /// # Errors
    /// See [`find`](Self::find).
    pub fn find_for(wish: &Wish, users: &Users, deadline: Duration) -> Result<Self, Error> {
        if let Wish::Socket(path) = wish {
            return Self::connect_for(path, users, deadline);
        }
        let (folders, everywhere) = (folders(), "the sockets of processes");
        if let Wish::Process(process) = wish {
            return Self::find_process(*process, &folders, users, deadline);
        }
        let listening = processes::all(is_name).into_iter().map(Found::at);
        let found = distinct(sockets(&folders).into_iter().chain(listening).collect(), users);
        let searched = format!("{}, {everywhere}", shown(&folders));
        Self::choose(found, wish, users, deadline, searched)
    }

    /// Like [`find`](Self::find), but searches only these folders.
    ///
    /// # Errors
    /// See [`find`](Self::find).
    pub fn find_in(folders: &[PathBuf], wish: &Wish, deadline: Duration) -> Result<Self, Error> {
        Self::choose(sockets(folders), wish, &Users::Own, deadline, shown(folders))
    }

    /// Finds a program by the sockets on which its process listens. If this process cannot see
    /// these sockets, finds the program by the process IDs in the programs' greetings.
    fn find_process(
        process: u32,
        folders: &[PathBuf],
        users: &Users,
        deadline: Duration,
    ) -> Result<Self, Error> {
        let own = processes::of_process(process, is_name);
        let (seen, why) = match own {
            Ok(own) => (own, "the sockets of the process"),
            Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => {
                (Vec::new(), "no process has this ID")
            }
            Err(_) => (Vec::new(), "its own sockets are hidden from this user"),
        };
        if !seen.is_empty() {
            let found = distinct(seen.into_iter().map(Found::at).collect(), users);
            return Self::choose(found, &Wish::Any, users, deadline, String::new());
        }
        let homes = processes::folders_of(process);
        let below = homes.iter().flat_map(|home| [home.join("dpdk"), home.join(OWN)]);
        let mut all: Vec<PathBuf> = below.chain(folders.iter().cloned()).collect();
        all.dedup();
        let searched = format!("{}; {why}", shown(&all));
        let (found, wish) = (distinct(sockets(&all), users), Wish::Process(process));
        Self::choose(found, &wish, users, deadline, searched)
    }

    /// Connects to the program that is selected among these sockets.
    fn choose(
        mut found: Vec<Found>,
        wish: &Wish,
        users: &Users,
        deadline: Duration,
        searched: String,
    ) -> Result<Self, Error> {
        if let Wish::Socket(path) = wish {
            return Self::connect_for(path, users, deadline);
        }
        if let Wish::Prefix(prefix) = wish {
            found.retain(|found| found.prefix == *prefix);
        }
        let (mut there, mut failed, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let paths = found.into_iter().map(|found| found.path).collect();
        for met in Self::connect_to_all(paths, users, deadline) {
            match met {
                Ok(telemetry) => there.push(telemetry),
                Err(error) => {
                    others.extend(user_of(&error));
                    failed.push(error);
                }
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
        match there.len() {
            1 => {
                let mut found = there.remove(0);
                found.others = others;
                Ok(found)
            }
            // The error of the only socket is more helpful than "not found".
            0 if failed.len() == 1 && !matches!(wish, Wish::Process(_)) => Err(failed.remove(0)),
            0 => Err(Error::NotFound { wanted, searched, others }),
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

/// The user of a program that was skipped.
fn user_of(error: &Error) -> Option<u32> {
    if let Error::OtherUser { user, .. } = error { Some(*user) } else { None }
}
