//! What the queue pairs of a device have together: the back end, which they meet and leave as one.
//!
//! Each pair may be driven by a worker of its own, which has memory of its own. So each brings its
//! rings and its memory when it is part of no session any more; when the last one has, a back end
//! is met, and each takes part in the session at its next service. A session that one of them finds
//! over is over for all.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::error::Error;
use super::session::{Offer, Opening, Part, Session};

#[derive(Debug)]
pub(super) struct Device {
    state: Mutex<State>,
    /// Features that are wanted, and that the back end has to have.
    wanted: u64,
    needed: u64,
}

#[derive(Debug)]
struct State {
    opening: Opening,
    /// What each pair has brought, until it takes part.
    parts: Vec<Option<Part>>,
    session: Option<Arc<Session>>,
    is_stopped: bool,
}

impl Device {
    /// A device of so many queue pairs that meets its back end by this socket.
    pub(super) fn new(opening: Opening, pairs: u16, wanted: u64, needed: u64) -> Self {
        let parts = (0..pairs).map(|_| None).collect();
        let state = State { opening, parts, session: None, is_stopped: false };
        Self { state: Mutex::new(state), wanted, needed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session, if there is one by now; else the pair waits for it, with what `bring` gives.
    ///
    /// # Errors
    /// What `bring` says; [`Error::System`] where there is no thread to meet a back end.
    pub(super) fn join(
        &self,
        pair: u16,
        bring: impl FnOnce() -> Result<Part, Error>,
    ) -> Result<Option<Arc<Session>>, Error> {
        let pair = usize::from(pair);
        let mut state = self.state();
        let State { opening, parts, session, is_stopped } = &mut *state;
        if *is_stopped {
            return Ok(None);
        }
        if let Some(agreed) = opening.take() {
            *session = Some(Arc::new(agreed));
        }
        if let Some(agreed) = session {
            // One that is over already is left without having been used.
            if parts[pair].take().is_some() && !agreed.is_over() {
                return Ok(Some(agreed.clone()));
            }
            if parts.iter().any(Option::is_some) {
                return Ok(None);
            }
            *session = None;
        }
        if opening.is_begun() {
            return Ok(None);
        }
        if parts[pair].is_none() {
            parts[pair] = Some(bring()?);
        }
        let all: Option<Vec<&Part>> = parts.iter().map(Option::as_ref).collect();
        if let Some(all) = all {
            let (wanted, needed) = (self.wanted, self.needed);
            opening.begin(Offer::of(&all, wanted, needed)?)?;
        }
        Ok(None)
    }

    /// Why there is no session, where a back end was met that did not agree, or was left.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.state().opening.obstacle()
    }

    /// A back end was left, for this reason.
    pub(super) fn left(&self, why: String) {
        self.state().opening.left(why);
    }

    /// No session begins any more.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        state.opening.stop();
        state.parts.fill_with(|| None);
        state.session = None;
    }
}
