//! A file that several processes map. It contains the metadata, then the data, both sparse. A
//! heap that is shared by name is a file in `/dev/shm`, and exists until its name is removed and
//! its last process ends. A heap that is shared by descriptor has no name and is freed when its
//! last process ends.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::backing::{Backing, Choice, Pages, Reason};
use super::header::{Header, HeaderKind, Progress, Raw};
use super::owner::{check_owner, taken_by};
use super::pool;
use super::private::{PATIENCE_NS, advise_pages, bind_node, halving};
use super::{Kind, Mapping, Refusal, Region, Urgency, Wanted, header_words};
use crate::error::{Attempt, Error, NAME_BYTES_MAX, Name};
use crate::guard::Guard;
use crate::layout::{ALIGN_MAX, Geometry, PAGE};
use crate::sys::file::{self, Path};
use crate::sys::memory::{self, Source};
use crate::sys::{self, Errno};

/// The folder that contains the files of heaps that are shared by name: a memory file system on
/// every Linux (shm_open(3)).
pub const NAMES_FOLDER: &str = "/dev/shm";

/// The prefix of the file name of a heap that is shared by name; the heap's name follows.
pub const NAMES_PREFIX: &str = "haul-heap.";

/// Bytes of a path.
const PATH_BYTES: usize = NAMES_FOLDER.len() + 1 + NAMES_PREFIX.len() + NAME_BYTES_MAX + 1;

/// One part in this many of a page's size must stay free in the file system. This is the metadata
/// that a page can need: a sixteenth for slot words, and a sixteenth for everything else.
const METADATA_SHARE: u64 = 8;

impl Region {
    /// Creates a heap that processes of this user share by name.
    pub(crate) fn create_named(wanted: &Wanted, name: Name) -> Result<Self, Error> {
        let path = path_of(name);
        let path = path.as_c_str().map_err(|e| Error::refused(Attempt::CreateFile, 0, e))?;
        let file = file::create_named(path).map_err(|errno| match errno {
            Errno::EXIST => taken_by(path, Error::NameTaken(name)),
            _ => Error::refused(Attempt::CreateFile, 0, errno),
        })?;
        // This process owns the name now. So if there is a second file with this name, an earlier
        // heap left it, and it may still hold pages of the pool.
        pool::remove_name(name);
        let created = Self::create(wanted, file, Some(name));
        if created.is_err() {
            // A heap that could not be completed must not block the next attempt.
            pool::remove_name(name);
            let _ = file::remove_named(path);
        }
        created
    }

    /// Creates a heap in a memory file without a name.
    pub(crate) fn create_unnamed(wanted: &Wanted) -> Result<Self, Error> {
        let file = file::create_unnamed(c"haul-heap")
            .map_err(|errno| Error::refused(Attempt::CreateFile, 0, errno))?;
        Self::create(wanted, file, None)
    }

    /// Attaches to the heap with this name.
    pub(crate) fn attach_named(pages: Pages, name: Name) -> Result<Self, Error> {
        let path = path_of(name);
        let path = path.as_c_str().map_err(|e| Error::refused(Attempt::OpenFile, 0, e))?;
        let file = file::open_named(path).map_err(|errno| match errno {
            Errno::NOENT => Error::NoSuchName(name),
            _ => taken_by(path, Error::refused(Attempt::OpenFile, 0, errno)),
        })?;
        check_owner(file.as_fd())?;
        Self::attach(pages, file, pool::Source::Name(name))
    }

    /// Attaches to the heap in a file that this process inherited or received; `second` is its
    /// second file if the caller has it. Another process passed the descriptor on purpose, so the
    /// owner is not checked. But that process may still have the file open, so the size must be
    /// sealed.
    pub(crate) fn attach_file(
        pages: Pages,
        file: BorrowedFd<'_>,
        second: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Error> {
        let file =
            file::duplicate(file).map_err(|errno| Error::refused(Attempt::Duplicate, 0, errno))?;
        // The seal is checked before the size is read. With the seal, the size does not shrink
        // any more.
        if !file::is_size_sealed(file.as_fd()) {
            return Err(Error::NotSealed);
        }
        // A file of huge pages is refused, because after a hole is punched into it, an access can
        // find the pool empty.
        if file::huge_page_bytes(file.as_fd()).is_some() {
            return Err(Error::Unsupported {
                what: "attach to a heap by a file of huge pages",
                instead: "pass Heap::fd first, and Heap::pool_fd as the second file",
            });
        }
        Self::attach(pages, file, second.map_or(pool::Source::Members, pool::Source::File))
    }

    /// Removes a name: no process can attach by the name any more. Attached processes stay
    /// attached.
    pub(crate) fn remove_name(name: Name) -> Result<(), Error> {
        let path = path_of(name);
        let refused = |errno| match errno {
            Errno::NOENT => Error::NoSuchName(name),
            _ => Error::refused(Attempt::RemoveName, 0, errno),
        };
        // The second file is removed first, because once the name is free, a second file with
        // this name may belong to another heap.
        pool::remove_name(name);
        file::remove_named(path.as_c_str().map_err(refused)?).map_err(refused)
    }

    fn create(wanted: &Wanted, file: OwnedFd, name: Option<Name>) -> Result<Self, Error> {
        let (header, choice, second, metadata, data) = halving(wanted, |geometry| {
            // This check comes first, because it uses no resource that other processes could
            // need.
            file::can_have_size(Header::shared(geometry).file_bytes())?;
            let mut choice = Choice::shared(wanted.pages, &geometry);
            let second = pool::create(&geometry, name, &mut choice);
            let (second, pool) = second.unzip();
            let header = Header { pool, ..Header::shared(geometry) };
            file::set_size(file.as_fd(), header.file_bytes())?;
            let second_file = second.as_ref().map(AsFd::as_fd);
            let (metadata, data) = map(&header, file.as_fd(), second_file, &choice)?;
            Ok((header, choice, second, metadata, data))
        })?;
        if name.is_none() {
            // If the size is sealed, no process can truncate the file while another process uses
            // it.
            file::seal_size(file.as_fd())
                .map_err(|errno| Error::refused(Attempt::SizeFile, 0, errno))?;
        }
        // The metadata is populated before the first access, so that a full file system causes an
        // error and not a signal.
        populate_start(file.as_fd(), &metadata, &header.geometry)?;
        // SAFETY: the header was just mapped and populated.
        header.write(unsafe { header_words(metadata.start) });
        let kind = Kind::Shared { file, pool: second, name };
        Self::of(header.geometry, kind, choice, wanted.pages, metadata, data).guarded()
    }

    fn attach(pages: Pages, file: OwnedFd, source: pool::Source<'_>) -> Result<Self, Error> {
        // By its name, this process can find a heap that another process is still building. A
        // descriptor belongs to a complete heap.
        let patience_ns = if matches!(source, pool::Source::Name(_)) { PATIENCE_NS } else { 0 };
        let header = read_header(file.as_fd(), patience_ns)?;
        let second = pool::open(&header, file.as_fd(), source)?;
        let from_pool = header.pool.map(|pool| (pool.size, pool.pages));
        let choice = Choice::shared_with(pages, from_pool, Reason::AsCreated);
        let second_file = second.as_ref().map(AsFd::as_fd);
        let (metadata, data) =
            map(&header, file.as_fd(), second_file, &choice).map_err(|errno| {
                let bytes = header.geometry.data_bytes() as u64;
                Error::no_addresses(bytes, bytes, header.file_bytes(), errno)
            })?;
        let name = match source {
            pool::Source::Name(name) => Some(name),
            _ => None,
        };
        let kind = Kind::Shared { file, pool: second, name };
        Self::of(header.geometry, kind, choice, pages, metadata, data).guarded()
    }

    /// Guards the region's files: other processes can truncate files with a name, and punch holes
    /// into any file.
    fn guarded(mut self) -> Result<Self, Error> {
        let page = sys::machine::page_bytes();
        let (geometry, stride) = (&self.geometry, self.geometry.node_stride());
        let (pool_bytes, huge) = self
            .choice
            .pool
            .map_or((0, page), |(size, pages)| (pages as usize * PAGE, size.bytes()));
        let (data, bytes) = (self.data.addr().get(), geometry.node_pages as usize * PAGE);
        let metadata = (self.metadata.addr().get(), Header::shared(self.geometry).data_offset);
        let parts = (0..geometry.nodes as usize).flat_map(|node| {
            let start = data + node * stride;
            [(start, pool_bytes, huge), (start + pool_bytes, bytes - pool_bytes, page)]
        });
        let all = parts.chain([(metadata.0, metadata.1 as usize, page)]);
        let refused = |errno| Error::refused(Attempt::Guard, 0, errno);
        for (guard, (start, bytes, page)) in self.guards.0.iter_mut().zip(all) {
            if bytes > 0 {
                *guard = Some(Guard::new(start, bytes, page).map_err(refused)?);
            }
        }
        Ok(self)
    }

    pub(super) fn provide_shared(
        &self,
        file: BorrowedFd<'_>,
        is_named: bool,
        page: usize,
        urgency: Urgency,
    ) -> Result<Backing, Refusal> {
        let address = self.page_address(page);
        if is_named {
            // The file system of a named file is limited. An access to memory beyond the limit
            // would raise a signal.
            if !self.allocate_in(file, page * PAGE, PAGE) {
                return Err(Refusal::Exhausted);
            }
        }
        if urgency == Urgency::Ahead {
            match memory::populate(address, PAGE) {
                // Linux before 5.14 cannot populate a mapping, so the first access gets the
                // memory.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(_) => return Err(Refusal::Exhausted),
            }
            if self.choice.transparent && memory::collapse(address, PAGE).is_ok() {
                return Ok(Backing::Transparent);
            }
        }
        Ok(self.choice.outside_pool())
    }
}

impl Region {
    /// Allocates memory in the heap's file for a part of the data that the caller has claimed and
    /// that contains no data yet. Returns false if there is no memory.
    pub(crate) fn allocate(&self, start: usize, bytes: usize) -> bool {
        self.file().is_none_or(|file| self.allocate_in(file, start, bytes))
    }

    fn allocate_in(&self, file: BorrowedFd<'_>, start: usize, bytes: usize) -> bool {
        let offset = Header::shared(self.geometry).data_offset + start as u64;
        if file::allocate(file, offset, bytes as u64).is_err() {
            return false;
        }
        let is_enough = file::free_bytes(file) >= PAGE as u64 / METADATA_SHARE;
        if !is_enough {
            // SAFETY: the caller has claimed the part, and it contains no data yet.
            let _ = unsafe { memory::discard_shared(self.data.addr().get() + start, bytes) };
        }
        is_enough
    }

    /// Makes the kernel map a part of the metadata, in whole pages. Returns false if there is no
    /// memory for the part. An access would then raise a signal.
    pub(crate) fn bring_metadata(&self, start: usize, bytes: usize) -> bool {
        let address = self.metadata.addr().get() + start;
        if self.is_gradual && memory::open(address, bytes).is_err() {
            return false;
        }
        match memory::populate(address, bytes) {
            Ok(()) => true,
            // Linux before 5.14 cannot populate a mapping, but the memory can be allocated in the
            // file.
            Err(Errno::INVAL) => self
                .file()
                .is_none_or(|file| file::allocate(file, start as u64, bytes as u64).is_ok()),
            Err(_) => false,
        }
    }
}

fn path_of(name: Name) -> Path<PATH_BYTES> {
    let mut path = Path::new();
    path.push(NAMES_FOLDER.as_bytes());
    path.push(b"/");
    path.push(NAMES_PREFIX.as_bytes());
    path.push(name.as_str().as_bytes());
    path
}

/// Maps the metadata and the data from a heap's file, and a part of the data from its second
/// file.
fn map(
    header: &Header,
    file: BorrowedFd<'_>,
    second: Option<BorrowedFd<'_>>,
    choice: &Choice,
) -> Result<(Mapping, Mapping), Errno> {
    let geometry = &header.geometry;
    let data = Mapping::reserve_with_front(geometry.data_bytes(), ALIGN_MAX)?;
    let metadata = Mapping::reserve(header.data_offset as usize, PAGE)?;
    let source = Source::Shared { file, offset: 0 };
    // SAFETY: the range was just reserved.
    unsafe { memory::map_at(metadata.address(), metadata.bytes, source) }?;
    // The tables are sparse, so huge pages would multiply their memory.
    let _ = memory::prefer_small(metadata.address(), metadata.bytes);
    // The end of the metadata is mapped a second time before the data, and is never accessed
    // there.
    let front = data.front_bytes;
    let source = Source::Shared { file, offset: header.data_offset - front as u64 };
    // SAFETY: likewise.
    unsafe { memory::map_at(data.front(), front + data.bytes, source) }?;
    // One call advises for both, so that the data and the page before it remain one mapping.
    advise_pages(data.front(), front + data.bytes, choice);
    if let Some((second, pool)) = second.zip(header.pool) {
        pool::map(data.address(), geometry, second, &pool)?;
    }
    for node in 0..geometry.nodes {
        let start = data.address() + node as usize * geometry.node_stride();
        bind_node(start, geometry.node_pages as usize * PAGE, geometry, node);
    }
    // If a program locks all its memory, the kernel populates the data mapping only up to this
    // guard. If the data has several mappings, because of pages of the pool or several nodes,
    // this is true only for the first mapping. SAFETY: nothing accesses the page before the data.
    let _ = unsafe { memory::guard(data.front(), front) };
    Ok((metadata, data))
}

/// Gets memory for the parts of the metadata that every heap uses:
/// [`Layout::first_parts`](crate::layout::Layout::first_parts).
fn populate_start(
    file: BorrowedFd<'_>,
    metadata: &Mapping,
    geometry: &Geometry,
) -> Result<(), Error> {
    let layout = crate::layout::Layout::of(geometry);
    debug_assert!(layout.bytes <= metadata.bytes);
    layout.first_parts().into_iter().try_for_each(|part| {
        let (start, bytes) = (part.start as u64, part.len() as u64);
        let refused = |errno| Error::refused(Attempt::Populate, bytes, errno);
        file::allocate(file, start, bytes).map_err(refused)
    })
}

/// Reads and checks the header of a file. Waits up to `patience_ns` for the process that writes it.
fn read_header(file: BorrowedFd<'_>, patience_ns: u64) -> Result<Header, Error> {
    let inspect = |errno| Error::refused(Attempt::InspectFile, 0, errno);
    let start = sys::now_ns();
    loop {
        let facts = file::facts(file).map_err(inspect)?;
        if !facts.is_regular {
            return Err(Error::NotAHeap { magic: 0 });
        }
        let mut raw: Raw = [0; size_of::<Raw>()];
        let is_whole = file::read_at(file, &mut raw, 0).map_err(inspect)?;
        if is_whole && Header::progress(&raw) == Progress::Ready {
            let header = Header::parse(&raw, facts.size)?;
            if header.kind != HeaderKind::Shared {
                let (value, expected) = (header.kind as u64, HeaderKind::Shared as u64);
                return Err(Error::BadHeader { field: "kind", value, expected });
            }
            return Ok(header);
        }
        if sys::now_ns().saturating_sub(start) >= patience_ns {
            if is_whole {
                return Err(Error::Unfinished);
            }
            return Err(Error::Truncated { bytes: facts.size, needed: size_of::<Raw>() as u64 });
        }
        sys::pause();
    }
}
