//! Like `async`, but the engine writes each line as soon as it can, while it still reads others:
//! the worked example of `docs/sim.md`. It switches channels between reading and writing more
//! often, in exchange for a shorter copy.

use super::{FairShare, Policy, Retirement, Step, Stream};
use crate::configuration::EngineSettings;
use crate::memory::Request;

struct Pipelined {
    share: FairShare,
}

pub(super) fn make(settings: &EngineSettings) -> Box<dyn Policy> {
    Box::new(Pipelined { share: FairShare::new(settings.share_percent) })
}

impl Policy for Pipelined {
    fn name(&self) -> &'static str {
        "async-pipelined"
    }

    fn retirement(&self) -> Retirement {
        Retirement::Acknowledgement
    }

    fn choose(&mut self, channel: usize, waiting: &[Request]) -> usize {
        self.share.choose(channel, waiting)
    }

    fn step(&mut self, stream: &Stream) -> Step {
        if stream.may_write() {
            Step::Write
        } else if stream.may_read() {
            Step::Read
        } else {
            Step::Wait
        }
    }
}
