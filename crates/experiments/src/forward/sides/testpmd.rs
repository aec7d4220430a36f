//! DPDK's testpmd as a side.

use super::rates::{counted_of, rates_of};
use super::{Assignment, Cycles, Rates, Receipt, Side};
use crate::forward::flow::Flow;
use crate::forward::library::Served;
use crate::forward::protocol::{Counted, Role};
use crate::forward::testpmd::{Metering, Session, Setting, Testpmd};
use crate::forward::waits;

pub(super) fn start_in(
    found: &Testpmd,
    assignment: &Assignment<'_>,
) -> Result<Box<dyn Side>, String> {
    let common = assignment.common;
    let setting = Setting {
        role: assignment.role,
        flow: common.flow,
        layout: common.layout,
        size_bytes: common.size_bytes,
        buffers: common.buffers,
        socket: assignment.socket,
        folder: common.folder,
        cpu: assignment.cpu,
        cpus: common.cpus,
        is_huge: common.is_huge,
        is_to_kernel: common.is_to_kernel,
        guest_listens: common.guest_listens,
    };
    Ok(Box::new(Session::start(found, &setting)?))
}

impl Side for Session {
    fn await_link(&mut self) -> Result<(), String> {
        Self::await_link(self)
    }

    fn counts(&self) -> bool {
        true
    }

    fn go(&mut self, _rate: Option<f64>) -> Result<(), String> {
        Self::go(self)
    }

    fn meter(&mut self, _role: Role) -> Result<(), String> {
        Self::meter(self)
    }

    fn metered(&mut self) -> Result<Cycles, String> {
        Ok(match Self::metered(self)? {
            Metering::None => Cycles::default(),
            Metering::Cycles(cycles) => Cycles { all: Some(cycles), ..Cycles::default() },
            Metering::Refused => Cycles { is_refused: true, ..Cycles::default() },
        })
    }

    fn begin(&mut self) -> Result<(), String> {
        self.stats().map(drop)
    }

    fn rates(&mut self, flow: Flow) -> Result<Rates, String> {
        self.stats().map(|stats| rates_of(stats, flow))
    }

    fn count(&mut self) -> Result<Counted, String> {
        self.stats().map(counted_of)
    }

    fn halt(&mut self) -> Result<Counted, String> {
        Self::halt(self).map(counted_of)
    }

    fn end(self: Box<Self>) -> Option<Served> {
        self.quit()
    }

    fn waits(&self) -> Option<(u64, u64)> {
        waits::of(self.process())
    }

    fn receipt(&self) -> Receipt {
        let (rx_path, tx_path) = self.paths();
        let (version, features) = (self.version(), self.features());
        Receipt { version, features, rx_path, tx_path, ..Receipt::default() }
    }
}
