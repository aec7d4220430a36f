//! Files that can be cut short under a process that maps them: a touch of what is gone is a signal,
//! so they are not mapped.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use haul_heap::{Error, Heap, Node};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::support::child::in_child;
use crate::{MIB, Named, builder};

/// What a heap's file holds, in a file of the same kind that is not sealed.
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
fn a_file_that_can_be_cut_is_not_mapped() {
    let heap = builder().shared_fd().unwrap();
    let copy = unsealed_copy(&heap);
    let status = in_child(|| match Heap::builder().attach_fd(copy.as_fd()) {
        Ok(heap) => {
            let is_cut = copy.set_len(4096).is_ok();
            is_cut && heap.alloc(640, 64, Node::ANY).is_ok() && heap.validate().is_ok()
        }
        Err(error) => matches!(error, Error::NotSealed),
    });
    assert_eq!(status, 0, "it was mapped, and the touch of what was cut off is a signal");
    // Sealed against growth alone it can be cut still.
    rustix::fs::fcntl_add_seals(&copy, SealFlags::GROW).unwrap();
    assert_eq!(Heap::builder().attach_fd(copy.as_fd()).err(), Some(Error::NotSealed));
    rustix::fs::fcntl_add_seals(&copy, SealFlags::SHRINK).unwrap();
    assert!(Heap::builder().attach_fd(copy.as_fd()).is_ok());
}

/// No file with a name can be sealed: whose it is, and who may open it, is asked when it is opened
/// by name.
#[test]
fn a_named_heap_is_attached_to_by_its_name_alone() {
    let named = Named::new("cut");
    let fd: OwnedFd = named.heap.fd().unwrap().try_clone_to_owned().unwrap();
    assert_eq!(Heap::builder().attach_fd(fd.as_fd()).err(), Some(Error::NotSealed));
    assert!(Heap::builder().attach_named(&named.name).is_ok());
    assert!(Error::NotSealed.to_string().contains("attach to a named heap by its name"));
}

/// Memory from the pool goes where a hole is punched, and the next touch is a signal.
#[test]
fn a_file_of_huge_pages_is_no_heaps_first() {
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
