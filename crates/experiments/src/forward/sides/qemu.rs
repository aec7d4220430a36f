//! A Linux kernel under QEMU as a side: a guest that has booted before its switch starts.

use std::sync::atomic::AtomicBool;

use super::{Assignment, Common, Receipt, Side};
use crate::forward::library::Served;
use crate::forward::protocol::Role;
use crate::forward::qemu::{Qemu, Session, Setting};

pub(super) fn start_in(found: &Qemu, assignment: &Assignment<'_>) -> Result<Box<dyn Side>, String> {
    if assignment.role == Role::Switch {
        return Err("it cannot be the switch".to_owned());
    }
    let Common { folder, layout, cpus, stop, .. } = *assignment.common;
    let setting =
        Setting { socket: assignment.socket, folder, layout, cpu: assignment.cpu, cpus, stop };
    Ok(Box::new(Session::start(found, &setting)?))
}

impl Side for Session {
    fn await_forwarding(&mut self, stop: &AtomicBool) -> Result<(), String> {
        Self::await_forwarding(self, stop)
    }

    fn end(self: Box<Self>) -> Option<Served> {
        self.quit();
        None
    }

    /// An emulator's threads wait for each other, so that their waits do not show a lack of
    /// processors.
    fn waits(&self) -> Option<(u64, u64)> {
        None
    }

    fn receipt(&self) -> Receipt {
        let ((version, accelerator), (kernel, features)) = (self.version(), self.kernel());
        let driver = Some("virtio_net".to_owned());
        Receipt {
            version: Some(version.to_owned()),
            features: Some(features),
            rx_path: driver.clone(),
            tx_path: driver,
            kernel: Some(kernel.to_owned()),
            accelerator: Some(accelerator),
        }
    }
}
