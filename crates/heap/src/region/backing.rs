//! What kind of pages stand behind a heap: what was asked for, what was got, and why not better.

use core::fmt;

use crate::layout::Geometry;
use crate::sys::huge::HugeSize;
use crate::sys::machine::{self, Transparent};

/// The sizes of pages in the pool, the one that serves most machines first.
const SIZES: [HugeSize; 2] = [HugeSize::Mib2, HugeSize::Gib1];

/// The pages that a heap should use. Whatever is asked for, a heap falls back towards plain pages
/// and tells so: see [`PagesTold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pages {
    /// The best there is: in a shared heap pages of a pool (2 MiB before 1 GiB), else transparent
    /// ones, else plain.
    #[default]
    Auto,
    /// Pages of 1 GiB from the pool, in a shared heap.
    Huge1G,
    /// Pages of 2 MiB from the pool, in a shared heap.
    Huge2M,
    /// Plain pages that the kernel joins to huge ones.
    Transparent,
    /// Plain pages.
    Plain,
}

/// What stands behind a page of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Backing {
    /// Plain pages.
    Plain = 0,
    /// Plain pages that the kernel joins to a huge one where it can.
    Transparent = 1,
    /// A page of 2 MiB from the pool.
    Huge2M = 2,
    /// Part of a page of 1 GiB from the pool.
    Huge1G = 3,
    /// Memory that the caller gave.
    External = 4,
}

impl Backing {
    /// What stands behind a page that came from a pool.
    pub(crate) const fn of_pool(size: HugeSize) -> Self {
        match size {
            HugeSize::Mib2 => Self::Huge2M,
            HugeSize::Gib1 => Self::Huge1G,
        }
    }

    /// The backing that a number stands for; [`Backing::Plain`] for one that stands for none.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Transparent,
            2 => Self::Huge2M,
            3 => Self::Huge1G,
            4 => Self::External,
            _ => Self::Plain,
        }
    }

    /// In a few words, for a person.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Plain => "plain pages",
            Self::Transparent => "transparent huge pages",
            Self::Huge2M => "huge pages of 2 MiB",
            Self::Huge1G => "huge pages of 1 GiB",
            Self::External => "memory of the caller",
        }
    }
}

/// Why a better kind of page is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The best kind is used, or a better one was not asked for.
    None,
    /// The kernel keeps no pool of this size, or nobody put pages into it.
    NoPool,
    /// The pool has pages and none is free.
    PoolExhausted,
    /// A heap of one process takes none from the pool: a child of fork has a copy of such a heap,
    /// and a page of the pool is copied at the first write after the fork, of whichever process.
    /// Where the pool is empty then, that write is a SIGBUS.
    NotShared,
    /// The kernel was set to use no transparent huge pages.
    TransparentNever,
    /// The kernel was set to use none for shared memory. Pages that are grown ahead are joined all
    /// the same where the kernel can be asked to.
    TransparentNeverShared,
    /// A heap that is shared by a name can have pages of a pool only from a file system for them.
    NoMount,
    /// Whoever created the shared heap gave it none.
    AsCreated,
}

impl Reason {
    /// In a few words, with the remedy.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "nothing better was asked for",
            Self::NoPool => {
                "the pool of huge pages is empty: write a number to /proc/sys/vm/nr_hugepages"
            }
            Self::PoolExhausted => {
                "no page of the pool is free: write a larger number to /proc/sys/vm/nr_hugepages"
            }
            Self::NotShared => {
                "a heap of one process takes none from the pool, which may have none left for the \
                 copies after a fork: share it by descriptor"
            }
            Self::TransparentNever => {
                "transparent huge pages are off: write madvise to \
                 /sys/kernel/mm/transparent_hugepage/enabled"
            }
            Self::TransparentNeverShared => {
                "transparent huge pages are off for shared memory: write advise to \
                 /sys/kernel/mm/transparent_hugepage/shmem_enabled"
            }
            Self::AsCreated => "the shared heap was created without better ones",
            Self::NoMount => {
                "no file system for huge pages is at /dev/hugepages where this user may write: \
                 mount -t hugetlbfs none /dev/hugepages, or share by descriptor"
            }
        }
    }
}

/// Which pages a heap uses, and why not better ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesTold {
    /// What was asked for.
    pub asked: Pages,
    /// What new pages are made of.
    pub backing: Backing,
    /// Pages of 2 MiB that may come from the pool, at the start of the nodes' parts.
    pub from_pool: u32,
    /// How often a page of the pool was refused later.
    pub refused: u64,
    /// Why nothing better.
    pub reason: Reason,
}

impl fmt::Display for PagesTold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.backing.text(), self.reason.text())?;
        if self.refused > 0 {
            write!(f, "; the pool refused {} pages", self.refused)?;
        }
        Ok(())
    }
}

/// What a heap will use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Pages of a pool first, of this size, so many of 2 MiB.
    pub(super) pool: Option<(HugeSize, u32)>,
    /// Whether transparent huge pages are asked for in the rest.
    pub(super) transparent: bool,
    /// Whether the kernel gives transparent ones on its own in the rest.
    pub(super) is_given: bool,
    pub(super) reason: Reason,
}

impl Choice {
    /// What a private heap uses on this machine.
    pub(super) fn private(asked: Pages) -> Self {
        let is_given = machine::transparent() != Transparent::Never;
        let reason = match asked {
            Pages::Plain => Reason::None,
            _ if !is_given => Reason::TransparentNever,
            Pages::Huge2M | Pages::Huge1G => Reason::NotShared,
            Pages::Auto if SIZES.iter().any(has_pages) => Reason::NotShared,
            Pages::Auto | Pages::Transparent => Reason::None,
        };
        Self { pool: None, transparent: asked != Pages::Plain, is_given, reason }
    }

    /// What a new shared heap of this shape uses on this machine.
    pub(super) fn shared(asked: Pages, geometry: &Geometry) -> Self {
        // Without what the kernel may add on demand: a page that it refuses is one that the heap
        // lacks.
        let (pool, reason) = from_pool(asked, geometry);
        Self::shared_with(asked, pool, reason)
    }

    /// What a shared heap uses that has so much from a pool, for this reason no more.
    pub(super) fn shared_with(
        asked: Pages,
        pool: Option<(HugeSize, u32)>,
        why_no_pool: Reason,
    ) -> Self {
        let is_given = machine::transparent_shared() != Transparent::Never;
        let reason = match asked {
            _ if pool.is_some() => Reason::None,
            Pages::Auto | Pages::Transparent if !is_given => Reason::TransparentNeverShared,
            _ => why_no_pool,
        };
        Self { pool, transparent: asked != Pages::Plain, is_given, reason }
    }

    /// What pages outside the pool are made of.
    pub(super) const fn rest(&self) -> Backing {
        if self.transparent && self.is_given { Backing::Transparent } else { Backing::Plain }
    }

    /// What new pages are made of first.
    pub(super) const fn best(&self) -> Backing {
        match self.pool {
            Some((size, _)) => Backing::of_pool(size),
            None => self.rest(),
        }
    }
}

/// The pool that a heap takes pages from, and how many of 2 MiB a node can have; else why there is
/// none.
fn from_pool(asked: Pages, geometry: &Geometry) -> (Option<(HugeSize, u32)>, Reason) {
    let sizes: &[HugeSize] = match asked {
        Pages::Auto => &SIZES,
        Pages::Huge1G => &[HugeSize::Gib1, HugeSize::Mib2],
        Pages::Huge2M => &[HugeSize::Mib2],
        Pages::Transparent | Pages::Plain => &[],
    };
    let pool = sizes.iter().find_map(|size| {
        let count = in_pool(*size, geometry, machine::pool(*size)?.free)?;
        Some((*size, count))
    });
    let reason = match (sizes, pool) {
        ([], _) | (_, Some(_)) => Reason::None,
        _ if sizes.iter().any(has_pages) => Reason::PoolExhausted,
        _ => Reason::NoPool,
    };
    (pool, reason)
}

/// Whether the kernel's pool of this size has pages, used or not.
fn has_pages(size: &HugeSize) -> bool {
    machine::pool(*size).is_some_and(|pool| pool.pages > 0)
}

/// How many pages of 2 MiB each node has of a pool with `available` pages of this size; `None` for
/// none.
fn in_pool(size: HugeSize, geometry: &Geometry, available: u64) -> Option<u32> {
    let each = (size.bytes() / HugeSize::Mib2.bytes()) as u64;
    let share = available / u64::from(geometry.nodes);
    // Whole pages of the pool, within the heap.
    let count = share.min(u64::from(geometry.node_pages) / each) * each;
    u32::try_from(count).ok().filter(|count| *count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    fn geometry(nodes: u32, node_pages: u32) -> Geometry {
        Geometry { nodes, node_pages, caches: 1 }
    }

    #[test]
    fn nodes_share_the_pool() {
        let of = |nodes, available| in_pool(HugeSize::Mib2, &geometry(nodes, 512), available);
        assert_eq!([of(1, 9), of(2, 9), of(4, 9)], [Some(9), Some(4), Some(2)]);
        assert_eq!([of(1, 5000), of(2, 0), of(2, 1)], [Some(512), None, None]);
        assert_eq!(in_pool(HugeSize::Gib1, &geometry(2, 1024), 5), Some(1024));
    }

    #[test]
    fn plain_is_what_is_asked_for_and_got() {
        let shape = geometry(1, 512);
        for choice in [Choice::private(Pages::Plain), Choice::shared(Pages::Plain, &shape)] {
            assert_eq!((choice.best(), choice.reason), (Backing::Plain, Reason::None));
        }
    }

    #[test]
    fn a_fallback_says_why() {
        let choice = Choice::shared(Pages::Huge1G, &geometry(1, 1));
        // One page of 2 MiB never fills a page of 1 GiB.
        assert!(choice.best() != Backing::Huge1G);
        // No page fills none.
        let choice = Choice::shared(Pages::Huge2M, &geometry(1, 0));
        assert!(matches!(choice.reason, Reason::NoPool | Reason::PoolExhausted), "{choice:?}");
        for asked in [Pages::Huge2M, Pages::Huge1G] {
            let choice = Choice::private(asked);
            assert!(choice.pool.is_none() && choice.reason != Reason::None, "{choice:?}");
        }
        let choice = Choice::shared_with(Pages::Huge2M, None, Reason::NoMount);
        assert_eq!(choice.reason, Reason::NoMount);
    }
}
