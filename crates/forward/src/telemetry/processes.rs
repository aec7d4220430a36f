//! Sockets that processes listen on, wherever their runtime folders are.
//!
//! A program that a service manager starts makes its socket in a folder that only it was told of
//! (`RUNTIME_DIRECTORY`), so no list of folders has all. The kernel knows them by each network
//! namespace: `/proc/PID/net/unix`. A path is as its process sees it: in another mount namespace it
//! is reached through `/proc/PID/root`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// More processes than one machine runs.
const PROCESSES_MAX: usize = 1 << 20;

/// A socket that a process listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listening {
    inode: u64,
    /// As it was bound.
    path: PathBuf,
}

/// The paths of the sockets with such a name that this process listens on, as they are reached
/// from here.
///
/// # Errors
/// There is no such process, or only its user and root may see its sockets.
pub(super) fn of_process(
    process: u32,
    is_name: impl Fn(&OsStr) -> bool,
) -> io::Result<Vec<PathBuf>> {
    let held = held(process)?;
    let table = fs::read(format!("/proc/{process}/net/unix"))?;
    let own = listening(&table, is_name).into_iter().filter(|it| held.contains(&it.inode));
    Ok(own.map(|it| reached(process, &it.path)).collect())
}

/// The folders that a process was told to make its sockets in.
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

/// The paths of all sockets with such a name that a process listens on whose network namespace can
/// be seen from here.
pub(super) fn all(is_name: impl Fn(&OsStr) -> bool) -> Vec<PathBuf> {
    let (mut seen, mut found, mut elsewhere) = (BTreeSet::new(), Vec::new(), Vec::new());
    let processes = processes();
    for process in &processes {
        // Of a process whose namespace cannot be seen nothing is known.
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

/// This process first: its own namespace is the usual one.
fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten().take(PROCESSES_MAX);
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let own = std::process::id();
    std::iter::once(own).chain(numbers.filter(|process| *process != own)).collect()
}

/// The inodes of the sockets that a process has open.
fn held(process: u32) -> io::Result<BTreeSet<u64>> {
    let entries = fs::read_dir(format!("/proc/{process}/fd"))?.flatten();
    let sockets = entries.filter_map(|entry| {
        let target = fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    });
    Ok(sockets.collect())
}

/// The listening sockets with such a name of a table as `/proc/net/unix` has it: seven columns, and
/// the path with whatever bytes it has.
fn listening(table: &[u8], is_name: impl Fn(&OsStr) -> bool) -> Vec<Listening> {
    /// `__SO_ACCEPTCON`: somebody listens.
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

/// A path that a process sees, as it is reached from here.
fn reached(process: u32, path: &Path) -> PathBuf {
    let through = match path.strip_prefix("/") {
        Ok(below) => Path::new(&format!("/proc/{process}/root")).join(below),
        Err(_) => Path::new(&format!("/proc/{process}/cwd")).join(path),
    };
    let file = |path: &Path| fs::metadata(path).map(|it| (it.dev(), it.ino())).ok();
    match file(&through) {
        Some(there) if path.is_relative() || file(path) != Some(there) => through,
        // The same file, or one that only its own path may lead to.
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
    fn a_table_has_its_listeners_whatever_their_paths_are() {
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
    fn own_sockets_are_found_with_their_path() {
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
