//! Labelled steps: the points between shared stores, where a test kills the process.

/// Marks a point between two shared stores of a transition. Nothing, but under the feature `steps`,
/// where it calls the hook that a test has set.
macro_rules! step {
    ($label:literal) => {
        #[cfg(feature = "steps")]
        $crate::protocol::step::pass($label);
    };
}
pub(crate) use step;

#[cfg(feature = "steps")]
pub use hook::{pass, set_hook};

#[cfg(feature = "steps")]
mod hook {
    use core::ptr;
    use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    static HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

    /// Has `hook` called with the label of every step from now on, in every thread.
    pub fn set_hook(hook: fn(&'static str)) {
        HOOK.store(hook as *mut (), Relaxed);
    }

    /// Passes a step.
    pub fn pass(label: &'static str) {
        let hook = HOOK.load(Relaxed);
        if hook.is_null() {
            return;
        }
        // SAFETY: only `set_hook` stores there, and what it stores is such a function.
        let hook: fn(&'static str) = unsafe { core::mem::transmute(hook) };
        hook(label);
    }
}
