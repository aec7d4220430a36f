//! Labelled steps: points between shared stores at which a test kills the process.

/// Marks a point between two shared stores of a transition. With the feature `steps`, it calls
/// the hook of a test; otherwise it expands to nothing.
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

    /// Sets the hook: from now on, every step in every thread calls `hook` with its label.
    pub fn set_hook(hook: fn(&'static str)) {
        HOOK.store(hook as *mut (), Relaxed);
    }

    /// Calls the hook, if there is one.
    pub fn pass(label: &'static str) {
        let hook = HOOK.load(Relaxed);
        if hook.is_null() {
            return;
        }
        // SAFETY: only `set_hook` stores there, and it stores a function of this type.
        let hook: fn(&'static str) = unsafe { core::mem::transmute(hook) };
        hook(label);
    }
}
