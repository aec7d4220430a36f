//! The heap maps no file that can be truncated while it is mapped, because an access to the
//! missing part would raise a signal.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use haul_heap::{Error, Heap, Request};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::support::child::in_child;
use crate::{MIB, Named, builder};

/// A copy of a heap's file, of the same kind, but not sealed.
fn unsealed_copy(heap: &Heap) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let copy = File::from(rustix::fs::memfd_create(c"haul-test", flags).unwrap());
    let file = File::from(heap.fd().unwrap().try_clone_to_owned().unwrap());
    let bytes = file.metadata().unwrap().len();
    copy.set_len(bytes).unwrap();
    let mut part = vec![0; MIB as usize];
    for start in (0..bytes).step_by(part.len()) {
        let part = &mut part[..(bytes - start).min(MIB) as usize];
        file.read_exact_at(part, start).unwrap();
        if part.iter().any(|byte| *byte != 0) {
            copy.write_all_at(part, start).unwrap();
        }
    }
    copy
}

#[test]
fn attach_refuses_unsealed_file() {
    let heap = builder().shared_fd().unwrap();
    let copy = unsealed_copy(&heap);
    let status = in_child(|| match Heap::builder().attach_fd(copy.as_fd()) {
        Ok(heap) => {
            let is_cut = copy.set_len(4096).is_ok();
            is_cut && heap.alloc(Request::new(640)).is_ok() && heap.validate().is_ok()
        }
        Err(error) => matches!(error, Error::NotSealed),
    });
    assert_eq!(status, 0, "the file was mapped, and an access to the missing part raised a signal");
    // If only growth is sealed, a file can still be truncated.
    rustix::fs::fcntl_add_seals(&copy, SealFlags::GROW).unwrap();
    assert_eq!(Heap::builder().attach_fd(copy.as_fd()).err(), Some(Error::NotSealed));
    rustix::fs::fcntl_add_seals(&copy, SealFlags::SHRINK).unwrap();
    assert!(Heap::builder().attach_fd(copy.as_fd()).is_ok());
}

/// A file with a name cannot be sealed. Instead, its owner and mode are checked when it is opened
/// by name.
#[test]
fn attach_by_descriptor_refuses_named_heap() {
    let named = Named::new("cut");
    let fd: OwnedFd = named.heap.fd().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(Heap::builder().attach_fd(fd.as_fd()).err(), Some(Error::NotSealed));
    assert!(Heap::builder().attach_named(&named.name).is_ok());
    assert!(Error::NotSealed.to_string().contains("attach to a named heap by its name"));
}

/// A hole in a file of huge pages gives memory back to the pool, and the next access to the hole
/// could raise a signal.
#[test]
fn attach_refuses_huge_page_file_as_first_file() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let Ok(file) = rustix::fs::memfd_create(c"haul-test", flags).map(File::from) else {
        eprintln!("SKIPPED: a file of huge pages: no huge pages: use a kernel with hugetlbfs");
        return;
    };
    file.set_len(64 * MIB).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    let error = Heap::builder().attach_fd(file.as_fd()).err();
    assert!(matches!(error, Some(Error::Unsupported { .. })), "{error:?}");
}
