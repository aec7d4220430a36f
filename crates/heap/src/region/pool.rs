//! The second file of a shared heap, which contains the first pages of each node. Its memory
//! consists of pages from the kernel's pool. The file is as long as the data, and sparse. A page
//! gets memory before the heap uses it, so that an access never finds the pool empty. If the pool
//! refuses a page, the heap skips that page and uses plain pages after the pool's part. It cannot
//! map the page from the first file instead, because other processes have already mapped it from
//! the second file.
//!
//! For a named heap, the second file is in a file system for huge pages. For a heap that is
//! shared by descriptor, the second file has no name. A process that attaches gets it from the
//! caller, or from another attached process through `/proc`.

use core::ffi::CStr;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::backing::{Backing, Choice, Reason};
use super::header::{Header, PoolFile};
use super::owner::check_owner;
use super::{Refusal, Region};
use crate::error::{Attempt, Error, NAME_BYTES_MAX, Name};
use crate::layout::{Geometry, Layout, PAGE, POOL_FILE, PROCESS_MORE_AT, PROCESS_RECORD_BYTES};
use crate::protocol::word::{PROCESSES_MAX, Process, ProcessWord};
use crate::sync::Relaxed;
use crate::sys::file::{self, Path};
use crate::sys::huge::HugeSize;
use crate::sys::{Errno, memory};

/// The beginning of a second file's path: the folder where systemd and most distributions mount
/// the file system, and haul's prefix.
const FOLDER: &[u8] = b"/dev/hugepages/haul-heap.";

/// The folder that contains the first files of named heaps. The number of its file system is part
/// of the second file's name. Otherwise containers that share one `/dev/hugepages`, but have a
/// separate `/dev/shm` each, could not use the same names.
const FIRST_FOLDER: &CStr = c"/dev/shm";

/// The most bytes of a file system's number: its decimal digits, and the point before it.
const DEVICE_BYTES: usize = 21;

/// Bytes of a path.
const PATH_BYTES: usize = FOLDER.len() + NAME_BYTES_MAX + DEVICE_BYTES + 1;

/// How a process gets the second file of a heap.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// By the heap's name.
    Name(Name),
    /// From the caller, as a descriptor.
    File(BorrowedFd<'a>),
    /// From another attached process.
    Members,
}

/// Creates the second file for a new heap, if `choice` has a pool. If that fails, removes the
/// pool from `choice` and stores the reason there.
pub(super) fn create(
    geometry: &Geometry,
    name: Option<Name>,
    choice: &mut Choice,
) -> Option<(OwnedFd, PoolFile)> {
    let (size, pages) = choice.pool?;
    let made = match name {
        Some(name) => create_named(name, size),
        None => file::create_unnamed_huge(c"haul-heap", size),
    };
    let made = made.and_then(|file| {
        file::set_size(file.as_fd(), geometry.data_bytes() as u64)?;
        if name.is_none() {
            file::seal_size(file.as_fd())?;
        }
        let identity = file::facts(file.as_fd())?.identity;
        Ok((file, PoolFile { size, pages, identity }))
    });
    if made.is_err() {
        let reason = if name.is_some() { Reason::NoMount } else { Reason::NoPool };
        *choice = Choice { pool: None, reason, ..*choice };
    }
    made.ok()
}

fn create_named(name: Name, size: HugeSize) -> Result<OwnedFd, Errno> {
    let path = path_of(name)?;
    let path = path.as_c_str()?;
    let file = match file::create_named(path) {
        // This process has just taken the heap's name, so the file is left from an earlier heap.
        Err(Errno::EXIST) => {
            file::remove_named(path)?;
            file::create_named(path)
        }
        result => result,
    }?;
    if file::huge_page_bytes(file.as_fd()) != Some(size.bytes() as u64) {
        let _ = file::remove_named(path);
        return Err(Errno::INVAL);
    }
    Ok(file)
}

/// Opens the second file of the heap that a header describes; `None` if the heap has no second
/// file.
pub(super) fn open(
    header: &Header,
    first: BorrowedFd<'_>,
    source: Source<'_>,
) -> Result<Option<OwnedFd>, Error> {
    let Some(pool) = &header.pool else { return Ok(None) };
    let refused = |attempt| move |errno| Error::refused(attempt, 0, errno);
    let file = match source {
        Source::Name(name) => {
            let file = path_of(name).and_then(|path| file::open_named(path.as_c_str()?));
            let file = file.map_err(refused(Attempt::OpenHugeFile))?;
            check_owner(file.as_fd())?;
            file
        }
        Source::File(file) => file::duplicate(file).map_err(refused(Attempt::Duplicate))?,
        Source::Members => of_members(first, header, pool).ok_or(Error::Unsupported {
            what: "attach to a heap with huge pages by one descriptor, because no other process of \
                   the heap provides the second one",
            instead: "pass Heap::pool_fd too, to Builder::attach_fds",
        })?,
    };
    // The seal is checked before the size is read, as for the first file. A named file cannot be
    // sealed.
    let is_sealed = matches!(source, Source::Name(_)) || file::is_size_sealed(file.as_fd());
    match is_sound(file.as_fd(), header, pool) {
        Ok(true) if !is_sealed => Err(Error::NotSealed),
        Ok(true) => Ok(Some(file)),
        Ok(false) => Err(Error::BadHeader {
            field: "the file of huge pages",
            value: file::facts(file.as_fd()).map_or(0, |facts| facts.identity[1]),
            expected: pool.identity[1],
        }),
        Err(errno) => Err(refused(Attempt::InspectFile)(errno)),
    }
}

/// Whether a file is the file that the header names, has the huge page size that the header
/// names, and is long enough.
fn is_sound(file: BorrowedFd<'_>, header: &Header, pool: &PoolFile) -> Result<bool, Errno> {
    let facts = file::facts(file)?;
    Ok(facts.identity == pool.identity
        && facts.size >= header.geometry.data_bytes() as u64
        && file::huge_page_bytes(file) == Some(pool.size.bytes() as u64))
}

/// Gets the second file from a live process that has it open. The process records name these
/// processes and their descriptors; these values are only hints.
fn of_members(first: BorrowedFd<'_>, header: &Header, pool: &PoolFile) -> Option<OwnedFd> {
    const BYTES: usize = PROCESS_RECORD_BYTES;
    let records = Layout::of(&header.geometry).processes;
    (0..PROCESSES_MAX as usize).find_map(|slot| {
        let mut record = [0; BYTES];
        let offset = (records + slot * BYTES) as u64;
        if !file::read_at(first, &mut record, offset).ok()? {
            return None;
        }
        let (pid, number) = shown_in(&record)?;
        let mut path = Path::<64>::new();
        path.push(b"/proc/");
        path.push_number(pid.into());
        path.push(b"/fd/");
        path.push_number(number.into());
        let handle = file::handle(path.as_c_str().ok()?).ok()?;
        // The file is checked before it is opened, because a hostile process may have recorded
        // any of its files.
        let is_it = file::cached_identity(handle.as_fd()) == Ok(pool.identity)
            && is_sound(handle.as_fd(), header, pool) == Ok(true);
        if is_it { file::reopen(handle.as_fd()).ok() } else { None }
    })
}

/// The PID in a process record, and the recorded descriptor of the second file.
fn shown_in(record: &[u8; PROCESS_RECORD_BYTES]) -> Option<(u32, u32)> {
    let (words, _) = record.as_chunks::<{ size_of::<u64>() }>();
    let word = words[PROCESS_MORE_AT / size_of::<u64>() + POOL_FILE];
    let number = u32::try_from(u64::from_le_bytes(word).checked_sub(1)?).ok()?;
    match ProcessWord(u64::from_le_bytes(words[0])).decode() {
        Process::Active { pid, .. } => Some((pid, number)),
        _ => None,
    }
}

/// Removes the second file's name, if there is one.
pub(super) fn remove_name(name: Name) {
    // Most heaps have no second file.
    let _ = path_of(name).and_then(|path| file::remove_named(path.as_c_str()?));
}

fn path_of(name: Name) -> Result<Path<PATH_BYTES>, Errno> {
    let mut path = Path::new();
    path.push(FOLDER);
    path.push(name.as_str().as_bytes());
    path.push(b".");
    path.push_number(file::device_at(FIRST_FOLDER)?);
    Ok(path)
}

/// Maps the part of the data that is in the second file. This replaces the present mapping of
/// that part.
pub(super) fn map(
    data: usize,
    geometry: &Geometry,
    file: BorrowedFd<'_>,
    pool: &PoolFile,
) -> Result<(), Errno> {
    for node in 0..geometry.nodes as usize {
        let offset = node * geometry.node_stride();
        let source = memory::Source::Shared { file, offset: offset as u64 };
        // SAFETY: the caller has just mapped the data there; the pages are the first pages of the
        // node.
        unsafe { memory::map_at(data + offset, pool.pages as usize * PAGE, source) }?;
    }
    Ok(())
}

impl Region {
    /// The page size of the pool, if a page is mapped from the pool.
    pub(super) fn pool_of(&self, page: usize) -> Option<HugeSize> {
        let (size, pages) = self.choice.pool?;
        let in_node = page % self.geometry.node_stride_pages();
        (in_node < pages as usize).then_some(size)
    }

    pub(super) fn provide_from_file(
        &self,
        file: BorrowedFd<'_>,
        page: usize,
    ) -> Result<Backing, Refusal> {
        // The page is populated through the mapping, because the mapping is bound to the node and
        // the file is not. The page is then present in the file for all processes.
        let result = match memory::populate(self.page_address(page), PAGE) {
            // Linux before 5.14 cannot populate a mapping, but the memory can be allocated in the
            // file.
            Err(Errno::INVAL) => file::allocate(file, (page * PAGE) as u64, PAGE as u64),
            result => result,
        };
        if result.is_err() {
            self.refused.fetch_add(1, Relaxed);
            return Err(Refusal::Unusable);
        }
        self.pool_of(page).map(Backing::of_pool).ok_or(Refusal::Unusable)
    }
}
