//! Synchronous, no load bypass: the `ecpy` retires when its copy is complete, younger loads wait,
//! and the controller's queue is first in, first out. No load or store can pass the copy, so no
//! announcement is needed: each line is snooped while memory already works on it.

use super::{Announcement, Policy};
use crate::configuration::EngineSettings;
use crate::memory::Passing;

struct SyncNlb;

pub(super) fn make(_: &EngineSettings) -> Box<dyn Policy> {
    Box::new(SyncNlb)
}

impl Policy for SyncNlb {
    fn name(&self) -> &'static str {
        "sync-nlb"
    }

    fn passing(&self) -> Passing {
        Passing::Computation
    }

    fn announcement(&self) -> Announcement {
        Announcement::EachLine
    }
}
