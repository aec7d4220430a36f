//! A region of a guest's memory: the kinds of files that are accepted, and the mapping.

use std::ptr::NonNull;

use haul_heap::guard::Guard;
use rustix::fd::AsFd;
use rustix::fs::FileType;
use rustix::mm::ProtFlags;

use super::Described;
use crate::error::Error;
use crate::memory;

/// The kinds of files for a guest's memory, as text for messages.
const EXPECTED: &str = "a memory file (memfd), or a file of tmpfs, hugetlbfs or a local disk";

/// The kind of a file system: where its pages come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSystem {
    /// Its pages are memory, without a disk.
    Memory,
    /// Its pages are memory, which the kernel writes to a disk of this machine.
    Disk(&'static str),
    /// Another process or machine provides its pages.
    Served(&'static str),
    Unknown(u64),
}

impl FileSystem {
    /// The kind of the file system with this number in linux/magic.h. The numbers of ZFS and
    /// others that are missing there are from their sources. A writable file in an overlay is in
    /// its upper folder, whose pages never come from another process: see the kernel's
    /// `ovl_mount_dir_check`.
    pub(super) fn of(number: u64) -> Self {
        // The number has 32 bits, and some machines sign-extend it.
        match number & 0xffff_ffff {
            0x0102_1994 | 0x9584_58f6 | 0x8584_58f6 => Self::Memory,
            0xef53 => Self::Disk("ext4"),
            0x5846_5342 => Self::Disk("XFS"),
            0x9123_683e => Self::Disk("Btrfs"),
            0xf2f5_2010 => Self::Disk("F2FS"),
            0xca45_1a4e => Self::Disk("bcachefs"),
            0x2fc1_2fc1 => Self::Disk("ZFS"),
            0x794c_7630 => Self::Disk("an overlay"),
            0x6573_5546 => Self::Served("FUSE"),
            0x6969 => Self::Served("NFS"),
            0x0102_1997 => Self::Served("9P"),
            0xff53_4d42 | 0xfe53_4d42 | 0x517b => Self::Served("SMB"),
            0x00c3_6400 => Self::Served("Ceph"),
            0x5346_414f | 0x6b41_4653 => Self::Served("AFS"),
            0x7375_7245 => Self::Served("Coda"),
            0x0bd0_0bd0 => Self::Served("Lustre"),
            0x0116_1970 => Self::Served("GFS2"),
            0x7461_636f => Self::Served("OCFS2"),
            0x786f_4256 => Self::Served("VirtualBox"),
            _ => Self::Unknown(number),
        }
    }
}

/// A mapped region. The mapping may begin before the region, at a page boundary of the file.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) described: Described,
    pub(super) system: FileSystem,
    /// The address of the region's first byte.
    pub(super) first: NonNull<u8>,
    pub(super) guard: Option<Guard>,
    start: NonNull<u8>,
    mapped_bytes: usize,
}

// SAFETY: the mapping belongs to this value. Accesses use addresses that were looked up, and
// tolerate concurrent writes by another process.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    pub(super) fn new(described: Described, file: impl AsFd) -> Result<Self, Error> {
        let refuse = |found: String, expected| Err(Error::Memory { found, expected });
        let file = file.as_fd();
        let status = rustix::fs::fstat(file).map_err(Error::system("inspect a guest's memory"))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return refuse("memory that is not a file".into(), "a memory file");
        }
        let kind = rustix::fs::fstatfs(file).map_err(Error::system("inspect a guest's memory"))?;
        let system = match FileSystem::of(kind.f_type as u64) {
            FileSystem::Served(name) => {
                let found = format!("memory in a file of {name}, whose server could stop a burst");
                return refuse(found, EXPECTED);
            }
            FileSystem::Unknown(number) => {
                return refuse(format!("memory in a file system of type {number:#x}"), EXPECTED);
            }
            trusted => trusted,
        };
        let Described { bytes, offset, .. } = described;
        let end = offset.checked_add(bytes).filter(|end| *end <= status.st_size as u64);
        if end.is_none() || bytes == 0 {
            let found = format!("a region of {bytes} B at {offset} of {} B", status.st_size);
            return refuse(found, "a region inside its file");
        }
        // In hugetlbfs, the block size is the page size.
        let page = match system {
            FileSystem::Memory => u64::try_from(status.st_blksize).unwrap_or(0).max(4096),
            _ => rustix::param::page_size() as u64,
        };
        if !page.is_power_of_two() || page > 1 << 30 {
            return refuse(format!("memory in pages of {page} B"), "pages of up to 1 GiB");
        }
        let before = offset % page;
        let length = (before + bytes).next_multiple_of(page) as usize;
        let (at, flags) = ((offset - before) as usize, ProtFlags::READ | ProtFlags::WRITE);
        let start = memory::map_part(file, at, length, flags)?;
        let guard = match memory::guarded(start, length, page as usize) {
            Ok(guard) => Some(guard),
            Err(error) => {
                // SAFETY: mapped above, and owned by this function. Nothing refers to it yet. It
                // has no guard, as that is the error.
                unsafe { memory::unmap(start, length) };
                return Err(error);
            }
        };
        // SAFETY: `before` is less than a page, and the mapping has at least one page.
        let first = unsafe { start.add(before as usize) };
        Ok(Self { described, system, first, guard, start, mapped_bytes: length })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // The guard is dropped first, so that it does not map zeros over a later mapping by other
        // code.
        self.guard = None;
        // SAFETY: this value owns the mapping. Accesses borrow the value, so that none is under
        // way. The guard was dropped above.
        unsafe { memory::unmap(self.start, self.mapped_bytes) };
    }
}
