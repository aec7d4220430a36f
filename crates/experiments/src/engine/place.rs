//! The processors of a measurement: the caller stays on the first one, so that it does not share a
//! processor with a peer that is placed on the last one.

use haul_measure::sys;

use crate::busy::Busy;

/// The caller's place, until this value is dropped.
pub(super) struct Place {
    before: Vec<usize>,
    _busy: Option<Busy>,
}

impl Place {
    /// Places the caller. Threads that exist already stay free. With `is_busy`, another thread
    /// keeps the last processor busy.
    pub(super) fn new(is_busy: bool) -> Self {
        let before = sys::affinity();
        let busy = before.last().filter(|_| is_busy).map(|cpu| Busy::on(*cpu));
        if let Some(first) = before.first() {
            // A caller that cannot be placed runs where it may.
            let _ = sys::set_affinity(&[*first]);
        }
        Self { before, _busy: busy }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = sys::set_affinity(&self.before);
    }
}
