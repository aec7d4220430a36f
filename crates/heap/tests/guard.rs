//! SIGBUS, as a program sees it that has mapped what others can take away: what is the guard's ends
//! in zeros and an error, and everything else does what it did without the guard.

mod support;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use haul_heap::guard::{self, Guard};
use haul_heap::{AllocError, Heap, Node, Pages};
use rustix::fs::{FallocateFlags, MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use support::child::in_child;

const PAGE: usize = 4096;
const BUS: i32 = libc::SIGBUS;

/// Pages of a file of no length: each touch is a fault.
fn gone(pages: usize) -> *mut u8 {
    mapped(&memfd_create(c"gone", MemfdFlags::CLOEXEC).unwrap(), pages)
}

fn mapped(file: &OwnedFd, pages: usize) -> *mut u8 {
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an address where nothing is mapped.
    unsafe { mmap(null_mut(), pages * PAGE, rights, MapFlags::SHARED, file, 0) }.unwrap().cast()
}

fn read(at: *mut u8) -> u8 {
    // SAFETY: callers pass an address inside a mapping of theirs.
    unsafe { at.read_volatile() }
}

fn guarded(at: *mut u8, pages: usize) -> Guard {
    Guard::new(at.addr(), pages * PAGE, PAGE).unwrap()
}

fn send_bus() {
    // SAFETY: asks for a number.
    let own = unsafe { libc::getpid() };
    // SAFETY: what the signal does is what this process has set for it.
    unsafe { libc::kill(own, BUS) };
}

/// Sends it; whether this process lives on.
fn sent() -> bool {
    send_bus();
    true
}

type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);

/// Sets a handler; what was set before.
fn set(handler: usize, flags: i32) -> libc::sigaction {
    // SAFETY: all zeros are an action: the default one.
    let [mut new, mut old] = [unsafe { std::mem::zeroed::<libc::sigaction>() }; 2];
    (new.sa_sigaction, new.sa_flags) = (handler, flags);
    // SAFETY: both are actions, and the handlers here do what a handler may.
    assert_eq!(unsafe { libc::sigaction(BUS, &raw const new, &raw mut old) }, 0);
    old
}

static CALLS: AtomicUsize = AtomicUsize::new(0);
static LATER: AtomicUsize = AtomicUsize::new(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);

/// Counts, and puts a page where there was none, as a program does that handles its own faults.
extern "C" fn mend(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    CALLS.fetch_add(1, Relaxed);
    // SAFETY: the kernel describes the signal.
    let about = unsafe { &*info };
    // SAFETY: this signal has an address.
    let at = unsafe { about.si_addr() };
    if about.si_code > 0 {
        let page = at.wrapping_byte_sub(at.addr() % PAGE);
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = flags | libc::MAP_FIXED | libc::MAP_ANONYMOUS;
        // SAFETY: a page of this test's own, of which any bytes are borne.
        unsafe { libc::mmap(page, PAGE, rights, flags, -1, 0) };
    }
}

extern "C" fn plain(_: i32) {
    CALLS.fetch_add(1, Relaxed);
}

/// Counts, and calls the handler that was there before, as a program does that chains them.
extern "C" fn pass(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    LATER.fetch_add(1, Relaxed);
    // SAFETY: what `set` found there: a handler with this signature.
    let before = unsafe { std::mem::transmute::<usize, Handler>(BEFORE.load(Relaxed)) };
    before(signal, info, context);
}

fn calls() -> (usize, usize) {
    (CALLS.load(Relaxed), LATER.load(Relaxed))
}

/// Whether a mapping that is guarded now reads as zeros once it has gone.
fn guards() -> bool {
    let at = gone(1);
    let guard = guarded(at, 1);
    read(at) == 0 && guard.is_broken()
}

#[test]
fn a_signal_that_was_sent_ends_a_process_that_has_no_handler() {
    let code = in_child(|| {
        set(libc::SIG_DFL, 0);
        guards() && sent()
    });
    assert_eq!(code, -BUS);
}

/// As the standard library's own does, whose handler of a Rust program looks for overflows of
/// stacks: it takes the default action for whatever is none.
#[test]
fn a_handler_that_takes_the_default_action_disarms_nothing() {
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
    assert_eq!(code, -BUS, "the second one finds the default");
}

#[test]
fn a_fault_outside_every_guard_ends_a_process_that_has_no_handler() {
    let code = in_child(|| {
        set(libc::SIG_DFL, 0);
        guards() && read(gone(1)) == 1
    });
    assert_eq!(code, -BUS);
    assert_eq!(in_child(|| guards() && read(gone(1)) == 1), -BUS, "with the standard library's");
}

#[test]
fn a_signal_that_was_sent_goes_to_the_handler_before_and_disarms_nothing() {
    for (handler, flags) in
        [(mend as Handler as usize, libc::SA_SIGINFO), (plain as extern "C" fn(i32) as usize, 0)]
    {
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
fn a_fault_outside_every_guard_goes_to_the_handler_before() {
    let code = in_child(|| {
        set(mend as Handler as usize, libc::SA_SIGINFO);
        guards() && read(gone(1)) == 0 && calls() == (1, 0) && guards()
    });
    assert_eq!(code, 0);
}

#[test]
fn a_signal_that_is_ignored_stays_ignored_and_its_faults_are_guarded() {
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
    assert_eq!(code, -BUS, "as the kernel has it");
}

#[test]
fn a_handler_for_one_time_is_called_once() {
    let code = in_child(|| {
        set(mend as Handler as usize, libc::SA_SIGINFO | libc::SA_RESETHAND);
        let first = guards();
        send_bus();
        first && guards() && calls() == (1, 0) && sent()
    });
    assert_eq!(code, -BUS);
}

#[test]
fn a_handler_that_is_set_later_has_what_is_not_the_guards() {
    let code = in_child(|| {
        let first = guards();
        set(mend as Handler as usize, libc::SA_SIGINFO);
        // A mapping that is guarded from now on, and the handler before it has nothing of it.
        let then = guards() && calls() == (0, 0);
        read(gone(1));
        send_bus();
        first && then && calls() == (2, 0) && guards()
    });
    assert_eq!(code, 0);
}

#[test]
fn a_handler_that_passes_on_reaches_what_was_before_each_of_them_once() {
    let code = in_child(|| {
        set(mend as Handler as usize, libc::SA_SIGINFO);
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

/// As programs do that call a library which has faults of its own.
#[test]
fn a_handler_that_comes_and_goes_disarms_nothing_however_often() {
    let code = in_child(|| {
        let mut is_well = guards();
        for round in 1..100 {
            let old = set(mend as Handler as usize, libc::SA_SIGINFO);
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
fn a_thread_that_blocks_every_signal_is_guarded() {
    let code = in_child(|| {
        // SAFETY: all zeros are a set.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: a set of this child's.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: a set, and none that is asked for.
        unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const all, null_mut()) };
        guards()
    });
    assert_eq!(code, 0);
}

/// As under strict overcommit: not a page can be had.
#[test]
fn a_process_that_may_have_no_more_memory_lives() {
    let code = in_child(|| {
        let at = gone(600);
        let guard = guarded(at, 600);
        let none = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
        // SAFETY: a limit for this child alone.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const none) }, 0);
        for page in 0..600 {
            let at = at.wrapping_add(page * PAGE);
            read(at);
            // SAFETY: inside the mapping, any byte of which is borne.
            unsafe { at.write_volatile(1) };
        }
        guard.is_broken()
    });
    assert_eq!(code, 0);
}

/// The file of a heap that is shared by name.
fn file_of(name: &str) -> File {
    let path = format!("{}/{}{name}", haul_heap::NAMES_FOLDER, haul_heap::NAMES_PREFIX);
    File::options().read(true).write(true).open(path).unwrap()
}

fn named(name: &str) -> Heap {
    let _ = Heap::remove_name(name);
    Heap::builder().pages(Pages::Plain).limit(64 << 20).shared_named(name).unwrap()
}

/// Until no block comes any more; why.
fn use_up(heap: &Heap) -> AllocError {
    loop {
        match heap.alloc(3000, 64, Node::ANY) {
            Err(error) => return error,
            // SAFETY: a block of this heap's, of so many bytes, that nobody else has.
            Ok(block) => unsafe { block.write_bytes(1, 3000) },
        }
    }
}

#[test]
fn a_heap_whose_file_was_cut_short_gives_no_block_and_ends_nothing() {
    for bytes in [0, 4096, 1 << 20] {
        let name = format!("guard-cut-{}-{bytes}", std::process::id());
        let heap = named(&name);
        let blocks: Vec<_> = (0..100).map(|_| heap.alloc(3000, 64, Node::ANY).unwrap()).collect();
        // SAFETY: a block of this heap's, of so many bytes.
        blocks.iter().for_each(|block| unsafe { block.write_bytes(7, 3000) });
        ftruncate(file_of(&name), bytes).unwrap();
        assert_eq!(use_up(&heap), AllocError::Gone, "cut to {bytes}");
        assert!(heap.is_broken());
        assert_eq!(heap.alloc(3 << 20, 64, Node::ANY), Err(AllocError::Gone));
        for block in blocks {
            // SAFETY: of this heap, inside its data; nothing is made of it.
            unsafe { block.as_ptr().read_volatile() };
            // SAFETY: not used again.
            let _ = unsafe { heap.free(block) };
        }
        let _ = (heap.stats(Node::ANY), heap.validate(), heap.trim());
        drop(heap);
        let _ = Heap::remove_name(&name);
    }
}

/// A hole is no end where the system has a page for it: what was there reads as zeros.
#[test]
fn a_heap_with_a_hole_where_there_is_memory_goes_on() {
    let name = format!("guard-hole-{}", std::process::id());
    let heap = named(&name);
    let block = heap.alloc(3000, 64, Node::ANY).unwrap();
    let file = file_of(&name);
    let bytes = rustix::fs::fstat(&file).unwrap().st_size as u64;
    let data = heap.offset(block).unwrap().bytes();
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // The data is the end of the file.
    rustix::fs::fallocate(file.as_fd(), hole, bytes / 2, bytes - bytes / 2).unwrap();
    // SAFETY: a block of this heap's, at that offset.
    assert!(data < bytes && unsafe { block.as_ptr().read_volatile() } == 0);
    assert!(!heap.is_broken() && heap.alloc(3000, 64, Node::ANY).is_ok());
    drop(heap);
    Heap::remove_name(&name).unwrap();
}
