//! The builder of a heap.

use core::ops::Range;

use rustix::fd::BorrowedFd;

use super::debug::Debug;
use super::{Grid, Grids, Heap};
use crate::error::{Attempt, Error, Name};
use crate::fault::Misuse;
use crate::layout::{PAGE, SHIFT_MIN, UNIT};
use crate::local::{Directory, FRONT_BYTES};
use crate::memory::Memory;
use crate::protocol::class::{CLASSES, SLOT_SIZE_MAX, TABLE};
use crate::protocol::word::{SliceWord, SlotWord};
use crate::region::backing::{Pages, PagesReport};
use crate::region::external::External;
use crate::region::{Region, Wanted};
use crate::sync::AtomicU16;

/// The most threads, in all processes that share a heap, that have a separate cache at the same
/// time. A cache record takes 12 KiB of addresses; only used parts get memory.
const CACHES: u32 = 4096;

/// Builds a heap: see [`Heap::builder`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Builder {
    wanted: Wanted,
    upkeep: Upkeep,
    on_misuse: Option<fn(&Misuse)>,
    debug: bool,
}

/// The targets of [`Heap::maintain`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upkeep {
    /// Bytes of free pages that are kept ready.
    pub(crate) ahead_bytes: u64,
    /// Bytes for which the heap has memory from the start.
    pub(crate) ready_bytes: u64,
    /// How long the memory of a free page is kept, in milliseconds; `None` keeps it forever.
    pub(crate) decay_ms: Option<u64>,
}

impl Upkeep {
    /// Bytes of free memory that are kept, however much memory is in use.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.ahead_bytes.max(self.ready_bytes)
    }
}

/// How long free pages are kept by default, in milliseconds: as long as jemalloc keeps dirty
/// pages (`dirty_decay_ms`, 10 s).
const DECAY_MS: u64 = 10_000;

/// The longest decay time in milliseconds. It is half of the range of a 16-bit counter of 250 ms
/// ticks, so that late upkeep still detects that the time has passed.
const DECAY_MAX_MS: u64 = 250 << 15;

impl Heap {
    /// A builder of a private heap with the best available pages and a limit of 64 GiB or four
    /// times the machine's memory, whichever is less.
    ///
    /// ```
    /// use haul_heap::Heap;
    ///
    /// let heap = Heap::builder().limit(1 << 30).nodes(1).build()?;
    /// assert_eq!(heap.stats(haul_heap::Node::ANY).limit_bytes, 1 << 30);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> Builder {
        let wanted = Wanted { limit: None, nodes: None, caches: CACHES, pages: Pages::Auto };
        let upkeep = Upkeep { ahead_bytes: 0, ready_bytes: 0, decay_ms: Some(DECAY_MS) };
        Builder { wanted, upkeep, on_misuse: None, debug: false }
    }

    /// The descriptor of a shared heap's file, for [`Builder::attach_fd`] in another process;
    /// `None` for a heap without a file. It is closed on exec: to pass it to a new program, clear
    /// that flag or duplicate the descriptor.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.memory.region.file()
    }

    /// The descriptor of a shared heap's second file, which contains the heap's pages from the
    /// kernel's pool; `None` if the heap has no such file. It is for [`Builder::attach_fds`].
    /// Like [`Heap::fd`], it is closed on exec.
    pub fn pool_fd(&self) -> Option<BorrowedFd<'_>> {
        self.memory.region.pool_file()
    }

    /// The heap's name; `None` if the heap is not shared by name.
    pub fn name(&self) -> Option<Name> {
        self.memory.region.name()
    }

    /// Removes a shared heap's name: no process can attach by the name any more. Attached
    /// processes stay attached, and the memory is freed when the last of them ends.
    ///
    /// # Errors
    /// [`Error::NoSuchName`]; [`Error::BadName`]; [`Error::Refused`].
    pub fn remove_name(name: &str) -> Result<(), Error> {
        Region::remove_name(Name::new(name)?)
    }

    /// The kind of pages that the heap uses, and the reason why it uses no better kind.
    ///
    /// ```
    /// use haul_heap::{Backing, Heap, Pages};
    ///
    /// let heap = Heap::builder().limit(64 << 20).pages(Pages::Plain).build()?;
    /// assert_eq!(heap.pages().backing, Backing::Plain);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pages(&self) -> PagesReport {
        self.memory.region.pages_report()
    }
}

impl Builder {
    /// The most bytes of all blocks together, including their internal waste. Default: 64 GiB, or
    /// four times the machine's memory if that is less. The builder reserves addresses for the
    /// whole limit, but no memory. If there are not enough addresses (RLIMIT_AS), or if a shared
    /// heap's file may not be so long (RLIMIT_FSIZE), the limit is halved, down to 8 MiB.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.wanted.limit = Some(bytes);
        self
    }

    /// The kind of pages. Default: the best available kind.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.wanted.pages = pages;
        self
    }

    /// How many NUMA nodes the heap distinguishes. Default: the number of nodes of the machine.
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.wanted.nodes = Some(nodes);
        self
    }

    /// Sets a function that is called at each misuse, in addition to the error that the call
    /// returns. The function also gets misuse for which no call returns an error, for example a
    /// second bin entry for a block that two threads freed at the same time.
    ///
    /// ```
    /// use haul_heap::{Heap, Misuse};
    ///
    /// fn report(misuse: &Misuse) {
    ///     eprintln!("{misuse}");
    /// }
    /// let heap = Heap::builder().limit(64 << 20).on_misuse(report).build()?;
    /// # drop(heap);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_misuse(mut self, hook: fn(&Misuse)) -> Self {
        self.on_misuse = Some(hook);
        self
    }

    /// Debug mode: each block ends with a fence and a cookie, which a free checks; new and freed
    /// bytes are filled with patterns; and a freed slot waits in a quarantine before it is used
    /// again. All processes that share a heap must use the same setting. Default: off. In debug
    /// mode, a call needs some hundred nanoseconds and the time to fill the block.
    ///
    /// ```
    /// use haul_heap::{Fault, Heap, Request};
    ///
    /// let heap = Heap::builder().limit(64 << 20).debug(true).build()?;
    /// let block = heap.alloc(Request::new(100))?;
    /// // SAFETY: a write past the end, within the block's slot: the fault that debug mode detects.
    /// unsafe { block.add(100).write(7) };
    /// // SAFETY: allocated here, and not used again.
    /// assert_eq!(unsafe { heap.free(block) }.unwrap_err().fault, Fault::Scribbled);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn debug(mut self, is_on: bool) -> Self {
        self.debug = is_on;
        self
    }

    /// The most caches, in all processes together. A thread needs one cache for each node on
    /// which it uses the heap. Default: 4,096. At most 31,743. Threads beyond this number share
    /// common caches, which are slower. A heap whose limit was halved, because there were not
    /// enough addresses, has fewer caches.
    pub fn caches(mut self, caches: u32) -> Self {
        self.wanted.caches = caches;
        self
    }

    /// How many bytes of free pages [`Heap::maintain`] keeps ready, so that an allocation finds
    /// memory without waiting for the kernel. `maintain` also makes the kernel map the metadata
    /// for future blocks of the sizes that were used so far: 1 KiB per 2 MiB in blocks of 4 KiB,
    /// and at most 160 KiB per 2 MiB if all sizes were used. Default: none.
    pub fn grow_ahead(mut self, bytes: u64) -> Self {
        self.upkeep.ahead_bytes = bytes;
        self
    }

    /// How many bytes of the heap have memory before the first request, like in DPDK's heap.
    /// Building the heap or attaching to it makes these bytes ready, divided among the nodes,
    /// together with the metadata for blocks of 1 KiB and more. An allocation from these bytes,
    /// and the first write to the block, needs no new memory until the process forks.
    /// [`Heap::maintain`] keeps them; [`Heap::trim`] gives them back. Default: none.
    ///
    /// Costs some ten system calls per 2 MiB, and the time that the kernel needs to clear the
    /// memory.
    ///
    /// ```
    /// use haul_heap::{Heap, Node};
    ///
    /// let heap = Heap::builder().limit(64 << 20).nodes(1).ready(4 << 20).build()?;
    /// assert_eq!(heap.stats(Node::ANY).ready_bytes, 4 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ready(mut self, bytes: u64) -> Self {
        self.upkeep.ready_bytes = bytes;
        self
    }

    /// How long [`Heap::maintain`] keeps the memory of a free page of 2 MiB, in milliseconds;
    /// `None` keeps it forever. Default: 10,000. The largest value is 8,192,000, some two hours;
    /// a larger value counts as this one.
    pub fn decay(mut self, milliseconds: Option<u64>) -> Self {
        self.upkeep.decay_ms = milliseconds.map(|time| time.min(DECAY_MAX_MS));
        self
    }

    /// Builds a heap for this process alone. About twenty system calls.
    ///
    /// # Errors
    /// An [`Error`] if the limit or the number of nodes is out of range, or if the kernel refuses
    /// the addresses; [`Error::NotReady`] if the memory that should be [`ready`](Self::ready) is
    /// not available.
    pub fn build(self) -> Result<Heap, Error> {
        self.over(Region::private(&self.wanted)?)
    }

    /// Creates a heap that processes of this user share by name. The heap exists until its name
    /// is removed ([`Heap::remove_name`]) and its last process has ended. Any process of this
    /// user can truncate the heap's file, because the kernel can seal only files without a name,
    /// such as those of [`Builder::shared_fd`]. The missing parts then read as zeros, and
    /// requests fail: [`AllocError::Gone`](crate::AllocError::Gone).
    ///
    /// # Errors
    /// [`Error::NameTaken`]; [`Error::BadName`]; those of [`Builder::build`].
    ///
    /// ```
    /// use haul_heap::{Heap, Request};
    ///
    /// let name = format!("example-{}", std::process::id());
    /// let heap = Heap::builder().limit(64 << 20).shared_named(&name)?;
    /// // Another process of this user attaches by the name and finds blocks by their offsets.
    /// let peer = Heap::builder().attach_named(&name)?;
    /// let block = heap.alloc(Request::new(4096))?;
    /// let offset = heap.offset(block).expect("a block of this heap");
    /// assert!(peer.pointer(offset).is_some());
    /// Heap::remove_name(&name)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared_named(self, name: &str) -> Result<Heap, Error> {
        let name = Name::new(name)?;
        let heap = self.over(Region::create_named(&self.wanted, name)?);
        if heap.is_err() {
            // The heap could not be built, so no process uses the name.
            let _ = Region::remove_name(name);
        }
        heap
    }

    /// Attaches to the heap of this name. The limit, the nodes and the caches are those with
    /// which the heap was created.
    ///
    /// # Errors
    /// [`Error::NoSuchName`]; an [`Error`] if the file is not a heap of this user and version, was
    /// truncated, or has an invalid header. Every field is checked before it is used.
    pub fn attach_named(self, name: &str) -> Result<Heap, Error> {
        self.over(Region::attach_named(self.wanted.pages, Name::new(name)?)?)
    }

    /// Creates a heap that processes share by its descriptor, [`Heap::fd`], which another process
    /// inherits or receives over a socket. The heap is freed when the last process ends.
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    ///
    /// ```
    /// use haul_heap::Heap;
    ///
    /// let heap = Heap::builder().limit(64 << 20).shared_fd()?;
    /// let fd = heap.fd().expect("a heap with a file");
    /// let peer = Heap::builder().attach_fd(fd)?;
    /// assert_eq!(peer.name(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shared_fd(self) -> Result<Heap, Error> {
        self.over(Region::create_unnamed(&self.wanted)?)
    }

    /// Attaches to the heap with this descriptor. The caller keeps the descriptor. If the heap
    /// has pages from the kernel's pool, this call gets the second file from another attached
    /// process, through `/proc`.
    ///
    /// # Errors
    /// Those of [`Builder::attach_named`]; [`Error::NotSealed`] if another process could truncate
    /// the file, as for a named heap; [`Error::Unsupported`] if the heap has a second file that
    /// no other process provides, because no other attached process lives, or all of them belong
    /// to another user or PID namespace.
    pub fn attach_fd(self, fd: BorrowedFd<'_>) -> Result<Heap, Error> {
        self.over(Region::attach_file(self.wanted.pages, fd, None)?)
    }

    /// Like [`Builder::attach_fd`], but gets the second file from the caller: `pool` is its
    /// descriptor, [`Heap::pool_fd`]. Needs no other process.
    ///
    /// # Errors
    /// Those of [`Builder::attach_named`]; [`Error::BadHeader`] if `pool` is not this heap's
    /// second file.
    pub fn attach_fds(self, fd: BorrowedFd<'_>, pool: BorrowedFd<'_>) -> Result<Heap, Error> {
        self.over(Region::attach_file(self.wanted.pages, fd, Some(pool))?)
    }

    /// Builds a heap in the caller's memory, or attaches to the heap if its metadata already
    /// exists.
    ///
    /// # Errors
    /// [`Error::BadExternal`] if the range or the metadata area is not suitable for a heap;
    /// [`Error::BadHeader`] if the metadata belongs to another range.
    ///
    /// # Safety
    /// - While the heap lives, only [`External::extents`] maps, unmaps or hands out the
    ///   [`External::bytes`] bytes of addresses from [`External::base`] on.
    /// - The area of [`External::metadata`] is readable and writable while the heap lives. It
    ///   contains only zeros, or the metadata of heaps in the same range, and only such heaps use
    ///   it.
    pub unsafe fn external(self, external: External) -> Result<Heap, Error> {
        self.over(Region::over_external(&self.wanted, external)?)
    }

    fn over(self, region: Region) -> Result<Heap, Error> {
        let heap = Heap::over(Memory::new(region), &self)?;
        heap.join()?;
        heap.make_ready_at_start()?;
        Ok(heap)
    }
}

/// The slot word for all offsets in slices that belong to no span.
static NOTHING_LIVE: AtomicU16 = AtomicU16::new(SlotWord::FREE.0);

impl Grid {
    const NONE: Self = Self {
        words: &raw const NOTHING_LIVE,
        inverse: 0,
        safe_start: 0,
        safe_end: 0,
        bin_slots: 0,
    };
}

impl Grids {
    /// Writes the heap's grids into the memory before the entries of the directory that the fast
    /// paths read.
    fn write(directory: &Directory, memory: &Memory) {
        // SAFETY: within the bytes before the directory's entries.
        let start = unsafe { directory.front().byte_add(FRONT_BYTES - Self::BEFORE_ENTRIES) };
        // SAFETY: this many grids are mapped there and aligned, and no other thread reads them
        // yet.
        let all =
            unsafe { core::slice::from_raw_parts_mut(start.cast().as_ptr(), SliceWord::FORMS) };
        all.fill(Grid::NONE);
        let (geometry, safe) = (memory.tables.geometry(), safe_range(memory));
        for (class, about) in TABLE[..CLASSES].iter().enumerate() {
            all[SliceWord::form_of_span(class) / SliceWord::FORM_UNIT] = Grid {
                words: memory.tables.slots(about.shift).as_ptr(),
                inverse: 1 << (u32::BITS + SHIFT_MIN - about.shift),
                safe_start: (safe.start / UNIT) as u32,
                safe_end: (safe.end / UNIT) as u32,
                bin_slots: if geometry.nodes == 1 { about.bin_slots } else { 0 },
            };
        }
    }
}

const _: () = {
    assert!(Grids::BEFORE_ENTRIES <= FRONT_BYTES);
    assert!((FRONT_BYTES - Grids::BEFORE_ENTRIES).is_multiple_of(align_of::<Grid>()));
};

impl Heap {
    fn over(memory: Memory, asked: &Builder) -> Result<Self, Error> {
        let geometry = *memory.tables.geometry();
        let directory = Directory::new(geometry.nodes as usize)
            .map_err(|errno| Error::refused(Attempt::Map, 0, errno))?;
        let debug = match asked.debug {
            true => Some(Debug::new(geometry.nodes as usize)?),
            false => None,
        };
        let visible = debug.as_ref().map_or(&directory, Debug::empty);
        Grids::write(visible, &memory);
        let directory_start = visible.start();
        Ok(Self {
            data: memory.region.data(),
            data_bytes: geometry.data_bytes(),
            data_units: geometry.data_bytes() / UNIT,
            slices: memory.tables.slices().as_ptr(),
            directory_start,
            row_shift: geometry.node_shift() as u8,
            nodes: geometry.nodes,
            // `join` sets the process's slot.
            live: AtomicU16::new(SlotWord::live(0, 0).0),
            on_misuse: asked.on_misuse,
            upkeep: asked.upkeep,
            debug,
            directory,
            memory,
        })
    }
}

/// The offsets at which a block of any class is entirely in the usable range. These are all
/// offsets except the last ones, and none if there are gaps between nodes.
fn safe_range(memory: &Memory) -> Range<usize> {
    let geometry = memory.tables.geometry();
    if geometry.nodes > 1 && geometry.node_pages as usize != geometry.node_stride_pages() {
        return 0..0;
    }
    let (first, last) = (memory.pages_of(0), memory.pages_of(geometry.nodes as usize - 1));
    let start = first.start * PAGE;
    start..(last.end * PAGE).saturating_sub(SLOT_SIZE_MAX).max(start)
}

impl core::fmt::Debug for Heap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Heap")
            .field("data", &self.data)
            .field("data_bytes", &self.data_bytes)
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
