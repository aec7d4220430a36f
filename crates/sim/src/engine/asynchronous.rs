//! Asynchronous: a multi-line snoop enters the copy into the pending copy tables. Its
//! acknowledgement lets the `ecpy` retire. Loads and stores that depend on the copy stall and retry
//! until the final broadcast. Load bypass works as in `sync-wlb`.

use super::{FairShare, Policy, Retirement};
use crate::configuration::EngineSettings;
use crate::memory::Request;

struct Asynchronous {
    share: FairShare,
}

pub(super) fn make(settings: &EngineSettings) -> Box<dyn Policy> {
    Box::new(Asynchronous { share: FairShare::new(settings.share_percent) })
}

impl Policy for Asynchronous {
    fn name(&self) -> &'static str {
        "async"
    }

    fn retirement(&self) -> Retirement {
        Retirement::Acknowledgement
    }

    fn choose(&mut self, channel: usize, waiting: &[Request]) -> usize {
        self.share.choose(channel, waiting)
    }
}
