//! A task that owns nothing, with memory besides its buffers that the engine reads.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use haul_engine::{Hint, Operation, Queue, Request, Settings, Task, Value};

use crate::support::{Fault, polled};

/// Whether the target was written when the memory was dropped.
static WAS_WRITTEN: AtomicBool = AtomicBool::new(false);

/// Writes sevens to `target`.
struct Sevens {
    target: *mut [u8; 100],
}

struct Source {
    bytes: Vec<u8>,
    target: *mut [u8; 100],
}

// SAFETY: the target is leaked memory, which only this task uses.
unsafe impl Send for Source {}

impl Drop for Source {
    fn drop(&mut self) {
        // SAFETY: the target is leaked memory, which no other thread accesses.
        let first = unsafe { self.target.cast::<u8>().read_volatile() };
        WAS_WRITTEN.store(first == 7, Relaxed);
    }
}

// SAFETY: the request names the leaked target, and an allocation of the second value. Any thread
// may drop both.
unsafe impl Task for Sevens {
    type Output = ();
    type Memory = Source;

    fn request(&mut self) -> (Request, Source) {
        let memory = Source { bytes: vec![7; 100], target: self.target };
        let (target, source) = (self.target.cast(), memory.bytes.as_ptr());
        let operation = Operation::Copy { target, source, length: 100 };
        (Request { operation, hint: Hint::Unknown }, memory)
    }

    fn output(_: Value) {}
}

#[test]
fn memory_of_a_task_lives_until_the_end() {
    assert!(!std::mem::needs_drop::<Sevens>());
    let queue: Queue = polled(Settings::default(), Fault::None);
    let target = std::ptr::from_mut(Box::leak(Box::new([0; 100])));
    queue.scope(|scope| drop(scope.submit(Sevens { target }))).unwrap();
    assert!(WAS_WRITTEN.swap(false, Relaxed), "the memory was dropped before the end");
    // SAFETY: the operation has ended.
    unsafe { target.write([0; 100]) };
    queue.execute(Sevens { target }).unwrap();
    assert!(WAS_WRITTEN.load(Relaxed), "the memory was dropped before the end");
}
