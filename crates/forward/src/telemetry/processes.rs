//! Sockets on which processes listen, in any runtime folder.
//!
//! A service manager may give a program a runtime folder that no other program knows
//! (`RUNTIME_DIRECTORY`), so no list of folders is complete. The kernel lists the sockets of each
//! network namespace: `/proc/PID/net/unix`. Each path in these lists is valid in the mount
//! namespace of its process. haul reaches a process in another mount namespace through
//! `/proc/PID/root`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The largest number of processes that are examined: no machine runs as many.
const PROCESSES_MAX: usize = 1 << 20;

/// A socket on which a process listens.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listening {
    inode: u64,
    /// The path to which the socket was bound.
    path: PathBuf,
}

/// The paths through which the calling process reaches the sockets with a matching name on which
/// `process` listens.
///
/// # Errors
/// The process does not exist, or only its user and root may see its sockets.
pub(super) fn of_process(
    process: u32,
    is_name: impl Fn(&OsStr) -> bool,
) -> io::Result<Vec<PathBuf>> {
    let held = held(process)?;
    let table = fs::read(format!("/proc/{process}/net/unix"))?;
    let own = listening(&table, is_name).into_iter().filter(|it| held.contains(&it.inode));
    Ok(own.map(|it| reached(process, &it.path)).collect())
}

/// The runtime folders in a process's environment.
pub(super) fn folders_of(process: u32) -> Vec<PathBuf> {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let names = [&b"RUNTIME_DIRECTORY="[..], b"XDG_RUNTIME_DIR="];
    let values = environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| names.iter().find_map(|name| entry.strip_prefix(*name)));
    let folders = values.flat_map(|value| value.split(|byte| *byte == b':'));
    let paths = folders.map(|folder| Path::new(OsStr::from_bytes(folder)));
    paths.filter(|path| path.is_absolute()).map(|path| reached(process, path)).collect()
}

/// The paths of all sockets with a matching name on which a process listens, if its network
/// namespace is visible from here.
pub(super) fn all(is_name: impl Fn(&OsStr) -> bool) -> Vec<PathBuf> {
    let (mut seen, mut found, mut elsewhere) = (BTreeSet::new(), Vec::new(), Vec::new());
    let processes = processes();
    for process in &processes {
        // Without access to its namespace, the sockets of a process are unknown.
        let Ok(namespace) = fs::read_link(format!("/proc/{process}/ns/net")) else { continue };
        if !seen.insert(namespace) {
            continue;
        }
        let table = fs::read(format!("/proc/{process}/net/unix")).unwrap_or_default();
        for socket in listening(&table, &is_name) {
            match is_socket(&socket.path) && socket.path.is_absolute() {
                true => found.push(socket.path),
                false => elsewhere.push(socket),
            }
        }
    }
    if elsewhere.is_empty() {
        return found;
    }
    for process in processes {
        let held = held(process).unwrap_or_default();
        let own = elsewhere.iter().filter(|it| held.contains(&it.inode));
        found.extend(own.map(|it| reached(process, &it.path)));
    }
    found
}

/// All process IDs. This process is the first, because its namespace is the usual one.
fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().take(PROCESSES_MAX);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    std::iter::once(own).chain(numbers.filter(|process| *process != own)).collect()
}

/// The inodes of a process's open sockets.
fn held(process: u32) -> io::Result<BTreeSet<u64>> {
    let entries = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let sockets = entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    Ok(sockets.collect())
}

/// The listening sockets with a matching name in a table in the format of `/proc/net/unix`: seven
/// columns, then the path with arbitrary bytes.
fn listening(table: &[u8], is_name: impl Fn(&OsStr) -> bool) -> Vec<Listening> {
    /// `__SO_ACCEPTCON`: the socket listens.
    const LISTENS: u32 = 1 << 16;
    let of = |line: &[u8]| {
        let mut rest = line;
        let mut columns = Vec::new();
        for _ in 0..7 {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(|byte| *byte == b' ')?;
            columns.push(std::str::from_utf8(&rest[..end]).ok()?);
            rest = &rest[end..];
        }
        let flags = u32::from_str_radix(columns[3], 16).ok()?;
        let path = PathBuf::from(OsStr::from_bytes(rest.strip_prefix(b" ")?));
        let is_wanted = flags & LISTENS != 0 && path.file_name().is_some_and(&is_name);
        is_wanted.then_some(Listening { inode: columns[6].parse().ok()?, path })
    };
    table.split(|byte| *byte == b'\n').filter_map(of).collect()
}

/// Translates a path that a process sees into one that is valid here.
fn reached(process: u32, path: &Path) -> PathBuf {
    let through = match path.strip_prefix("/") {
        Ok(below) => Path::new(&format!("/proc/{process}/root")).join(below),
        Err(_) => Path::new(&format!("/proc/{process}/cwd")).join(path),
    };
    let file = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    match file(&through) {
        Some(there) if path.is_relative() || file(path) != Some(there) => through,
        // Both paths lead to the same file, or only the original path leads to a file.
        _ => path.to_owned(),
    }
}

fn is_socket(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|it| it.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_yields_listeners_with_any_path() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0005 01 23456 /run/a b/s.v2\n\
            0000000000000000: 00000002 00000000 00010000 0005 01     7 rel/\xff/s.v2\n\
            0000000000000000: 00000003 00000000 00000000 0005 03 23457 /run/a b/s.v2\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23458 @/run/s.v2\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 23459 /run/other\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 23460\n\
            nonsense\n\n";
        let found = listening(table, |name| name == "s.v2");
        let paths: Vec<_> = found.iter().map(|it| (it.inode, it.path.as_os_str())).collect();
        let other = OsStr::from_bytes(b"rel/\xff/s.v2");
        assert_eq!(
            paths,
            [(23456, OsStr::new("/run/a b/s.v2")), (7, other), (23458, OsStr::new("@/run/s.v2"))]
        );
    }

    #[test]
    fn own_socket_is_found_by_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.v2");
        let name = |name: &OsStr| name == "own.v2";
        let has = |paths: Vec<PathBuf>| paths.contains(&path);
        assert!(!has(all(name)));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert!(has(all(name)) && has(of_process(std::process::id(), name).unwrap()));
        drop(listener);
        assert!(!has(all(name)) && !has(of_process(std::process::id(), name).unwrap()));
        assert!(of_process(u32::MAX, name).is_err());
    }
}
