//! The last front end that connected, so that a port without a link can report why.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The last conversation, as far as it explains a missing link.
#[derive(Debug, Default)]
pub(super) struct LastConversation(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the front end asked for the number of queue pairs, negotiated features, shared its
    /// memory, and started a ring.
    has_asked: bool,
    has_negotiated: bool,
    has_shared: bool,
    has_started: bool,
    /// Why there is no link; and whether the reason belongs to this conversation.
    obstacle: Option<String>,
    is_explained: bool,
}

impl LastConversation {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a conversation. The old reason stays until the conversation yields another one.
    pub(super) fn begin(&self) {
        let mut state = self.state();
        *state = State { obstacle: state.obstacle.take(), ..State::default() };
    }

    /// Records that the last process to connect was rejected; no conversation began.
    pub(super) fn record_rejected(&self, why: String) {
        self.state().obstacle = Some(why);
    }

    /// The front end asked for the number of queue pairs.
    pub(super) fn record_queue_query(&self) {
        self.state().has_asked = true;
    }

    /// The front end negotiated features.
    pub(super) fn record_features(&self) {
        self.state().has_negotiated = true;
    }

    /// The front end shared its memory, or tried to.
    pub(super) fn record_memory(&self) {
        self.state().has_shared = true;
    }

    /// The front end violated the protocol and was disconnected. The first fault counts.
    pub(super) fn record_refusal(&self, why: &str) {
        let mut state = self.state();
        if !state.is_explained {
            state.obstacle = Some(format!("the last front end was disconnected: {why}"));
            state.is_explained = true;
        }
    }

    /// The front end set up ring `ring` of a device that has fewer.
    pub(super) fn record_missing_ring(&self, ring: u32, pairs: u64) {
        let mut state = self.state();
        state.obstacle = Some(format!(
            "the last front end requested {} queue pairs or more, but this port has {pairs}: \
             raise the number of this port, or lower that of the front end",
            ring / 2 + 1
        ));
        state.is_explained = true;
    }

    /// The front end started a ring.
    pub(super) fn record_ring_start(&self) {
        let mut state = self.state();
        (state.has_started, state.is_explained, state.obstacle) = (true, false, None);
    }

    /// Ends the conversation; `was_wrong` after a fault of the front end.
    pub(super) fn end(&self, was_wrong: bool, pairs: u64) {
        let mut state = self.state();
        if state.is_explained {
            return;
        }
        if was_wrong {
            let left = "the last front end was disconnected because of an invalid message or ring";
            state.obstacle = Some(left.to_owned());
        } else if state.has_negotiated && !state.has_shared && !state.has_started {
            let left = "the last front end disconnected before it shared the guest\u{2019}s \
                        memory: share it (in QEMU, -object memory-backend-memfd,share=on)";
            state.obstacle = Some(left.to_owned());
        } else if state.has_asked && !state.has_negotiated && !state.has_started {
            state.obstacle = Some(format!(
                "the last front end disconnected after this port reported {pairs} queue pairs: if \
                 it needs more, raise the number of this port; otherwise its own messages give \
                 the reason"
            ));
        }
    }

    /// Why there is no link, if a front end has connected before.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.state().obstacle.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason after a conversation of these steps. It follows a conversation that wanted too
    /// many queue pairs.
    fn after(act: impl FnOnce(&LastConversation), was_wrong: bool) -> Option<String> {
        let last = LastConversation::default();
        last.begin();
        last.record_missing_ring(5, 1);
        last.end(true, 1);
        last.begin();
        assert!(
            last.obstacle()
                .unwrap()
                .contains("requested 3 queue pairs or more, but this port has 1")
        );
        act(&last);
        last.end(was_wrong, 1);
        last.obstacle()
    }

    #[test]
    fn obstacle_is_that_of_last_conclusive_conversation() {
        assert!(after(|_| {}, false).unwrap().contains("requested 3"));
        assert!(after(|_| {}, true).unwrap().contains("because of an invalid message"));
        assert!(
            after(LastConversation::record_queue_query, false)
                .unwrap()
                .contains("reported 1 queue pairs")
        );
        assert!(
            after(|last| last.record_missing_ring(2, 1), true).unwrap().contains("requested 2")
        );
        let refused = |last: &LastConversation| {
            last.record_queue_query();
            last.record_refusal("memory in a file of FUSE");
            last.record_refusal("it sent an invalid request");
        };
        assert!(
            after(refused, true).unwrap().ends_with("was disconnected: memory in a file of FUSE")
        );
        // A front end that negotiated features has accepted the number of queue pairs.
        let agreed = |last: &LastConversation| {
            last.record_queue_query();
            last.record_features();
        };
        assert!(after(agreed, false).unwrap().contains("before it shared the guest"));
        let shared = |last: &LastConversation| {
            agreed(last);
            last.record_memory();
        };
        assert!(after(shared, false).unwrap().contains("requested 3"));
        let used = |last: &LastConversation| {
            last.record_queue_query();
            last.record_ring_start();
        };
        assert_eq!(after(used, false), None);
        assert!(after(used, true).unwrap().contains("because of an invalid message"));
    }
}
