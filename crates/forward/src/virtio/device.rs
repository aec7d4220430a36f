//! The state that all queue pairs of a device share: they connect to the back end and disconnect
//! together.
//!
//! Each pair may have its own worker and memory. A pair without a session therefore offers its
//! rings and its memory. After the last pair has done so, a thread connects to a back end, and
//! each pair joins the session at its next service. If one pair finds that the session is over,
//! it is over for all pairs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::{Connector, Offer, PairOffer, Session};
use crate::error::Error;

#[derive(Debug)]
pub(super) struct Device {
    state: Mutex<State>,
    /// Features that are wanted, and features that the back end must have.
    wanted: u64,
    needed: u64,
}

#[derive(Debug)]
struct State {
    connector: Connector,
    /// The offer of each pair, until the pair joins the session.
    offers: Vec<Option<PairOffer>>,
    session: Option<Arc<Session>>,
    is_stopped: bool,
}

impl Device {
    /// A device of `pairs` queue pairs that connects to its back end through this socket.
    pub(super) fn new(connector: Connector, pairs: u16, wanted: u64, needed: u64) -> Self {
        let offers = (0..pairs).map(|_| None).collect();
        let state = State { connector, offers, session: None, is_stopped: false };
        Self { state: Mutex::new(state), wanted, needed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the session if there is one. Otherwise the pair waits for it, with the offer that
    /// `offer` returns.
    ///
    /// # Errors
    /// The error of `offer`; [`Error::System`] if the connecting thread cannot be started.
    pub(super) fn join(
        &self,
        pair: u16,
        offer: impl FnOnce() -> Result<PairOffer, Error>,
    ) -> Result<Option<Arc<Session>>, Error> {
        let pair = usize::from(pair);
        let mut state = self.state();
        let State { connector, offers, session, is_stopped } = &mut *state;
        if *is_stopped {
            return Ok(None);
        }
        if let Some(negotiated) = connector.take() {
            *session = Some(Arc::new(negotiated));
        }
        if let Some(joined) = session {
            // A session that is already over was never used.
            if offers[pair].take().is_some() && !joined.is_over() {
                return Ok(Some(joined.clone()));
            }
            if offers.iter().any(Option::is_some) {
                return Ok(None);
            }
            *session = None;
        }
        if connector.is_begun() {
            return Ok(None);
        }
        if offers[pair].is_none() {
            offers[pair] = Some(offer()?);
        }
        let all: Option<Vec<&PairOffer>> = offers.iter().map(Option::as_ref).collect();
        if let Some(all) = all {
            let (wanted, needed) = (self.wanted, self.needed);
            connector.begin(Offer::of(&all, wanted, needed)?)?;
        }
        Ok(None)
    }

    /// Why there is no session, if a back end was rejected or disconnected.
    pub(super) fn obstacle(&self) -> Option<String> {
        self.state().connector.obstacle()
    }

    /// Records that a back end was disconnected, with the reason.
    pub(super) fn record_disconnect(&self, why: String) {
        self.state().connector.record_disconnect(why);
    }

    /// Lets no further session begin.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.is_stopped = true;
        state.connector.stop();
        state.offers.fill_with(|| None);
        state.session = None;
    }
}
