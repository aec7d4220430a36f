//! How a heap is asked for.

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
use crate::region::backing::{Pages, PagesTold};
use crate::region::external::External;
use crate::region::{Region, Wanted};
use crate::sync::AtomicU16;

/// Threads, in all processes that share a heap, that can have a cache of their own at once: 12 KiB
/// of addresses each, of which memory is taken for what is used.
const CACHES: u32 = 4096;

/// Asks for a heap: see [`Heap::builder`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Builder {
    wanted: Wanted,
    upkeep: Upkeep,
    on_misuse: Option<fn(&Misuse)>,
    debug: bool,
}

/// What [`Heap::maintain`] keeps up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upkeep {
    /// Bytes of free pages that are kept ready.
    pub(crate) ahead_bytes: u64,
    /// Bytes that the heap has memory for from the start.
    pub(crate) ready_bytes: u64,
    /// How long a free page is kept, in milliseconds; `None` for ever.
    pub(crate) decay_ms: Option<u64>,
}

impl Upkeep {
    /// Bytes of free memory that are kept whatever is in use.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.ahead_bytes.max(self.ready_bytes)
    }
}

/// How long free pages are kept where nothing else is said, in milliseconds: jemalloc keeps dirty
/// pages for as long (`dirty_decay_ms`, 10 s).
const DECAY_MS: u64 = 10_000;

/// The longest time that free pages are kept in milliseconds: half of what the 16 bits count in
/// ticks of 250 ms before they begin anew, so that upkeep that comes late sees that it is over.
const DECAY_MAX_MS: u64 = 250 << 15;

impl Heap {
    /// A builder of a private heap with the best pages there are, up to 64 GiB or four times the
    /// machine's memory.
    pub fn builder() -> Builder {
        let wanted = Wanted { limit: None, nodes: None, caches: CACHES, pages: Pages::Auto };
        let upkeep = Upkeep { ahead_bytes: 0, ready_bytes: 0, decay_ms: Some(DECAY_MS) };
        Builder { wanted, upkeep, on_misuse: None, debug: false }
    }

    /// The descriptor of a shared heap's file, for [`Builder::attach_fd`] in another process. It is
    /// closed on exec: a program that hands it down clears that flag, or duplicates it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.memory.region.file()
    }

    /// The descriptor of the second file of a shared heap: that of its pages of the kernel's pool,
    /// if it has any. For [`Builder::attach_fds`]. It is closed on exec, as [`Heap::fd`] is.
    pub fn pool_fd(&self) -> Option<BorrowedFd<'_>> {
        self.memory.region.pool_file()
    }

    /// The name of a heap that is shared by one.
    pub fn name(&self) -> Option<Name> {
        self.memory.region.name()
    }

    /// Takes a shared heap's name away: nobody can attach by it any more. Who is attached stays so,
    /// and the memory goes with the last of them.
    ///
    /// # Errors
    /// [`Error::NoSuchName`], [`Error::BadName`], or the system's refusal.
    pub fn remove_name(name: &str) -> Result<(), Error> {
        Region::remove_name(Name::new(name)?)
    }

    /// Which pages the heap uses, and why not better ones.
    pub fn pages(&self) -> PagesTold {
        self.memory.region.told()
    }
}

impl Builder {
    /// The most bytes of blocks and what they waste. Default: 64 GiB, or four times the machine's
    /// memory if that is less. Addresses are reserved for all of it, memory is not. Where there are
    /// not so many (RLIMIT_AS), or a shared heap's file may not be so long (RLIMIT_FSIZE), the heap
    /// is half as large, and so on down to 8 MiB.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.wanted.limit = Some(bytes);
        self
    }

    /// The kind of pages. Default: the best there is.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.wanted.pages = pages;
        self
    }

    /// How many NUMA nodes the heap distinguishes. Default: those of the machine.
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.wanted.nodes = Some(nodes);
        self
    }

    /// What is called at each misuse, beside the error that the call returns: for what no call
    /// returns, such as an entry that two frees at one instant left behind.
    pub fn on_misuse(mut self, hook: fn(&Misuse)) -> Self {
        self.on_misuse = Some(hook);
        self
    }

    /// Debug mode: each block ends in a fence and a cookie that are checked when it is freed, new
    /// and freed bytes have patterns, and a freed slot waits in a quarantine. For this process's
    /// calls; all processes that share a heap must agree on it. Default: off. On, a call takes some
    /// hundred nanoseconds and the time to fill the block.
    pub fn debug(mut self, is_on: bool) -> Self {
        self.debug = is_on;
        self
    }

    /// How many caches there can be: one for each thread that uses the heap, in all processes, and
    /// for each node that it uses it on. Default: 4,096. At most 31,743. Threads beyond that have
    /// caches in common, and are served slower. A heap that becomes smaller than its limit, for
    /// want of addresses, has fewer.
    pub fn caches(mut self, caches: u32) -> Self {
        self.wanted.caches = caches;
        self
    }

    /// How many bytes of free pages [`Heap::maintain`] keeps ready, so that an allocation finds
    /// memory without waiting for the kernel. Of the metadata it brings what blocks of the sizes
    /// that were asked for so far will need: 1 KiB for 2 MiB of blocks of 4 KiB, at most 160 KiB
    /// where all sizes were. Default: none.
    pub fn grow_ahead(mut self, bytes: u64) -> Self {
        self.upkeep.ahead_bytes = bytes;
        self
    }

    /// How many bytes have memory before the first request, as DPDK's heap has it when it started:
    /// so many are made ready, with the metadata of blocks of 1 KiB and more, while the heap is
    /// built or attached to, divided among the nodes. An allocation of them waits for no memory,
    /// nor does a first write, until the process forks. [`Heap::maintain`] gives nothing of them
    /// back; [`Heap::trim`] does. Default: none.
    ///
    /// Some ten system calls for each 2 MiB, and the time that the kernel takes to clear them.
    pub fn ready(mut self, bytes: u64) -> Self {
        self.upkeep.ready_bytes = bytes;
        self
    }

    /// How long [`Heap::maintain`] lets a page of 2 MiB lie free before it gives its memory back,
    /// in milliseconds; `None` keeps them for ever. Default: 10,000. More than 8,192,000, some two
    /// hours, counts as that.
    pub fn decay(mut self, milliseconds: Option<u64>) -> Self {
        self.upkeep.decay_ms = milliseconds.map(|time| time.min(DECAY_MAX_MS));
        self
    }

    /// Builds a heap of this process alone. About twenty system calls.
    ///
    /// # Errors
    /// [`Error`] where the limit or the number of nodes is out of range, or the kernel refuses the
    /// addresses; [`Error::NotReady`] where there is not the memory that is to be
    /// [`ready`](Self::ready).
    pub fn build(self) -> Result<Heap, Error> {
        self.over(Region::private(&self.wanted)?)
    }

    /// Creates a heap that processes of this user share by a name. It outlives them all, until
    /// [`Heap::remove_name`]. Its file can be cut short by any process of this user, for the kernel
    /// seals only files without a name, as those of [`Builder::shared_fd`]. What is gone reads as
    /// zeros then, and no more blocks come of it: [`AllocError::Gone`](crate::AllocError::Gone).
    ///
    /// # Errors
    /// [`Error::NameTaken`]; [`Error::BadName`]; as [`Builder::build`].
    pub fn shared_named(self, name: &str) -> Result<Heap, Error> {
        let name = Name::new(name)?;
        let heap = self.over(Region::create_named(&self.wanted, name)?);
        if heap.is_err() {
            // Nobody else could tell that nobody has it.
            let _ = Region::remove_name(name);
        }
        heap
    }

    /// Attaches to the heap of this name. Limit, nodes and caches are those that it was created
    /// with.
    ///
    /// # Errors
    /// [`Error::NoSuchName`], and [`Error`]s for a file that is no heap of this user and version,
    /// was cut, or has a header that lies. Nothing of it is believed unchecked.
    pub fn attach_named(self, name: &str) -> Result<Heap, Error> {
        self.over(Region::attach_named(self.wanted.pages, Name::new(name)?)?)
    }

    /// Creates a heap that is shared by its descriptor, [`Heap::fd`]: inherited, or sent over a
    /// socket. It goes with the last process.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn shared_fd(self) -> Result<Heap, Error> {
        self.over(Region::create_unnamed(&self.wanted)?)
    }

    /// Attaches to the heap behind a descriptor, which stays the caller's. Where the heap has pages
    /// of the kernel's pool, the second file is had from another process of it, by way of `/proc`.
    ///
    /// # Errors
    /// As [`Builder::attach_named`]; [`Error::NotSealed`] for a file that somebody could cut short,
    /// a named heap's among them; [`Error::Unsupported`] where there is a second file and nobody to
    /// have it from: no other process of the heap lives, or is of another user or PID namespace.
    pub fn attach_fd(self, fd: BorrowedFd<'_>) -> Result<Heap, Error> {
        self.over(Region::attach_file(self.wanted.pages, fd, None)?)
    }

    /// As [`Builder::attach_fd`], with the descriptor of the second file, [`Heap::pool_fd`], which
    /// asks nothing of other processes.
    ///
    /// # Errors
    /// As [`Builder::attach_named`]; [`Error::HeaderLies`] where that is not this heap's second
    /// file.
    pub fn attach_fds(self, fd: BorrowedFd<'_>, pool: BorrowedFd<'_>) -> Result<Heap, Error> {
        self.over(Region::attach_file(self.wanted.pages, fd, Some(pool))?)
    }

    /// Builds a heap over memory that the caller gives, or attaches to it if its metadata is there
    /// already.
    ///
    /// # Errors
    /// [`Error::BadExternal`] for a range or an area that does not fit; [`Error::HeaderLies`] where
    /// the metadata was made for another range.
    ///
    /// # Safety
    /// - [`External::bytes`] bytes from [`External::base`] on are addresses that nothing but
    ///   [`External::extents`] maps, unmaps or hands out while the heap lives.
    /// - The area of [`External::metadata`] is readable and writable while the heap lives, holds
    ///   zeros or what heaps over the same range wrote there, and only such heaps use it.
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

/// What the grids of slices that are no part of a span lead to.
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
    /// Puts the grids of a heap in front of the directory that its paths look into.
    fn put(directory: &Directory, memory: &Memory) {
        // SAFETY: within the bytes in front of the directory.
        let start = unsafe { directory.front().byte_add(FRONT_BYTES - Self::BEFORE_ENTRIES) };
        // SAFETY: mapped, for so many, aligned, and nobody else looks at them yet.
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
        let seen = debug.as_ref().map_or(&directory, Debug::blind);
        Grids::put(seen, &memory);
        let directory_start = seen.start();
        Ok(Self {
            data: memory.region.data(),
            data_bytes: geometry.data_bytes(),
            data_units: geometry.data_bytes() / UNIT,
            slices: memory.tables.slices().as_ptr(),
            directory_start,
            row_shift: geometry.node_shift() as u8,
            nodes: geometry.nodes,
            // `join` puts the process's slot in.
            live: AtomicU16::new(SlotWord::live(0, 0).0),
            on_misuse: asked.on_misuse,
            upkeep: asked.upkeep,
            debug,
            directory,
            memory,
        })
    }
}

/// The offsets from which a block of any class ends within what the heap may use: all but the last
/// of them, and none where there are gaps between nodes.
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
