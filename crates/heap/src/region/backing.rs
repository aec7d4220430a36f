//! The kind of a heap's pages: which kind was requested, which kind is used, and why no better
//! kind is used.

use core::fmt;

use crate::layout::Geometry;
use crate::sys::huge::HugeSize;
use crate::sys::machine::{self, Transparent};

/// The page sizes of the pool, the more common one first.
const SIZES: [HugeSize; 2] = [HugeSize::Mib2, HugeSize::Gib1];

/// The pages that a heap should use. If they are not available, the heap uses a worse kind, down
/// to plain pages, and reports this: see [`PagesReport`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Pages {
    /// The best available kind: pages of a pool, if the heap is shared (2 MiB before 1 GiB); else
    /// transparent huge pages; else plain pages.
    #[default]
    Auto,
    /// Pages of 1 GiB from the pool, if the heap is shared.
    Huge1G,
    /// Pages of 2 MiB from the pool, if the heap is shared.
    Huge2M,
    /// Transparent huge pages: plain pages that the kernel merges.
    Transparent,
    /// Plain pages.
    Plain,
}

/// The kind of memory behind a page of 2 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Backing {
    /// Plain pages.
    Plain = 0,
    /// Transparent huge pages: plain pages that the kernel merges if it can.
    Transparent = 1,
    /// A page of 2 MiB from the pool.
    Huge2M = 2,
    /// Part of a page of 1 GiB from the pool.
    Huge1G = 3,
    /// Memory of the caller.
    External = 4,
}

impl Backing {
    /// The backing for a page from a pool with this page size.
    pub(crate) const fn of_pool(size: HugeSize) -> Self {
        match size {
            HugeSize::Mib2 => Self::Huge2M,
            HugeSize::Gib1 => Self::Huge1G,
        }
    }

    /// The backing that has this number; [`Backing::Plain`] for an unknown number.
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Transparent,
            2 => Self::Huge2M,
            3 => Self::Huge1G,
            4 => Self::External,
            _ => Self::Plain,
        }
    }

    /// A short description.
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
    /// The best kind is used, or no better kind was requested.
    None,
    /// The kernel has no pool of this size, or the pool is empty.
    NoPool,
    /// The pool has pages, but none is free.
    PoolExhausted,
    /// A private heap uses no pages of the pool. A child of fork gets a copy of the heap, and the
    /// kernel copies a page at the first write after the fork, in the parent or in the child. If
    /// it is a page of the pool and the pool is then empty, that write raises SIGBUS.
    NotShared,
    /// The kernel's setting disables transparent huge pages.
    TransparentNever,
    /// The kernel's setting disables transparent huge pages for shared memory. Nevertheless,
    /// pages that [`Heap::maintain`](crate::Heap::maintain) makes ready ahead become huge pages
    /// if the kernel supports the request.
    TransparentNeverShared,
    /// No file system for huge pages is mounted. A heap that is shared by name needs one to use
    /// pages of a pool.
    NoMount,
    /// The process that created the shared heap chose no better pages.
    AsCreated,
}

impl Reason {
    /// A short description with the remedy.
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "nothing better was requested",
            Self::NoPool => {
                "the pool of huge pages is empty: write a number to /proc/sys/vm/nr_hugepages"
            }
            Self::PoolExhausted => {
                "no page of the pool is free: write a larger number to /proc/sys/vm/nr_hugepages"
            }
            Self::NotShared => {
                "a private heap uses no pages of the pool, which may have none left for the copies \
                 after a fork: share it by descriptor"
            }
            Self::TransparentNever => {
                "transparent huge pages are off: write madvise to \
                 /sys/kernel/mm/transparent_hugepage/enabled"
            }
            Self::TransparentNeverShared => {
                "transparent huge pages are off for shared memory: write advise to \
                 /sys/kernel/mm/transparent_hugepage/shmem_enabled"
            }
            Self::AsCreated => {
                "the creator of the shared heap chose these pages: choose huge pages there"
            }
            Self::NoMount => {
                "/dev/hugepages is not a file system for huge pages that this user may write to: \
                 mount -t hugetlbfs none /dev/hugepages, or share by descriptor"
            }
        }
    }
}

/// The pages that a heap uses, and why it uses no better pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesReport {
    /// The requested pages.
    pub asked: Pages,
    /// The kind of memory that the next pages get.
    pub backing: Backing,
    /// Pages of 2 MiB that may come from the pool: the first pages of each node.
    pub from_pool: u32,
    /// How often the pool refused a page.
    pub refused: u64,
    /// Why no better pages are used.
    pub reason: Reason,
}

impl fmt::Display for PagesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.backing.text(), self.reason.text())?;
        if self.refused > 0 {
            write!(f, "; the pool refused {} pages", self.refused)?;
        }
        Ok(())
    }
}

/// The kinds of pages that a new heap will use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The page size of the pool, and how many pages of 2 MiB per node come from the pool. These
    /// are the first pages of a node.
    pub(super) pool: Option<(HugeSize, u32)>,
    /// Whether transparent huge pages are requested outside the pool.
    pub(super) transparent: bool,
    /// Whether the kernel provides transparent huge pages outside the pool on its own.
    pub(super) is_given: bool,
    pub(super) reason: Reason,
}

impl Choice {
    /// The choice for a private heap on this machine.
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

    /// The choice for a new shared heap with this shape on this machine.
    pub(super) fn shared(asked: Pages, geometry: &Geometry) -> Self {
        // Pages that the kernel may add on demand do not count, because the kernel may refuse
        // such a page later, and the heap would then lack it.
        let (pool, reason) = from_pool(asked, geometry);
        Self::shared_with(asked, pool, reason)
    }

    /// The choice for a shared heap that gets `pool`. If it gets no pool, `why_no_pool` is the
    /// reason.
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

    /// The backing of pages outside the pool.
    pub(super) const fn outside_pool(&self) -> Backing {
        if self.transparent && self.is_given { Backing::Transparent } else { Backing::Plain }
    }

    /// The backing of the first pages.
    pub(super) const fn best(&self) -> Backing {
        match self.pool {
            Some((size, _)) => Backing::of_pool(size),
            None => self.outside_pool(),
        }
    }
}

/// The pool for a heap, and how many pages of 2 MiB each node can take from it. If there is no
/// pool, also the reason.
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

/// Whether the kernel's pool of this size has pages, free or in use.
fn has_pages(size: &HugeSize) -> bool {
    machine::pool(*size).is_some_and(|pool| pool.pages > 0)
}

/// How many pages of 2 MiB each node gets from a pool with `available` pages of this size; `None`
/// for none.
fn in_pool(size: HugeSize, geometry: &Geometry, available: u64) -> Option<u32> {
    let each = (size.bytes() / HugeSize::Mib2.bytes()) as u64;
    let share = available / u64::from(geometry.nodes);
    // The node gets only whole pages of the pool, and not more than it has room for.
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
    fn nodes_share_the_pool_equally() {
        let of = |nodes, available| in_pool(HugeSize::Mib2, &geometry(nodes, 512), available);
        assert_eq!([of(1, 9), of(2, 9), of(4, 9)], [Some(9), Some(4), Some(2)]);
        assert_eq!([of(1, 5000), of(2, 0), of(2, 1)], [Some(512), None, None]);
        assert_eq!(in_pool(HugeSize::Gib1, &geometry(2, 1024), 5), Some(1024));
    }

    #[test]
    fn plain_pages_are_used_if_requested() {
        let shape = geometry(1, 512);
        for choice in [Choice::private(Pages::Plain), Choice::shared(Pages::Plain, &shape)] {
            assert_eq!((choice.best(), choice.reason), (Backing::Plain, Reason::None));
        }
    }

    #[test]
    fn fallback_reports_its_reason() {
        let choice = Choice::shared(Pages::Huge1G, &geometry(1, 1));
        // One page of 2 MiB never fills a page of 1 GiB.
        assert!(choice.best() != Backing::Huge1G);
        // A node without pages uses none.
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
