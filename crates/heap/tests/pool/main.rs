//! Shared heaps, by descriptor and by name, use pages of the kernel's pool; a private heap uses
//! none. Each test puts a few pages into the pool, which requires root. Only one test at a time
//! uses the pool.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::ptr::NonNull;

use haul_heap::PageState;
use haul_heap::{Backing, Error, Global, Heap, Node, Offset, Pages, Reason, Request};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

mod forks;
mod guard;
#[path = "../support/mod.rs"]
mod support;

use guard::{IN_POOL, PAGE, Pool, allocate, pool_free};
use support::child::{start, wait};

#[global_allocator]
static GLOBAL: Global = Global;

/// How many pages a test's heap has.
const PAGES: usize = 32;

fn builder() -> haul_heap::Builder {
    let limit = (PAGES * PAGE) as u64;
    Heap::builder().limit(limit).nodes(1).pages(Pages::Huge2M).caches(64).decay(None)
}

/// Allocates blocks of one page until an allocation fails, and writes to all bytes of each block.
fn take_all(heap: &Heap) -> Vec<NonNull<u8>> {
    let blocks = std::iter::from_fn(|| heap.alloc(Request::new(PAGE).aligned(PAGE)).ok());
    blocks.inspect(|block| fill(*block, 0xA5)).collect()
}

fn fill(block: NonNull<u8>, byte: u8) {
    // SAFETY: the caller just allocated it with this size.
    unsafe { block.write_bytes(byte, PAGE) };
}

fn free_all(heap: &Heap, blocks: Vec<NonNull<u8>>) {
    for block in blocks {
        // SAFETY: allocated by `take_all`, and not used again.
        unsafe { heap.free(block) }.unwrap();
    }
    assert_eq!(heap.stats(Node::ANY).live.blocks, 0);
    heap.validate().unwrap();
}

/// The number of ready pages from the pool, and the number of other ready pages.
fn backings(heap: &Heap) -> (usize, usize) {
    let (mut pool, mut others) = (0, 0);
    heap.map(|page| {
        if page.state == PageState::Ready {
            match page.backing {
                Backing::Huge2M => pool += 1,
                _ => others += 1,
            }
        }
    });
    (pool, others)
}

/// The page size, in KiB, of this program's mapping of a block, as the kernel reports it.
fn kernel_page_kib(block: NonNull<u8>) -> usize {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_inside = false;
    for line in text.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        if let Some((start, end)) = range
            && let (Ok(start), Ok(end)) =
                (usize::from_str_radix(start, 16), usize::from_str_radix(end, 16))
        {
            is_inside = (start..end).contains(&block.addr().get());
        }
        if let Some(value) = line.strip_prefix("KernelPageSize:").filter(|_| is_inside) {
            return value.trim().split(' ').next().unwrap().parse().unwrap();
        }
    }
    panic!("{block:?} is not mapped");
}

/// Asserts twice that a heap hands out all pages of the pool and all its other pages, and gives
/// all these pages back.
fn assert_uses_the_pool(heap: &Heap, pool: &Pool) {
    for _ in 0..2 {
        let blocks = take_all(heap);
        assert_eq!((blocks.len(), backings(heap)), (PAGES, (IN_POOL, PAGES - IN_POOL)));
        assert_eq!(pool.free(), Some(0));
        let huge = blocks.iter().filter(|block| kernel_page_kib(**block) == 2048).count();
        assert_eq!(huge, IN_POOL);
        free_all(heap, blocks);
        assert_eq!(heap.trim() as usize, PAGES);
        assert_eq!(pool.free(), Some(IN_POOL));
    }
}

/// A child of fork could not get copies of these pages.
#[test]
fn private_heap_does_not_use_the_pool_and_reports_why() {
    let Some(_pool) = Pool::take("a heap of one process beside the pool") else { return };
    for pages in [Pages::Auto, Pages::Huge2M, Pages::Huge1G] {
        let heap = builder().pages(pages).build().unwrap();
        let blocks = take_all(&heap);
        assert_eq!((blocks.len(), backings(&heap)), (PAGES, (0, PAGES)));
        // The number of free pages in the pool would prove less, because another program's shared
        // heap may take a page.
        assert!(blocks.iter().all(|block| kernel_page_kib(*block) != 2048));
        let report = heap.pages();
        assert!(matches!(report.reason, Reason::NotShared | Reason::TransparentNever), "{report}");
        assert_eq!(report.from_pool, 0);
        free_all(&heap, blocks);
    }
}

#[test]
fn heap_shared_by_descriptor_uses_the_pool_then_other_pages() {
    let Some(pool) = Pool::take("a shared heap on pages of the pool") else { return };
    let heap = builder().shared_fd().unwrap();
    let report = heap.pages();
    assert_eq!((report.backing, report.reason), (Backing::Huge2M, Reason::None));
    assert_eq!(report.from_pool as usize, IN_POOL);
    assert_uses_the_pool(&heap, &pool);
    drop(heap);
    assert_eq!(pool.free(), Some(IN_POOL));
}

#[test]
fn attachment_by_descriptor_sees_the_same_pages() {
    let Some(_pool) = Pool::take("an attachment to pages of the pool") else { return };
    let heap = builder().shared_fd().unwrap();
    let (first, second) = (heap.fd().unwrap(), heap.pool_fd().unwrap());
    let blocks = take_all(&heap);
    let offsets: Vec<Offset> = blocks.iter().map(|block| heap.offset(*block).unwrap()).collect();
    for other in [Heap::builder().attach_fd(first), Heap::builder().attach_fds(first, second)] {
        let other = other.unwrap();
        assert_eq!(other.pages().from_pool as usize, IN_POOL);
        assert_eq!(backings(&other), (IN_POOL, PAGES - IN_POOL));
        for (block, offset) in blocks.iter().zip(&offsets) {
            fill(other.pointer(*offset).unwrap(), 0x3C);
            let last = block.as_ptr().wrapping_add(PAGE - 1);
            // SAFETY: the last byte of a block of a page.
            assert_eq!(unsafe { last.read_volatile() }, 0x3C);
        }
    }
    // Wrong files: the first file, and the second file of another heap.
    let another = builder().shared_fd().unwrap();
    let wrong = another.pool_fd().unwrap_or(first);
    for second in [first, wrong] {
        let error = Heap::builder().attach_fds(first, second).err();
        assert!(matches!(error, Some(Error::BadHeader { .. })), "{error:?}");
    }
    free_all(&heap, blocks);
}

/// If the second file is not sealed, it can be truncated, like the first file.
#[test]
fn attach_refuses_unsealed_second_file() {
    let Some(_pool) = Pool::take("a second file that is not sealed") else { return };
    let heap = builder().shared_fd().unwrap();
    let first = heap.fd().unwrap();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let huge = flags | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let second = fs::File::from(memfd_create(c"haul-test", huge).unwrap());
    second.set_len((PAGES * PAGE) as u64).unwrap();
    // A copy of the heap whose header names this second file.
    let copy = fs::File::from(memfd_create(c"haul-test", flags).unwrap());
    let file = fs::File::from(first.try_clone_to_owned().unwrap());
    let bytes = file.metadata().unwrap().len();
    copy.set_len(bytes).unwrap();
    let mut metadata = vec![0; bytes as usize - PAGES * PAGE];
    file.read_exact_at(&mut metadata, 0).unwrap();
    let old = fs::File::from(heap.pool_fd().unwrap().try_clone_to_owned().unwrap());
    let number = |file: &fs::File| file.metadata().unwrap().ino().to_le_bytes();
    let words = metadata[..4096].chunks_exact_mut(8).filter(|word| **word == number(&old));
    words.for_each(|word| word.copy_from_slice(&number(&second)));
    copy.write_all_at(&metadata, 0).unwrap();
    fcntl_add_seals(&copy, SealFlags::SHRINK).unwrap();
    let attach = || Heap::builder().attach_fds(copy.as_fd(), second.as_fd()).err();
    assert_eq!(attach(), Some(Error::NotSealed));
    fcntl_add_seals(&second, SealFlags::SHRINK).unwrap();
    assert_eq!(attach(), None);
}

/// The heap's nodes share the pool.
#[test]
fn nodes_share_the_pages_of_the_pool() {
    let Some(_pool) = Pool::take("nodes on pages of the pool") else { return };
    let shared = builder().nodes(2).shared_fd().unwrap();
    assert_eq!(shared.pages().from_pool as usize, IN_POOL);
}

/// One of a process's attachments publishes the second file. After this attachment is dropped,
/// another attachment publishes the file.
#[test]
fn second_file_is_published_again_after_an_attachment_is_dropped() {
    let Some(_pool) = Pool::take("attachments that come and go") else { return };
    let heap = builder().shared_fd().unwrap();
    let attach = |heap: &Heap| Heap::builder().attach_fd(heap.fd().unwrap());
    drop(attach(&heap).unwrap());
    let other = attach(&heap).unwrap();
    drop(heap);
    // No attachment publishes the file before the remaining attachment calls `maintain`.
    let error = attach(&other).err();
    assert!(matches!(error, Some(Error::Unsupported { .. })), "{error:?}");
    other.maintain();
    assert_eq!(attach(&other).unwrap().pages().from_pool as usize, IN_POOL);
}

/// If the pool has no page, the heap skips pages without a signal, and requests them again when
/// the pool has pages.
#[test]
fn shared_heap_reports_an_exhausted_pool_and_retries() {
    let Some(pool) = Pool::take("a pool that runs out under a shared heap") else { return };
    let heap = builder().shared_fd().unwrap();
    assert!(pool.set(3));
    let blocks = take_all(&heap);
    let missing = IN_POOL - 3;
    assert_eq!((blocks.len(), backings(&heap)), (PAGES - missing, (3, PAGES - IN_POOL)));
    let report = heap.pages();
    assert!(report.refused >= missing as u64, "{report:?}");
    assert!(report.to_string().contains("the pool refused"), "{report}");
    free_all(&heap, blocks);
    assert!(pool.set(IN_POOL));
    // An attachment to which the pool did not refuse a page can do the upkeep.
    let other = Heap::builder().attach_fd(heap.fd().unwrap()).unwrap();
    other.maintain();
    let blocks = take_all(&heap);
    assert_eq!((blocks.len(), backings(&heap)), (PAGES, (IN_POOL, PAGES - IN_POOL)));
    free_all(&heap, blocks);
}

/// Child processes are killed while the heap grows, at every step or after some time. No block
/// and no page of the pool is lost.
#[test]
fn death_while_growing_on_the_pool_loses_no_page() {
    let Some(pool) = Pool::take("a death on pages of the pool") else { return };
    let heap = builder().shared_fd().unwrap();
    let mut kills = 0;
    for turn in 0..300 {
        let child = start(|| {
            // SAFETY: no pointers are involved. The child ends with this thread.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            deaths::arrange(turn);
            grow_and_shrink(&heap);
            0
        });
        deaths::wait_for(child, turn);
        let status = wait(child);
        assert!(status == 0 || status == -libc::SIGKILL, "{status}");
        kills += u32::from(status != 0);
        assert_eq!(heap.reap().damaged, 0);
        if turn % 20 == 19 {
            let blocks = take_all(&heap);
            assert_eq!((blocks.len(), backings(&heap)), (PAGES, (IN_POOL, PAGES - IN_POOL)));
            free_all(&heap, blocks);
            heap.trim();
            assert_eq!(pool.free(), Some(IN_POOL), "turn {turn}");
        }
    }
    assert!(kills > 100, "{kills} kills");
}

/// Allocates pages and gives them back, without calling malloc.
fn grow_and_shrink(heap: &Heap) {
    for _ in 0..deaths::ROUNDS {
        let mut blocks = [None; PAGES];
        for (index, slot) in blocks.iter_mut().enumerate() {
            *slot = heap.alloc(Request::new([PAGE, 4096, 300 << 10][index % 3])).ok();
            if let Some(block) = slot {
                // SAFETY: just allocated with at least one byte.
                unsafe { block.write(1) };
            }
        }
        for block in blocks.into_iter().flatten() {
            // SAFETY: allocated above, and not used again.
            let _ = unsafe { heap.free(block) };
        }
        heap.trim();
    }
}

/// How children die: at a step if the feature `steps` is enabled, else after some time.
mod deaths {
    #[cfg(feature = "steps")]
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    /// How often a child grows and shrinks. One that has no step to die at ends only by the kill,
    /// which is late if this process waits for a processor.
    pub(super) const ROUNDS: usize = if cfg!(feature = "steps") { 4 } else { usize::MAX };

    /// Each child dies this many steps later than the previous child.
    #[cfg(feature = "steps")]
    const STRIDE: u64 = 7;

    #[cfg(feature = "steps")]
    static LEFT: AtomicU64 = AtomicU64::new(0);

    #[cfg(feature = "steps")]
    fn die(_: &'static str) {
        if LEFT.fetch_sub(1, Relaxed) == 1 {
            // SAFETY: the call only returns a number.
            let me = unsafe { libc::getpid() };
            // SAFETY: no pointers are involved; the call does not return.
            unsafe { libc::kill(me, libc::SIGKILL) };
        }
    }

    #[cfg(feature = "steps")]
    pub(super) fn arrange(turn: u64) {
        LEFT.store(1 + turn * STRIDE, Relaxed);
        haul_heap::step::set_hook(die);
    }

    #[cfg(feature = "steps")]
    pub(super) fn wait_for(_: i32, _: u64) {}

    #[cfg(not(feature = "steps"))]
    pub(super) fn arrange(_: u64) {}

    #[cfg(not(feature = "steps"))]
    pub(super) fn wait_for(child: i32, turn: u64) {
        std::thread::sleep(std::time::Duration::from_micros(turn % 100 * 20));
        // SAFETY: no pointers are involved; this process has not waited for the child yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
}

/// The pages of a named heap are in a file system for huge pages.
#[test]
fn named_heap_uses_the_pool_if_a_file_system_offers_it() {
    if std::env::var("HAUL_ROLE").is_ok_and(|role| role == "named") {
        return by_name();
    }
    let Some(_pool) = Pool::take("a named heap on pages of the pool") else { return };
    let mount = "mount -t tmpfs none /dev && mkdir /dev/shm && exec \"$0\" \"$@\"";
    let this = "named_heap_uses_the_pool_if_a_file_system_offers_it";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", mount])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", this, "--nocapture", "--test-threads=1"])
        .env("HAUL_ROLE", "named")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// The parent process holds the pool, and this program has a separate `/dev`.
fn by_name() {
    let heap = builder().shared_named("pool").unwrap();
    assert_eq!((heap.pages().from_pool, heap.pages().reason), (0, Reason::NoMount));
    drop(heap);
    Heap::remove_name("pool").unwrap();
    fs::create_dir("/dev/hugepages").unwrap();
    let mount = Command::new("mount").args(["-t", "hugetlbfs", "none", "/dev/hugepages"]).status();
    assert!(mount.unwrap().success());
    // A file that an earlier heap left does not interfere.
    let device = fs::metadata("/dev/shm").unwrap().dev();
    let stale = format!("/dev/hugepages/haul-heap.pool.{device}");
    let file = fs::File::options().read(true).write(true).create_new(true).open(stale).unwrap();
    allocate(&file, IN_POOL);
    drop(file);
    assert_eq!(pool_free(), Some(0));
    // The file of another container must not be removed.
    let foreign = format!("/dev/hugepages/haul-heap.pool.{}", device + 1);
    fs::write(&foreign, []).unwrap();
    let heap = builder().shared_named("pool").unwrap();
    let report = heap.pages();
    assert_eq!((report.backing, report.from_pool as usize), (Backing::Huge2M, IN_POOL), "{report}");
    let blocks = take_all(&heap);
    assert_eq!((blocks.len(), backings(&heap)), (PAGES, (IN_POOL, PAGES - IN_POOL)));
    let other = Heap::builder().attach_named("pool").unwrap();
    let there = other.pointer(heap.offset(blocks[0]).unwrap()).unwrap();
    assert_eq!((kernel_page_kib(blocks[0]), kernel_page_kib(there)), (2048, 2048));
    // SAFETY: the first byte of a block that `take_all` filled.
    assert_eq!(unsafe { there.read_volatile() }, 0xA5);
    free_all(&heap, blocks);
    Heap::remove_name("pool").unwrap();
    let left = fs::read_dir("/dev/hugepages").unwrap().map(|entry| entry.unwrap().path());
    assert_eq!(left.collect::<Vec<_>>(), [PathBuf::from(foreign)]);
}
