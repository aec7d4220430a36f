//! The transports that haul's channels are compared with, and the location of each transport's
//! programs on this machine.
//!
//! The source code of the drivers in C is part of this program as text. A run compiles this code
//! when it needs a driver, so that no peer is needed to build haul.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::{fs, io};

use super::pair::Launch;
use crate::drive::{Folder, Program, compile, run};
use crate::error::Error;

/// The code that all drivers in C share.
const DRIVER_H: &str = include_str!("../../../../peers/driver.h");
const UCX_C: &str = include_str!("../../../../peers/ucx/driver.c");
const MPI_C: &str = include_str!("../../../../peers/mpi/driver.c");

/// The program of `peers/iceoryx2`, and the variable with its path.
const ICEORYX2: &str = "haul-peer-iceoryx2";
const ICEORYX2_VARIABLE: &str = "HAUL_PEER_ICEORYX2";

/// Another transport between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Unified Communication X: tag send and receive.
    Ucx,
    /// Open MPI or MPICH: MPI_Send and MPI_Recv.
    Mpi,
    /// iceoryx2: publish and subscribe, with a copy by the subscriber.
    Iceoryx2,
    /// A pipe.
    Pipe,
    /// A Unix stream socket.
    Unix,
    /// The 2014 experiment of memcpy against vmsplice: shared memory of the whole size, and
    /// vmsplice at both ends of a pipe.
    Experiment2014,
    /// One warm memcpy within the receiver. This is not a transfer, but shows the lowest cost of
    /// a copy.
    Memcpy,
}

/// A peer that can be measured here.
#[derive(Clone, Debug)]
pub struct Found {
    /// The transport.
    pub peer: Peer,
    /// The command that starts the ends of the transport; `None` if haul's own drivers contain
    /// the transport.
    pub launch: Option<Launch>,
    /// The folder in which the driver was compiled. It is removed with the last clone of this
    /// value.
    _folder: Option<Arc<Folder>>,
}

#[cfg(test)]
impl Found {
    /// A peer whose ends are started by this command.
    pub(super) fn started_by(peer: Peer, launch: Launch) -> Self {
        Self { peer, launch: Some(launch), _folder: None }
    }
}

impl Peer {
    /// All peers, in the order of `--against`.
    pub const ALL: [Self; 7] = [
        Self::Ucx,
        Self::Mpi,
        Self::Iceoryx2,
        Self::Pipe,
        Self::Unix,
        Self::Experiment2014,
        Self::Memcpy,
    ];

    /// The peer's name in commands.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ucx => "ucx",
            Self::Mpi => "mpi",
            Self::Iceoryx2 => "iceoryx2",
            Self::Pipe => "pipe",
            Self::Unix => "unix",
            Self::Experiment2014 => "2014",
            Self::Memcpy => "memcpy",
        }
    }

    /// The peer's subjects, by their names in records.
    #[must_use]
    pub fn subjects(self) -> &'static [&'static str] {
        match self {
            Self::Ucx => &["ucx"],
            Self::Mpi => &["mpi"],
            Self::Iceoryx2 => &["iceoryx2"],
            Self::Pipe => &["pipe"],
            Self::Unix => &["unix"],
            Self::Experiment2014 => &["2014:memcpy", "2014:vmsplice"],
            Self::Memcpy => &["memcpy"],
        }
    }

    /// Finds the programs that the peer needs, and compiles a driver in C, which takes half a
    /// second.
    ///
    /// # Errors
    /// [`Error::ProgramMissing`], with the packages to install.
    pub fn find(self) -> Result<Found, Error> {
        let missing =
            |remedy| move |reason| Error::ProgramMissing { peer: self.name(), reason, remedy };
        let (launch, folder) = match self {
            Self::Pipe | Self::Unix | Self::Experiment2014 | Self::Memcpy => (None, None),
            Self::Ucx => ucx().map_err(missing("apt-get install gcc libucx-dev"))?,
            Self::Mpi => mpi().map_err(missing("apt-get install openmpi-bin libopenmpi-dev"))?,
            Self::Iceoryx2 => (Some(iceoryx2().map_err(missing(BUILD_ICEORYX2))?), None),
        };
        Ok(Found { peer: self, launch, _folder: folder.map(Arc::new) })
    }
}

/// The command that builds the driver of iceoryx2: a separate crate, outside haul's workspace.
const BUILD_ICEORYX2: &str = "build it in haul's tree (cargo build --release --manifest-path \
     peers/iceoryx2/Cargo.toml) and name it in HAUL_PEER_ICEORYX2";

impl FromStr for Peer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        // Scripts that were written before 2026-11-25 use this name.
        let text = if text == "seed" { Self::Experiment2014.name() } else { text };
        let found = Self::ALL.into_iter().find(|peer| peer.name() == text);
        found.ok_or_else(|| Error::UnknownChannelPeer {
            name: text.into(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

type Started = (Option<Launch>, Option<Folder>);

/// UCX, with each end started separately.
fn ucx() -> Result<Started, String> {
    let folder = with_sources(UCX_C)?;
    let mut cc = Command::new("cc");
    compile(cc.args(["-lucp", "-lucs"]), folder.path())?;
    let program = folder.path().join("driver");
    let launch = Launch { program: Program::new(program), starts_both: false };
    Ok((Some(launch), Some(folder)))
}

/// MPI, with both ends started by the launcher of the installed implementation.
fn mpi() -> Result<Started, String> {
    let folder = with_sources(MPI_C)?;
    compile(&mut Command::new("mpicc"), folder.path())?;
    let version = run(Command::new("mpirun").arg("--version"), "mpirun")?;
    let mut arguments = vec!["-n", "2"];
    if String::from_utf8_lossy(&version.stdout).contains("Open MPI") {
        // By default, the launcher refuses to run as root or with more ranks than cores, and pins
        // ranks. The run pins the processes itself.
        arguments.extend(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    }
    let mut arguments: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
    arguments.push(folder.path().join("driver").into());
    let launch = Launch { program: Program::new("mpirun").with(arguments), starts_both: true };
    Ok((Some(launch), Some(folder)))
}

/// The driver that the user built: the file that the variable names, the file in the folder of
/// this program, or the file on PATH.
fn iceoryx2() -> Result<Launch, String> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(ICEORYX2)));
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::var_os(ICEORYX2_VARIABLE)
        .map(PathBuf::from)
        .into_iter()
        .chain(beside)
        .chain(std::env::split_paths(&on_path).map(|folder| folder.join(ICEORYX2)));
    let program = candidates
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| format!("no {ICEORYX2} in {ICEORYX2_VARIABLE}, beside haul or on PATH"))?;
    Ok(Launch { program: Program::new(program), starts_both: false })
}

/// A folder with a driver's source.
fn with_sources(driver: &str) -> Result<Folder, String> {
    let written = || -> io::Result<Folder> {
        let folder = Folder::new("channel")?;
        fs::write(folder.path().join("driver.h"), DRIVER_H)?;
        fs::write(folder.path().join("driver.c"), driver)?;
        Ok(folder)
    };
    written().map_err(|error| format!("its driver cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_names_parse_and_unknown_name_lists_peers() {
        for peer in Peer::ALL {
            assert_eq!(peer.name().parse::<Peer>().unwrap(), peer);
        }
        for bad in ["haul", "zeromq", ""] {
            let message = bad.parse::<Peer>().unwrap_err().to_string();
            assert!(message.contains("ucx, mpi, iceoryx2, pipe, unix"), "{message}");
        }
    }

    #[test]
    fn find_finds_peers_of_every_system() {
        for peer in [Peer::Pipe, Peer::Unix, Peer::Experiment2014, Peer::Memcpy] {
            assert!(peer.find().unwrap().launch.is_none());
        }
    }

    #[test]
    fn compile_reports_first_error() {
        let folder = with_sources("#include \"no-such-header.h\"\n").unwrap();
        match compile(&mut Command::new("cc"), folder.path()) {
            Err(reason) if reason.contains("no cc on PATH") => {}
            other => assert!(other.unwrap_err().contains("no-such-header.h")),
        }
        assert_eq!(
            compile(&mut Command::new("no-such-compiler"), folder.path()).unwrap_err(),
            "no no-such-compiler on PATH"
        );
    }
}
