use std::prelude::v1::*;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::*;

const PAGE: usize = 4096;

/// Creates and maps a file of `pages` pages. Returns the file and the start of the mapping.
fn mapped(pages: usize) -> (rustix::fd::OwnedFd, *mut u8) {
    let file = memfd_create(c"guarded", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, (pages * PAGE) as u64).unwrap();
    let (rights, hint) = (ProtFlags::READ | ProtFlags::WRITE, core::ptr::null_mut());
    // SAFETY: the kernel chooses an address where nothing is mapped.
    let start = unsafe { mmap(hint, pages * PAGE, rights, MapFlags::SHARED, &file, 0) };
    (file, start.unwrap().cast())
}

fn read(at: *mut u8) -> u8 {
    // SAFETY: callers pass an address inside their mapping.
    unsafe { at.read_volatile() }
}

fn write(at: *mut u8, byte: u8) {
    // SAFETY: as for `read`.
    unsafe { at.write_volatile(byte) }
}

#[test]
fn truncated_page_reads_as_zeros_and_others_stay() {
    let (file, start) = mapped(4);
    let guard = Guard::new(start.addr(), 4 * PAGE, PAGE).unwrap();
    let [first, third] = [start, start.wrapping_add(2 * PAGE)];
    [first, third].iter().for_each(|at| write(*at, 7));
    assert!(!guard.is_broken());
    ftruncate(&file, PAGE as u64).unwrap();
    assert_eq!((read(third), read(first)), (0, 7));
    assert!(guard.is_broken());
    write(third, 9);
    assert_eq!(read(third), 9);
}

#[test]
fn mapping_that_lost_many_pages_is_replaced_whole() {
    let pages = 2 * PAGES_MAX as usize;
    let (file, start) = mapped(pages);
    let guard = Guard::new(start.addr(), pages * PAGE, PAGE).unwrap();
    ftruncate(&file, 0).unwrap();
    (0..pages).for_each(|page| assert_eq!(read(start.wrapping_add(page * PAGE)), 0));
    assert!(guard.is_broken());
    assert_eq!(table::find(start.addr()).unwrap().1, PAGES_MAX + 2);
}

#[test]
fn dropped_guard_guards_nothing() {
    let (_file, start) = mapped(1);
    let guard = Guard::new(start.addr(), PAGE, PAGE).unwrap();
    let index = guard.index;
    assert!(table::find(start.addr()).is_some() && guard.is_broken());
    drop(guard);
    assert!(table::find(start.addr()).is_none());
    // Another test may take the entry first. Then it gives it back soon.
    let is_reused = || {
        let mapped = Mapped { start: 0x1000, end: 0x2000, page_bytes: PAGE };
        let again = table::take(mapped).unwrap();
        assert!(!table::is_broken(again));
        table::give_back(again);
        again <= index
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_reused() {
        assert!(Instant::now() < deadline, "the lowest free entry is taken");
    }
}

#[test]
fn spare_page_replaces_every_part_of_a_huge_page() {
    let (_file, start) = mapped(8);
    let spare = memory::spare(PAGE).unwrap();
    // SAFETY: the pages are this test's own.
    unsafe { memory::put_spare(spare, PAGE, start.addr(), 8 * PAGE) }.unwrap();
    write(start, 3);
    assert_eq!(read(start.wrapping_add(7 * PAGE)), 3);
}
