//! A process attaches while all process slots are in use, and a process has two attachments.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

use haul_heap::{Heap, Request};

use crate::victim::{self, End};
use crate::{assert_whole, heap};

/// The number of slots for processes that stay: `PROCESSES_MAX` without the visitor's slot.
const SLOTS: usize = 127;

fn nothing(_: &'static str) {}

/// Attaches in a child that ends at once. Returns whether it succeeded.
fn attach(heap: &Heap) -> bool {
    let attach = || {
        let second = Heap::builder().attach_fd(heap.fd().unwrap());
        assert!(second.is_ok());
        // Not dropped: the child ends without leaving the heap.
        std::mem::forget(second);
    };
    victim::run(nothing, attach) == End::Finished
}

/// A process that finds all slots in use takes the visitor's slot to reap, and may die there.
#[test]
fn death_in_the_visitor_slot_locks_no_process_out() {
    for label in [
        "member.join.after_joining",
        "member.join.before_active",
        "reap.processes.between",
        "reap.keeper.after_claim",
        "reap.before_caches_free",
        "reap.before_processes_free",
        "reap.processes_free.between",
        "heap.claim_slot.before_leave",
    ] {
        let heap = heap();
        for _ in 1..SLOTS {
            assert!(attach(&heap), "{label}");
        }
        for death in 0..2 {
            let end =
                victim::kill_at(label, 1, || _ = Heap::builder().attach_fd(heap.fd().unwrap()));
            // The second process may find slots that the first had freed, or a cache that the
            // first had claimed.
            assert!(end == End::Killed || (death > 0 && end == End::Finished), "{label}: {end:?}");
        }
        for _ in 0..SLOTS + 2 {
            assert!(attach(&heap), "{label}");
        }
        assert_eq!(heap.reap().damaged, 0, "{label}");
        assert_whole(&heap, label);
    }
}

/// The second attachment of a child, which the hook uses.
static SECOND: AtomicPtr<Heap> = AtomicPtr::new(std::ptr::null_mut());

/// The number of processes that the second attachment reaped, plus its number of attempts.
static BY_SECOND: AtomicU32 = AtomicU32::new(0);

/// Reaps through the second attachment while the first is reaping.
fn reap_by_second(label: &'static str) {
    if label != "reap.before_caches_free" || BY_SECOND.fetch_add(1, SeqCst) > 0 {
        return;
    }
    // SAFETY: the child stored the pointer, and the attachment lives until the child ends.
    let second = unsafe { &*SECOND.load(SeqCst) };
    BY_SECOND.fetch_add(second.reap().processes, SeqCst);
}

#[test]
fn one_of_two_attachments_of_a_process_reaps() {
    let heap = heap();
    let end = victim::run(nothing, || assert!(heap.alloc(Request::new(640)).is_ok()));
    assert_eq!(end, End::Finished);
    let end = victim::run(reap_by_second, || {
        let second = Heap::builder().attach_fd(heap.fd().unwrap());
        let Ok(mut second) = second else { panic!("cannot attach") };
        SECOND.store(&raw mut second, SeqCst);
        let reaped = heap.reap();
        assert_eq!((reaped.processes, reaped.blocks), (1, 1));
        assert_eq!(BY_SECOND.load(SeqCst), 1);
    });
    assert_eq!(end, End::Finished);
    heap.reap();
    assert_whole(&heap, "two attachments");
}
