//! The compared heaps, and the locations of their libraries on this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The folders of shared libraries that are searched after the folders that name the machine's
/// architecture.
const FOLDERS: [&str; 5] = ["/usr/lib", "/lib", "/usr/lib64", "/lib64", "/usr/local/lib"];

/// A heap that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Peer {
    /// haul's own heap, which is compared with the others.
    Haul,
    /// The malloc of the installed C library.
    Libc,
    /// Microsoft's malloc, preloaded.
    Mimalloc,
    /// FreeBSD's and Facebook's malloc, preloaded.
    Jemalloc,
    /// Google's malloc of gperftools, preloaded.
    Tcmalloc,
    /// DPDK's `rte_malloc`.
    Dpdk,
}

/// A heap that can be measured here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The heap.
    pub peer: Peer,
    /// The peer's shared library; `None` for the malloc that every process has.
    pub library: Option<PathBuf>,
}

impl Peer {
    /// All heaps that haul can be compared with, in the order of `--against`.
    pub const ALL: [Self; 5] =
        [Self::Dpdk, Self::Mimalloc, Self::Jemalloc, Self::Tcmalloc, Self::Libc];

    /// The heap's name in commands and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Haul => "haul",
            Self::Libc => "libc",
            Self::Mimalloc => "mimalloc",
            Self::Jemalloc => "jemalloc",
            Self::Tcmalloc => "tcmalloc",
            Self::Dpdk => "dpdk",
        }
    }

    /// The library's file name up to its version, and its Debian package.
    fn library(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Haul | Self::Libc => None,
            Self::Mimalloc => Some(("libmimalloc.so", "libmimalloc2.0")),
            Self::Jemalloc => Some(("libjemalloc.so", "libjemalloc2")),
            Self::Tcmalloc => Some(("libtcmalloc_minimal.so", "libtcmalloc-minimal4")),
            Self::Dpdk => Some(("librte_eal.so", "dpdk")),
        }
    }

    /// Finds the heap's library in the usual folders, and does not load it.
    ///
    /// # Errors
    /// [`Error::PeerMissing`], with the package to install.
    pub fn find(self) -> Result<Found, Error> {
        self.find_in(&folders())
    }

    fn find_in(self, folders: &[PathBuf]) -> Result<Found, Error> {
        let Some((library, package)) = self.library() else {
            return Ok(Found { peer: self, library: None });
        };
        match folders.iter().find_map(|folder| newest(folder, library)) {
            Some(path) => Ok(Found { peer: self, library: Some(path) }),
            None => Err(Error::PeerMissing { peer: self.name(), library, package }),
        }
    }
}

impl FromStr for Peer {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|peer| peer.name() == text);
        found.ok_or_else(|| Error::UnknownPeer {
            name: text.into(),
            known: Self::ALL.map(Self::name).join(", "),
        })
    }
}

/// Debian's folders for this architecture, and after them the folders for all architectures.
fn folders() -> Vec<PathBuf> {
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let own = ["/usr/lib", "/lib"].map(|folder| Path::new(folder).join(&triplet));
    own.into_iter().chain(FOLDERS.map(PathBuf::from)).collect()
}

/// The library of this name with the highest version in its file name. A file name without a
/// version is for compilers and may be missing, so it is ignored.
fn newest(folder: &Path, library: &str) -> Option<PathBuf> {
    let prefix = format!("{library}.");
    let entries = fs::read_dir(folder).ok()?.flatten();
    let versioned = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let version: Option<Vec<u32>> =
            name.strip_prefix(&prefix)?.split('.').map(|part| part.parse().ok()).collect();
        Some((version?, entry.path()))
    });
    versioned.max().map(|(_, path)| path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_names_parse_and_unknown_name_lists_peers() {
        for peer in Peer::ALL {
            assert_eq!(peer.name().parse::<Peer>().unwrap(), peer);
        }
        for bad in ["haul", "musl", ""] {
            let message = bad.parse::<Peer>().unwrap_err().to_string();
            assert!(message.contains("dpdk, mimalloc, jemalloc, tcmalloc, libc"), "{message}");
        }
    }

    #[test]
    fn find_takes_newest_library_and_names_package_of_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let folders = [folder.path().join("absent"), folder.path().to_owned()];
        let error = Peer::Dpdk.find_in(&folders).unwrap_err().to_string();
        assert!(
            error.contains("librte_eal.so") && error.contains("apt-get install dpdk"),
            "{error}"
        );
        for name in ["librte_eal.so", "librte_eal.so.9.1", "librte_eal.so.23", "librte_eal.so.x"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found = Peer::Dpdk.find_in(&folders).unwrap();
        assert_eq!(found.library, Some(folder.path().join("librte_eal.so.23")));
        assert_eq!(Peer::Libc.find_in(&[]).unwrap().library, None);
    }
}
