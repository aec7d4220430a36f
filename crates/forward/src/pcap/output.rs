//! A capture to which packets are appended.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use haul_model::capture::{BYTE_ORDER, ETHERNET, PCAP_NS, kind};
use haul_peer::foreign::{foreign_owner, left_by_another, lock_holder};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;
use haul_peer::descriptor::kept;
use haul_peer::memory::file_bytes_max;

/// The largest number of captured bytes per packet, as both kinds of header announce it: more
/// than any packet has.
const KEPT_BYTES_MAX: u32 = 262_144;

/// The option of an interface for its unit of time, `if_tsresol`, with the value for nanoseconds.
const UNIT_OF_TIME: [u8; 8] = [9, 0, 1, 0, 9, 0, 0, 0];

/// A capture that is written.
#[derive(Debug)]
pub(super) struct Output {
    file: File,
    path: PathBuf,
    is_ng: bool,
    /// Bytes to be written next.
    pending: Vec<u8>,
    /// When the packets of this burst were sent, in nanoseconds since 1970.
    time_ns: Option<u64>,
    /// The number of bytes of complete packets in the file.
    bytes: u64,
}

impl Output {
    /// Creates a file for this user alone, or truncates an existing one, and writes its header.
    /// Does not follow symbolic links. Refuses a file that another user left in a folder that
    /// others may write to, because that user could read it.
    ///
    /// # Errors
    /// [`Error::Path`], also if it is the file `read`, which the port reads.
    pub(super) fn create(path: &Path, read: Option<Option<(u64, u64)>>) -> Result<Self, Error> {
        let refused = |reason: io::Error| failure(path, reason);
        let file = open(path).map_err(refused)?;
        let facts = file.metadata().map_err(refused)?;
        if read.flatten() == Some((facts.dev(), facts.ino())) {
            return Err(refused(io::Error::other("the port reads the same file")));
        }
        // Without support for locks, other writers are not excluded.
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let why = format!("another port writes it: {} holds its lock", lock_holder(&file));
            return Err(refused(io::Error::other(why)));
        }
        file.set_len(0).map_err(refused)?;
        let is_ng = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("pcapng"));
        let pending = if is_ng { header_ng() } else { header() };
        let mut output = Self { file, path: path.into(), is_ng, pending, time_ns: None, bytes: 0 };
        output.write()?;
        Ok(output)
    }

    /// Appends a packet of `length` bytes, which `read` writes.
    #[inline]
    pub(super) fn append(&mut self, length: usize, read: impl FnOnce(&mut [u8]) -> bool) {
        let time_ns = *self.time_ns.get_or_insert_with(wall_ns);
        let bytes = length as u32;
        if self.is_ng {
            let block = 32 + bytes.next_multiple_of(4);
            let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
            self.words(&[kind::ENHANCED_PACKET, block, 0, high, low, bytes, bytes]);
        } else {
            let (seconds, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
            self.words(&[seconds as u32, ns as u32, bytes, bytes]);
        }
        let at = self.pending.len();
        self.pending.resize(at + length, 0);
        let is_read = read(&mut self.pending[at..]);
        debug_assert!(is_read, "a packet holds its length");
        if self.is_ng {
            self.pending.resize(at + length.next_multiple_of(4), 0);
            self.words(&[32 + bytes.next_multiple_of(4)]);
        }
    }

    /// Writes the appended packets. If that fails, the file keeps its previous length.
    ///
    /// # Errors
    /// [`Error::Path`].
    pub(super) fn write(&mut self) -> Result<(), Error> {
        if self.pending.is_empty() {
            return Ok(());
        }
        self.time_ns = None;
        let result = self.within_limit().and_then(|()| self.file.write_all(&self.pending));
        match result {
            Ok(()) => self.bytes += self.pending.len() as u64,
            // If this fails too, a reader finds a truncated packet.
            Err(_) => drop(self.file.set_len(self.bytes)),
        }
        self.pending.clear();
        result.map_err(|reason| failure(&self.path, reason))
    }

    /// Checks the process's limit on file sizes: a write beyond it would kill the process with
    /// the signal SIGXFSZ.
    fn within_limit(&self) -> io::Result<()> {
        let (wanted, limit) = (self.bytes + self.pending.len() as u64, file_bytes_max());
        if wanted <= limit {
            return Ok(());
        }
        let reason = format!("{wanted} B exceed this process's limit of file sizes, {limit} B");
        Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
    }

    /// Replaces the open file by another one.
    #[cfg(test)]
    pub(super) fn spoil(&mut self, file: File) {
        self.file = file;
    }

    fn words(&mut self, words: &[u32]) {
        words.iter().for_each(|word| self.pending.extend_from_slice(&word.to_le_bytes()));
    }
}

fn wall_ns() -> u64 {
    let time = clock_gettime(ClockId::Realtime);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Opens or creates the file itself, without changing its content.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW;
    let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match kept(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)) {
        Ok(file) => File::from(file),
        // A message about the existing file is more precise than the failed call's message.
        Err(reason) => return Err(in_the_way(path).unwrap_or_else(|| reason.into())),
    };
    let facts = file.metadata()?;
    if !facts.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    if let Some(owner) = foreign_owner(path, facts.uid())? {
        let what = "a regular file of user";
        return Err(io::Error::other(format!("{what} {owner} is there, {SHARED}")));
    }
    Ok(file)
}

const SHARED: &str = "in a folder that others may write to";

/// Why a path cannot be written, if an existing file is the reason.
fn in_the_way(path: &Path) -> Option<io::Error> {
    let status = fs::symlink_metadata(path).ok()?;
    let owner = status.uid();
    if status.is_symlink() {
        let target = fs::read_link(path).ok()?;
        let target = target.display();
        let what = format!("a symbolic link of user {owner} to {target} is there: name the file");
        return Some(io::Error::other(what));
    }
    let (owner, kind) = left_by_another(path).ok()??;
    Some(io::Error::other(format!("{kind} of user {owner} is there, {SHARED}")))
}

/// The header of a pcap file, version 2.4.
fn header() -> Vec<u8> {
    let words = [PCAP_NS, 0x0004_0002, 0, 0, KEPT_BYTES_MAX, u32::from(ETHERNET)];
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// A section header, version 1.0 with unknown length, and an interface.
fn header_ng() -> Vec<u8> {
    let section = [kind::SECTION, 28, BYTE_ORDER, 1, u32::MAX, u32::MAX, 28];
    let interface = [kind::INTERFACE, 28, u32::from(ETHERNET), KEPT_BYTES_MAX];
    let mut header: Vec<u8> =
        section.into_iter().chain(interface).flat_map(u32::to_le_bytes).collect();
    header.extend(UNIT_OF_TIME);
    header.extend(28_u32.to_le_bytes());
    header
}

fn failure(path: &Path, reason: io::Error) -> Error {
    let remedy = match reason.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space, or write less",
        io::ErrorKind::FileTooLarge => "raise the limit (ulimit -f), or write less",
        io::ErrorKind::Other => {
            "remove it, or choose a file in a folder that only this user may write to"
        }
        _ => "choose a file of this user, in an existing folder",
    };
    Error::Path { attempt: "write the capture", path: path.into(), reason, remedy }
}
