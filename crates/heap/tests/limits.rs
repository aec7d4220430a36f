//! Limits of the system: each limit causes an error or a smaller heap, but no crash and no lost
//! block. A forked child, which may not call malloc, changes the limits of its process.

mod support;

use std::os::fd::AsRawFd;

use haul_heap::{Error, Heap, Limit, Node, Pages, Request};

use support::child::{in_child, statm_bytes};

const MIB: u64 = 1 << 20;

/// How many pages the heaps in this file have.
const PAGES: u64 = 64;

fn builder() -> haul_heap::Builder {
    Heap::builder().limit(PAGES * 2 * MIB).nodes(1).pages(Pages::Plain).caches(16)
}

fn set_limit(resource: libc::__rlimit_resource_t, bytes: u64) -> bool {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is a local value.
    unsafe { libc::setrlimit(resource, &raw const limit) == 0 }
}

/// Allocates up to `count` blocks of 1 MiB, writes to each, and frees them. Returns how many it
/// allocated.
fn use_some(heap: &Heap, count: usize) -> usize {
    let mut blocks = [None; 256];
    for slot in blocks.iter_mut().take(count) {
        *slot = heap.alloc(Request::new(1 << 20)).ok();
        if let Some(block) = *slot {
            // SAFETY: just allocated with this size.
            unsafe { block.write_bytes(1, 1 << 20) };
        }
    }
    let allocated = blocks.iter().flatten().count();
    // SAFETY: allocated above, and not used again.
    let freed = blocks.into_iter().flatten().filter(|b| unsafe { heap.free(*b) }.is_ok()).count();
    if freed == allocated { allocated } else { 0 }
}

/// Asserts that a heap without live blocks can hand out all its memory.
fn assert_whole(heap: &Heap) {
    heap.validate().unwrap();
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    let blocks: Vec<_> =
        std::iter::from_fn(|| heap.alloc(Request::new(2 << 20).aligned(2 << 20)).ok()).collect();
    assert_eq!(blocks.len() as u64, PAGES);
    for block in blocks {
        // SAFETY: allocated just now and not used.
        unsafe { heap.free(block) }.unwrap();
    }
}

/// Limits this process to `bytes` more bytes of addresses than it uses now. Must be called in a
/// child, which has only one thread, because the threads of other tests would use addresses or
/// give some back.
fn leave_addresses(bytes: u64) -> bool {
    let used = statm_bytes(0);
    used != 0 && set_limit(libc::RLIMIT_AS, used + bytes)
}

#[test]
fn limit_of_addresses_makes_a_smaller_heap() {
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
fn missing_addresses_are_an_error() {
    let status = in_child(|| {
        if !leave_addresses(4 * MIB) {
            return 1;
        }
        let private = builder().build();
        let shared = builder().shared_fd();
        let is_reported = |result: &Result<Heap, Error>| {
            matches!(result, Err(Error::NoAddressSpace { .. } | Error::Refused { .. }))
        };
        if is_reported(&private) && is_reported(&shared) { 0 } else { 2 }
    });
    assert_eq!(status, 0);
}

/// The heap never requests a file above the limit, because that would raise SIGXFSZ.
#[test]
fn limit_of_file_size_makes_a_smaller_heap_or_a_named_error() {
    let name = format!("limits-{}", std::process::id());
    let status = in_child(|| {
        if !set_limit(libc::RLIMIT_FSIZE, 100 * MIB) {
            return 1;
        }
        let Ok(smaller) = builder().limit(8 << 30).shared_fd() else { return 2 };
        if use_some(&smaller, 20) != 20 || !set_limit(libc::RLIMIT_FSIZE, MIB) {
            return 3;
        }
        let is_reported = |result: Result<Heap, Error>| match result.err() {
            Some(Error::NoAddressSpace { limit, .. }) => limit == Some(Limit::FileSize(MIB)),
            _ => false,
        };
        if !is_reported(builder().shared_fd()) || !is_reported(builder().shared_named(&name)) {
            return 4;
        }
        // An existing heap still grows, and a private heap has no file.
        let Ok(private) = builder().build() else { return 5 };
        let works = use_some(&smaller, 30) == 30 && use_some(&private, 30) == 30;
        if works { 0 } else { 6 }
    });
    assert_eq!(status, 0);
    let left = Heap::remove_name(&name);
    assert!(matches!(left, Err(Error::NoSuchName(_))), "the name is left behind");
}

#[test]
fn message_of_a_limit_names_its_option() {
    let status = in_child(|| {
        if !set_limit(libc::RLIMIT_FSIZE, MIB) {
            return 1;
        }
        let Some(error) = builder().shared_fd().err() else { return 2 };
        // The child may not call malloc, so the text is written to a local buffer.
        let mut text = [0_u8; 512];
        let mut target = &mut text[..];
        use std::io::Write;
        if write!(target, "{error}").is_err() {
            return 3;
        }
        let has = |part: &[u8]| text.windows(part.len()).any(|window| window == part);
        let is_right = has(b"RLIMIT_FSIZE") && has(b"1048576") && has(b"ulimit -f");
        if is_right && !has(b"ulimit -v") { 0 } else { 4 }
    });
    assert_eq!(status, 0);
}

/// The kernel counts writable memory, even if it is unused. Blocks can use all allowed bytes
/// except a few.
#[test]
fn limit_of_writable_memory_goes_to_blocks() {
    let status = in_child(|| {
        let used = statm_bytes(5);
        if used == 0 || !set_limit(libc::RLIMIT_DATA, used + 58 * MIB) {
            return 1;
        }
        for heap in [Heap::builder().build(), builder().build()] {
            let Ok(heap) = heap else { return 2 };
            let allocated = use_some(&heap, 256);
            if allocated < 50 || heap.validate().is_err() {
                return 3;
            }
            // The call reads unused metadata, which is possible.
            let Ok(block) = heap.alloc(Request::new(64)) else { return 4 };
            let Some(wild) = std::ptr::NonNull::new(block.as_ptr().wrapping_add(90 << 20)) else {
                return 5;
            };
            // SAFETY: no block is there, so this call is an error and changes nothing.
            if unsafe { heap.free(wild) }.is_ok() {
                return 6;
            }
            heap.maintain();
            let sizes = [64, 320, 4096, 5000, 70_000, 262_144];
            if sizes.into_iter().any(|size| heap.alloc(Request::new(size)).is_err()) {
                return 7;
            }
            // SAFETY: the child calls only the heap, and ends with _exit.
            let grandchild = in_child(|| use_some(&heap, 20) == 20 && heap.validate().is_ok());
            if grandchild != 0 {
                return 8;
            }
        }
        0
    });
    assert_eq!(status, 0);
}

/// If a standard stream is closed, a log line to it must not be written into the heap.
#[test]
fn shared_heap_uses_no_descriptor_of_a_standard_stream() {
    let name = format!("streams-{}", std::process::id());
    let status = in_child(|| {
        for stream in 0..3 {
            // SAFETY: the child owns the stream, and no code here uses it.
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
        // SAFETY: the call only returns flags.
        let is_closed = |stream| unsafe { libc::fcntl(stream, libc::F_GETFD) } == -1;
        if is_above && (0..3).all(is_closed) { 0 } else { 6 }
    });
    let removed = Heap::remove_name(&name);
    assert_eq!((status, removed), (0, Ok(())));
}

#[test]
fn few_descriptors_suffice_or_give_an_error_that_names_the_limit() {
    let status = in_child(|| {
        // SAFETY: the child owns the streams, and uses none of them from now on.
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
        let is_reported = limit == Some(Limit::OpenFiles(3));
        if is_reported && use_some(&private, 20) == 20 { 0 } else { 6 }
    });
    assert_eq!(status, 0);
}

/// If a program locks all its mappings, this must not populate the whole limit of a heap.
#[test]
fn mlockall_does_not_populate_the_whole_limit() {
    let status = in_child(|| {
        // SAFETY: the call locks future mappings of this child.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            // Without the permission, the limit is so low that the kernel refuses the call, so
            // there is nothing to test.
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

/// The peak memory of this process, in KiB.
fn resident_kib() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a local value.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    // SAFETY: the structure is zeroed, and the call writes to it.
    unsafe { usage.assume_init() }.ru_maxrss
}

#[test]
fn missing_mappings_are_an_error_and_an_existing_heap_still_works() {
    let heap = builder().decay(Some(0)).build().unwrap();
    let status = in_child(|| {
        let (flags, length) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 4096);
        for index in 0..200_000 {
            // The kernel does not merge adjacent mappings with different protection.
            let protection = if index % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
            // SAFETY: the kernel chooses an unused address.
            let page =
                unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
            if page == libc::MAP_FAILED {
                let is_reported = builder().build().is_err();
                let allocated = use_some(&heap, 100);
                heap.maintain();
                return if is_reported && allocated == 100 && use_some(&heap, 100) == 100 {
                    0
                } else {
                    2
                };
            }
        }
        // This machine allows more mappings than the test creates, so the test cannot reach the
        // limit.
        0
    });
    assert_eq!(status, 0);
    assert_whole(&heap);
}

#[test]
fn heap_falls_back_from_the_pool_to_other_pages() {
    let heap = builder().pages(Pages::Huge2M).build().unwrap();
    assert_eq!(use_some(&heap, 100), 100);
    let report = heap.pages();
    let text = report.to_string();
    assert!(text.contains("pages"), "{text}");
    assert!(u64::from(report.from_pool) <= PAGES);
    assert_whole(&heap);
}

/// A child in a memory cgroup of 24 MiB requests four times as much: its requests fail, or the
/// kernel kills it. In both cases its blocks are freed.
#[test]
fn memory_cgroup_at_its_limit_loses_no_block() {
    // SAFETY: the call only returns a number.
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
            // SAFETY: the call writes one byte of a static string; "0" means the writing process.
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
