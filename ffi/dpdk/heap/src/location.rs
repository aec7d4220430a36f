//! The location of each heap, which the primary process records for the other processes.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{BASE_ALIGN, SocketRange};

/// The location of one heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeapLocation {
    pub(crate) range: SocketRange,
    /// The metadata file's inode number, which differs from the number in an earlier run; 0 if
    /// there is no file and therefore no second process.
    pub(crate) file_number: u64,
    /// The file's descriptor in the primary process, if it has no name.
    pub(crate) descriptor: Option<c_int>,
    /// The metadata file's size in bytes.
    pub(crate) metadata_bytes: u64,
}

/// A [`HeapLocation`] in the memzone.
#[repr(C)]
pub(crate) struct LocationWords {
    pub(crate) socket: AtomicU64,
    pub(crate) base: AtomicU64,
    pub(crate) bytes: AtomicU64,
    file_number: AtomicU64,
    /// The descriptor plus 1; 0 if there is no descriptor.
    descriptor: AtomicU64,
    metadata_bytes: AtomicU64,
}

/// Why a secondary process cannot use the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The primary process runs without the drop-in.
    Missing,
    /// The directory is incomplete, of another version, or has impossible values.
    Unusable,
}

impl LocationWords {
    /// Records a location, before any process reads it.
    pub(crate) fn write(&self, location: &HeapLocation) {
        let range = location.range;
        // A socket's number is not negative, because memory was requested with that number.
        self.socket.store(range.socket as u64, Ordering::Relaxed);
        self.base.store(range.base as u64, Ordering::Relaxed);
        self.bytes.store(range.bytes as u64, Ordering::Relaxed);
        self.file_number.store(location.file_number, Ordering::Relaxed);
        let descriptor = location.descriptor.map_or(0, |descriptor| descriptor as u64 + 1);
        self.descriptor.store(descriptor, Ordering::Relaxed);
        self.metadata_bytes.store(location.metadata_bytes, Ordering::Relaxed);
    }

    /// The recorded location; an error if its values are impossible.
    pub(crate) fn read(&self) -> Result<HeapLocation, Problem> {
        let socket = self.socket.load(Ordering::Relaxed);
        let base = self.base.load(Ordering::Relaxed) as usize;
        let bytes = self.bytes.load(Ordering::Relaxed) as usize;
        let is_aligned = base.is_multiple_of(BASE_ALIGN) && bytes.is_multiple_of(BASE_ALIGN);
        if !is_aligned || bytes == 0 || base.checked_add(bytes).is_none() {
            return Err(Problem::Unusable);
        }
        let socket = c_int::try_from(socket).map_err(|_| Problem::Unusable)?;
        let descriptor = self.descriptor.load(Ordering::Relaxed).checked_sub(1);
        let descriptor =
            descriptor.map(c_int::try_from).transpose().map_err(|_| Problem::Unusable)?;
        Ok(HeapLocation {
            range: SocketRange { socket, base, bytes },
            file_number: self.file_number.load(Ordering::Relaxed),
            descriptor,
            metadata_bytes: self.metadata_bytes.load(Ordering::Relaxed),
        })
    }
}
