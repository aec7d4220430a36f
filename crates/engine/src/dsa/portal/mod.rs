//! Where descriptors go: an open queue, by the mechanism that this process may use.
//!
//! | mechanism | queue | needs | a full queue |
//! |---|---|---|---|
//! | MOVDIR64B | dedicated | a mapped portal: CAP_SYS_RAWIO on devices that are not safe to map | loses the descriptor |
//! | ENQCMD | shared | as above | says so |
//! | `write` | both | Linux 6.10, or 6.9.1; one system call each | says so if shared |
//!
//! From the bottom up:
//!
//! - [`device`]: the device file of a queue;
//! - [`fake`]: a queue of a fake in this process.

pub(super) mod device;
pub(super) mod fake;

use std::fmt::Debug;

use rustix::io::Errno;

use super::descriptor::Descriptor;

/// How a process submits descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// MOVDIR64B on a mapped portal.
    DirectStore,
    /// ENQCMD on a mapped portal.
    Enqueue,
    /// `write` on the device file.
    Write,
}

impl Mechanism {
    /// Its name in lists and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DirectStore => "MOVDIR64B",
            Self::Enqueue => "ENQCMD",
            Self::Write => "write",
        }
    }
}

/// Why a descriptor was not submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsubmitted {
    /// The queue is full.
    Full,
    /// The queue was opened by another process: this one is its child.
    Foreign,
    /// The device or its queue does not exist any more.
    Gone,
    /// The kernel refuses this descriptor, or the system call.
    Refused(Errno),
}

impl Unsubmitted {
    /// What an error of `write` means.
    fn of(reason: Errno) -> Self {
        match reason {
            Errno::AGAIN | Errno::BUSY => Self::Full,
            Errno::PERM => Self::Foreign,
            Errno::NODEV | Errno::NXIO | Errno::IO | Errno::BADF => Self::Gone,
            other => Self::Refused(other),
        }
    }
}

/// An open queue. Its drop closes it: when that returns, the device accesses no memory that was
/// submitted here, unless another process has a copy of the file. On a wedged device it waits for
/// ever.
pub(super) trait Portal: Send + Sync + Debug {
    /// How it submits.
    fn mechanism(&self) -> Mechanism;

    /// Submits a descriptor, after all earlier stores of this thread.
    ///
    /// # Errors
    /// Why the device has not received it.
    ///
    /// # Safety
    /// The ranges and the record of the descriptor must stay valid until the record is written,
    /// or the portal is closed and no other process has a copy of its file. No Rust
    /// reference to a target may exist meanwhile.
    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), Unsubmitted>;

    /// Whether the queue is still enabled, as far as is known. Costs system calls.
    fn is_alive(&self) -> bool;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_write_are_distinguished() {
        for (reason, expected) in [
            (Errno::AGAIN, Unsubmitted::Full),
            (Errno::PERM, Unsubmitted::Foreign),
            (Errno::NODEV, Unsubmitted::Gone),
            (Errno::INVAL, Unsubmitted::Refused(Errno::INVAL)),
            (Errno::FAULT, Unsubmitted::Refused(Errno::FAULT)),
        ] {
            assert_eq!(Unsubmitted::of(reason), expected);
        }
    }
}
