//! A task whose raw form owns memory that the engine reads, though the task itself owns none.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use haul_engine::{Hint, Operation, Queue, Request, Settings, Task, Value};

use crate::support::{Fault, polled};

/// Whether the target was written when the raw form was dropped.
static WAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Writes sevens to `target`.
struct Sevens {
    target: *mut [u8; 100],
}

struct RawSevens {
    source: Box<[u8; 100]>,
    target: *mut [u8; 100],
}

// SAFETY: the target is leaked memory, which only this task uses.
unsafe impl Send for RawSevens {}

impl Drop for RawSevens {
    fn drop(&mut self) {
        // SAFETY: the target is leaked memory, which no other thread accesses.
        let first = unsafe { self.target.cast::<u8>().read_volatile() };
        WAS_WRITTEN.store(first == 7, Relaxed);
    }
}

// SAFETY: the request names the leaked target, and an allocation of the raw form. Any thread may
// drop both.
unsafe impl Task for Sevens {
    type Output = ();
    type Raw = RawSevens;

    fn into_raw(self) -> RawSevens {
        RawSevens { source: Box::new([7; 100]), target: self.target }
    }

    fn request(raw: &RawSevens) -> Request {
        let (target, source) = (raw.target.cast(), raw.source.as_ptr());
        Request { operation: Operation::Copy { target, source, length: 100 }, hint: Hint::Unknown }
    }

    unsafe fn from_raw(raw: RawSevens) -> Self {
        Self { target: raw.target }
    }

    fn output(_: Value) {}
}

#[test]
fn scope_keeps_the_raw_form_until_the_end() {
    assert!(!std::mem::needs_drop::<Sevens>());
    let queue: Queue = polled(Settings::default(), Fault::None);
    let target = std::ptr::from_mut(Box::leak(Box::new([0; 100])));
    queue.scope(|scope| drop(scope.submit(Sevens { target }))).unwrap();
    assert!(WAS_WRITTEN.load(Relaxed), "the engine reads memory that was freed");
}
