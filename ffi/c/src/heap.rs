//! Creates, shares, attaches to, maintains and destroys heaps.

use std::ffi::{c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd};

use haul_rust::heap::{Builder, Error, Heap, Limit, Name, Pages};

use crate::argument::{give, text_of};
use crate::status::haul_status;

/// A heap of huge pages, private or shared between processes. Any number of threads may use a
/// heap at the same time, and after a fork the child may use it too.
#[derive(Debug)]
pub struct haul_heap {
    pub(crate) heap: Heap,
}

impl haul_heap {
    fn from_result(result: Result<Heap, Error>) -> Result<Self, haul_status> {
        Ok(Self { heap: result? })
    }
}

/// The pages that a heap should use. If there are no pages of a kind, the heap uses the next
/// smaller kind.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum haul_heap_pages {
    /// The largest pages that are available. Only a shared heap uses the pool of huge pages: a
    /// child of fork needs copies of the pages of a private heap, and the pool may be empty by
    /// then.
    HAUL_HEAP_PAGES_AUTO = 0,
    /// Pages of 1 GiB from the pool of huge pages, in a shared heap.
    HAUL_HEAP_PAGES_HUGE_1G = 1,
    /// Pages of 2 MiB from the pool of huge pages, in a shared heap.
    HAUL_HEAP_PAGES_HUGE_2M = 2,
    /// Plain pages that the kernel may combine into huge pages.
    HAUL_HEAP_PAGES_TRANSPARENT = 3,
    /// Plain pages.
    HAUL_HEAP_PAGES_PLAIN = 4,
}

/// Options of a heap. All zeros select the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct haul_heap_options {
    /// The limit on the bytes of all blocks, their waste included; 0: 64 GiB, or four times the
    /// machine's memory if that is less. The heap reserves addresses for all of the limit, but no
    /// memory.
    pub limit: u64,
    /// Bytes of free pages that haul_heap_maintain() keeps ready.
    pub grow_ahead: u64,
    /// Milliseconds that a page must be free before haul_heap_maintain() returns its memory to the
    /// system; 0: 10,000; UINT64_MAX: never.
    pub decay_ms: u64,
    /// A haul_heap_pages.
    pub pages: u32,
    /// NUMA nodes that the heap distinguishes; 0: those of the machine.
    pub nodes: u32,
    /// Number of caches; 0: 4,096. Each thread of every process needs one cache for each node
    /// that it uses. Further threads share caches, which is slower.
    pub caches: u32,
    /// MiB that get memory before the call returns; 0: none. The call returns
    /// HAUL_ERROR_NO_MEMORY if there is less memory. haul_heap_maintain() never returns this
    /// memory to the system.
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

/// Creates a heap for this process alone and writes it to heap. options may be NULL. Makes about
/// twenty system calls and one malloc.
///
/// Returns HAUL_OK; HAUL_ERROR_NULL; HAUL_ERROR_ARGUMENT; HAUL_ERROR_NO_MEMORY. heap is written
/// only on HAUL_OK.
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
    unsafe { give(heap, || haul_heap::from_result(builder.build())) }
}

/// Creates a heap that processes of this user share by a name, and writes it to heap. The heap
/// outlives its processes, until haul_heap_remove_name(). Returns the codes of
/// haul_heap_create(), and HAUL_ERROR_EXISTS.
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
    unsafe { give(heap, || haul_heap::from_result(builder.shared_named(name))) }
}

/// Creates a heap that processes share through its descriptor, haul_heap_fd(), and writes it to
/// heap. The heap ends with its last process. Returns the codes of haul_heap_create().
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
    unsafe { give(heap, || haul_heap::from_result(builder.shared_fd())) }
}

/// Attaches to the heap of this name and writes it to heap. Every value in the heap's file is
/// checked before use.
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
    unsafe { give(heap, || haul_heap::from_result(Heap::builder().attach_named(name))) }
}

/// Attaches to the heap of a descriptor, which the caller keeps, and writes the heap to heap.
/// Returns the codes of haul_heap_attach(), and HAUL_ERROR_NOT_SEALED if the size of the file is
/// not sealed, because another process could truncate the file. Attach to a named heap by its
/// name.
///
/// # Safety
/// heap is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_attach_fd(fd: c_int, heap: *mut *mut haul_heap) -> haul_status {
    if fd < 0 {
        return haul_status::HAUL_ERROR_ARGUMENT;
    }
    // SAFETY: the descriptor is not negative and is used only during this call; if it is not
    // open, the first system call on it fails.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    // SAFETY: the caller's promise for heap.
    unsafe { give(heap, || haul_heap::from_result(Heap::builder().attach_fd(fd))) }
}

/// Removes the name of a shared heap, so that no process can attach through it any more. Attached
/// processes stay attached.
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

/// Returns whether a name is valid for a heap: 1 to 64 letters, digits, dots, hyphens and
/// underscores, and no dot at the beginning.
///
/// # Safety
/// name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_is_name(name: *const c_char) -> bool {
    // SAFETY: the caller's promise.
    unsafe { text_of(name) }.is_ok_and(|name| Name::new(name).is_ok())
}

/// Returns the descriptor of a shared heap's file, for haul_heap_attach_fd() in another process; -1
/// for a private heap and for NULL. The descriptor is closed on exec and with the heap.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_fd(heap: *const haul_heap) -> c_int {
    // SAFETY: the caller's promise.
    let heap = unsafe { heap.as_ref() };
    heap.and_then(|heap| heap.heap.fd()).map_or(-1, |fd| fd.as_raw_fd())
}

/// Detaches this process from a heap: unmaps its memory, and releases it if the heap is private.
/// The blocks of this process in a shared heap remain until the process dies; then they are
/// reclaimed. heap may be NULL.
///
/// # Safety
/// heap is NULL or a heap that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_destroy(heap: *mut haul_heap) {
    if heap.is_null() {
        return;
    }
    // SAFETY: `give` made it from a box, and the caller does not use it again.
    drop(unsafe { Box::from_raw(heap) });
}

/// Reclaims the blocks of dead processes, empties the caches of ended threads, returns idle memory
/// to the system and prepares memory ahead. A thread should call this from time to time; no other
/// call waits for it. Does nothing for NULL.
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

/// Frees the live blocks of dead processes and reclaims the caches of their threads. Returns the
/// number of freed blocks; 0 for NULL. Takes milliseconds and stops no thread.
///
/// # Safety
/// heap is NULL or a heap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn haul_heap_reap(heap: *const haul_heap) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { heap.as_ref() }.map_or(0, |heap| heap.heap.reap().blocks)
}

/// Names the process that receives the live blocks of this process when it dies. With pid 0 the
/// blocks are freed instead.
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
