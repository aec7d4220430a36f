//! What came of the front end that was met last, so that a port without a link can say why.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last conversation, as far as it tells why there is no link.
#[derive(Debug, Default)]
pub(super) struct Met(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the front end asked how many queue pairs there are, has agreed on features, shared
    /// its memory, and started a ring.
    has_asked: bool,
    has_agreed: bool,
    has_shared: bool,
    has_started: bool,
    /// Why there is no link; whether that is of this conversation.
    obstacle: Option<String>,
    is_noted: bool,
}

impl Met {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A conversation begins. Until it tells more, what was in the way still is.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        *state = State { obstacle: state.obstacle.take(), ..State::default() };
    }

    /// Who came last was not let in; no conversation began.
    pub(super) fn turned_away(&self, why: String) {
        self.state().obstacle = Some(why);
    }

    /// The front end asked how many queue pairs there are.
    pub(super) fn asked(&self) {
        self.state().has_asked = true;
    }

    /// It has agreed on features.
    pub(super) fn agreed(&self) {
        self.state().has_agreed = true;
    }

    /// It has shared its memory, or tried to.
    pub(super) fn shared(&self) {
        self.state().has_shared = true;
    }

    /// It did something that it may not, for which it is left. The first thing counts.
    pub(super) fn refused(&self, why: &str) {
        let mut state = self.state();
        if !state.is_noted {
            state.obstacle = Some(format!("the last front end was left: {why}"));
            state.is_noted = true;
        }
    }

    /// It set up a ring of this number, of a device that has fewer.
    pub(super) fn wanted(&self, ring: u32, pairs: u64) {
        let mut state = self.state();
        state.obstacle = Some(format!(
            "the last front end wanted {} queue pairs or more, of {pairs}: give this port as many, \
             or it fewer",
            ring / 2 + 1
        ));
        state.is_noted = true;
    }

    /// It has started a ring.
    pub(super) fn started(&self) {
        let mut state = self.state();
        (state.has_started, state.is_noted, state.obstacle) = (true, false, None);
    }

    /// The conversation is over; `was_wrong` where the front end did what it may not.
    pub(super) fn end(&self, was_wrong: bool, pairs: u64) {
        let mut state = self.state();
        if state.is_noted {
            return;
        }
        if was_wrong {
            let left = "the last front end was left because of what it said or wrote";
            state.obstacle = Some(left.to_owned());
        } else if state.has_agreed && !state.has_shared && !state.has_started {
            let left = "the last front end left before it shared the guest\u{2019}s memory: that has \
                        to be shared (of QEMU -object memory-backend-memfd,share=on)";
            state.obstacle = Some(left.to_owned());
        } else if state.has_asked && !state.has_agreed && !state.has_started {
            state.obstacle = Some(format!(
                "the last front end heard that there is room for {pairs} of its queue pairs, and \
                 left: if it has more, give this port as many; else its own messages say why"
            ));
        }
    }

    /// Why there is no link, where a front end came.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.state().obstacle.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said after a conversation of these steps, behind one that wanted too much.
    fn after(act: impl FnOnce(&Met), was_wrong: bool) -> Option<String> {
        let met = Met::default();
        met.begin();
        met.wanted(5, 1);
        met.end(true, 1);
        met.begin();
        assert!(met.obstacle().unwrap().contains("wanted 3 queue pairs or more, of 1"));
        act(&met);
        met.end(was_wrong, 1);
        met.obstacle()
    }

    #[test]
    fn what_is_in_the_way_is_of_the_last_conversation_that_tells() {
        assert!(after(|_| {}, false).unwrap().contains("wanted 3"));
        assert!(after(|_| {}, true).unwrap().contains("because of what it said"));
        assert!(after(Met::asked, false).unwrap().contains("room for 1 "));
        assert!(after(|met| met.wanted(2, 1), true).unwrap().contains("wanted 2"));
        let refused = |met: &Met| {
            met.asked();
            met.refused("memory in a file of FUSE");
            met.refused("it said what cannot be");
        };
        assert!(after(refused, true).unwrap().ends_with("was left: memory in a file of FUSE"));
        // One that got further than to the number of queue pairs did not leave for that.
        let agreed = |met: &Met| {
            met.asked();
            met.agreed();
        };
        assert!(after(agreed, false).unwrap().contains("before it shared the guest"));
        let shared = |met: &Met| {
            agreed(met);
            met.shared();
        };
        assert!(after(shared, false).unwrap().contains("wanted 3"));
        let used = |met: &Met| {
            met.asked();
            met.started();
        };
        assert_eq!(after(used, false), None);
        assert!(after(used, true).unwrap().contains("because of what it said"));
    }
}
