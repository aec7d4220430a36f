//! Reads and sets the process's action for a signal. Makes direct system calls, so that no
//! library is involved.

use super::Errno;
use super::raw::{self, KernelAction};

/// `SIGBUS` of the kernel's `include/uapi/asm-generic/signal.h`.
pub(crate) const BUS: u32 = 7;

/// The handlers that mean the kernel's default action for a signal, and no action.
pub(crate) const DEFAULT: usize = 0;
pub(crate) const IGNORE: usize = 1;

/// Flags of an action, from the kernel's `include/uapi/asm-generic/signal-defs.h`.
pub(crate) mod flag {
    pub(crate) const SIGINFO: u64 = 4;
    pub(crate) const ONSTACK: u64 = 0x0800_0000;
    pub(crate) const RESETHAND: u64 = 0x8000_0000;
}

/// The action for a signal: the handler, its flags, and the signals that are blocked while the
/// handler runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// The address of a function; 0 for the kernel's default action, 1 to ignore the signal.
    pub handler: usize,
    /// The flags of sigaction(2).
    pub flags: u64,
    /// The blocked signals, one bit per signal. The lowest bit is signal 1.
    pub mask: u64,
}

impl Action {
    fn of(KernelAction { handler, flags, mask, .. }: KernelAction) -> Self {
        Self { handler, flags, mask }
    }
}

/// The action in force.
pub(crate) fn action(signal: u32) -> Result<Action, Errno> {
    // SAFETY: nothing is set.
    unsafe { raw::action(signal, None) }.map(Action::of)
}

/// Sets an action. Returns the previous action.
///
/// # Safety
///
/// The action's handler is [`DEFAULT`], [`IGNORE`], or a function that may run as a handler.
pub(crate) unsafe fn set_action(signal: u32, action: Action) -> Result<Action, Errno> {
    let Action { handler, flags, mask } = action;
    let new = KernelAction { handler, flags, restorer: 0, mask };
    // SAFETY: the caller's promise.
    unsafe { raw::action(signal, Some(new)) }.map(Action::of)
}

/// Unblocks a signal in this thread.
pub(crate) fn unblock(signal: u32) {
    raw::unblock(signal);
}

/// Sends this thread a signal.
pub(crate) fn raise(signal: u32) {
    raw::raise(signal);
}
