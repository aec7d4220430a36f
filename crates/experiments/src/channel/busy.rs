//! Another program on one of the processors: what is left of a machine that is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use haul_measure::sys;

/// A thread that never rests, until it is dropped.
pub(super) struct Busy {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    /// Keeps this processor busy.
    pub(super) fn on(cpu: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            // Where it cannot be pinned it is busy somewhere: on two processors that is as good.
            let _ = sys::set_affinity(&[cpu]);
            while !told.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to panic for.
            let _ = thread.join();
        }
    }
}
