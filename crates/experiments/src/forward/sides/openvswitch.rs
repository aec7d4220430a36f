//! Open vSwitch as a side: a switch that polls its socket, and whose packets the guest counts.

use super::{Assignment, Common, Receipt, Side};
use crate::forward::library::Served;
use crate::forward::openvswitch::{OpenVswitch, Session, Setting, Statistics};
use crate::forward::protocol::Role;
use crate::forward::waits;

pub(super) fn start_in(
    found: &OpenVswitch,
    assignment: &Assignment<'_>,
) -> Result<Box<dyn Side>, String> {
    if assignment.role == Role::Guest {
        return Err("it cannot be the guest".to_owned());
    }
    let Common { flow, size_bytes, is_huge, .. } = *assignment.common;
    let setting =
        Setting { socket: assignment.socket, flow, size_bytes, cpu: assignment.cpu, is_huge };
    Ok(Box::new(Session::start(found, &setting)?))
}

impl Side for Session {
    fn go(&mut self, _rate: Option<f64>) -> Result<(), String> {
        Self::go(self)
    }

    fn pause(&mut self) -> Result<(), String> {
        Self::pause(self)
    }

    fn statistics(&mut self) -> Result<Option<Statistics>, String> {
        Self::statistics(self)
    }

    fn end(self: Box<Self>) -> Option<Served> {
        self.quit()
    }

    fn waits(&self) -> Option<(u64, u64)> {
        waits::of(self.process())
    }

    fn receipt(&self) -> Receipt {
        Receipt { version: Some(self.version().to_owned()), ..Receipt::default() }
    }
}
