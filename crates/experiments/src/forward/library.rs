//! A library that a switch loads in addition to its own libraries, or in place of one of them: the
//! file or folder, the variables with which the switch starts, and whether the library took part.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The library that runs haul's ring in place of librte_vhost's, and its subject's name.
const RING: &str = "libhaul_rte_vhost.so";
const RING_NAME: &str = "haul";

/// The library and DPDK serve in turns: the subject's name, the option's, and the library's mode.
const TURNS_NAME: &str = "turns";

/// The beginning of the names of librte_vhost's files, which a folder replaces.
const VHOST: &str = "librte_vhost.so";

/// The beginning of the lines that the library of haul's ring prints.
pub(super) const MARK: &str = "haul: rte_vhost: ";

/// The bytes of an ELF file's header that say for which loader it is: class and byte order, and
/// type and machine (System V ABI, chapter 4, "ELF Header").
const HEADER_BYTES: usize = 20;
const SAME: [std::ops::Range<usize>; 2] = [0..6, 18..20];
const TYPE: usize = 16;
const SHARED: u8 = 3;

/// A library for a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Library {
    way: Way,
    path: PathBuf,
    name: String,
    /// The files of which the switch must load one, without links.
    files: Vec<PathBuf>,
}

/// How the switch gets the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// The loader loads a file before all other libraries.
    Preload,
    /// The same, and the library of haul's ring serves in turns with DPDK.
    Turns,
    /// The loader searches a folder before all other folders.
    Folder,
}

/// The packets that the library of haul's ring moved, by its own account.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Served {
    /// Packets that it served.
    pub(super) served: u64,
    /// Packets that it handed to DPDK.
    pub(super) handed: u64,
    /// Its rate by DPDK's, if they served in turns.
    pub(super) ratio: Option<f64>,
}

impl Library {
    /// A shared library that the switch preloads.
    ///
    /// # Errors
    /// The file cannot be read, is not a library for the loader of this program, or its path
    /// contains a character at which the loader would split it.
    pub fn preloaded(file: &Path) -> Result<Self, String> {
        let path = path_for_loader(file)?;
        check_library(&path)?;
        let file = resolve(&path)?;
        let own = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = match own.as_str() {
            RING => RING_NAME.to_owned(),
            other => other.split(".so").next().unwrap_or(other).to_owned(),
        };
        Ok(Self { way: Way::Preload, path, name, files: vec![file] })
    }

    /// The library of haul's ring, which the switch preloads, and which serves in turns with DPDK.
    ///
    /// # Errors
    /// As for [`Library::preloaded`], or the file has another name.
    pub fn in_turns(file: &Path) -> Result<Self, String> {
        let library = Self::preloaded(file)?;
        if !library.has_ring() {
            return Err(format!("only {RING} serves in turns with DPDK"));
        }
        Ok(Self { way: Way::Turns, name: TURNS_NAME.to_owned(), ..library })
    }

    /// A folder with a librte_vhost that takes the place of the installed one.
    ///
    /// # Errors
    /// The folder cannot be read, contains no librte_vhost for the loader of this program, or its
    /// path contains a character at which the loader would split it.
    pub fn in_folder(folder: &Path) -> Result<Self, String> {
        let path = path_for_loader(folder)?;
        let cannot = |error: io::Error| format!("cannot read {}: {error}", path.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(&path).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            if entry.file_name().as_bytes().starts_with(VHOST.as_bytes()) {
                check_library(&entry.path())?;
                files.push(resolve(&entry.path())?);
            }
        }
        if files.is_empty() {
            let here = path.display();
            return Err(format!("{here} has no {VHOST}.*; peers/openvswitch/rebuild makes one"));
        }
        // A folder such as "." has its name only once it is resolved.
        let whole = if path.file_name().is_some() { path.clone() } else { resolve(&path)? };
        let name = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { way: Way::Folder, path, name, files })
    }

    /// The name that distinguishes a switch with this library from one without.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The option by which a command names the library, such as `preload=FILE`.
    pub(super) fn option(&self) -> String {
        let way = match self.way {
            Way::Preload => "preload",
            Way::Turns => TURNS_NAME,
            Way::Folder => "lib",
        };
        let own = std::env::current_dir().ok();
        let path = own.and_then(|own| self.path.strip_prefix(own).ok()).unwrap_or(&self.path);
        format!("{way}={}", path.display())
    }

    /// The copier of a switch with this library, if it is known.
    pub(super) fn copy(&self) -> Option<String> {
        match self.way {
            Way::Folder => Some(self.name.clone()),
            Way::Preload if self.has_ring() => {
                Some(std::env::var("HAUL_COPY").unwrap_or_else(|_| "haul".to_owned()))
            }
            Way::Preload | Way::Turns => None,
        }
    }

    /// Whether the library serves in turns with DPDK.
    pub(super) fn takes_turns(&self) -> bool {
        self.way == Way::Turns
    }

    /// Whether this is the library that runs haul's ring, and prints what it served.
    pub(super) fn has_ring(&self) -> bool {
        self.files.iter().any(|file| file.file_name().is_some_and(|name| name == RING))
    }

    /// The variables with which the switch alone starts.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = self.path.clone().into_os_string();
        let mut all = match self.way {
            Way::Preload | Way::Turns => vec![("LD_PRELOAD".into(), path)],
            Way::Folder => vec![("LD_LIBRARY_PATH".into(), path)],
        };
        if self.has_ring() {
            let mode = if self.takes_turns() { TURNS_NAME } else { "tell" };
            all.push(("HAUL_RTE_VHOST".into(), mode.into()));
        }
        all
    }

    /// Checks that a process has loaded the library. The loader ignores a library that it cannot
    /// preload, and one whose version the switch does not need.
    ///
    /// # Errors
    /// The process has ended, or has not loaded it.
    pub(super) fn check_loaded(&self, process: u32) -> Result<(), String> {
        let file = format!("/proc/{process}/maps");
        let maps = fs::read(&file).map_err(|error| format!("cannot read {file}: {error}"))?;
        let lines = || maps.split(|byte| *byte == b'\n');
        let is_loaded = |file: &PathBuf| lines().any(|line| path_of(line) == Some(file.as_path()));
        if self.files.iter().any(is_loaded) {
            return Ok(());
        }
        let files: Vec<String> = self.files.iter().map(|it| it.display().to_string()).collect();
        let found = lines().filter_map(path_of).find(|path| {
            path.file_name().is_some_and(|name| name.as_bytes().starts_with(VHOST.as_bytes()))
        });
        let instead = match (self.way, found) {
            (Way::Folder, Some(found)) => format!(", but {}", found.display()),
            _ => String::new(),
        };
        Err(format!("its loader did not load {}{instead}", files.join(" or ")))
    }
}

/// The packets of all devices, from the lines that the library printed at the end of each device:
/// `haul: rte_vhost: PATH: served N packets, handed M to DPDK`. `None` without such a line.
pub(super) fn parse_served<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<Served> {
    let parse = |line: &str| -> Option<Served> {
        let (_, counts) = line.trim_end().strip_prefix(MARK)?.rsplit_once(": served ")?;
        let (served, handed) = counts.strip_suffix(" to DPDK")?.split_once(" packets, handed ")?;
        Some(Served { served: served.parse().ok()?, handed: handed.parse().ok()?, ratio: None })
    };
    let lines: Vec<&str> = lines.into_iter().collect();
    let served = lines.iter().filter_map(|line| parse(line)).reduce(|sum, it| Served {
        served: sum.served.saturating_add(it.served),
        handed: sum.handed.saturating_add(it.handed),
        ratio: None,
    });
    // Each line covers all turns so far.
    let ratio = lines.iter().rev().find_map(|line| parse_ratio(line));
    served.map(|served| Served { ratio, ..served })
}

/// The ratio in a line such as `haul: rte_vhost: PATH: compared in 9 turns of all devices: 3.1 Mpps
/// with haul, 2.9 with DPDK, 1.07 times (95%: 1.05 to 1.1)`.
fn parse_ratio(line: &str) -> Option<f64> {
    // A prompt may stand before it.
    let (_, compared) = line.split_once(MARK)?.1.split_once(": compared in ")?;
    compared.split_once(" with DPDK, ")?.1.split_once(" times")?.0.parse().ok()
}

/// The absolute path, if the loader takes it as one. The loader splits its lists at spaces, colons
/// and semicolons, and replaces what follows a dollar sign (ld.so(8)).
fn path_for_loader(path: &Path) -> Result<PathBuf, String> {
    let cannot = |error: io::Error| format!("cannot use {}: {error}", path.display());
    let whole = std::path::absolute(path).map_err(cannot)?;
    let is_split =
        |byte: &&u8| b":;$".contains(byte) || !byte.is_ascii_graphic() && byte.is_ascii();
    match whole.as_os_str().as_bytes().iter().find(is_split) {
        None => Ok(whole),
        Some(byte) => Err(format!(
            "the loader would not take {} as one path, because it contains {:?}; make a link at \
             another path",
            whole.display(),
            char::from(*byte)
        )),
    }
}

fn resolve(path: &Path) -> Result<PathBuf, String> {
    path.canonicalize().map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// Checks that a file is a shared library that this program's loader would load.
fn check_library(path: &Path) -> Result<(), String> {
    let cannot = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let Some(header) = header_of(path).map_err(cannot)? else {
        return Err(format!("{} is not a file", path.display()));
    };
    if !header.starts_with(b"\x7fELF") || header.len() < HEADER_BYTES {
        return Err(format!("{} is not an ELF file", path.display()));
    }
    let own = header_of(Path::new("/proc/self/exe")).ok().flatten().unwrap_or_default();
    if own.len() < HEADER_BYTES || SAME.into_iter().any(|range| own[range.clone()] != header[range])
    {
        let bits = if header[4] == 1 { 32 } else { 64 };
        let machine = u16::from_le_bytes([header[18], header[19]]);
        return Err(format!(
            "{} is for another loader: {bits} bits, machine {machine} of ELF",
            path.display()
        ));
    }
    if header[TYPE] != SHARED {
        return Err(format!("{} is not a shared library", path.display()));
    }
    Ok(())
}

/// The first bytes of a regular file; `None` if it is another kind of file. A FIFO is opened
/// without waiting for its writer.
fn header_of(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(HEADER_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// The path in a line of a process's maps.
fn path_of(line: &[u8]) -> Option<&Path> {
    let start = line.iter().position(|byte| *byte == b'/')?;
    Some(Path::new(std::ffi::OsStr::from_bytes(&line[start..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with the header of this program, changed at some places.
    fn library(path: &Path, changes: &[(usize, u8)]) {
        let mut header = header_of(Path::new("/proc/self/exe")).unwrap().unwrap();
        header[TYPE] = SHARED;
        for (place, byte) in changes {
            header[*place] = *byte;
        }
        fs::write(path, header).unwrap();
    }

    #[test]
    fn preload_rejects_what_the_loader_would_ignore() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("text.so"), "not a library, but long enough").unwrap();
        fs::write(at("short.so"), b"\x7fELF").unwrap();
        library(&at("class.so"), &[(4, 1)]);
        library(&at("machine.so"), &[(18, 0xf3), (19, 0)]);
        library(&at("program.so"), &[(TYPE, 2)]);
        library(&at("a:b.so"), &[]);
        library(&at("a b.so"), &[]);
        library(&at("$LIB.so"), &[]);
        for (name, part) in [
            ("missing.so", "No such file"),
            (".", "is not a file"),
            ("text.so", "is not an ELF file"),
            ("short.so", "is not an ELF file"),
            ("class.so", "another loader: 32 bits"),
            ("machine.so", "machine 243"),
            ("program.so", "is not a shared library"),
            ("a:b.so", "contains ':'; make a link"),
            ("a b.so", "contains ' '"),
            ("$LIB.so", "contains '$'"),
        ] {
            let reason = Library::preloaded(&at(name)).unwrap_err();
            assert!(reason.contains(part), "{name}: {reason}");
        }
    }

    #[test]
    fn names_and_variables_follow_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        library(&at("libmine.so.1"), &[]);
        library(&at(RING), &[]);
        let mine = Library::preloaded(&at("libmine.so.1")).unwrap();
        assert_eq!((mine.name(), mine.has_ring(), mine.copy()), ("libmine", false, None));
        assert_eq!(mine.environment(), [("LD_PRELOAD".into(), at("libmine.so.1").into())]);
        let ring = Library::preloaded(&at(RING)).unwrap();
        assert_eq!((ring.name(), ring.has_ring()), ("haul", true));
        assert!(ring.environment().contains(&("HAUL_RTE_VHOST".into(), "tell".into())));
        let turns = Library::in_turns(&ring.path).unwrap();
        assert_eq!((turns.name(), turns.takes_turns()), (TURNS_NAME, true));
        assert!(turns.option().starts_with("turns="));
        assert!(turns.environment().contains(&("HAUL_RTE_VHOST".into(), "turns".into())));
        assert!(ring.option().starts_with("preload=/"), "{}", ring.option());
    }

    #[test]
    fn folder_needs_librte_vhost() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("memcpy");
        assert!(Library::in_folder(&own).unwrap_err().contains("No such file"));
        fs::create_dir(&own).unwrap();
        let reason = Library::in_folder(&own).unwrap_err();
        assert!(reason.contains("has no librte_vhost.so"), "{reason}");
        library(&own.join("librte_vhost.so.23"), &[(4, 1)]);
        assert!(Library::in_folder(&own).unwrap_err().contains("32 bits"));
        library(&own.join("librte_vhost.so.23"), &[]);
        let found = Library::in_folder(&own.join(".")).unwrap();
        assert_eq!((found.name(), found.copy().as_deref()), ("memcpy", Some("memcpy")));
        assert!(Library::in_folder(&own.join("librte_vhost.so.23")).is_err());
        let reason = found.check_loaded(std::process::id()).unwrap_err();
        assert!(reason.starts_with("its loader did not load /"), "{reason}");
    }

    #[test]
    fn loaded_library_is_found_among_maps() {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().filter_map(|line| path_of(line.as_bytes()));
        let libc =
            libc.map(Path::to_path_buf).find(|path| path.to_string_lossy().contains("/libc"));
        let found = Library::preloaded(&libc.unwrap()).unwrap();
        assert_eq!(found.check_loaded(std::process::id()), Ok(()));
        assert!(found.check_loaded(u32::MAX).is_err());
    }

    #[test]
    fn served_packets_are_summed_over_devices() {
        let lines = [
            "haul: rte_vhost: serves /run/a",
            "haul: rte_vhost: /run/a: served 7 : served 12 packets, handed 3 to DPDK\r",
            "haul: rte_vhost: /run/b: served 30 packets, handed 0 to DPDK",
            "haul: rte_vhost: /run/c: served x packets, handed 0 to DPDK",
            "OVS: haul: rte_vhost: /run/d: served 9 packets, handed 9 to DPDK",
        ];
        let summed = Served { served: 42, handed: 3, ratio: None };
        assert_eq!(parse_served(lines), Some(summed));
        assert_eq!(parse_served(lines[..1].iter().copied()), None);
        let turns = [
            "haul: rte_vhost: /run/a: compared in 9 turns of all devices: 3.1 Mpps with haul, 2.9 \
             with DPDK, 1.069 times (95%: 1.05 to 1.10)",
            "haul: rte_vhost: /run/b: compared nothing: too few turns had packets",
        ];
        let found = parse_served(lines.into_iter().chain(turns));
        assert_eq!(found, Some(Served { ratio: Some(1.069), ..summed }));
    }
}
