//! The fast path of a small message that is in its slot, see `send::at_once`. The slow path
//! needed 920 instructions for a message of 64 B on Cascade Lake.

use haul_copy::Hint;

use super::inbox::Inbox;
use crate::mechanism::inline::account;
use crate::shared::account::Account;
use crate::shared::header::SumState;
use crate::shared::layout::{self, HEADER_BYTES, INLINE_BYTES_MAX, SLOTS};
use crate::shared::message::Message;
use crate::shared::names::Mechanism;
use crate::shared::transfer::poll;
use crate::shared::waiting::polls_before_asking;
use haul_peer::region::Fetch;

/// A published message of up to this length, header included, is prefetched while the previous
/// message is received.
const FETCH_NEXT_BYTES_MAX: usize = 192;

impl Inbox {
    /// Receives an inline message, if it is published within a microsecond and fits. Returns `None`
    /// if this call did nothing.
    #[inline]
    pub(crate) fn receive_at_once(&mut self, target: &mut [u8]) -> Option<Account> {
        self.enter().ok()?;
        poll(polls_before_asking(&self.lane), || self.is_published().then_some(()))?;
        let at = self.lane.slot(self.consumed);
        let region = &self.lane.link.region;
        // Prefetches all lines at once, because the copy has to wait for the header.
        let bytes = HEADER_BYTES + self.inline_before;
        region.fetch(at, bytes, Fetch::ToRead);
        if self.consumed.next() < self.published && bytes <= FETCH_NEXT_BYTES_MAX {
            region.fetch(self.lane.slot(self.consumed.next()), bytes, Fetch::ToRead);
        }
        // Read once. If the header is not the usual header, the slow path reads it again and
        // reports errors.
        let header = self.lane.header(self.consumed);
        let length = usize::try_from(header.length).ok()?;
        let is_usual = header.message == self.consumed.index()
            && header.kind == Mechanism::Inline.number()
            && header.sum == SumState::None
            && length <= INLINE_BYTES_MAX
            && header.length <= self.lane.link.settings.size_max;
        let target = target.get_mut(..length).filter(|_| is_usual)?;
        region.read(at + HEADER_BYTES, target, Hint::Unknown);
        if region.is_broken() {
            return None;
        }
        self.inline_before = length;
        let calls_before = self.lane.system_calls;
        self.consumed = self.consumed.next();
        // Until this end publishes the new count, the slot does not change, even if the sender
        // has given up meanwhile.
        let left = self.published.index() - self.consumed.index();
        self.lane.signal_lazily(layout::CONSUMED, self.consumed.index(), left > SLOTS / 2);
        Some(account(header.length, self.lane.system_calls - calls_before))
    }

    /// Whether another message is published after the consumed messages. The sender's count is
    /// read again only when all known messages are consumed, because its line comes from the
    /// sender's cache.
    fn is_published(&mut self) -> bool {
        if self.published <= self.consumed {
            let reported = self.lane.load(layout::PUBLISHED);
            let consumed = self.consumed.index();
            if (consumed..=consumed + SLOTS).contains(&reported) {
                self.published = Message::after(reported);
            }
        }
        self.published > self.consumed
    }
}

/// Tests of both halves of the fast path.
#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::Channel;
    use crate::mechanism::{inline, window};
    use crate::shared::distance::Distance;
    use crate::shared::error::Error;
    use crate::shared::layout::CELL_BYTES;
    use crate::shared::settings::Settings;
    use haul_peer::socket::pair;

    fn ends(settings: &Settings) -> (Channel, Channel) {
        let (one, other) = pair().unwrap();
        thread::scope(|scope| {
            let accepting = scope.spawn(|| Channel::accept_over(other, settings).unwrap());
            (Channel::connect_over(one, settings).unwrap(), accepting.join().unwrap())
        })
    }

    #[test]
    fn fast_path_gives_same_account_as_slow_path() {
        let asked = Settings { mechanism: Some(Mechanism::Inline), ..Settings::default() };
        let (mut one, mut other) = ends(&Settings::default());
        for length in [0, 1, 63, 64, 1000, window::inline_bytes_max(true), INLINE_BYTES_MAX] {
            if length > window::inline_bytes_max(true) {
                assert!(one.sender.outbox.send_at_once(&vec![1; length]).is_none(), "{length}");
                (one, other) = ends(&asked);
            }
            let bytes: Vec<u8> = (0..length).map(|index| index as u8 ^ 0x5a).collect();
            let short = one.sender.outbox.send_at_once(&bytes).unwrap().unwrap();
            let long = one.sender.start_send(&bytes).unwrap().finish().unwrap();
            assert_eq!(short, long, "{length}");
            let mut target = [vec![7; length], vec![7; length]];
            let short = other.receiver.inbox.receive_at_once(&mut target[0]).unwrap();
            assert_eq!(other.wait_length().unwrap(), length);
            let long = other.receiver.recv_into(&mut target[1]).unwrap();
            assert_eq!(short, long, "{length}");
            assert!(target[0] == bytes && target[1] == bytes, "{length}");
        }
    }

    /// Replaces this end's mapping with the mapping of an empty file. Accesses then fail like
    /// accesses to a hole, for which the system has no page.
    fn lose(end: &Channel) {
        let region = &end.sender.outbox.lane.link.region;
        let base = region.at(0, region.size_bytes());
        let file = rustix::fs::memfd_create(c"gone", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let rights = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        let flags = rustix::mm::MapFlags::SHARED | rustix::mm::MapFlags::FIXED;
        // SAFETY: the mapping is this end's own, whose users tolerate any bytes there.
        let lost = unsafe {
            rustix::mm::mmap(base.as_ptr().cast(), region.size_bytes(), rights, flags, &file, 0)
        };
        assert_eq!(lost.unwrap().addr(), base.addr().get());
    }

    #[test]
    fn missing_shared_memory_ends_channel_with_error() {
        let settings =
            Settings { wait: Some(std::time::Duration::from_secs(5)), ..Settings::default() };
        for length in [8, 20_000, 1 << 20] {
            let (mut one, _other) = ends(&settings);
            lose(&one);
            let error = one.send(&vec![1; length]).unwrap_err();
            assert!(matches!(error, Error::Memory { .. }), "{length}: {error}");
            let error = one.send(&[1]).unwrap_err();
            assert!(matches!(error, Error::Memory { .. } | Error::Broken), "{length}: {error}");

            let (mut one, mut other) = ends(&settings);
            thread::scope(|scope| {
                let sent = scope.spawn(move || one.send(&vec![1; length]).map(drop));
                other.wait_length().unwrap();
                lose(&other);
                let error = other.recv_into(&mut vec![0; length]).unwrap_err();
                assert!(matches!(error, Error::Memory { .. }), "{length}: {error}");
                drop(other);
                // The message had arrived already, or the receiver is gone.
                let _ = sent.join().unwrap();
            });
        }
    }

    #[test]
    fn messages_that_bypass_caches_arrive_whole() {
        for integrity in [false, true] {
            let (mut one, mut other) = ends(&Settings {
                integrity,
                mechanism: Some(Mechanism::Inline),
                ..Settings::default()
            });
            for length in [CELL_BYTES - 1, CELL_BYTES, INLINE_BYTES_MAX] {
                one.sender.outbox.lane.distance = Distance::farthest();
                let is_streamed = inline::hint(&one.sender.outbox.lane, length) == Hint::Streamed;
                assert_eq!(is_streamed, length >= CELL_BYTES);
                let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
                one.send(&bytes).unwrap();
                let mut target = vec![7; length];
                let account = other.recv_into(&mut target).unwrap();
                assert!(target == bytes, "{length}");
                assert_eq!((account.is_checked, account.mechanism), (integrity, Mechanism::Inline));
            }
        }
    }

    #[test]
    fn fast_path_leaves_other_messages_untouched() {
        let (mut one, mut other) = ends(&Settings::default());
        assert!(one.sender.outbox.send_at_once(&[1; INLINE_BYTES_MAX + 1]).is_none());
        assert!(other.receiver.inbox.receive_at_once(&mut [0; 9]).is_none(), "there is none");
        for message in 0..SLOTS {
            assert!(one.sender.outbox.send_at_once(&[message as u8; 10]).is_some());
        }
        assert!(one.sender.outbox.send_at_once(&[99; 10]).is_none(), "there is no slot");
        assert!(other.receiver.inbox.receive_at_once(&mut [0; 9]).is_none(), "it does not fit");
        let too_small = other.recv_into(&mut [0; 9]).unwrap_err();
        assert!(matches!(too_small, Error::TooSmall { .. }), "{too_small}");
        // The slow path began with this message and must end it, because the fast path does not
        // know of this message.
        for message in 0..SLOTS {
            let mut target = [99; 12];
            assert_eq!(other.recv_into(&mut target).unwrap().size_bytes, 10);
            assert_eq!(target[..10], [message as u8; 10]);
        }
        assert!(other.receiver.inbox.receive_at_once(&mut [0; 9]).is_none());
        assert!(one.sender.outbox.send_at_once(&[1; 9000]).is_none());
        thread::scope(|scope| {
            scope.spawn(|| one.send(&[5; 9000]).unwrap());
            assert_eq!(other.wait_length().unwrap(), 9000);
            assert_eq!(other.recv().unwrap()[..], [5; 9000]);
        });
    }

    #[test]
    fn messages_that_need_more_than_slot_have_no_fast_path() {
        let plain = Settings::default();
        for settings in [
            Settings { integrity: true, ..plain.clone() },
            Settings { mechanism: Some(Mechanism::Ring), ..plain.clone() },
        ] {
            let (mut one, mut other) = ends(&settings);
            assert!(one.sender.outbox.send_at_once(&[1; 8]).is_none());
            let account = thread::scope(|scope| {
                scope.spawn(|| one.send(&[1; 8]).unwrap());
                other.recv_into(&mut [0; 8]).unwrap()
            });
            assert_eq!(account.is_checked, settings.integrity);
        }
        let (mut one, _other) = ends(&Settings { size_max: 100, ..plain });
        assert!(one.sender.outbox.send_at_once(&[1; 101]).is_none());
        assert!(one.sender.outbox.send_at_once(&[1; 100]).is_some());
    }

    #[test]
    fn complete_message_arrives_though_sender_gave_up_next_one() {
        for is_short in [true, false] {
            let (mut one, mut other) = ends(&Settings::default());
            let large = vec![3; 8 << 20];
            one.send(b"whole").unwrap();
            let mut sending = one.start_send(&large).unwrap();
            assert!(!sending.advance().unwrap(), "no receiver has read it");
            drop(sending);
            let mut target = [0; 5];
            if !is_short {
                other.wait_length().unwrap();
            }
            other.recv_into(&mut target).unwrap();
            assert_eq!(&target, b"whole");
            let error = other.recv().map(|got| got.len()).unwrap_err();
            assert!(matches!(error, Error::GivenUp { .. }), "{error}");
        }
    }
}
