//! The start and the end of the heaps.
//!
//! The heaps start with the first block that DPDK itself allocates, in the middle of
//! `rte_eal_init`: DPDK's memory exists then, and there is no secondary process yet, because
//! secondary processes wait for the end of `rte_eal_init`. The heaps end with `rte_eal_cleanup`,
//! which unmaps DPDK's memory.

use core::ffi::c_int;
use core::ptr::NonNull;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use haul_heap::{External, Heap};

use crate::backoff::Backoffs;
use crate::directory::Directory;
use crate::dpdk::{Functions, PROCESS_PRIMARY, SOCKET_ANY};
use crate::dropin::{Dropin, SocketHeap};
use crate::extent::PAGE;
use crate::extents::SocketExtents;
use crate::inside::{Inside, is_inside};
use crate::location::{HeapLocation, Problem};
use crate::memory::{SocketRange, SocketRanges};
use crate::metadata::{self, Metadata, shared_folder};
use crate::names::Names;
use crate::notice;

/// The variable with which users control the drop-in: `off` leaves everything to DPDK, `tell`
/// prints what the drop-in does.
const VARIABLE: &str = "HAUL_RTE_MALLOC";

/// The largest number of threads of all processes that can have a cache at the same time. DPDK's
/// own limit is 128 lcores per process (RTE_MAX_LCORE in Debian's build), in addition to other
/// threads.
const CACHES: u32 = 4096;

/// The memory that is kept ready, so that a thread need not wait for DPDK: one page, in bytes.
const AHEAD_BYTES: u64 = PAGE as u64;

/// How long a page is unused before it counts as idle, in milliseconds. Then the first heap or
/// large block that needs the page takes it, or DPDK gets the page back when the whole extent is
/// idle.
const DECAY_MS: u64 = 250;

/// The heaps were not tried yet.
const UNTRIED: u8 = 0;
/// A thread builds the heaps. DPDK serves the other threads meanwhile.
const TRYING: u8 = 1;
/// The heaps exist, or cannot be built.
const DECIDED: u8 = 2;
/// DPDK has ended.
const OVER: u8 = 3;

static PHASE: AtomicU8 = AtomicU8::new(UNTRIED);
static CURRENT: AtomicPtr<Dropin> = AtomicPtr::new(core::ptr::null_mut());

/// The heaps, once they exist. The heaps are never destroyed, because a thread may use them at
/// any time.
#[inline]
pub(crate) fn current() -> Option<&'static Dropin> {
    // SYNC: heaps built.
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or a box that `try_build` leaked.
    unsafe { current.as_ref() }
}

/// The heaps for a new block; `None` for calls that DPDK makes to itself, and after DPDK's end.
#[inline]
pub(crate) fn serving() -> Option<&'static Dropin> {
    let current = current()?;
    let is_served = !is_inside() && PHASE.load(Ordering::Relaxed) == DECIDED;
    is_served.then_some(current)
}

/// Whether DPDK's memory is unmapped.
pub(crate) fn is_over() -> bool {
    PHASE.load(Ordering::Relaxed) == OVER
}

/// Records for the housekeeper that a thread uses DPDK's heap.
pub(crate) fn note_dpdk_use() {
    if let Some(dropin) = current().filter(|_| !is_over()) {
        dropin.directory.mailbox.note_dpdk_use();
    }
}

/// Builds the heaps, once. DPDK's memory must exist.
#[cold]
pub(crate) fn try_build(functions: &'static Functions) {
    let trying = PHASE.compare_exchange(UNTRIED, TRYING, Ordering::Relaxed, Ordering::Relaxed);
    if trying.is_err() {
        return;
    }
    let _inside = Inside::enter();
    let mode = std::env::var_os(VARIABLE).unwrap_or_default();
    let mode = mode.to_string_lossy();
    if !matches!(&*mode, "" | "off" | "tell") {
        notice::print(format_args!("{VARIABLE}={mode} is neither off nor tell: it is ignored"));
    }
    let built = match &*mode {
        "off" => Err(Reason::Unwanted),
        _ => catch_unwind(AssertUnwindSafe(|| build(functions))).unwrap_or(Err(Reason::Panic)),
    };
    match built {
        Ok(dropin) => {
            if mode == "tell" {
                print_ranges(&dropin);
            }
            let dropin: &'static Dropin = Box::leak(Box::new(dropin));
            if !dropin.is_primary {
                dropin.name_heir();
            }
            // SYNC: heaps built.
            CURRENT.store(core::ptr::from_ref(dropin).cast_mut(), Ordering::Release);
            // SAFETY: the handler lives as long as the process, because a preloaded library is
            // never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(name_heir_in_child)) };
        }
        Err(Reason::Unwanted) => {}
        Err(reason) => notice::print(format_args!("DPDK's own heap serves this process: {reason}")),
    }
    PHASE.store(DECIDED, Ordering::Relaxed);
}

/// Names the heir in a child of fork, which is another process. The child's blocks outlive it,
/// like DPDK's own blocks.
extern "C" fn name_heir_in_child() {
    if let Some(dropin) = current() {
        dropin.name_heir();
    }
}

/// Whether DPDK's end has begun.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Marks that DPDK's end has begun.
pub(crate) fn begin_end() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// If DPDK's end has begun, returns the memory of the heaps to DPDK, before DPDK unmaps its
/// memory.
pub(crate) fn return_all() {
    if !IS_ENDING.swap(false, Ordering::Relaxed) {
        return;
    }
    if let Some(dropin) = serving() {
        dropin.return_all();
        PHASE.store(OVER, Ordering::Relaxed);
    }
}

/// Marks that DPDK's memory is unmapped.
pub(crate) fn end() {
    IS_ENDING.store(false, Ordering::Relaxed);
    PHASE.store(OVER, Ordering::Relaxed);
    remove_files();
}

/// The files of the primary process, with its process ID, because a child of fork must not remove
/// them.
static FILES: Mutex<Option<(libc::pid_t, PathBuf, Vec<c_int>)>> = Mutex::new(None);

/// Removes the files with the metadata, which occupy memory. Processes that have the files mapped
/// keep them. No other process can attach, because a secondary process needs a primary process.
extern "C" fn remove_files() {
    let Some((process, folder, sockets)) = FILES.lock().ok().and_then(|mut files| files.take())
    else {
        return;
    };
    // SAFETY: getpid has no preconditions.
    if process == unsafe { libc::getpid() } {
        sockets.into_iter().for_each(|socket| metadata::remove(&folder, socket));
    }
}

/// Registers the files for removal when the process ends by `exit` or by `rte_eal_cleanup`.
fn remember_files(folder: &Path, locations: &[HeapLocation]) {
    if let Ok(mut files) = FILES.lock() {
        let sockets = locations.iter().map(|location| location.range.socket).collect();
        // SAFETY: getpid has no preconditions.
        *files = Some((unsafe { libc::getpid() }, folder.to_path_buf(), sockets));
    }
    // SAFETY: the function lives as long as the process, because a preloaded library is never
    // unloaded.
    unsafe { libc::atexit(remove_files) };
}

fn print_ranges(dropin: &Dropin) {
    for each in &dropin.heaps {
        let SocketRange { socket, base, bytes } = each.range;
        let end = base + bytes;
        notice::print(format_args!("serves socket {socket} from {base:#x} to {end:#x}"));
    }
}

/// Why DPDK's own heap serves a process.
#[derive(Debug)]
enum Reason {
    Unwanted,
    Panic,
    NoMemory,
    NoMemzone,
    Secondary(Problem),
    NotShared,
    Metadata(std::io::Error),
    Heap(haul_heap::Error),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unwanted => f.write_str("as requested"),
            Self::Panic => f.write_str("the drop-in failed; please report it"),
            Self::NoMemory => f.write_str("DPDK reports no memory"),
            Self::NoMemzone => {
                f.write_str("cannot reserve a memzone of 100 KiB: give DPDK more memory (-m)")
            }
            Self::Secondary(Problem::Missing) => {
                f.write_str("the primary process runs without the drop-in: preload it in both")
            }
            Self::Secondary(Problem::Unusable) => f.write_str(
                "the primary process has another version of the drop-in, or its directory is \
                 damaged: use one version in all processes",
            ),
            Self::NotShared => {
                f.write_str("DPDK's runtime directory is not shared with the primary process")
            }
            Self::Metadata(error) => write!(
                f,
                "cannot keep the metadata in DPDK's runtime directory: {error}: raise the named limit, \
                 or free space there"
            ),
            Self::Heap(error) => error.fmt(f),
        }
    }
}

fn build(functions: &'static Functions) -> Result<Dropin, Reason> {
    let folder = shared_folder(functions);
    // SAFETY: the function reads DPDK's configuration, which exists once DPDK allocates memory.
    let is_primary = unsafe { (functions.rte_eal_process_type)() } == PROCESS_PRIMARY;
    if is_primary {
        build_primary(functions, folder.as_deref())
    } else {
        build_secondary(functions, &folder.ok_or(Reason::NotShared)?)
    }
}

fn build_primary(functions: &'static Functions, folder: Option<&Path>) -> Result<Dropin, Reason> {
    let ranges = SocketRanges::ask(functions);
    if ranges.is_empty() {
        return Err(Reason::NoMemory);
    }
    let directory = Directory::create(functions).ok_or(Reason::NoMemzone)?;
    let mut setup =
        Setup { functions, directory, is_primary: true, locations: Vec::new(), heaps: Vec::new() };
    for range in ranges {
        let bytes =
            External::metadata_bytes(range.base, range.bytes, CACHES).map_err(Reason::Heap)?;
        let create = |folder| Metadata::create(folder, range.socket, bytes);
        setup.add(range, folder.map(create).transpose().map_err(Reason::Metadata)?)?;
    }
    if let Some(folder) = folder {
        remember_files(folder, &setup.locations);
    }
    directory.publish(&setup.locations);
    Ok(setup.finish())
}

fn build_secondary(functions: &'static Functions, folder: &Path) -> Result<Dropin, Reason> {
    let directory = Directory::find(functions).map_err(Reason::Secondary)?;
    directory.note_secondary();
    let mut setup =
        Setup { functions, directory, is_primary: false, locations: Vec::new(), heaps: Vec::new() };
    for location in directory.locations().map_err(Reason::Secondary)? {
        let metadata =
            Metadata::attach(folder, directory.primary(), &location).map_err(Reason::Metadata)?;
        setup.add(location.range, Some(metadata))?;
    }
    Ok(setup.finish())
}

/// The heaps while they are built.
struct Setup {
    functions: &'static Functions,
    directory: &'static Directory,
    is_primary: bool,
    locations: Vec<HeapLocation>,
    heaps: Vec<SocketHeap>,
}

impl Setup {
    fn add(&mut self, range: SocketRange, metadata: Option<Metadata>) -> Result<(), Reason> {
        let area = metadata.as_ref().map(|each| (each.start, each.bytes));
        self.locations.push(HeapLocation {
            range,
            file_number: metadata.as_ref().map_or(0, |each| each.file_number),
            descriptor: metadata.as_ref().and_then(|each| each.descriptor),
            metadata_bytes: area.map_or(0, |(_, bytes)| bytes as u64),
        });
        let dpdk_socket = if has_sockets(self.functions) { range.socket } else { SOCKET_ANY };
        let extents: &'static SocketExtents = Box::leak(Box::new(SocketExtents {
            functions: self.functions,
            directory: self.directory,
            range,
            index: self.heaps.len(),
            dpdk_socket,
            metadata,
            is_primary: self.is_primary,
            refused_until: AtomicU64::new(0),
        }));
        let base = core::ptr::with_exposed_provenance_mut(range.base);
        let external = External {
            base: NonNull::new(base).ok_or(Reason::NoMemory)?,
            bytes: range.bytes,
            extents,
            metadata: area.and_then(|(start, bytes)| Some((NonNull::new(start)?, bytes))),
        };
        let builder = Heap::builder().caches(CACHES).grow_ahead(AHEAD_BYTES).decay(Some(DECAY_MS));
        // SAFETY: the range is DPDK's reservation for the socket, of which the heap uses only its
        // extents; the metadata's file is only for heaps over this range and stays mapped.
        let heap = unsafe { builder.external(external) }.map_err(Reason::Heap)?;
        self.heaps.push(SocketHeap {
            heap,
            range,
            extents,
            names: Names::new(),
            backoffs: Backoffs::default(),
        });
        Ok(())
    }

    fn finish(self) -> Dropin {
        let Self { functions, directory, is_primary, heaps, .. } = self;
        Dropin { functions, directory, heaps, has_sockets: has_sockets(functions), is_primary }
    }
}

fn has_sockets(functions: &Functions) -> bool {
    // SAFETY: the function reads DPDK's configuration, which exists once DPDK allocates memory.
    (unsafe { (functions.rte_eal_has_hugepages)() }) != 0
}
