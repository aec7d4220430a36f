//! The public interface of the receiving half.

use std::sync::Arc;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd};

use super::filling::{AwaitingHeader, Filling};
use super::inbox::Inbox;
use crate::mechanism::dispatch;
use crate::pages::buffer::Buffer;
use crate::pages::spares;
use crate::shared::account::Account;
use crate::shared::error::Error;
use crate::shared::layout;
use crate::shared::link::Link;
use crate::shared::names::Mechanism;
use crate::shared::transfer;
use haul_peer::life::Life;
use haul_peer::process::Identity;

/// The half of a channel that receives.
#[derive(Debug)]
pub struct Receiver {
    pub(crate) inbox: Inbox,
    /// The buffer of a message that `try_recv` has begun.
    building: Option<Buffer>,
    /// Whether the peer may still write to the target of the last message.
    can_peer_write: bool,
}

impl Receiver {
    pub(crate) fn new(link: Arc<Link>, index: usize, life: Life) -> Self {
        let inbox = Inbox::new(link, index, life);
        spares::add_receiver();
        Self { inbox, building: None, can_peer_write: false }
    }

    /// Waits for a message and copies it to the start of `target`. The account contains the
    /// message's length.
    ///
    /// # Errors
    /// [`Error::TooSmall`]: the message stays, for a call with a larger target. [`Error::Closed`]:
    /// there are no more messages. [`Error::Deadline`] without a size: no message arrived. Every
    /// other error ends the channel, and the content of `target` is then undefined.
    ///
    /// The peer never writes to `target`: if a trusted peer sends by `double`, this end alone reads
    /// the message. With [`recv`](Self::recv) and [`recv_into_exposed`](Self::recv_into_exposed),
    /// both ends move the message.
    pub fn recv_into(&mut self, target: &mut [u8]) -> Result<Account, Error> {
        self.recv_to(target, false)
    }

    /// Like [`recv_into`](Self::recv_into), but a trusted peer may write to `target`: with
    /// `double`, both ends move the message at once. A peer that was stopped within a piece
    /// writes the remainder of the piece when it continues, even after this call has returned.
    ///
    /// # Errors
    /// The errors of [`recv_into`](Self::recv_into).
    ///
    /// # Safety
    /// If this call fails, `target` must stay mapped and must be neither read nor written until
    /// the peer is gone. After [`Error::TooSmall`], [`Error::TooLong`], [`Error::Closed`],
    /// [`Error::TakenOver`] and [`Error::Deadline`] without a size, the caller may use `target`
    /// as before.
    ///
    /// ```
    /// # mod haul { pub mod channel { pub use haul_channel::*; } }
    /// # use haul::channel::{Channel, Error, Settings, pair};
    /// # fn main() -> Result<(), Error> {
    /// # let trusting = Settings { trusts_peer: true, ..Settings::default() };
    /// # let (one, other) = pair()?;
    /// # let theirs = trusting.clone();
    /// # let send = move || Channel::connect_over(one, &theirs)?.send(&[7; 4096]);
    /// # let peer = std::thread::spawn(send);
    /// let mut channel = Channel::accept_over(other, &trusting)?;
    /// let mut target = vec![0; 1 << 20];
    /// // SAFETY: if this fails, the program ends with the memory in place.
    /// let received = unsafe { channel.recv_into_exposed(&mut target) };
    /// let length = received.unwrap_or_else(|_| std::process::abort()).size_bytes;
    /// # assert_eq!((length, target[0]), (4096, 7));
    /// # peer.join().unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub unsafe fn recv_into_exposed(&mut self, target: &mut [u8]) -> Result<Account, Error> {
        self.recv_to(target, true)
    }

    fn recv_to(&mut self, target: &mut [u8], is_exposed: bool) -> Result<Account, Error> {
        if self.inbox.pending.is_none()
            && self.building.is_none()
            && let Some(account) = self.inbox.receive_at_once(target)
        {
            return Ok(account);
        }
        let needed = self.wait_length()?;
        let has = target.len();
        let Some(target) = target.get_mut(..needed) else {
            return Err(Error::TooSmall { needed: Bytes(needed as u64), has: Bytes(has as u64) });
        };
        if let Some(building) = self.building.take() {
            // `try_recv` had begun to receive this message.
            let mut buffer = self.finish_building(building)?;
            buffer.move_into(target);
            return Ok(buffer.account().clone());
        }
        let inbox = &mut self.inbox;
        let result = transfer::drive(&mut Filling { inbox, target, is_exposed });
        self.end_on_error_with(result, target)
    }

    /// Waits for a message and returns it in a new buffer.
    ///
    /// # Errors
    /// The errors of [`recv_into`](Self::recv_into), and [`Error::System`] if there is no memory
    /// for the buffer.
    pub fn recv(&mut self) -> Result<Buffer, Error> {
        let length = self.wait_length()?;
        let building = self.memory(length)?;
        self.finish_building(building)
    }

    /// Returns a message if it is complete or can be completed without waiting. Returns `None` if
    /// [`as_fd`](Self::as_fd) must be polled for reading before the next call. Each call continues
    /// where the last call ended, and moves bytes for some milliseconds at most.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv). The caller must check the deadline.
    pub fn try_recv(&mut self) -> Result<Option<Buffer>, Error> {
        self.inbox.enter()?;
        let result = transfer::advance(&mut AwaitingHeader { inbox: &mut self.inbox });
        let Some(length) = self.end_on_error(result)? else { return Ok(None) };
        let mut building = self.memory(length)?;
        let result = transfer::advance(&mut Filling::into_own(&mut self.inbox, &mut building));
        match self.end_on_error_with(result, &building) {
            Ok(Some(account)) => Ok(Some(building.with(account))),
            Ok(None) => {
                self.building = Some(building);
                Ok(None)
            }
            Err(error) => {
                self.let_go(building);
                Err(error)
            }
        }
    }

    /// Waits for a message and returns its length. The message stays in the channel.
    ///
    /// # Errors
    /// The errors of [`recv_into`](Self::recv_into).
    pub fn wait_length(&mut self) -> Result<usize, Error> {
        self.inbox.enter()?;
        let result = transfer::drive(&mut AwaitingHeader { inbox: &mut self.inbox });
        self.end_on_error(result)
    }

    /// The descriptor to poll for reading before the next call of [`try_recv`](Self::try_recv).
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.inbox.lane.link.as_fd()
    }

    /// The process at the other end.
    #[must_use]
    pub fn peer(&self) -> Identity {
        self.inbox.lane.peer().identity
    }

    /// Whether the mechanism is available for messages to this peer.
    pub(crate) fn offers(&self, mechanism: Mechanism) -> bool {
        dispatch::offers(self.link(), mechanism)
    }

    pub(crate) fn link(&self) -> &Link {
        &self.inbox.lane.link
    }

    fn finish_building(&mut self, mut building: Buffer) -> Result<Buffer, Error> {
        let result = transfer::drive(&mut Filling::into_own(&mut self.inbox, &mut building));
        match self.end_on_error_with(result, &building) {
            Ok(account) => Ok(building.with(account)),
            Err(error) => {
                self.let_go(building);
                Err(error)
            }
        }
    }

    /// The memory of the current message: the buffer that an earlier call began to fill, the
    /// mechanism's memory, or a new buffer.
    fn memory(&mut self, length: usize) -> Result<Buffer, Error> {
        if let Some(building) = self.building.take() {
            return Ok(building);
        }
        let placed = self.inbox.destination(length);
        match self.end_on_error(placed)? {
            Some(memory) => Ok(memory),
            None => Buffer::zeroed(length),
        }
    }

    /// Frees the memory of a message that did not arrive. If the peer may still write to the
    /// memory, haul leaks the memory; that happens once, because the channel has ended.
    fn let_go(&self, building: Buffer) {
        if self.can_peer_write {
            std::mem::forget(building);
        }
    }

    /// Gives up the message for which this was the target.
    fn abandon(&mut self, target: &[u8]) {
        self.can_peer_write = !self.inbox.revoke_target(target);
    }

    fn end_on_error<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.end_on_error_with(result, &[])
    }

    /// Ends the channel after an error, except for two errors that leave it usable: a deadline
    /// without a message, and a target that is too small.
    fn end_on_error_with<T>(
        &mut self,
        result: Result<T, Error>,
        target: &[u8],
    ) -> Result<T, Error> {
        if let Err(error) = &result {
            let is_idle = self.inbox.pending.is_none();
            let is_harmless = match error {
                Error::Deadline { .. } | Error::Closed => is_idle,
                Error::TooLong { .. } | Error::TooSmall { .. } | Error::TakenOver { .. } => true,
                _ => false,
            };
            if !is_harmless {
                self.inbox.lane.link.break_off();
                self.inbox.lane.set_state(layout::RECEIVER_STATE, layout::GIVEN_UP);
                self.abandon(target);
            }
        }
        result
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        spares::remove_receiver();
        let building = self.building.take();
        if self.inbox.lane.is_own() {
            // No later call continues this work.
            self.inbox.lane.clear_pending();
            self.abandon(building.as_deref().unwrap_or_default());
            if let Some(building) = building {
                self.let_go(building);
            }
        }
        self.inbox.lane.close();
    }
}
