//! The public interface of the sending half.

use std::io::IoSlice;
use std::sync::Arc;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd};

use super::at_once::gone;
use super::outbox::Outbox;
use super::sending::Sending;
use crate::mechanism::choose::Reason;
use crate::mechanism::dispatch::{self, AnySending};
use crate::mechanism::sealed::Building;
use crate::mechanism::{choose, window};
use crate::shared::account::{Account, Meter};
use crate::shared::error::Error;
use crate::shared::link::Link;
use crate::shared::names::Mechanism;
use crate::shared::source::Source;
use haul_peer::life::Life;
use haul_peer::process::Identity;

/// The mechanism of a message and its reason, see [`Sender::explain`].
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The reason for it.
    pub reason: Reason,
    /// Whether both ends trust each other.
    pub is_trusted: bool,
    /// Whether a table that was measured on this machine is in use.
    pub is_measured: bool,
    /// Each mechanism, with the reason why it cannot carry this message, if there is one.
    pub obstacles: Vec<(Mechanism, Option<&'static str>)>,
}

/// The half of a channel that sends.
#[derive(Debug)]
pub struct Sender {
    pub(crate) outbox: Outbox,
}

impl Sender {
    pub(crate) fn new(link: Arc<Link>, index: usize, life: Life) -> Self {
        Self { outbox: Outbox::new(link, index, life) }
    }

    /// Sends a message. Once this returns, the caller may reuse the bytes: the receiver never sees
    /// later writes to them. Whether the receiver has the message by then depends on the mechanism:
    /// small messages and the last pieces may still be in shared memory.
    ///
    /// # Errors
    /// [`Error::PeerGone`] at once if the receiver closed the channel, or died at least 0.1 ms ago;
    /// [`Error::TakenOver`] if another process uses the channel since a fork. [`Error::TooLong`],
    /// [`Error::Unavailable`]: nothing was sent. [`Error::Deadline`] without moved bytes: the
    /// receiver consumes nothing, and the message can be sent again. Every other error ends the
    /// channel.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Account, Error> {
        if let Some(sent) = self.outbox.send_at_once(bytes) {
            return sent;
        }
        self.start_send(bytes)?.finish()
    }

    /// Sends several slices as one message, see [`send`](Self::send).
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn send_vectored(&mut self, parts: &[IoSlice<'_>]) -> Result<Account, Error> {
        self.start(Source::many(parts), None)?.finish()
    }

    /// Hands over a message that was built in place, without a copy. If a child that another
    /// thread forked keeps the memory until its exec, waits for that exec, at most 0.1 s.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send), and [`Error::System`] if the memory cannot be handed
    /// over.
    pub fn send_built(&mut self, building: Building) -> Result<Account, Error> {
        self.start(Source::one(&[]), Some(building))?.finish()
    }

    /// Begins to send a message, without waiting.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    pub fn start_send<'a>(&'a mut self, bytes: &'a [u8]) -> Result<Sending<'a>, Error> {
        self.start(Source::one(bytes), None)
    }

    /// Begins to send a message whose bytes this end shares with the caller, without waiting.
    ///
    /// If the mechanism is `ring` or `lease`, [`Settings::engine`](crate::Settings::engine) copies
    /// the bytes while the caller does something else. Each call of [`Sending::advance`] publishes
    /// what the engine has copied, and starts the next copy. The descriptor is also readable when
    /// a copy has ended. The receiver gets a piece only when all of its bytes are there.
    ///
    /// When the message is complete, no copy uses the bytes any more. A caller that has kept a
    /// clone and drops the [`Sending`] then owns them alone, and can change them by
    /// [`Arc::get_mut`].
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
    ///
    /// ```
    /// use std::sync::Arc;
    /// use haul_channel::{Channel, Settings, pair};
    /// use haul_engine::Queue;
    /// let (one, other) = pair()?;
    /// let receiver = std::thread::spawn(move || {
    ///     let mut channel = Channel::accept_over(other, &Settings::default())?;
    ///     channel.recv().map(|message| message.len())
    /// });
    /// let settings = Settings { engine: Some(Queue::auto()?), ..Settings::default() };
    /// let mut channel = Channel::connect_over(one, &settings)?;
    /// let mut bytes = Arc::new(vec![7; 1 << 20]);
    /// let sending = channel.start_send_shared(Arc::clone(&bytes))?;
    /// let sum: u64 = (0..1000).sum(); // runs while the engine copies
    /// sending.finish()?;
    /// Arc::get_mut(&mut bytes).expect("no copy uses them")[0] = 1;
    /// assert_eq!((receiver.join().unwrap()?, sum), (1 << 20, 499_500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_send_shared(&mut self, bytes: Arc<Vec<u8>>) -> Result<Sending<'_>, Error> {
        self.start(Source::shared(bytes), None)
    }

    fn start<'a>(
        &'a mut self,
        mut source: Source<'a>,
        building: Option<Building>,
    ) -> Result<Sending<'a>, Error> {
        let outbox = &mut self.outbox;
        outbox.enter()?;
        let limit = outbox.lane.link.settings.size_max;
        let length = building.as_ref().map_or_else(|| source.length(), |b| b.len() as u64);
        if length > limit {
            return Err(Error::TooLong { size: Bytes(length), limit: Bytes(limit) });
        }
        if outbox.is_closed() || outbox.lane.is_known_gone() {
            return Err(gone(length));
        }
        let calls_before = outbox.lane.system_calls;
        let meter = Meter::of(length);
        if meter.is_some() {
            outbox.lane.refresh_affinity();
        }
        if outbox.lane.link.settings.integrity {
            source.begin_sum();
        }
        let (mechanism, by) = match building {
            // Whether the memory will be sealed is only known when it is given up.
            Some(building) => (Mechanism::Sealed, AnySending::built(building)),
            None => {
                let sleeps = outbox.lane.sleeps;
                outbox.sleep_history().note(sleeps);
                let longest_inline = window::inline_bytes_max(outbox.sleep_history().is_awake());
                let mechanism = choose::choose(&outbox.lane, &source, length, longest_inline)?;
                (mechanism, AnySending::new(mechanism, &outbox.lane.link, length))
            }
        };
        let account = Account { mechanism, size_bytes: length, ..Account::default() };
        Ok(Sending::new(outbox, source, by, account, (meter, calls_before)))
    }

    /// The mechanism that a message of `length` bytes in one slice would use now, and the reason.
    /// The choice depends on the load and the receiver's memory, which may change before the next
    /// message.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Unavailable`], and the error of a channel that has ended.
    pub fn explain(&mut self, length: u64) -> Result<Explanation, Error> {
        let outbox = &mut self.outbox;
        outbox.enter()?;
        let limit = outbox.lane.link.settings.size_max;
        if length > limit {
            return Err(Error::TooLong { size: Bytes(length), limit: Bytes(limit) });
        }
        outbox.lane.refresh_affinity();
        // Mechanisms only check the number of the source's slices.
        let mut source = Source::one(&[]);
        if outbox.lane.link.settings.integrity {
            source.begin_sum();
        }
        let longest_inline = window::inline_bytes_max(outbox.sleep_history().is_awake());
        let lane = &outbox.lane;
        let (mechanism, reason) =
            choose::choose_with_reason(lane, &source, length, longest_inline)?;
        let obstacle = |other| dispatch::obstacle(other, &lane.link, &source, length);
        Ok(Explanation {
            mechanism,
            reason,
            is_trusted: lane.link.is_trusted,
            is_measured: choose::is_measured(),
            obstacles: Mechanism::ALL.into_iter().map(|other| (other, obstacle(other))).collect(),
        })
    }

    /// The descriptor to poll for reading before the next call of [`Sending::advance`].
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.outbox.lane.link.as_fd()
    }

    /// The process at the other end.
    #[must_use]
    pub fn peer(&self) -> Identity {
        self.outbox.lane.peer().identity
    }

    /// Whether the mechanism is available for messages to this peer, as the handshake determined
    /// it.
    #[must_use]
    pub fn offers(&self, mechanism: Mechanism) -> bool {
        dispatch::offers(&self.outbox.lane.link, mechanism)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.outbox.lane.close();
    }
}
