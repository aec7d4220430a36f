//! The accessible pages of a private heap's data. The other pages are mapped without access,
//! because the kernel populates all accessible memory, used or not, if a program locks all its
//! memory (mlockall).
//!
//! To open a page is to make it accessible. Pages are opened from the first page of a part on, so
//! that a part has at most two mappings, because the number of mappings per process is limited.
//! The pages before the requested page are opened together with it.

use core::array;

use super::backing::Choice;
use crate::layout::{Geometry, NODES_MAX, PAGE};
use crate::sync::AtomicU32;
use crate::sync::Ordering::{Acquire, Release};
use crate::sys::{self, Errno};

/// How many pages of each part are open. Each node has two parts: the pages of the pool, and the
/// other pages.
pub(super) struct Opened {
    data: usize,
    node_stride_pages: usize,
    /// Pages of each node that come from the pool.
    pool_pages: usize,
    /// How many pages of 2 MiB are opened at once: the number in a page of the pool, a power of
    /// two.
    step: usize,
    /// For each node and part (index 1 is the pool's part), the number of open pages. The open
    /// pages are the first pages of the part.
    parts: [[AtomicU32; 2]; NODES_MAX],
}

impl Opened {
    /// Opens the first page of each part, so that opening more pages needs no additional mapping.
    pub(super) fn new(data: usize, geometry: &Geometry, choice: &Choice) -> Result<Self, Errno> {
        let (step, pool_pages) = match choice.pool {
            Some((size, pages)) => (size.bytes() / PAGE, pages as usize),
            None => (1, 0),
        };
        let parts = array::from_fn(|_| array::from_fn(|_| AtomicU32::new(0)));
        let node_stride_pages = geometry.node_stride_pages();
        let opened = Self { data, node_stride_pages, pool_pages, step, parts };
        for node in 0..geometry.nodes as usize {
            let parts = [0..pool_pages, pool_pages..geometry.node_pages as usize];
            for part in parts.into_iter().filter(|part| !part.is_empty()) {
                opened.open(node * node_stride_pages + part.start)?;
            }
        }
        Ok(opened)
    }

    /// Ensures that a page of the heap can be accessed. A load; for the first call per page also
    /// a system call.
    pub(super) fn open(&self, page: usize) -> Result<(), Errno> {
        let (node, in_node) = (page / self.node_stride_pages, page % self.node_stride_pages);
        let is_of_pool = in_node < self.pool_pages;
        let (first, step) = if is_of_pool { (0, self.step) } else { (self.pool_pages, 1) };
        let opened = &self.parts[node][usize::from(is_of_pool)];
        let end = (in_node - first + 1).next_multiple_of(step);
        if opened.load(Acquire) as usize >= end {
            return Ok(());
        }
        // Opens all pages from the start of the part on, because another thread may not have
        // finished opening earlier pages.
        let start = self.data + (node * self.node_stride_pages + first) * PAGE;
        sys::memory::open(start, end * PAGE)?;
        opened.fetch_max(end as u32, Release);
        Ok(())
    }
}
