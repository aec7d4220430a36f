//! CPU request bypass with a guaranteed share for the engines (the paper's section 3.5).

use crate::memory::Request;

/// Serves the processor's reads before other requests, except that the other requests get a given
/// percentage of the choices in which both kinds wait. The other requests are the engines'
/// requests and the processor's write-backs. No instruction waits for a write-back; if the
/// channel served it first, the channel would switch between reading and writing twice. The cost
/// is one counter per channel.
pub struct FairShare {
    share_percent: u32,
    owed_percent: Vec<u32>,
}

impl FairShare {
    /// A share from 1 to 99.
    #[must_use]
    pub fn new(share_percent: u32) -> Self {
        Self { share_percent, owed_percent: Vec::new() }
    }

    /// The position of the request that a channel serves next.
    pub fn choose(&mut self, channel: usize, waiting: &[Request]) -> usize {
        let is_awaited = |request: &Request| !request.is_of_engine() && !request.write;
        let Some(other) = waiting.iter().position(is_awaited) else {
            return 0;
        };
        let Some(engine) = waiting.iter().position(|request| !is_awaited(request)) else {
            return 0;
        };
        if self.owed_percent.len() <= channel {
            self.owed_percent.resize(channel + 1, 0);
        }
        let owed = &mut self.owed_percent[channel];
        *owed += self.share_percent;
        if *owed >= 100 {
            *owed -= 100;
            engine
        } else {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Agent, Purpose};

    fn request(agent: Agent) -> Request {
        let purpose = Purpose::Store;
        Request { line: 0, write: false, agent, purpose, arrived: 0, transaction: 0 }
    }

    #[test]
    fn engine_gets_exactly_its_share_of_contended_choices() {
        let both = [request(Agent::Engine(0)), request(Agent::Processor)];
        for share in [1, 10, 25, 50, 99] {
            let mut fair = FairShare::new(share);
            let engine = (0..1000).filter(|_| fair.choose(0, &both) == 0).count();
            assert_eq!(engine, share as usize * 10, "a share of {share}%");
        }
    }

    #[test]
    fn uncontended_choice_does_not_count_towards_the_share() {
        let mut fair = FairShare::new(50);
        for _ in 0..10 {
            assert_eq!(fair.choose(1, &[request(Agent::Engine(0))]), 0);
        }
        let both = [request(Agent::Engine(0)), request(Agent::Processor)];
        assert_eq!(fair.choose(1, &both), 1, "the processor goes first");
        assert_eq!(fair.choose(1, &both), 0);
    }
}
