//! Limits of the system: each gives an error or less of the heap, never a crash, and no block is
//! lost. What changes a process for good is done in a forked child, which may not call malloc.

mod support;

use std::os::fd::AsRawFd;

use haul_heap::{Error, Heap, Limit, Node, Pages};

use support::child::{in_child, statm_bytes};

const MIB: u64 = 1 << 20;

/// Pages of the heaps here.
const PAGES: u64 = 64;

fn builder() -> haul_heap::Builder {
    Heap::builder().limit(PAGES * 2 * MIB).nodes(1).pages(Pages::Plain).caches(16)
}

fn set_limit(resource: libc::__rlimit_resource_t, bytes: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is one of ours.
    unsafe { libc::setrlimit(resource, &raw const limit) == 0 }
}

/// Allocates 1 MiB blocks, at most `count`, writes to each, and frees them: how many there were.
fn use_some(heap: &Heap, count: usize) -> usize {
    let mut blocks = [None; 256];
    for place in blocks.iter_mut().take(count) {
        *place = heap.alloc(1 << 20, 64, Node::ANY).ok();
        if let Some(block) = *place {
            // SAFETY: just allocated with this size.
            unsafe { block.write_bytes(1, 1 << 20) };
        }
    }
    let had = blocks.iter().flatten().count();
    // SAFETY: allocated above, and not used again.
    let freed = blocks.into_iter().flatten().filter(|b| unsafe { heap.free(*b) }.is_ok()).count();
    if freed == had { had } else { 0 }
}

/// Everything must be had that a heap without live blocks can give.
fn assert_whole(heap: &Heap) {
    heap.validate().unwrap();
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    let blocks: Vec<_> =
        std::iter::from_fn(|| heap.alloc(2 << 20, 2 << 20, Node::ANY).ok()).collect();
    assert_eq!(blocks.len() as u64, PAGES);
    for block in blocks {
        // SAFETY: allocated just now and not used.
        unsafe { heap.free(block) }.unwrap();
    }
}

/// Leaves this process `bytes` of addresses more than it uses. For a child, which has no other
/// threads: those of the tests beside this one would use them, or give some back.
fn leave_addresses(bytes: u64) -> bool {
    let used = statm_bytes(0);
    used != 0 && set_limit(libc::RLIMIT_AS, used + bytes)
}

#[test]
fn few_addresses_make_a_smaller_heap() {
    let status = in_child(|| {
        if !leave_addresses(900 * MIB) {
            return 1;
        }
        let Ok(heap) = builder().limit(8 << 30).build() else { return 2 };
        let limit = heap.stats(Node::ANY).limit_bytes;
        if !(64 * MIB..900 * MIB).contains(&limit) {
            return 3;
        }
        if use_some(&heap, 32) == 32 { 0 } else { 4 }
    });
    assert_eq!(status, 0);
}

#[test]
fn no_addresses_are_an_error() {
    let status = in_child(|| {
        if !leave_addresses(4 * MIB) {
            return 1;
        }
        let private = builder().build();
        let shared = builder().shared_fd();
        let is_told = |result: &Result<Heap, Error>| {
            matches!(result, Err(Error::NoAddressSpace { .. } | Error::Refused { .. }))
        };
        if is_told(&private) && is_told(&shared) { 0 } else { 2 }
    });
    assert_eq!(status, 0);
}

/// A file beyond the limit is not even asked for, which would be a SIGXFSZ.
#[test]
fn a_limit_of_file_sizes_makes_a_smaller_heap_or_an_error_that_names_it() {
    let name = format!("limits-{}", std::process::id());
    let status = in_child(|| {
        if !set_limit(libc::RLIMIT_FSIZE, 100 * MIB) {
            return 1;
        }
        let Ok(smaller) = builder().limit(8 << 30).shared_fd() else { return 2 };
        if use_some(&smaller, 20) != 20 || !set_limit(libc::RLIMIT_FSIZE, MIB) {
            return 3;
        }
        let is_told = |result: Result<Heap, Error>| match result.err() {
            Some(Error::NoAddressSpace { limit, .. }) => limit == Some(Limit::FileSize(MIB)),
            _ => false,
        };
        if !is_told(builder().shared_fd()) || !is_told(builder().shared_named(&name)) {
            return 4;
        }
        // One that is there grows on, and one of this process has no file.
        let Ok(private) = builder().build() else { return 5 };
        let works = use_some(&smaller, 30) == 30 && use_some(&private, 30) == 30;
        if works { 0 } else { 6 }
    });
    assert_eq!(status, 0);
    let left = Heap::remove_name(&name);
    assert!(matches!(left, Err(Error::NoSuchName(_))), "the name is left behind");
}

#[test]
fn the_message_of_a_limit_says_how_it_is_raised() {
    let status = in_child(|| {
        if !set_limit(libc::RLIMIT_FSIZE, MIB) {
            return 1;
        }
        let Some(error) = builder().shared_fd().err() else { return 2 };
        // The child may not call malloc, so the text goes where there is room.
        let mut text = [0_u8; 512];
        let mut rest = &mut text[..];
        use std::io::Write;
        if write!(rest, "{error}").is_err() {
            return 3;
        }
        let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
        let is_right = has(b"RLIMIT_FSIZE") && has(b"1048576") && has(b"ulimit -f");
        if is_right && !has(b"ulimit -v") { 0 } else { 4 }
    });
    assert_eq!(status, 0);
}

/// What can be written to counts, used or not: `malloc` gets all but a few of these bytes.
#[test]
fn a_limit_of_writable_memory_is_used_for_blocks() {
    let status = in_child(|| {
        let used = statm_bytes(5);
        if used == 0 || !set_limit(libc::RLIMIT_DATA, used + 58 * MIB) {
            return 1;
        }
        for heap in [Heap::builder().build(), builder().build()] {
            let Ok(heap) = heap else { return 2 };
            let had = use_some(&heap, 256);
            if had < 50 || heap.validate().is_err() {
                return 3;
            }
            // Metadata that was never used can be looked at.
            let Ok(block) = heap.alloc(64, 64, Node::ANY) else { return 4 };
            let Some(wild) = std::ptr::NonNull::new(block.as_ptr().wrapping_add(90 << 20)) else {
                return 5;
            };
            // SAFETY: no block is there, so this is an error and nothing changes.
            if unsafe { heap.free(wild) }.is_ok() {
                return 6;
            }
            heap.maintain();
            let sizes = [64, 320, 4096, 5000, 70_000, 262_144];
            if sizes.into_iter().any(|size| heap.alloc(size, 64, Node::ANY).is_err()) {
                return 7;
            }
            // SAFETY: the child calls the heap alone, and leaves by _exit.
            let grandchild = in_child(|| use_some(&heap, 20) == 20 && heap.validate().is_ok());
            if grandchild != 0 {
                return 8;
            }
        }
        0
    });
    assert_eq!(status, 0);
}

/// A log line to a standard stream that was closed must not go over the heap.
#[test]
fn a_shared_heap_takes_the_number_of_no_standard_stream() {
    let name = format!("streams-{}", std::process::id());
    let status = in_child(|| {
        for stream in 0..3 {
            // SAFETY: the child's own, and nothing here uses it.
            unsafe { libc::close(stream) };
        }
        let Ok(unnamed) = builder().shared_fd() else { return 1 };
        let Ok(named) = builder().shared_named(&name) else { return 2 };
        let Ok(attached) = builder().attach_named(&name) else { return 3 };
        let Some(fd) = unnamed.fd() else { return 4 };
        let Ok(again) = builder().attach_fd(fd) else { return 5 };
        let heaps = [&unnamed, &named, &attached, &again];
        let numbers = heaps.map(|heap| heap.fd().map_or(-1, |fd| fd.as_raw_fd()));
        let pools = heaps.map(|heap| heap.pool_fd().map_or(3, |fd| fd.as_raw_fd()));
        let is_above = numbers.into_iter().chain(pools).all(|number| number >= 3);
        // SAFETY: asks for flags.
        let is_left = |stream| unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1;
        if is_above && (0..3).all(is_left) { 0 } else { 6 }
    });
    let removed = Heap::remove_name(&name);
    assert_eq!((status, removed), (0, Ok(())));
}

#[test]
fn few_descriptors_and_no_locked_memory_are_enough_or_an_error_that_names_the_limit() {
    let status = in_child(|| {
        // SAFETY: the child's own; nothing that it uses from here on is among them.
        unsafe { libc::close_range(3, u32::MAX, 0) };
        if !set_limit(libc::RLIMIT_MEMLOCK, 0) || !set_limit(libc::RLIMIT_NOFILE, 8) {
            return 1;
        }
        for heap in [builder().build(), builder().shared_fd()] {
            let Ok(heap) = heap else { return 2 };
            if use_some(&heap, 20) != 20 {
                return 3;
            }
        }
        if !set_limit(libc::RLIMIT_NOFILE, 3) {
            return 4;
        }
        let Ok(private) = builder().build() else { return 5 };
        let limit = match builder().shared_fd() {
            Err(Error::Refused { limit, .. }) => limit,
            _ => None,
        };
        let is_told = limit == Some(Limit::OpenFiles(3));
        if is_told && use_some(&private, 20) == 20 { 0 } else { 6 }
    });
    assert_eq!(status, 0);
}

/// A program that locks all that it maps must not thereby populate a heap's whole limit.
#[test]
fn locked_memory_is_not_the_whole_limit() {
    let status = in_child(|| {
        // SAFETY: locks future mappings of this child.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            // Without the permission the limit is so low that this is refused: nothing to see.
            return 0;
        }
        let before = resident_kib();
        match builder().limit(4 << 30).build() {
            Ok(heap) if use_some(&heap, 8) == 8 => {
                if resident_kib() - before < 256 << 10 {
                    0
                } else {
                    3
                }
            }
            Ok(_) => 2,
            Err(Error::NoAddressSpace { .. } | Error::Refused { .. }) => 0,
            Err(_) => 1,
        }
    });
    assert_eq!(status, 0);
}

/// The most memory that this process had at once, in KiB.
fn resident_kib() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is one of ours.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: zeroed, and written by the call.
    unsafe { usage.assume_init() }.ru_maxrss
}

#[test]
fn no_mappings_are_an_error_and_a_heap_that_is_there_works_on() {
    let heap = builder().decay(Some(0)).build().unwrap();
    let status = in_child(|| {
        let (flags, length) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 4096);
        for index in 0..200_000 {
            // Neighbours of different protection are mappings of their own.
            let protection = if index % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
            // SAFETY: a new mapping where the kernel likes.
            let page =
                unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
            if page == libc::MAP_FAILED {
                let is_told = builder().build().is_err();
                let had = use_some(&heap, 100);
                heap.maintain();
                return if is_told && had == 100 && use_some(&heap, 100) == 100 { 0 } else { 2 };
            }
        }
        // More mappings are allowed here than this test makes: then there is no limit to meet.
        0
    });
    assert_eq!(status, 0);
    assert_whole(&heap);
}

#[test]
fn pages_that_the_pool_does_not_have_are_plain() {
    let heap = builder().pages(Pages::Huge2M).build().unwrap();
    assert_eq!(use_some(&heap, 100), 100);
    let told = heap.pages();
    let text = told.to_string();
    assert!(text.contains("pages"), "{text}");
    assert!(u64::from(told.from_pool) <= PAGES);
    assert_whole(&heap);
}

/// A child in a memory cgroup of 24 MiB asks for four times as much: it is refused, or the kernel
/// ends it. Either way its blocks come back.
#[test]
fn a_memory_cgroup_at_its_limit_loses_nothing() {
    // SAFETY: asks for a number.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: a memory cgroup at its limit: not running as root: run as root");
        return;
    }
    let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
    if !std::path::Path::new(root).exists() {
        eprintln!(
            "SKIPPED: a memory cgroup at its limit: no file \
             /sys/fs/cgroup/memory/memory.limit_in_bytes: mount the memory controller (version 1)"
        );
        return;
    }
    let folder = format!("/sys/fs/cgroup/memory/haul-test-{}", std::process::id());
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(format!("{folder}/memory.limit_in_bytes"), (24 * MIB).to_string()).unwrap();
    let tasks = std::fs::OpenOptions::new().write(true).open(format!("{folder}/tasks")).unwrap();
    let heap = builder().shared_fd().unwrap();
    for is_ahead in [false, true] {
        let status = in_child(|| {
            use std::os::fd::AsRawFd;
            // SAFETY: one byte of ours; 0 stands for the writer itself.
            if unsafe { libc::write(tasks.as_raw_fd(), c"0".as_ptr().cast(), 1) } != 1 {
                return 1;
            }
            if is_ahead {
                let Some(fd) = heap.fd() else { return 2 };
                let Ok(eager) = Heap::builder().grow_ahead(96 * MIB).attach_fd(fd) else {
                    return 3;
                };
                eager.maintain();
            }
            use_some(&heap, 96);
            0
        });
        assert!(status == 0 || status == -libc::SIGKILL, "{status}");
        heap.reap();
        assert_whole(&heap);
    }
    drop(heap);
    std::fs::remove_dir(&folder).unwrap();
}
