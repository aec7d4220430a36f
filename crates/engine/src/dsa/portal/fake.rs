//! A queue of a fake in this process, by any mechanism.

use std::io;

use rustix::io::Errno;

use super::{Mechanism, Portal, Unsubmitted};
use crate::dsa::descriptor::Descriptor;
use crate::dsa::fake::{Client, Fake};
use crate::dsa::sysfs::Mode;

/// An open queue of a fake.
#[derive(Debug)]
pub(in crate::dsa) struct FakePortal {
    client: Client,
    mechanism: Mechanism,
}

impl FakePortal {
    /// Opens a queue, and maps its portal unless `only_write` is set.
    ///
    /// # Errors
    /// As for [`Fake::open`].
    pub(in crate::dsa) fn open(fake: &Fake, queue: usize, only_write: bool) -> io::Result<Self> {
        let client = fake.open(queue)?;
        let mechanism = match client.mode() {
            _ if only_write || client.check_map().is_err() => Mechanism::Write,
            Mode::Dedicated => Mechanism::DirectStore,
            Mode::Shared => Mechanism::Enqueue,
        };
        Ok(Self { client, mechanism })
    }
}

impl Portal for FakePortal {
    fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), Unsubmitted> {
        match self.mechanism {
            Mechanism::DirectStore => {
                // SAFETY: the caller's promise.
                unsafe { self.client.store(descriptor) };
                Ok(())
            }
            Mechanism::Enqueue => {
                // SAFETY: the caller's promise.
                let is_accepted = unsafe { self.client.enqueue(descriptor) };
                if is_accepted { Ok(()) } else { Err(Unsubmitted::Full) }
            }
            Mechanism::Write => {
                // SAFETY: the caller's promise.
                let written = unsafe { self.client.write(descriptor.bytes()) };
                let reason = |error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
                written.map(|_| ()).map_err(|error| Unsubmitted::of(reason(error)))
            }
        }
    }

    fn is_alive(&self) -> bool {
        self.client.is_alive()
    }
}
