//! How a heap is asked for.

use super::{Heap, Lane};
use crate::class::{CLASSES, TABLE};
use crate::error::{Attempt, Error};
use crate::fault::Misuse;
use crate::local::Directory;
use crate::memory::Memory;
use crate::region::backing::{Pages, PagesTold};
use crate::region::{Plan, Region};
use crate::sync::AtomicU16;
use crate::word::SlotWord;

/// Threads, in all processes that share a heap, that can have a cache at once: 12 KiB of addresses
/// each, of which memory is taken for what is used.
const CACHES: u32 = 4096;

/// Asks for a heap: see [`Heap::builder`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Builder {
    plan: Plan,
    on_misuse: Option<fn(&Misuse)>,
}

impl Heap {
    /// A builder of a private heap with the best pages there are, up to 64 GiB or four times the
    /// machine's memory.
    pub fn builder() -> Builder {
        let plan = Plan { limit: None, nodes: None, caches: CACHES, pages: Pages::Auto };
        Builder { plan, on_misuse: None }
    }

    /// Which pages the heap uses, and why not better ones.
    pub fn pages(&self) -> PagesTold {
        self.memory.region.told()
    }
}

impl Builder {
    /// The most bytes of blocks and what they waste. Default: 64 GiB, or four times the machine's
    /// memory if that is less. Addresses are set aside for all of it, memory is not.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.plan.limit = Some(bytes);
        self
    }

    /// The kind of pages. Default: the best there is.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.plan.pages = pages;
        self
    }

    /// How many NUMA nodes are told apart. Default: those of the machine.
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.plan.nodes = Some(nodes);
        self
    }

    /// What is called at each misuse, beside the error that the call returns: for what no call returns,
    /// such as an entry that two frees at one instant left behind.
    pub fn on_misuse(mut self, hook: fn(&Misuse)) -> Self {
        self.on_misuse = Some(hook);
        self
    }

    /// Builds the heap. About twenty system calls.
    ///
    /// # Errors
    /// [`Error`] where the limit or the number of nodes is out of range, or the kernel refuses the
    /// addresses.
    pub fn build(self) -> Result<Heap, Error> {
        let memory = Memory::new(Region::private(&self.plan)?);
        Heap::over(memory, 0, self.on_misuse)
    }
}

impl Heap {
    fn over(memory: Memory, process: u8, on_misuse: Option<fn(&Misuse)>) -> Result<Self, Error> {
        let geometry = *memory.tables.geometry();
        let directory = Directory::new(geometry.nodes as usize)
            .map_err(|errno| Error::refused(Attempt::Map, 0, errno))?;
        let lanes = core::array::from_fn(|index| {
            let class = index.min(CLASSES - 1);
            Lane {
                words: memory.tables.slots(TABLE[class].shift).as_ptr(),
                mask: (1 << TABLE[class].shift) - 1,
                shift: TABLE[class].shift as u8,
                bin_slots: TABLE[class].bin_slots as u8,
                class: class as u8,
            }
        });
        Ok(Self {
            data: memory.region.data(),
            data_bytes: geometry.data_bytes(),
            slices: memory.tables.slices().as_ptr(),
            directory_start: directory.start(),
            node_shift: geometry.node_shift(),
            nodes: geometry.nodes,
            live: AtomicU16::new(SlotWord::live(process, 0).0),
            lanes,
            on_misuse,
            directory,
            memory,
        })
    }
}
