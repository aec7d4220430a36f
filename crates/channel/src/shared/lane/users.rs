//! The process that uses this end, and the process that uses the other end: forks, the end of a
//! half, and death.

use std::sync::Arc;

use haul_peer::fork;
use haul_peer::life::Life;
use haul_peer::process::{Left, Peer};
use rustix::io::Errno;

use super::Lane;
use crate::shared::affinity::Affinity;
use crate::shared::error::Error;
use crate::shared::link::Half;
use crate::shared::{layout, ticks};

impl Lane {
    /// Begins a call to this half. The first call after a fork takes the half over from the
    /// process that used it, if `is_current` returns true, that is, if the half was not used
    /// since. Returns whether this call took the half over.
    ///
    /// # Errors
    /// [`Error::TakenOver`], [`Error::System`], [`Error::Broken`].
    #[inline]
    pub(crate) fn enter(&mut self, is_current: impl FnOnce(&Self) -> bool) -> Result<bool, Error> {
        let is_new = if self.has_copies || self.forks != fork::forks() {
            self.enter_a_copy(is_current)?
        } else {
            false
        };
        self.link.check_whole()?;
        Ok(is_new)
    }

    #[cold]
    fn enter_a_copy(&mut self, is_current: impl FnOnce(&Self) -> bool) -> Result<bool, Error> {
        self.has_copies = true;
        let (user, word) = self.link.user(self.half);
        if !user.is_last(word) {
            return Err(Error::TakenOver { by: "another process" });
        }
        let is_new = !user.is_here();
        if is_new {
            if !is_current(self) || self.state(self.own_state()) != layout::OPEN {
                return Err(Error::TakenOver { by: "the process that forked this one" });
            }
            self.take_over()?;
        }
        self.forks = fork::forks();
        Ok(is_new)
    }

    /// Makes this process the user of the half, and reports that to the peer.
    fn take_over(&mut self) -> Result<(), Error> {
        let (user, word) = self.link.user(self.half);
        let number = user.next();
        match self.link.send_user(self.half, number) {
            // A later call notices that the peer is gone.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {}
            Err(reason) => {
                return Err(Error::system("report to the peer which process continues")(reason));
            }
        }
        if !user.take_over(word, number) {
            return Err(Error::TakenOver { by: "another process" });
        }
        (self.affinity, self.refreshed) = (Affinity::default(), 0);
        Ok(())
    }

    /// Whether this process uses the half. A process that only has a copy does nothing for the
    /// peer.
    pub(crate) fn is_own(&self) -> bool {
        self.link.is_own(self.half)
    }

    /// Continues a call that this process has begun.
    ///
    /// # Errors
    /// [`Error::TakenOver`] if another process has begun it, or uses the half now.
    pub(crate) fn check_own(&mut self) -> Result<(), Error> {
        if self.has_copies || self.forks != fork::forks() {
            if !self.is_own() {
                return Err(Error::TakenOver { by: "another process" });
            }
            (self.has_copies, self.forks) = (true, fork::forks());
        }
        Ok(())
    }

    fn own_state(&self) -> usize {
        match self.half {
            Half::Sending => layout::SENDER_STATE,
            Half::Receiving => layout::RECEIVER_STATE,
        }
    }

    /// Closes the half when it is dropped, unless another process may continue with it. A process
    /// with a copy of the half may continue if this process has not used the half since the fork.
    pub(crate) fn close(&mut self) {
        let (user, word) = self.link.user(self.half);
        let is_used_since = user.is_here() && self.forks == fork::forks();
        let is_last_user = user.is_last(word);
        let was_last = self.life.take().is_none_or(Life::was_last);
        let is_over = was_last || is_used_since && is_last_user;
        if !is_over {
            return;
        }
        self.link.end_half();
        if is_last_user && self.state(self.own_state()) == layout::OPEN {
            self.set_state(self.own_state(), layout::CLOSED);
        }
    }

    /// The process that uses the other end of this half.
    pub(crate) fn peer(&self) -> Arc<Peer> {
        let word = match self.half {
            Half::Sending => layout::RECEIVER_USER,
            Half::Receiving => layout::SENDER_USER,
        };
        // SYNC: user published.
        self.link.peer(self.half, self.load(word))
    }

    /// Whether memory may be handed over to the peer unsealed: both ends trust each other, and
    /// the peer can check that no other process reaches the memory. For a file of another user,
    /// only the superuser can check that.
    pub(crate) fn may_give_memory(&self) -> bool {
        let (own, peer) = (rustix::process::geteuid().as_raw(), self.peer().identity.user);
        self.link.is_trusted && (peer == own || peer == 0)
    }

    /// Whether the peer sends nothing more. If the peer died while its child still holds the
    /// peer's end of the socket, the child may continue with the next message, but not within a
    /// message.
    pub(crate) fn is_peer_gone(&mut self, is_under_way: bool) -> bool {
        self.system_calls += 1;
        self.is_gone(is_under_way)
    }

    fn is_gone(&self, is_under_way: bool) -> bool {
        match self.peer().left(&self.link.socket) {
            Left::All => false,
            Left::Socket => is_under_way,
            Left::Nothing => true,
        }
    }

    /// Whether the peer is known to be gone. Asks the kernel only if the last check was a while
    /// ago, so that small messages need no system call.
    #[inline]
    pub(crate) fn is_known_gone(&mut self) -> bool {
        let now = ticks::now();
        now.wrapping_sub(self.checked) >= ticks::of_a_while() && self.check_gone(now)
    }

    #[cold]
    fn check_gone(&mut self, now: u64) -> bool {
        // The check is not a part of a message, so no account counts it.
        let is_gone = self.is_gone(false);
        if !is_gone {
            self.checked = now;
        }
        is_gone
    }
}
