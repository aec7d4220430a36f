//! Who comes when all places for processes are taken, and what two attachments of one process do.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::SeqCst};

use haul_heap::{Heap, Node};

use crate::victim::{self, End};
use crate::{assert_whole, heap};

/// Places for processes that stay (`PROCESSES_MAX` less the visitor's).
const PLACES: usize = 127;

fn nothing(_: &'static str) {}

/// Attaches in a child that ends at once: whether it could.
fn attach(heap: &Heap) -> bool {
    let attach = || {
        let second = Heap::builder().attach_fd(heap.fd().unwrap());
        assert!(second.is_ok());
        // Its memory is another's, and goes with the child.
        std::mem::forget(second);
    };
    victim::run(nothing, attach) == End::Finished
}

/// Whoever finds all places taken reaps under the one name that is kept for that. It may die of it.
#[test]
fn a_death_while_all_places_are_taken_locks_nobody_out() {
    for label in [
        "member.join.after_joining",
        "member.join.before_active",
        "reap.processes.between",
        "reap.keeper.after_claim",
        "reap.before_caches_free",
        "reap.before_processes_free",
        "reap.processes_free.between",
        "heap.place.before_leave",
    ] {
        let heap = heap();
        for _ in 1..PLACES {
            assert!(attach(&heap), "{label}");
        }
        for death in 0..2 {
            let end =
                victim::kill_at(label, 1, || _ = Heap::builder().attach_fd(heap.fd().unwrap()));
            // The second one may find places that the first had freed, or a cache that it had
            // claimed.
            assert!(end == End::Killed || (death > 0 && end == End::Finished), "{label}: {end:?}");
        }
        for _ in 0..PLACES + 2 {
            assert!(attach(&heap), "{label}");
        }
        assert_eq!(heap.reap().damaged, 0, "{label}");
        assert_whole(&heap, label);
    }
}

/// The second attachment of a child, for its hook.
static SECOND: AtomicPtr<Heap> = AtomicPtr::new(std::ptr::null_mut());

/// Processes that the second attachment reaped, and one for each time that it tried.
static BY_SECOND: AtomicU32 = AtomicU32::new(0);

/// Reaps by the second attachment while the first is at it.
fn reap_by_second(label: &'static str) {
    if label != "reap.before_caches_free" || BY_SECOND.fetch_add(1, SeqCst) > 0 {
        return;
    }
    // SAFETY: the child stored it, and keeps it until it ends.
    let second = unsafe { &*SECOND.load(SeqCst) };
    BY_SECOND.fetch_add(second.reap().processes, SeqCst);
}

#[test]
fn of_two_attachments_of_one_process_one_reaps() {
    let heap = heap();
    let end = victim::run(nothing, || assert!(heap.alloc(640, 64, Node::ANY).is_ok()));
    assert_eq!(end, End::Finished);
    let end = victim::run(reap_by_second, || {
        let second = Heap::builder().attach_fd(heap.fd().unwrap());
        let Ok(mut second) = second else { panic!("not attached") };
        SECOND.store(&raw mut second, SeqCst);
        let reaped = heap.reap();
        assert_eq!((reaped.processes, reaped.blocks), (1, 1));
        assert_eq!(BY_SECOND.load(SeqCst), 1);
    });
    assert_eq!(end, End::Finished);
    heap.reap();
    assert_whole(&heap, "two attachments");
}
