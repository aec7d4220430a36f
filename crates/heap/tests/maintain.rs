//! The work of a housekeeping thread: makes memory ready before it is needed, gives idle memory
//! back, and empties the caches of ended threads. And addresses for devices.

use haul_heap::{Error, Heap, Iova, Node, Pages, Request};

const MIB: u64 = 1 << 20;

fn builder() -> haul_heap::Builder {
    Heap::builder().limit(64 * MIB).nodes(1).pages(Pages::Plain)
}

#[test]
fn maintain_grows_ahead_and_gives_idle_pages_back() {
    let heap = builder().grow_ahead(8 * MIB).decay(Some(0)).build().unwrap();
    let done = heap.maintain();
    assert_eq!((done.grown, done.released, done.is_refused), (4, 0, false));
    assert_eq!(heap.stats(Node::ANY).ready_bytes, 8 * MIB);
    assert_eq!(heap.maintain().grown, 0);
    let block = heap.alloc(Request::new(20 << 20)).unwrap();
    assert_eq!(heap.maintain().released, 0);
    // SAFETY: allocated above and not used.
    unsafe { heap.free(block) }.unwrap();
    let done = heap.maintain();
    assert!(done.released >= 10, "{done:?}");
    assert_eq!(heap.stats(Node::ANY).ready_bytes, 8 * MIB);
    heap.validate().unwrap();
}

#[test]
fn memory_ready_from_the_start_stays_ready() {
    let builder = || builder().ready(8 * MIB).decay(Some(0));
    for heap in [builder().build(), builder().shared_fd(), builder().nodes(2).build()] {
        let heap = heap.unwrap();
        let ready = || heap.stats(Node::ANY).ready_bytes;
        assert_eq!(ready(), 8 * MIB);
        assert_eq!((heap.maintain().released, ready()), (0, 8 * MIB));
        let block = heap.alloc(Request::new(20 << 20).on_node(Node::new(0))).unwrap();
        assert!(ready() >= 20 * MIB);
        assert_eq!(heap.maintain().released, 0);
        // SAFETY: allocated above and not used.
        unsafe { heap.free(block) }.unwrap();
        assert!(heap.maintain().released >= 6);
        assert_eq!(ready(), 8 * MIB);
        heap.trim();
        assert_eq!(ready(), 0);
        heap.validate().unwrap();
    }
}

#[test]
fn attach_makes_missing_memory_ready() {
    let heap = builder().ready(4 * MIB).shared_fd().unwrap();
    let more = Heap::builder().ready(8 * MIB).attach_fd(heap.fd().unwrap()).unwrap();
    let less = Heap::builder().ready(2 * MIB).attach_fd(heap.fd().unwrap()).unwrap();
    for heap in [heap, more, less] {
        assert_eq!(heap.stats(Node::ANY).ready_bytes, 8 * MIB);
    }
}

#[test]
fn memory_that_cannot_be_ready_is_an_error_and_leaves_no_name() {
    let name = format!("not-ready-{}", std::process::id());
    for bytes in [65 * MIB, u64::MAX] {
        let builder = || builder().ready(bytes);
        for heap in [builder().build(), builder().shared_named(&name)] {
            let error = heap.err();
            assert!(matches!(error, Some(Error::NotReady { .. })), "{error:?}");
        }
        assert!(matches!(Heap::remove_name(&name), Err(Error::NoSuchName(_))));
    }
}

#[test]
fn memory_ready_from_the_start_takes_no_faults() {
    // Data of 40 MiB in pages of 4 KiB, and their slot words.
    let written = |heap: Heap| {
        let before = faults();
        for _ in 0..10_000 {
            let block = heap.alloc(Request::new(4096).aligned(4096)).unwrap();
            // SAFETY: allocated just now with at least one byte.
            unsafe { block.write(1) };
        }
        faults() - before
    };
    let plain = written(builder().build().unwrap());
    assert!(plain >= 10_000, "{plain} faults");
    let ready = written(builder().ready(48 * MIB).build().unwrap());
    let limit = if can_populate() { plain / 100 } else { plain };
    assert!(ready <= limit, "{ready} faults, {plain} without ready memory");
}

/// How many page faults this thread has caused so far.
fn faults() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a local value.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: the structure is zeroed, and the call writes to it.
    unsafe { usage.assume_init() }.ru_minflt
}

/// Allocates one block of `size`, so that the upkeep knows the size. Then allocates `bytes` in
/// blocks of `size`, and returns how many page faults this causes.
fn faults_of_growth(heap: &Heap, bytes: usize, size: usize) -> i64 {
    heap.alloc(Request::new(size)).unwrap();
    heap.maintain();
    let before = faults();
    for _ in 0..bytes / size {
        heap.alloc(Request::new(size)).unwrap();
    }
    faults() - before
}

/// Whether the kernel can make memory present before an access, which it can since Linux 5.14.
fn can_populate() -> bool {
    let mut page = [0_u8; 4096 * 2];
    let start = page.as_mut_ptr().wrapping_add(4095).addr() & !4095;
    // SAFETY: the memory page is in `page`, and its content does not change.
    unsafe { libc::madvise(start as *mut _, 4096, libc::MADV_POPULATE_WRITE) == 0 }
}

#[test]
fn memory_ready_ahead_takes_no_faults() {
    // A slot word has two bytes, so these are 256 KiB of slot words, 64 pages.
    let plain = faults_of_growth(&builder().build().unwrap(), 8 << 20, 64);
    assert!(plain >= 64, "{plain} faults");
    let ahead = faults_of_growth(&builder().grow_ahead(16 * MIB).build().unwrap(), 8 << 20, 64);
    // The first of four pages was already in use when the others were made ready.
    let limit = if can_populate() { plain / 3 } else { plain };
    assert!(ahead <= limit, "{ahead} faults, {plain} without grow_ahead");
}

#[test]
fn slot_words_are_ready_before_their_pages() {
    // The kernel maps 32 KiB of slot words, 8 pages, for 8 pages of 2 MiB, one of which is ready.
    let plain = faults_of_growth(&builder().build().unwrap(), 16 << 20, 1024);
    assert!(plain >= 7, "{plain} faults");
    let ahead = faults_of_growth(&builder().grow_ahead(2 * MIB).build().unwrap(), 16 << 20, 1024);
    let limit = if can_populate() { plain / 2 } else { plain };
    assert!(ahead <= limit, "{ahead} faults, {plain} without grow_ahead");
}

#[test]
fn free_page_is_kept_for_the_decay_time() {
    let heap = builder().decay(Some(3_600_000)).build().unwrap();
    let block = heap.alloc(Request::new(4 << 20)).unwrap();
    // SAFETY: allocated above and not used.
    unsafe { heap.free(block) }.unwrap();
    for _ in 0..3 {
        assert_eq!(heap.maintain().released, 0);
    }
    assert_eq!(heap.stats(Node::ANY).ready_bytes, 4 * MIB);
    let kept = builder().decay(None).build().unwrap();
    assert_eq!(kept.maintain().released, 0);
}

#[test]
fn grow_ahead_stops_at_the_limit() {
    let heap = builder().grow_ahead(1 << 40).build().unwrap();
    let done = heap.maintain();
    assert_eq!((done.grown, done.is_refused), (32, true));
}

#[test]
fn maintain_works_on_a_shared_heap() {
    let heap = builder().pages(Pages::Auto).grow_ahead(4 * MIB).decay(Some(0)).shared_fd().unwrap();
    assert_eq!(heap.maintain().grown, 2);
    let block = heap.zalloc(Request::new(8 << 20)).unwrap();
    // SAFETY: allocated above with this size.
    unsafe { block.write_bytes(0xA5, 8 << 20) };
    // SAFETY: not used again.
    unsafe { heap.free(block) }.unwrap();
    assert!(heap.maintain().released >= 2);
    heap.validate().unwrap();
}

#[test]
fn maintain_empties_caches_of_ended_threads() {
    let heap = builder().build().unwrap();
    let cached = || heap.stats(Node::ANY).cached.blocks;
    // From now on this thread has a number, so it does not take over the caches of another
    // thread.
    heap.maintain();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let block = heap.alloc(Request::new(64)).unwrap();
            // SAFETY: allocated above and not used.
            unsafe { heap.free(block) }.unwrap();
        });
    });
    assert!(cached() > 0);
    let start = std::time::Instant::now();
    // The kernel may need a moment until it reports that a joined thread has ended.
    while cached() > 0 {
        heap.maintain();
        assert!(start.elapsed().as_secs() < 60, "{} blocks are still cached", cached());
    }
}

#[test]
fn iova_is_physical_or_virtual() {
    let heap = builder().build().unwrap();
    let block = heap.alloc_contiguous(Request::new(4096).aligned(4096)).unwrap();
    assert_eq!(heap.contiguous(block, 4096), 4096);
    let iova = heap.iova(block);
    match iova {
        Iova::Virtual(address) => {
            assert_eq!(address, block.as_ptr().addr() as u64);
            assert_eq!((iova.address(), iova.physical()), (address, None));
        }
        Iova::Physical(address) => {
            assert_eq!(address % 4096, 0);
            assert_eq!((iova.address(), iova.physical()), (address, Some(address)));
            // SAFETY: within the block.
            let second = unsafe { block.add(100) };
            assert_eq!(heap.iova(second), Iova::Physical(address + 100));
        }
        other => panic!("{other:?}: this heap has no provider"),
    }
    // SAFETY: allocated above and not used.
    unsafe { heap.free(block) }.unwrap();
}
