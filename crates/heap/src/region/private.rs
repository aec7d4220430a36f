//! Memory for a private heap, and for a heap in external memory: anonymous mappings.
//!
//! The memory of a private heap never comes from the kernel's pool of huge pages. A child of fork
//! has a copy of a private heap. The kernel copies a page when the parent or the child writes to
//! it. To copy a page of the pool, the kernel needs another page of the pool. If no page is free,
//! the write raises SIGBUS, in the parent or in the child. A reservation protects only the
//! parent, because the kernel then takes the page from the child (`hugetlb_wp` and
//! `unmap_ref_private` in `mm/hugetlb.c`). Only fork handlers, which libc calls, could copy the
//! pages before the fork, but a fork by a direct system call runs no fork handlers.

use core::ptr::NonNull;

use super::backing::{Backing, Choice, Pages};
use super::external::External;
use super::header::{Header, HeaderKind, Progress};
use super::opened::Opened;
use super::{Gap, Guards, Kind, Mapping, Refusal, Region, Urgency, Wanted, header_words};
use crate::error::{Attempt, Error};
use crate::layout::{ALIGN_MAX, DATA_MAX, Geometry, Layout, NODES_MAX, PAGE};
use crate::sync::AtomicU64;
use crate::sys::machine;
use crate::sys::memory::{self, Source};
use crate::sys::{self, Errno};

/// The default data range in bytes, unless four times the machine's memory is less. It suffices
/// for the data of a server. There is room for two thousand such ranges in the addresses that
/// x86-64 gives a process.
const LIMIT_DEFAULT: u64 = 64 << 30;

/// The default limit as a multiple of the machine's memory.
const MEMORY_FACTOR: u64 = 4;

/// The smallest limit per node: one page for spans and one page for large blocks.
const NODE_PAGES_MIN: u64 = 2;

/// The smallest reservation that is tried, in bytes: the smallest useful heap.
const FLOOR: u64 = 8 << 20;

/// If a heap gets fewer addresses than requested: the bytes of data per cache record of 12 KiB,
/// so that the records use a tenth of the addresses; and the fewest records.
const BYTES_PER_CACHE: u64 = 128 << 10;
const CACHES_MIN: u64 = 16;

/// How long a process waits for an unfinished header, in nanoseconds.
pub(super) const PATIENCE_NS: u64 = 1_000_000_000;

impl Region {
    /// Builds a heap for this process alone. If the system refuses the addresses, tries half as
    /// many, and so on. The region's geometry shows the result. About ten system calls.
    pub(crate) fn private(wanted: &Wanted) -> Result<Self, Error> {
        halving(wanted, |geometry| Self::private_of(wanted, geometry))
    }

    fn private_of(wanted: &Wanted, geometry: Geometry) -> Result<Self, Errno> {
        let choice = Choice::private(wanted.pages);
        let data = Mapping::reserve(geometry.data_bytes(), ALIGN_MAX)?;
        let is_gradual = machine::is_writable_counted();
        let metadata = match is_gradual {
            true => gradual_metadata(&geometry)?,
            false => private_metadata(&geometry)?,
        };
        for node in 0..geometry.nodes {
            map_node(data.address(), &geometry, node, &choice)?;
        }
        let opened = Opened::new(data.address(), &geometry, &choice)?;
        // SAFETY: the metadata was just mapped, and its header is its first page.
        let words = unsafe { header_words(metadata.start) };
        Header::private(geometry, HeaderKind::Private).write(words);
        let kind = Kind::Private(opened);
        let region = Self::of(geometry, kind, choice, wanted.pages, metadata, data);
        Ok(Self { is_gradual, ..region })
    }

    /// Builds a heap in the caller's memory, or attaches to it.
    pub(crate) fn over_external(wanted: &Wanted, external: External) -> Result<Self, Error> {
        let (base, geometry) = external.shape(wanted.caches)?;
        let layout = Layout::of(&geometry);
        let header = Header {
            external_base: external.base.addr().get() as u64,
            external_bytes: external.bytes as u64,
            ..Header::private(geometry, HeaderKind::External)
        };
        let (metadata, mapping) = match external.metadata {
            Some((start, bytes)) => (check_area(start, bytes, layout.bytes)?, None),
            None => {
                let mapping = private_metadata(&geometry)
                    .map_err(|errno| Error::refused(Attempt::Map, layout.bytes as u64, errno))?;
                (mapping.start, Some(mapping))
            }
        };
        // SAFETY: the area is long enough for a header, or was just mapped; the caller keeps it for
        // as long as the heap lives.
        join_header(unsafe { header_words(metadata) }, &header)?;
        let below = external.base.addr().get() - base;
        let data = external.base.as_ptr().wrapping_sub(below);
        Ok(Self {
            metadata,
            // The pointer is null if the range begins in the first gibibyte.
            data: NonNull::new(data).ok_or(Error::BadExternal {
                field: "the range's base",
                value: external.base.addr().get() as u64,
                expected: ALIGN_MAX as u64,
            })?,
            geometry,
            kind: Kind::External(external),
            choice: Choice::private(Pages::Plain),
            asked: wanted.pages,
            refused: AtomicU64::new(0),
            is_gradual: false,
            guards: Guards::default(),
            // SAFETY: as above: the area outlives the heap.
            _gap: unsafe { Gap::of(metadata) },
            _metadata_mapping: mapping,
            _data_mapping: None,
        })
    }

    pub(super) fn of(
        geometry: Geometry,
        kind: Kind,
        choice: Choice,
        asked: Pages,
        metadata: Mapping,
        data: Mapping,
    ) -> Self {
        Self {
            metadata: metadata.start,
            data: data.start,
            geometry,
            kind,
            choice,
            asked,
            refused: AtomicU64::new(0),
            is_gradual: false,
            guards: Guards::default(),
            // SAFETY: the mapping contains the whole metadata and is not dropped before the gap.
            _gap: unsafe { Gap::of(metadata.start) },
            _metadata_mapping: Some(metadata),
            _data_mapping: Some(data),
        }
    }

    pub(super) fn provide_private(
        &self,
        page: usize,
        urgency: Urgency,
    ) -> Result<Backing, Refusal> {
        let address = self.page_address(page);
        if urgency == Urgency::Ahead {
            match memory::populate(address, PAGE) {
                // Linux before 5.14 cannot populate a mapping, so the first access gets the
                // memory.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(_) => return Err(Refusal::Exhausted),
            }
        }
        Ok(self.choice.outside_pool())
    }
}

/// Calls `build` with the requested geometry. While there are not enough addresses, calls it
/// again with half the size.
pub(super) fn halving<T>(
    wanted: &Wanted,
    mut build: impl FnMut(Geometry) -> Result<T, Errno>,
) -> Result<T, Error> {
    let asked = limit_of(wanted)?;
    let mut bytes = asked;
    loop {
        let mut geometry = geometry_of(wanted, bytes)?;
        if bytes < asked {
            // Scarce addresses should be used for blocks, because the heap also serves threads
            // without a cache record.
            let caches = (bytes / BYTES_PER_CACHE).max(CACHES_MIN);
            geometry.caches = geometry.caches.min(caches as u32);
        }
        match build(geometry) {
            Ok(built) => return Ok(built),
            Err(Errno::NOMEM | Errno::AGAIN | Errno::FBIG) if bytes / 2 >= floor(wanted)? => {
                bytes /= 2;
            }
            Err(errno) => {
                let needed = Header::shared(geometry).file_bytes();
                return Err(Error::no_addresses(asked, bytes, needed, errno));
            }
        }
    }
}

/// The smallest reservation that is tried, in bytes.
fn floor(wanted: &Wanted) -> Result<u64, Error> {
    Ok(FLOOR.max(u64::from(node_count(wanted)?) * NODE_PAGES_MIN * PAGE as u64))
}

fn limit_of(wanted: &Wanted) -> Result<u64, Error> {
    let nodes = node_count(wanted)?;
    let (least, most) = (u64::from(nodes) * NODE_PAGES_MIN * PAGE as u64, DATA_MAX as u64);
    match wanted.limit {
        Some(bytes) if (least..=most).contains(&bytes) => Ok(bytes),
        Some(bytes) => Err(Error::BadLimit { bytes, least, most }),
        None => {
            let by_memory = machine::memory_bytes().saturating_mul(MEMORY_FACTOR);
            Ok(LIMIT_DEFAULT.min(by_memory).max(FLOOR))
        }
    }
}

fn node_count(wanted: &Wanted) -> Result<u32, Error> {
    let nodes = wanted.nodes.unwrap_or(machine::nodes().numbers().len() as u32);
    if nodes == 0 || nodes as usize > NODES_MAX {
        return Err(Error::BadNodes { nodes, most: NODES_MAX as u32 });
    }
    Ok(nodes)
}

fn geometry_of(wanted: &Wanted, bytes: u64) -> Result<Geometry, Error> {
    let nodes = node_count(wanted)?;
    let node_pages = (bytes / u64::from(nodes) / PAGE as u64) as u32;
    let geometry = Geometry { nodes, node_pages, caches: wanted.caches };
    if geometry.is_valid() {
        return Ok(geometry);
    }
    // The geometry can be invalid only because the nodes' sizes are rounded up to a power of two.
    let most = DATA_MAX as u64 / u64::from(nodes.next_power_of_two());
    Err(Error::BadLimit { bytes, least: NODE_PAGES_MIN * PAGE as u64, most })
}

fn private_metadata(geometry: &Geometry) -> Result<Mapping, Errno> {
    let bytes = Layout::of(geometry).bytes;
    let metadata = Mapping::reserve(bytes, PAGE)?;
    // SAFETY: the range was just reserved.
    unsafe { memory::map_at(metadata.address(), bytes, Source::Anonymous) }?;
    // The tables are sparse, so huge pages would multiply their memory.
    let _ = memory::prefer_small(metadata.address(), bytes);
    Ok(metadata)
}

/// Maps metadata. Only the parts that every heap uses are writable from the start; the other
/// parts become writable when they are first used. All parts are readable and contain only zeros.
fn gradual_metadata(geometry: &Geometry) -> Result<Mapping, Errno> {
    let layout = Layout::of(geometry);
    let metadata = Mapping::reserve(layout.bytes, PAGE)?;
    let (start, bytes) = (metadata.address(), metadata.bytes);
    // SAFETY: the range was just reserved.
    unsafe { memory::map_closed_at(start, bytes, Source::Anonymous) }?;
    let _ = memory::prefer_small(start, bytes);
    memory::open_to_read(start, bytes)?;
    layout.first_parts().into_iter().try_for_each(|part| {
        let page = machine::page_bytes();
        let (from, end) = (part.start & !(page - 1), part.end.next_multiple_of(page).min(bytes));
        memory::open(start + from, end - from)
    })?;
    Ok(metadata)
}

/// Maps the range of one node without access. A page is opened when it is first used, because
/// otherwise a program that locks all its memory would populate all pages.
fn map_node(data: usize, geometry: &Geometry, node: u32, choice: &Choice) -> Result<(), Errno> {
    let start = data + node as usize * geometry.node_stride();
    let bytes = geometry.node_pages as usize * PAGE;
    // SAFETY: the range is within the reservation that the caller just made.
    unsafe { memory::map_closed_at(start, bytes, Source::Anonymous) }?;
    advise_node(start, bytes, geometry, node, choice);
    Ok(())
}

/// Gives the kernel hints for a node's part. Without these hints the part is only slower, so a
/// refusal is ignored.
fn advise_node(start: usize, bytes: usize, geometry: &Geometry, node: u32, choice: &Choice) {
    advise_pages(start, bytes, choice);
    bind_node(start, bytes, geometry, node);
}

/// Advises the kernel which pages to use.
pub(super) fn advise_pages(start: usize, bytes: usize, choice: &Choice) {
    if choice.transparent {
        let _ = memory::prefer_huge(start, bytes);
    } else {
        let _ = memory::prefer_small(start, bytes);
    }
}

/// Binds a node's part to the node, if there are several nodes.
pub(super) fn bind_node(start: usize, bytes: usize, geometry: &Geometry, node: u32) {
    let nodes = machine::nodes();
    if geometry.nodes > 1 && nodes.numbers().len() > 1 {
        let number = nodes.numbers()[node as usize % nodes.numbers().len()];
        let _ = memory::bind(start, bytes, number.into());
    }
}

fn check_area(start: NonNull<u8>, bytes: usize, needed: usize) -> Result<NonNull<u8>, Error> {
    let bad = |field, value: usize, expected: usize| {
        Err(Error::BadExternal { field, value: value as u64, expected: expected as u64 })
    };
    if bytes < needed {
        return bad("the metadata's size in bytes", bytes, needed);
    }
    if !start.addr().get().is_multiple_of(4096) {
        return bad("the metadata's address", start.addr().get(), 4096);
    }
    Ok(start)
}

/// Writes the header `ours`. If another process writes the header, waits for it and checks that
/// the header equals `ours`.
fn join_header(words: &[AtomicU64], ours: &Header) -> Result<(), Error> {
    if Header::claim(words) {
        ours.write(words);
        return Ok(());
    }
    let start = sys::now_ns();
    loop {
        let raw = Header::snapshot(words);
        if Header::progress(&raw) == Progress::Ready {
            let theirs = Header::parse(&raw, u64::MAX)?;
            return check_same(&theirs, ours);
        }
        if sys::now_ns().saturating_sub(start) > PATIENCE_NS {
            return Err(Error::Unfinished);
        }
        sys::yield_now();
    }
}

fn check_same(theirs: &Header, ours: &Header) -> Result<(), Error> {
    let fields = [
        ("the kind", theirs.kind as u64, ours.kind as u64),
        ("the range's base", theirs.external_base, ours.external_base),
        ("the range's size", theirs.external_bytes, ours.external_bytes),
        ("the pages", theirs.geometry.node_pages.into(), ours.geometry.node_pages.into()),
        ("the number of caches", theirs.geometry.caches.into(), ours.geometry.caches.into()),
    ];
    match fields.into_iter().find(|(_, value, expected)| value != expected) {
        Some((field, value, expected)) => Err(Error::BadHeader { field, value, expected }),
        None => Ok(()),
    }
}
