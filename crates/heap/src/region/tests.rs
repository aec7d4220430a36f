//! Regions that are built, attached to, or refused.

use std::format;
use std::prelude::v1::*;

use super::*;
use crate::error::{Attempt, Error};

const MIB: u64 = 1 << 20;

fn wanted(limit: u64) -> Wanted {
    Wanted { limit: Some(limit), nodes: Some(1), caches: 16, pages: Pages::Transparent }
}

fn unique(label: &str) -> Name {
    Name::new(&format!("test-{label}-{}", std::process::id())).unwrap()
}

fn start_of(region: &Region, page: usize) -> *mut u64 {
    region.data().as_ptr().wrapping_add(page * PAGE).cast()
}

/// Writes a word at the start of a page.
fn poke(region: &Region, page: usize, value: u64) {
    // SAFETY: the page was provided, so it is mapped and writable.
    unsafe { start_of(region, page).write_volatile(value) };
}

fn peek(region: &Region, page: usize) -> u64 {
    // SAFETY: as in `poke`.
    unsafe { start_of(region, page).read_volatile() }
}

#[test]
fn private_region_is_aligned_empty_and_usable() {
    let region = Region::private(&wanted(64 * MIB)).unwrap();
    assert_eq!(region.data().addr().get() % crate::layout::ALIGN_MAX, 0);
    assert_eq!(region.geometry().node_pages, 32);
    assert_eq!(region.usable_pages(0), (0, 32));
    for urgency in [Urgency::Now, Urgency::Ahead] {
        let provided = region.provide(3, urgency).unwrap();
        assert_eq!((provided.first, provided.count), (3, 1));
        assert_eq!(peek(&region, 3), 0);
        poke(&region, 3, 7);
        // SAFETY: no code needs the page's content.
        assert!(unsafe { region.give_back(3, provided.backing) });
        assert_eq!(peek(&region, 3), 0);
    }
}

#[test]
fn region_refuses_limits_out_of_range() {
    for bytes in [0, MIB, (256 << 30) + 1, u64::MAX] {
        let error = Region::private(&wanted(bytes)).err().unwrap();
        assert!(matches!(error, Error::BadLimit { .. }), "{error}");
    }
    let error = Region::private(&Wanted { nodes: Some(9), ..wanted(64 * MIB) }).err().unwrap();
    assert!(matches!(error, Error::BadNodes { nodes: 9, .. }), "{error}");
}

#[test]
fn two_attachments_see_the_same_data() {
    let creator = Region::create_unnamed(&wanted(64 * MIB)).unwrap();
    let other = Region::attach_file(Pages::Auto, creator.file().unwrap(), None).unwrap();
    assert_eq!(creator.geometry(), other.geometry());
    assert_ne!(creator.data(), other.data());
    creator.provide(5, Urgency::Ahead).unwrap();
    poke(&creator, 5, 41);
    assert_eq!(peek(&other, 5), 41);
    // SAFETY: no code needs the page's content.
    assert!(unsafe { other.give_back(5, Backing::Plain) });
    assert_eq!(peek(&creator, 5), 0);
}

#[test]
fn name_is_taken_once_found_and_removed() {
    let name = unique("name");
    let region = Region::create_named(&wanted(64 * MIB), name).unwrap();
    let taken = Region::create_named(&wanted(64 * MIB), name).err();
    assert_eq!(taken, Some(Error::NameTaken(name)));
    let other = Region::attach_named(Pages::Auto, name).unwrap();
    region.provide(0, Urgency::Now).unwrap();
    poke(&region, 0, 9);
    assert_eq!(peek(&other, 0), 9);
    Region::remove_name(name).unwrap();
    assert_eq!(Region::remove_name(name), Err(Error::NoSuchName(name)));
    assert_eq!(Region::attach_named(Pages::Auto, name).err(), Some(Error::NoSuchName(name)));
    assert_eq!(peek(&other, 0), 9);
}

/// Creates a file that is not a heap under a heap's name, and returns the error of an attempt to
/// attach to it.
fn attach_planted(label: &str, plant: impl FnOnce(&str)) -> Error {
    let name = unique(label);
    let path = format!("/dev/shm/haul-heap.{name}");
    plant(&path);
    let error = Region::attach_named(Pages::Auto, name).err();
    std::fs::remove_file(&path).unwrap();
    error.expect("attach accepted a planted file")
}

fn write_file(path: &str, bytes: &[u8], mode: u32) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

#[test]
fn attach_refuses_planted_files() {
    let error = attach_planted("short", |path| write_file(path, b"haulheap", 0o600));
    assert!(matches!(error, Error::Truncated { bytes: 8, .. }), "{error}");
    let error = attach_planted("noise", |path| write_file(path, &[0xA5; 8192], 0o600));
    assert!(matches!(error, Error::NotAHeap { .. }), "{error}");
    let error = attach_planted("zeros", |path| write_file(path, &[0; 8192], 0o600));
    assert_eq!(error, Error::Unfinished);
    let error = attach_planted("link", |path| {
        std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    });
    assert!(matches!(error, Error::Refused { attempt: Attempt::OpenFile, .. }), "{error}");
    let error = attach_planted("open", |path| {
        write_file(path, &[0; 8192], 0o600);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(path, open).unwrap();
    });
    assert_eq!(error, Error::OpenToOthers { mode: 0o666 });
    let error = attach_planted("device", |path| {
        let status = std::process::Command::new("mkfifo").args(["-m", "600", path]).status();
        assert!(status.unwrap().success());
    });
    assert_eq!(error, Error::NotAHeap { magic: 0 });
}

#[test]
fn attach_refuses_file_of_another_user() {
    if sys::process::own_user() != 0 {
        eprintln!("SKIPPED: a heap of another user: not running as root: run as root");
        return;
    }
    let error = attach_planted("owner", |path| {
        write_file(path, &[0; 8192], 0o600);
        std::os::unix::fs::chown(path, Some(65534), None).unwrap();
    });
    let others = Error::OtherUser { owner: 65534, user: 0 };
    assert_eq!(error, others);
    // If the name is a link of another user, the link is not followed, and no heap is created.
    let name = unique("squatted");
    let path = format!("/dev/shm/haul-heap.{name}");
    std::os::unix::fs::symlink("/dev/shm/gone", &path).unwrap();
    std::os::unix::fs::lchown(&path, Some(65534), None).unwrap();
    let made = Region::create_named(&wanted(64 * MIB), name).err();
    let attached = Region::attach_named(Pages::Auto, name).err();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((made, attached), (Some(others), Some(others)));
}

#[test]
fn attach_refuses_truncated_heap() {
    let name = unique("cut");
    let region = Region::create_named(&wanted(64 * MIB), name).unwrap();
    let path = format!("/dev/shm/haul-heap.{name}");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let bytes = file.metadata().unwrap().len();
    file.set_len(bytes - 1).unwrap();
    let error = Region::attach_named(Pages::Auto, name).err();
    assert_eq!(error, Some(Error::Truncated { bytes: bytes - 1, needed: bytes }));
    drop(region);
    Region::remove_name(name).unwrap();
}

/// A provider with one extent, at any place in the range.
struct OneExtent(std::sync::Mutex<Option<usize>>);

// SAFETY: hands out the one extent that the test prepared, only once.
unsafe impl external::Extents for OneExtent {
    fn take(&self, bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let address = self.0.lock().unwrap().take()?;
        NonNull::new(address as *mut u8).map(|start| (start, bytes))
    }

    fn give_back(&self, start: NonNull<u8>, _bytes: usize) -> bool {
        self.0.lock().unwrap().replace(start.addr().get()).is_none()
    }
}

#[test]
fn external_region_takes_extents() {
    let backing = Region::private(&wanted(64 * MIB)).unwrap();
    let base = backing.data().addr().get() + 8 * PAGE;
    let extents = Box::leak(Box::new(OneExtent(Some(base + 3 * PAGE).into())));
    let start = NonNull::new(base as *mut u8).unwrap();
    let external = External { base: start, bytes: 16 * PAGE, extents, metadata: None };
    let region = Region::over_external(&wanted(64 * MIB), external).unwrap();
    assert_eq!(region.data(), backing.data());
    assert_eq!(region.usable_pages(0), (8, 24));
    let provided = region.provide(0, Urgency::Now).unwrap();
    assert_eq!(provided, Provided { first: 11, count: 1, backing: Backing::External, kept: 0 });
    assert_eq!(region.provide(0, Urgency::Now), Err(Refusal::Exhausted));
    // SAFETY: no code needs the page's content.
    assert!(unsafe { region.give_back(11, Backing::External) });
    assert!(region.provide(0, Urgency::Now).is_ok());
    // The heap refuses an extent outside the range and gives it back.
    *extents.0.lock().unwrap() = Some(base - PAGE);
    assert_eq!(region.provide(0, Urgency::Now), Err(Refusal::Exhausted));
    assert_eq!(*extents.0.lock().unwrap(), Some(base - PAGE));
}

#[test]
fn second_external_region_must_match_the_first() {
    let backing = Region::private(&wanted(256 * MIB)).unwrap();
    (0..32).for_each(|page| _ = backing.provide(page, Urgency::Now).unwrap());
    let extents = Box::leak(Box::new(OneExtent(None.into())));
    let bytes = External::metadata_bytes(backing.data().addr().get(), 32 << 20, 16).unwrap();
    let area = backing.data();
    let base = NonNull::new((area.addr().get() + (64 << 20)) as *mut u8).unwrap();
    let good = External { base, bytes: 32 << 20, extents, metadata: Some((area, 64 << 20)) };
    assert!(bytes < 64 << 20);
    Region::over_external(&wanted(0), good).unwrap();
    Region::over_external(&wanted(0), good).unwrap();
    let error =
        Region::over_external(&wanted(0), External { bytes: 30 << 20, ..good }).err().unwrap();
    assert!(matches!(error, Error::BadHeader { .. }), "{error}");
    let error =
        Region::over_external(&wanted(0), External { metadata: Some((area, 4096)), ..good });
    assert!(matches!(error.err(), Some(Error::BadExternal { .. })));
    // When no heap exists any more, the caller owns every byte of the area again. SAFETY: the
    // pages were provided, and nothing else uses them.
    let area = unsafe { core::slice::from_raw_parts(area.as_ptr(), bytes) };
    assert!(area[4096..].iter().all(|byte| *byte == 0));
}
