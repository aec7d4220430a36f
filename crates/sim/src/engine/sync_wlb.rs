//! Synchronous with load bypass: the `ecpy` retires when its copy is complete, and younger loads
//! and stores may pass it, in the processor and in the controller's queue. They must be checked
//! against the copy, so the copy is announced and entered into the pending copy table before it
//! begins.

use super::{FairShare, Policy};
use crate::configuration::EngineSettings;
use crate::memory::Request;

struct SyncWlb {
    share: FairShare,
}

pub(super) fn make(settings: &EngineSettings) -> Box<dyn Policy> {
    Box::new(SyncWlb { share: FairShare::new(settings.share_percent) })
}

impl Policy for SyncWlb {
    fn name(&self) -> &'static str {
        "sync-wlb"
    }

    fn choose(&mut self, channel: usize, waiting: &[Request]) -> usize {
        self.share.choose(channel, waiting)
    }
}
