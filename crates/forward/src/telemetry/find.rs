//! Which programs there are.

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

/// What DPDK's socket is called; programs that share a prefix (`--in-memory`) add `:1`, `:2` and so
/// on.
const NAME: &str = "dpdk_telemetry.v2";

/// Root's runtime folder.
const ROOT: &str = "/var/run";
/// haul's folder in it.
const OWN: &str = "haul";

/// More programs than one machine runs, in one folder or all together.
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
/// else, and before them what `RUNTIME_DIRECTORY` names, as a service manager sets it; haul's
/// beside them, but never in `/tmp`. Of these variables this process's own.
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

/// The folder of this process's own telemetry: one to each, below the folder that a service manager
/// made for it, or else root's or the user's runtime folder; `None` where there is no such place.
pub(super) fn own_place() -> Option<PathBuf> {
    let own = runtime_directories().into_iter().next();
    let home = own.or_else(|| match rustix::process::geteuid().is_root() {
        true => Some(ROOT.into()),
        false => runtime_folder(),
    });
    Some(home?.join(OWN).join(format!("forward-{}", std::process::id())).join(NAME))
}

/// Those that a service manager made for this process: `RuntimeDirectory=` of systemd.
fn runtime_directories() -> Vec<PathBuf> {
    let folders = std::env::var_os("RUNTIME_DIRECTORY").unwrap_or_default();
    std::env::split_paths(&folders).filter(|folder| folder.is_absolute()).collect()
}

fn runtime_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    folder.map(PathBuf::from).filter(|folder| folder.is_absolute())
}

/// The sockets below these folders, sorted. Whether anybody listens is not asked. Of each folder so
/// many count, so that what one user puts into one hides nothing in another.
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

/// Whether a socket of this name is one of telemetry.
fn is_name(name: &OsStr) -> bool {
    let rest = name.to_str().and_then(|name| name.strip_prefix(NAME));
    rest.is_some_and(|rest| {
        rest.is_empty()
            || rest.strip_prefix(':').is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

impl Found {
    /// The socket at this path; the prefix is the name of its folder.
    fn at(path: PathBuf) -> Self {
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        let prefix = folder.to_string_lossy().into_owned();
        Self { path, prefix }
    }
}

/// Each file once, whatever paths lead to it, those of users that may be there first: however many
/// sockets another user makes, they hide none of these.
fn distinct(found: Vec<Found>, users: &Users) -> Vec<Found> {
    let mut seen = BTreeSet::new();
    let facts = |found: Found| {
        let facts = fs::metadata(&found.path).ok()?;
        let is_new = seen.insert((facts.dev(), facts.ino()));
        // The owner of the file is not always whoever listens, which is asked later.
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
    /// Connects to the program that is wanted; no single wait is longer than `deadline`.
    ///
    /// Programs are looked for in the [`folders`] and among the sockets that processes listen on,
    /// wherever those are. A process is known by its number here, also where it has another one in
    /// its own namespace. Sockets whose program has ended are passed over. All are asked at once,
    /// so that silent ones take one `deadline` together; those of other users than one's own and
    /// root are left alone.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Several`], and those of [`connect`](Self::connect) where a
    /// socket is named or only one is there.
    pub fn find(wish: &Wish, deadline: Duration) -> Result<Self, Error> {
        Self::find_for(wish, &Users::Own, deadline)
    }

    /// As [`find`](Self::find), among programs of these users.
    ///
    /// # Errors
    /// As [`find`](Self::find).
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
        let looked = format!("{}, {everywhere}", shown(&folders));
        Self::choose(found, wish, users, deadline, looked)
    }

    /// The same below these folders alone.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_in(folders: &[PathBuf], wish: &Wish, deadline: Duration) -> Result<Self, Error> {
        Self::choose(sockets(folders), wish, &Users::Own, deadline, shown(folders))
    }

    /// By the sockets that the process listens on; where those cannot be seen, by what programs say
    /// of themselves.
    fn find_process(
        process: u32,
        folders: &[PathBuf],
        users: &Users,
        deadline: Duration,
    ) -> Result<Self, Error> {
        let own = processes::of_process(process, is_name);
        let (seen, why) = match own {
            Ok(own) => (own, "its own sockets"),
            Err(reason) if reason.kind() == std::io::ErrorKind::NotFound => {
                (Vec::new(), "and no process has that number")
            }
            Err(_) => (Vec::new(), "its own sockets are hidden from this user"),
        };
        if !seen.is_empty() {
            let found = distinct(seen.into_iter().map(Found::at).collect(), users);
            return Self::choose(found, &Wish::Any, users, deadline, String::new());
        }
        let told = processes::folders_of(process);
        let below = told.iter().flat_map(|home| [home.join("dpdk"), home.join(OWN)]);
        let mut all: Vec<PathBuf> = below.chain(folders.iter().cloned()).collect();
        all.dedup();
        let looked = format!("{}; {why}", shown(&all));
        let (found, wish) = (distinct(sockets(&all), users), Wish::Process(process));
        Self::choose(found, &wish, users, deadline, looked)
    }

    /// The one of these sockets that is wanted.
    fn choose(
        mut found: Vec<Found>,
        wish: &Wish,
        users: &Users,
        deadline: Duration,
        looked: String,
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
            // The one socket that is there says why better than "none".
            0 if failed.len() == 1 && !matches!(wish, Wish::Process(_)) => Err(failed.remove(0)),
            0 => Err(Error::NotFound { wanted, looked, others }),
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

/// The user whose program was left alone.
fn user_of(error: &Error) -> Option<u32> {
    if let Error::OtherUser { user, .. } = error { Some(*user) } else { None }
}
