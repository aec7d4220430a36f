//! A thread that keeps one processor busy, like another program on a machine that is in use.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use haul_measure::sys;

/// A thread that spins until it is dropped.
pub(crate) struct Busy {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    /// Keeps this processor busy.
    pub(crate) fn on(cpu: usize) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            // A thread that cannot be pinned keeps one of the processors busy. On a machine with
            // two processors, the effect is the same.
            let _ = sys::set_affinity(&[cpu]);
            while !ends.load(Ordering::Relaxed) {
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
            // The thread has no reason to panic.
            let _ = thread.join();
        }
    }
}
