//! SIGBUS in a program that maps files which other processes can truncate. A guarded access reads
//! zeros and is reported as an error. Any other signal has the same effect as without the guard.

mod support;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use haul_heap::guard::{self, Guard};
use haul_heap::{AllocError, Heap, Node, Pages, Request};
use rustix::fs::{FallocateFlags, MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use support::child::in_child;

const PAGE: usize = 4096;
const BUS: i32 = libc::SIGBUS;

/// Maps pages of an empty file, so that each access raises SIGBUS.
fn gone(pages: usize) -> *mut u8 {
    mapped(&memfd_create(c"gone", MemfdFlags::CLOEXEC).unwrap(), pages)
}

fn mapped(file: &OwnedFd, pages: usize) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an unused address.
    unsafe { mmap(null_mut(), pages * PAGE, rights, MapFlags::SHARED, file, 0) }.unwrap().cast()
}

fn read(at: *mut u8) -> u8 {
    // SAFETY: callers pass an address in their mapping.
    unsafe { at.read_volatile() }
}

fn guarded(at: *mut u8, pages: usize) -> Guard {
    Guard::new(at.addr(), pages * PAGE, PAGE).unwrap()
}

fn send_bus() {
    // SAFETY: the call only returns a number.
    let own = unsafe { libc::getpid() };
    // SAFETY: the signal has the effect that this process has set for it.
    unsafe { libc::kill(own, BUS) };
}

/// Sends the signal. Returns true if this process still runs afterwards.
fn sent() -> bool {
    send_bus();
    true
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Sets a handler. Returns the previous action.
fn set(handler: usize, flags: i32) -> libc::sigaction {
    // SAFETY: all zeros are a valid action: the default.
    let [mut new, mut old] = [unsafe { std::mem::zeroed::<libc::sigaction>() }; 2];
    (new.sa_sigaction, new.sa_flags) = (handler, flags);
    // SAFETY: both pointers name actions, and the functions here may run as handlers.
    assert_eq!(unsafe { libc::sigaction(BUS, &raw const new, &raw mut old) }, 0);
    old
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static LATER: AtomicUsize = AtomicUsize::new(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Counts the call and maps a page at the fault's address, like a program that handles its own
/// faults.
extern "C" fn map_page(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLS.fetch_add(1, Relaxed);
    // SAFETY: the kernel describes the signal.
    let about = unsafe { &*info };
    // SAFETY: this signal has an address.
    let at = unsafe { about.si_addr() };
    if about.si_code > 0 {
        let page = at.wrapping_byte_sub(at.addr() % PAGE);
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        // SAFETY: a page of this test, which accepts any bytes there.
        unsafe { libc::mmap(page, PAGE, rights, flags, -1, 0) };
    }
}

extern "C" fn plain(_: i32) {
    CALLS.fetch_add(1, Relaxed);
}

/// Counts the call and calls the previous handler, like a program that chains handlers.
extern "C" fn pass(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    LATER.fetch_add(1, Relaxed);
    // SAFETY: `set` found this handler, which has this signature.
    let before = unsafe { std::mem::transmute::<usize, Handler>(BEFORE.load(Relaxed)) };
    before(signal, info, context);
}

fn calls() -> (usize, usize) {
    (CALLS.load(Relaxed), LATER.load(Relaxed))
}

/// Guards a mapping of an empty file. Returns whether the mapping reads as zeros and the guard
/// reports this.
fn guards() -> bool {
    let at = gone(1);
    let guard = guarded(at, 1);
    read(at) == 0 && guard.is_broken()
}

#[test]
fn sent_signal_ends_process_without_handler() {
    let code = in_child(|| {
        set(libc::SIG_DFL, 0);
        guards() && sent()
    });
    assert_eq!(code, -BUS);
}

/// The standard library's handler detects stack overflows. For any other fault it sets the
/// default action.
#[test]
fn handler_that_sets_the_default_action_does_not_remove_the_guard() {
    let code = in_child(|| {
        let (at, is_well) = (gone(1), guards());
        let guard = guarded(at, 1);
        send_bus();
        is_well && read(at) == 0 && guard.is_broken()
    });
    assert_eq!(code, 0);
    let code = in_child(|| {
        let is_well = guards();
        send_bus();
        is_well && sent()
    });
    assert_eq!(code, -BUS, "the second signal finds the default action");
}

#[test]
fn unguarded_fault_ends_process_without_handler() {
    let code = in_child(|| {
        set(libc::SIG_DFL, 0);
        guards() && read(gone(1)) == 1
    });
    assert_eq!(code, -BUS);
    assert_eq!(
        in_child(|| guards() && read(gone(1)) == 1),
        -BUS,
        "with the standard library's handler"
    );
}

#[test]
fn sent_signal_reaches_the_earlier_handler_and_keeps_the_guard() {
    for (handler, flags) in [
        (map_page as Handler as usize, libc::SA_SIGINFO),
        (plain as extern "C" fn(i32) as usize, 0),
    ] {
        let code = in_child(|| {
            set(handler, flags);
            let first = guards();
            (0..3).for_each(|_| send_bus());
            first && guards() && calls() == (3, 0)
        });
        assert_eq!(code, 0, "flags {flags}");
    }
}

#[test]
fn unguarded_fault_reaches_the_earlier_handler() {
    let code = in_child(|| {
        set(map_page as Handler as usize, libc::SA_SIGINFO);
        guards() && read(gone(1)) == 0 && calls() == (1, 0) && guards()
    });
    assert_eq!(code, 0);
}

#[test]
fn ignored_signal_stays_ignored_and_faults_are_guarded() {
    let code = in_child(|| {
        set(libc::SIG_IGN, 0);
        let first = guards();
        send_bus();
        first && guards()
    });
    assert_eq!(code, 0);
    let code = in_child(|| {
        set(libc::SIG_IGN, 0);
        guards() && read(gone(1)) == 1
    });
    assert_eq!(code, -BUS, "the kernel ends the process");
}

#[test]
fn one_shot_handler_is_called_once() {
    let code = in_child(|| {
        set(map_page as Handler as usize, libc::SA_SIGINFO | libc::SA_RESETHAND);
        let first = guards();
        send_bus();
        first && guards() && calls() == (1, 0) && sent()
    });
    assert_eq!(code, -BUS);
}

#[test]
fn later_handler_gets_unguarded_faults() {
    let code = in_child(|| {
        let first = guards();
        set(map_page as Handler as usize, libc::SA_SIGINFO);
        // A mapping that is guarded from now on. Its faults do not reach the handler.
        let then = guards() && calls() == (0, 0);
        read(gone(1));
        send_bus();
        first && then && calls() == (2, 0) && guards()
    });
    assert_eq!(code, 0);
}

#[test]
fn chained_handlers_are_called_once_each() {
    let code = in_child(|| {
        set(map_page as Handler as usize, libc::SA_SIGINFO);
        let first = guards();
        let old = set(pass as Handler as usize, libc::SA_SIGINFO);
        BEFORE.store(old.sa_sigaction, Relaxed);
        guard::install().unwrap();
        let at = gone(1);
        read(at);
        first && calls() == (1, 1) && guards() && calls() == (1, 1)
    });
    assert_eq!(code, 0);
}

/// A program behaves like this if it repeatedly calls a library that handles its own faults.
#[test]
fn handler_that_is_set_and_restored_repeatedly_keeps_the_guard() {
    let code = in_child(|| {
        let mut is_well = guards();
        for round in 1..100 {
            let old = set(map_page as Handler as usize, libc::SA_SIGINFO);
            is_well &= guards();
            send_bus();
            is_well &= calls() == (round, 0);
            set(old.sa_sigaction, old.sa_flags);
            is_well &= guards();
        }
        is_well
    });
    assert_eq!(code, 0);
}

#[test]
fn thread_with_all_signals_blocked_is_guarded() {
    let code = in_child(|| {
        // SAFETY: all zeros are a valid set.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set belongs to this child.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: the call reads a set to block, and gets null for the old set.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const all, null_mut()) };
        guards()
    });
    assert_eq!(code, 0);
}

/// The process gets no more pages, like a process under strict overcommit.
#[test]
fn process_at_its_memory_limit_survives() {
    let code = in_child(|| {
        let at = gone(600);
        let guard = guarded(at, 600);
        let none = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        // SAFETY: the limit affects only this child.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const none) }, 0);
        for page in 0..600 {
            let at = at.wrapping_add(page * PAGE);
            read(at);
            // SAFETY: the address is in the mapping, whose user accepts any bytes.
            unsafe { at.write_volatile(1) };
        }
        guard.is_broken()
    });
    assert_eq!(code, 0);
}

/// The file of a named heap.
fn file_of(name: &str) -> File {
    let path = format!("{}/{}{name}", haul_heap::NAMES_FOLDER, haul_heap::NAMES_PREFIX);
    File::options().read(true).write(true).open(path).unwrap()
}

fn named(name: &str) -> Heap {
    let _ = Heap::remove_name(name);
    Heap::builder().pages(Pages::Plain).limit(64 << 20).shared_named(name).unwrap()
}

/// Allocates until an allocation fails. Returns the error.
fn use_up(heap: &Heap) -> AllocError {
    loop {
        match heap.alloc(Request::new(3000)) {
            Err(error) => return error,
            // SAFETY: the test owns the block, which has this many bytes.
            Ok(block) => unsafe { block.write_bytes(1, 3000) },
        }
    }
}

#[test]
fn heap_with_truncated_file_refuses_requests_without_signal() {
    for bytes in [0, 4096, 1 << 20] {
        let name = format!("guard-cut-{}-{bytes}", std::process::id());
        let heap = named(&name);
        let blocks: Vec<_> = (0..100).map(|_| heap.alloc(Request::new(3000)).unwrap()).collect();
        // SAFETY: the test owns the block, which has this many bytes.
        blocks.iter().for_each(|block| unsafe { block.write_bytes(7, 3000) });
        ftruncate(file_of(&name), bytes).unwrap();
        assert_eq!(use_up(&heap), AllocError::Gone, "cut to {bytes}");
        assert!(heap.is_broken());
        assert_eq!(heap.alloc(Request::new(3 << 20)), Err(AllocError::Gone));
        for block in blocks {
            // SAFETY: the address is in the data of this heap; the value is not used.
            unsafe { block.as_ptr().read_volatile() };
            // SAFETY: not used again.
            let _ = unsafe { heap.free(block) };
        }
        let _ = (heap.stats(Node::ANY), heap.validate(), heap.trim());
        drop(heap);
        let _ = Heap::remove_name(&name);
    }
}

/// If the system has pages for a hole, the hole does not break the heap, and reads as zeros.
#[test]
fn heap_with_a_hole_stays_usable_while_memory_is_available() {
    let name = format!("guard-hole-{}", std::process::id());
    let heap = named(&name);
    let block = heap.alloc(Request::new(3000)).unwrap();
    let file = file_of(&name);
    let bytes = rustix::fs::fstat(&file).unwrap().st_size as u64;
    let data = heap.offset(block).unwrap().bytes();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // The data is at the end of the file.
    rustix::fs::fallocate(file.as_fd(), hole, bytes / 2, bytes - bytes / 2).unwrap();
    // SAFETY: a block of this heap is at this offset.
    assert!(data < bytes && unsafe { block.as_ptr().read_volatile() } == 0);
    assert!(!heap.is_broken() && heap.alloc(Request::new(3000)).is_ok());
    drop(heap);
    Heap::remove_name(&name).unwrap();
}
