//! When the heaps begin and end.
//!
//! They begin with the first block that DPDK itself gives, which is in the middle of
//! `rte_eal_init`: its memory is there then, and no secondary process can be, because these wait
//! for the end of it. They end with `rte_eal_cleanup`, which unmaps that memory.

use core::ffi::c_int;
use core::ptr::NonNull;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use haul_heap::{External, Heap};

use crate::directory::Directory;
use crate::dpdk::{Functions, PROCESS_PRIMARY, SOCKET_ANY};
use crate::dropin::{Dropin, SocketHeap};
use crate::extent::PAGE;
use crate::extents::SocketExtents;
use crate::inside::{Inside, is_inside};
use crate::memory::{SocketRange, SocketRanges};
use crate::metadata::{self, Metadata, shared_folder};
use crate::names::Names;
use crate::notice;
use crate::place::{HeapPlace, Problem};
use crate::rest::Rests;

/// What users say about the drop-in: `off` to leave everything to DPDK, `tell` to be told what it
/// does.
const VARIABLE: &str = "HAUL_RTE_MALLOC";

/// Threads of all processes that can have a cache at once. DPDK's own limit is 128 lcores a process
/// (RTE_MAX_LCORE as Debian builds it); other threads come beside them.
const CACHES: u32 = 4096;

/// What is kept ready, so that a thread that allocates need not wait for DPDK: one page, in bytes.
const AHEAD_BYTES: u64 = PAGE as u64;

/// How long a page lies idle before it is laid aside, in milliseconds: then whichever heap or large
/// block needs it first has it, or DPDK once its extent is idle as a whole.
const DECAY_MS: u64 = 250;

/// Nothing was tried yet.
const UNTRIED: u8 = 0;
/// A thread builds the heaps; the others get DPDK's blocks meanwhile.
const TRYING: u8 = 1;
/// The heaps are there, or can't be.
const SETTLED: u8 = 2;
/// DPDK has gone.
const OVER: u8 = 3;

static PHASE: AtomicU8 = AtomicU8::new(UNTRIED);
static CURRENT: AtomicPtr<Dropin> = AtomicPtr::new(core::ptr::null_mut());

/// The heaps, once they are there. They are never taken down: a thread may be in them at any time.
#[inline]
pub(crate) fn current() -> Option<&'static Dropin> {
    // SYNC: heaps built.
    let current = CURRENT.load(Ordering::Acquire);
    // SAFETY: the pointer is null, or a box that `consider` leaked.
    unsafe { current.as_ref() }
}

/// The heaps for a new block: not for DPDK's own calls of itself, and not after its end.
#[inline]
pub(crate) fn serving() -> Option<&'static Dropin> {
    let current = current()?;
    let is_served = !is_inside() && PHASE.load(Ordering::Relaxed) == SETTLED;
    is_served.then_some(current)
}

/// Whether DPDK's memory is gone.
pub(crate) fn is_over() -> bool {
    PHASE.load(Ordering::Relaxed) == OVER
}

/// Lets the housekeeper know that DPDK is asked for something.
pub(crate) fn note_asked() {
    if let Some(dropin) = current().filter(|_| !is_over()) {
        dropin.directory.counter.note_asked();
    }
}

/// DPDK's memory is there: builds the heaps, once.
#[cold]
pub(crate) fn consider(functions: &'static Functions) {
    let trying = PHASE.compare_exchange(UNTRIED, TRYING, Ordering::Relaxed, Ordering::Relaxed);
    if trying.is_err() {
        return;
    }
    let _inside = Inside::enter();
    let wish = std::env::var_os(VARIABLE).unwrap_or_default();
    let wish = wish.to_string_lossy();
    if !matches!(&*wish, "" | "off" | "tell") {
        notice::tell(format_args!(
            "{VARIABLE}={wish} is neither off nor tell: as if it were not set"
        ));
    }
    let built = match &*wish {
        "off" => Err(Reason::Unwanted),
        _ => catch_unwind(AssertUnwindSafe(|| build(functions))).unwrap_or(Err(Reason::Panic)),
    };
    match built {
        Ok(dropin) => {
            if wish == "tell" {
                tell(&dropin);
            }
            let dropin: &'static Dropin = Box::leak(Box::new(dropin));
            if !dropin.is_primary {
                dropin.name_heir();
            }
            // SYNC: heaps built.
            CURRENT.store(core::ptr::from_ref(dropin).cast_mut(), Ordering::Release);
            // SAFETY: the handler is there as long as the process: a preloaded library is never
            // unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(settle_in_child)) };
        }
        Err(Reason::Unwanted) => {}
        Err(reason) => notice::tell(format_args!("DPDK's own heap serves this process: {reason}")),
    }
    PHASE.store(SETTLED, Ordering::Relaxed);
}

/// A child of fork is a process of its own. As with DPDK, what it allocates outlives it.
extern "C" fn settle_in_child() {
    if let Some(dropin) = current() {
        dropin.name_heir();
    }
}

/// Whether DPDK is being ended.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// DPDK's end begins.
pub(crate) fn begin_end() {
    IS_ENDING.store(true, Ordering::Relaxed);
}

/// DPDK's memory goes next, if this is its end: what the heaps have of it goes before.
pub(crate) fn give_all_back() {
    if !IS_ENDING.swap(false, Ordering::Relaxed) {
        return;
    }
    if let Some(dropin) = serving() {
        dropin.give_all_back();
        PHASE.store(OVER, Ordering::Relaxed);
    }
}

/// DPDK's memory went.
pub(crate) fn end() {
    IS_ENDING.store(false, Ordering::Relaxed);
    PHASE.store(OVER, Ordering::Relaxed);
    remove_files();
}

/// The primary process's files, and the process: a fork of it leaves them alone.
static FILES: Mutex<Option<(libc::pid_t, PathBuf, Vec<c_int>)>> = Mutex::new(None);

/// Removes the files with the metadata, which are memory. Processes that have them mapped keep
/// them; others cannot come, because a secondary process needs a primary one.
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

/// Sees to it that the files go with the process, if it ends by `exit` or by `rte_eal_cleanup`.
fn remember_files(folder: &Path, places: &[HeapPlace]) {
    if let Ok(mut files) = FILES.lock() {
        let sockets = places.iter().map(|place| place.range.socket).collect();
        // SAFETY: getpid has no preconditions.
        *files = Some((unsafe { libc::getpid() }, folder.to_path_buf(), sockets));
    }
    // SAFETY: the function is there as long as the process: a preloaded library is never unloaded.
    unsafe { libc::atexit(remove_files) };
}

fn tell(dropin: &Dropin) {
    for each in &dropin.heaps {
        let SocketRange { socket, base, bytes } = each.range;
        let end = base + bytes;
        notice::tell(format_args!("serves socket {socket} from {base:#x} to {end:#x}"));
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
            Self::Unwanted => f.write_str("as asked"),
            Self::Panic => f.write_str("the drop-in failed; please report it"),
            Self::NoMemory => f.write_str("DPDK names no memory of its own"),
            Self::NoMemzone => {
                f.write_str("no memzone of 100 KiB can be had: give DPDK more memory (-m)")
            }
            Self::Secondary(Problem::Missing) => {
                f.write_str("the primary process runs without the drop-in: preload it in both")
            }
            Self::Secondary(Problem::Unusable) => f.write_str(
                "the primary process has another version of the drop-in, or its directory is \
                 damaged: use one version in all processes",
            ),
            Self::NotShared => {
                f.write_str("DPDK's runtime directory is not shared with the primary")
            }
            Self::Metadata(error) => write!(
                f,
                "its metadata cannot be kept in DPDK's runtime directory: {error}: raise the limit \
                 that it names, or make room there"
            ),
            Self::Heap(error) => error.fmt(f),
        }
    }
}

fn build(functions: &'static Functions) -> Result<Dropin, Reason> {
    let folder = shared_folder(functions);
    // SAFETY: the function reads DPDK's configuration, which is there once it gives memory.
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
        Setup { functions, directory, is_primary: true, places: Vec::new(), heaps: Vec::new() };
    for range in ranges {
        let bytes =
            External::metadata_bytes(range.base, range.bytes, CACHES).map_err(Reason::Heap)?;
        let create = |folder| Metadata::create(folder, range.socket, bytes);
        setup.add(range, folder.map(create).transpose().map_err(Reason::Metadata)?)?;
    }
    if let Some(folder) = folder {
        remember_files(folder, &setup.places);
    }
    directory.publish(&setup.places);
    Ok(setup.finish())
}

fn build_secondary(functions: &'static Functions, folder: &Path) -> Result<Dropin, Reason> {
    let directory = Directory::find(functions).map_err(Reason::Secondary)?;
    directory.note_secondary();
    let mut setup =
        Setup { functions, directory, is_primary: false, places: Vec::new(), heaps: Vec::new() };
    for place in directory.places().map_err(Reason::Secondary)? {
        let metadata =
            Metadata::attach(folder, directory.primary(), &place).map_err(Reason::Metadata)?;
        setup.add(place.range, Some(metadata))?;
    }
    Ok(setup.finish())
}

/// The heaps so far.
struct Setup {
    functions: &'static Functions,
    directory: &'static Directory,
    is_primary: bool,
    places: Vec<HeapPlace>,
    heaps: Vec<SocketHeap>,
}

impl Setup {
    fn add(&mut self, range: SocketRange, metadata: Option<Metadata>) -> Result<(), Reason> {
        let area = metadata.as_ref().map(|each| (each.start, each.bytes));
        self.places.push(HeapPlace {
            range,
            file_number: metadata.as_ref().map_or(0, |each| each.file_number),
            descriptor: metadata.as_ref().and_then(|each| each.descriptor),
            metadata_bytes: area.map_or(0, |(_, bytes)| bytes as u64),
        });
        let asked = if has_sockets(self.functions) { range.socket } else { SOCKET_ANY };
        let extents: &'static SocketExtents = Box::leak(Box::new(SocketExtents {
            functions: self.functions,
            directory: self.directory,
            range,
            place: self.heaps.len(),
            asked,
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
        // SAFETY: the range is DPDK's reservation for the socket, of which the heap uses only what
        // the extents give; the metadata's file is of heaps over this range alone and stays mapped.
        let heap = unsafe { builder.external(external) }.map_err(Reason::Heap)?;
        self.heaps.push(SocketHeap {
            heap,
            range,
            extents,
            names: Names::new(),
            rests: Rests::default(),
        });
        Ok(())
    }

    fn finish(self) -> Dropin {
        let Self { functions, directory, is_primary, heaps, .. } = self;
        Dropin { functions, directory, heaps, has_sockets: has_sockets(functions), is_primary }
    }
}

fn has_sockets(functions: &Functions) -> bool {
    // SAFETY: the function reads DPDK's configuration, which is there once it gives memory.
    (unsafe { (functions.rte_eal_has_hugepages)() }) != 0
}
