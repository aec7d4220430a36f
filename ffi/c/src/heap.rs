//! Heaps: made, shared, attached to, kept in order, and left.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd};

use haul_rust::heap::{Builder, Error, Heap, Limit, Name, Pages};

use crate::argument::{give, text_of};
use crate::status::haul_status;

/// A heap of huge pages, private or shared between processes. Any number of threads may use it at
/// once; after a fork the child may too.
#[derive(Debug)]
pub struct haul_heap {
    pub(crate) heap: Heap,
}

impl haul_heap {
    fn made(result: Result<Heap, Error>) -> Result<Self, haul_status> {
        Ok(Self { heap: result? })
    }
}

/// The pages that a heap should use. Where there are none of a kind, a lesser one is used.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_heap_pages {
    /// The best there is; of the pool of huge pages in a shared heap alone, for a child of fork has
    /// copies of a private one's, and the pool may have none for them.
    HAUL_HEAP_PAGES_AUTO = 0,
    /// Pages of 1 GiB from the pool of huge pages, in a shared heap.
    HAUL_HEAP_PAGES_HUGE_1G = 1,
    /// Pages of 2 MiB from the pool of huge pages, in a shared heap.
    HAUL_HEAP_PAGES_HUGE_2M = 2,
    /// Plain pages that the kernel joins to huge ones.
    HAUL_HEAP_PAGES_TRANSPARENT = 3,
    /// Plain pages.
    HAUL_HEAP_PAGES_PLAIN = 4,
}

/// What a heap is asked to be. All zeros ask for the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_heap_options {
    /// The most bytes of blocks and what they waste; 0: 64 GiB, or four times the machine's memory
    /// if that is less. Addresses are set aside for all of it, memory is not.
    pub limit: u64,
    /// Bytes of free pages that haul_heap_maintain() keeps ready.
    pub grow_ahead: u64,
    /// Milliseconds that haul_heap_maintain() lets a page lie free before its memory goes back;
    /// 0: 10,000; UINT64_MAX: for ever.
    pub decay_ms: u64,
    /// A haul_heap_pages.
    pub pages: u32,
    /// NUMA nodes that are told apart; 0: those of the machine.
    pub nodes: u32,
    /// Caches, one for each thread in all processes and each node that it uses; 0: 4,096. Threads
    /// that live beyond these have caches in common, and are served slower.
    pub caches: u32,
    /// MiB that have memory before the first request: they are made ready before the call returns,
    /// and it is HAUL_ERROR_NO_MEMORY where there are not so many. haul_heap_maintain() gives
    /// nothing of them back. 0: none.
    pub ready_mib: u32,
}

const _: () = assert!(size_of::<haul_heap_options>() == 40);

impl haul_heap_options {
    fn builder(&self) -> Builder {
        let ready = u64::from(self.ready_mib) << 20;
        let mut builder = Heap::builder().grow_ahead(self.grow_ahead).ready(ready);
        if self.limit != 0 {
            builder = builder.limit(self.limit);
        }
        if self.nodes != 0 {
            builder = builder.nodes(self.nodes);
        }
        if self.caches != 0 {
            builder = builder.caches(self.caches);
        }
        builder = match self.decay_ms {
            0 => builder,
            u64::MAX => builder.decay(None),
            milliseconds => builder.decay(Some(milliseconds)),
        };
        builder.pages(match self.pages {
            1 => Pages::Huge1G,
            2 => Pages::Huge2M,
            3 => Pages::Transparent,
            4 => Pages::Plain,
            _ => Pages::Auto,
        })
    }
}

/// Makes a heap of this process alone and writes it to heap. options may be NULL. About twenty
/// system calls and one malloc.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_MEMORY. heap is written on
/// HAUL_OK alone.
///
/// # Safety
/// options is NULL or readable; heap is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_create(
    options: *const haul_heap_options,
    heap: *mut *mut haul_heap,
) -> haul_status {
    // SAFETY: the caller's promise for options.
    let builder = unsafe { builder_of(options) };
    // SAFETY: the caller's promise for heap.
    unsafe { give(heap, || haul_heap::made(builder.build())) }
}

/// Makes a heap that processes of this user share by a name, and writes it to heap. It outlives
/// them all, until haul_heap_remove_name(). As haul_heap_create(), and HAUL_ERROR_EXISTS.
///
/// # Safety
/// options is NULL or readable; name is NULL or a string; heap is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_create_named(
    options: *const haul_heap_options,
    name: *const c_char,
    heap: *mut *mut haul_heap,
) -> haul_status {
    // SAFETY: the caller's promise for options.
    let builder = unsafe { builder_of(options) };
    // SAFETY: the caller's promise for name.
    let name = match unsafe { text_of(name) } {
        Ok(name) => name,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for heap.
    unsafe { give(heap, || haul_heap::made(builder.shared_named(name))) }
}

/// Makes a heap that is shared by its descriptor, haul_heap_fd(), and writes it to heap. It goes
/// with the last process. As haul_heap_create().
///
/// # Safety
/// options is NULL or readable; heap is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_create_shared(
    options: *const haul_heap_options,
    heap: *mut *mut haul_heap,
) -> haul_status {
    // SAFETY: the caller's promise for options.
    let builder = unsafe { builder_of(options) };
    // SAFETY: the caller's promise for heap.
    unsafe { give(heap, || haul_heap::made(builder.shared_fd())) }
}

/// Attaches to the heap of this name, and writes it to heap. Nothing of what the file says is
/// believed unchecked.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NOT_FOUND;
/// HAUL_ERROR_FORBIDDEN; HAUL_ERROR_NOT_A_HEAP; HAUL_ERROR_FULL; HAUL_ERROR_NO_MEMORY;
/// HAUL_ERROR_SYSTEM.
///
/// # Safety
/// name is NULL or a string; heap is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_attach(
    name: *const c_char,
    heap: *mut *mut haul_heap,
) -> haul_status {
    // SAFETY: the caller's promise for name.
    let name = match unsafe { text_of(name) } {
        Ok(name) => name,
        Err(status) => return status,
    };
    // SAFETY: the caller's promise for heap.
    unsafe { give(heap, || haul_heap::made(Heap::builder().attach_named(name))) }
}

/// Attaches to the heap behind a descriptor, which stays the caller's, and writes it to heap. As
/// haul_heap_attach(); HAUL_ERROR_NOT_SEALED where the file's size is not sealed, so that somebody
/// could cut it short: a named heap is attached to by its name.
///
/// # Safety
/// heap is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_attach_fd(fd: c_int, heap: *mut *mut haul_heap) -> haul_status {
    if fd < 0 {
        return haul_status::HAUL_ERROR_ARGUMENT;
    }
    // SAFETY: not negative; one that is not open makes the first call on it fail, and it is used
    // during this call alone.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: the caller's promise for heap.
    unsafe { give(heap, || haul_heap::made(Heap::builder().attach_fd(fd))) }
}

/// Takes a shared heap's name away: nobody can attach by it any more. Who is attached stays so.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NOT_FOUND; HAUL_ERROR_SYSTEM.
///
/// # Safety
/// name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_remove_name(name: *const c_char) -> haul_status {
    // SAFETY: the caller's promise.
    match unsafe { text_of(name) } {
        Ok(name) => {
            Heap::remove_name(name).map_or_else(haul_status::from, |()| haul_status::HAUL_OK)
        }
        Err(status) => status,
    }
}

/// Whether a name can be a heap's: 1 to 64 letters, digits, dots, hyphens and underscores, and no
/// dot in front.
///
/// # Safety
/// name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_is_name(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    unsafe { text_of(name) }.is_ok_and(|name| Name::new(name).is_ok())
}

/// The descriptor of a shared heap's file, for haul_heap_attach_fd() in another process; -1 for a
/// private heap and for NULL. It is closed on exec, and goes with the heap.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_fd(heap: *const haul_heap) -> c_int {
    // SAFETY: the caller's promise.
    let heap = unsafe { heap.as_ref() };
    heap.and_then(|heap| heap.heap.fd()).map_or(-1, |fd| fd.as_raw_fd())
}

/// Leaves a heap: its memory is unmapped from this process, and a private heap's is gone. Blocks of
/// a shared heap stay; they are reclaimed when this process dies. NULL is fine.
///
/// # Safety
/// heap is NULL or a heap that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_destroy(heap: *mut haul_heap) {
    if heap.is_null() {
        return;
    }
    // SAFETY: made by `give` from a box, and the caller gives it up.
    drop(unsafe { Box::from_raw(heap) });
}

/// Takes back what processes that died held, empties the caches of threads that ended, gives idle
/// memory back and makes memory ready ahead. For a thread that calls it now and then; nobody waits
/// for it. Does nothing for NULL.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_maintain(heap: *const haul_heap) {
    // SAFETY: the caller's promise.
    if let Some(heap) = unsafe { heap.as_ref() } {
        heap.heap.maintain();
    }
}

/// Frees the live blocks of processes that died, and takes back what their threads held; how many
/// blocks were freed. 0 for NULL. Recovery takes milliseconds and stops nobody.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_reap(heap: *const haul_heap) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { heap.as_ref() }.map_or(0, |heap| heap.heap.reap().blocks)
}

/// Names the process that gets this one's live blocks when it dies; 0 for nobody: then they are
/// freed.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_set_heir(heap: *const haul_heap, pid: u32) {
    // SAFETY: the caller's promise.
    if let Some(heap) = unsafe { heap.as_ref() } {
        heap.heap.set_heir((pid != 0).then_some(pid));
    }
}

/// # Safety
/// `options` is NULL or readable.
unsafe fn builder_of(options: *const haul_heap_options) -> Builder {
    // SAFETY: the caller's promise.
    let options = unsafe { options.as_ref() };
    options.map_or_else(Heap::builder, haul_heap_options::builder)
}

impl From<Error> for haul_status {
    fn from(error: Error) -> Self {
        match error {
            Error::BadLimit { .. }
            | Error::BadNodes { .. }
            | Error::BadName(_)
            | Error::BadExternal { .. }
            | Error::Unsupported { .. } => haul_status::HAUL_ERROR_ARGUMENT,
            Error::NameTaken(_) => haul_status::HAUL_ERROR_EXISTS,
            Error::NoSuchName(_) => haul_status::HAUL_ERROR_NOT_FOUND,
            Error::OtherUser { .. } | Error::OpenToOthers { .. } => {
                haul_status::HAUL_ERROR_FORBIDDEN
            }
            Error::NotSealed => haul_status::HAUL_ERROR_NOT_SEALED,
            Error::NotAHeap { .. }
            | Error::OtherVersion { .. }
            | Error::Truncated { .. }
            | Error::BadHeader { .. }
            | Error::Unfinished => haul_status::HAUL_ERROR_NOT_A_HEAP,
            Error::NoAddressSpace { limit: Some(Limit::FileSize(_)), .. }
            | Error::Refused { limit: Some(Limit::FileSize(_)), .. } => {
                haul_status::HAUL_ERROR_FILE_SIZE
            }
            Error::NoAddressSpace { .. } | Error::NotReady { .. } => {
                haul_status::HAUL_ERROR_NO_MEMORY
            }
            Error::TooManyProcesses { .. } => haul_status::HAUL_ERROR_FULL,
            _ => haul_status::HAUL_ERROR_SYSTEM,
        }
    }
}
