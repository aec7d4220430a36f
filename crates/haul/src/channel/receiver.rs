//! The receiving half.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use haul_model::Bytes;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};

use super::account::{Account, Meter};
use super::buffer::Buffer;
use super::checksum::Sum;
use super::double::{Draw, Drawn};
use super::error::Error;
use super::layout::{self, HEADER_WORDS, Header, INLINE_BYTES_MAX, SLOTS, SumState};
use super::lease::{Laid, Let};
use super::link::{self, Kind, Lane, Link, Step, Transfer};
use super::pool::Pools;
use super::pull::Table;
use super::ring::Run;
use super::vmsplice::{self, Drained};
use super::{Mechanism, inline, region, ring, sealed, staged};

/// Bytes that are added to a checksum at a time, between two looks at the clock: 0.1 ms.
const SUM_BYTES: usize = 1 << 20;

/// The end that messages come out of.
#[derive(Debug)]
pub struct Receiver {
    lane: Lane,
    /// Messages taken whole.
    consumed: u64,
    /// Chunks emptied.
    drained: u64,
    pending: Option<Pending>,
    /// What `try_recv` has built so far.
    building: Option<Buffer>,
    /// Memory that a trusted sender copies into.
    pools: Pools,
    /// What a trusted sender's pages come out of.
    pipe: Option<OwnedFd>,
    /// The peer may still write where the last message would have come to.
    is_unsettled: bool,
}

/// A message whose header was read and believed.
#[derive(Debug)]
struct Pending {
    length: usize,
    way: Way,
    /// Every byte is in its place; what is left is to compare the checksum.
    is_moved: bool,
    /// The checksum of the first bytes, where the message has one, and how many those are.
    check: Option<(Sum, usize)>,
    account: Account,
    meter: Option<Meter>,
    calls_before: u64,
}

/// How its bytes come.
#[derive(Debug)]
enum Way {
    Inline,
    Chunks(Run),
    Memory(OwnedFd),
    Pull { process: i32, table: Table, offset: usize },
    Double(Draw),
    Lease(Let),
    Pipe { offset: usize },
}

impl Receiver {
    pub(super) fn new(link: Arc<Link>, index: usize) -> Self {
        let lane = Lane::for_receiving(link, index);
        let (pools, pipe, is_unsettled) = (Pools::default(), None, false);
        let (consumed, drained, pending, building) = (0, 0, None, None);
        Self { lane, consumed, drained, pending, building, pools, pipe, is_unsettled }
    }

    /// Waits for a message and copies it to the start of `target`. The account says how long it is.
    ///
    /// # Errors
    /// [`Error::TooSmall`]: the message stays, for a larger target. [`Error::Closed`]: there are no
    /// more. [`Error::Deadline`] with no size: no message came. Everything else ends the channel,
    /// and what `target` holds then is nothing. Where the peer is trusted and was stopped in the
    /// middle of `double`, it can still write one piece to `target` as it goes on: keep that memory
    /// until the peer is gone, or receive by [`recv`](Self::recv), which does.
    pub fn recv_into(&mut self, target: &mut [u8]) -> Result<Account, Error> {
        let needed = self.wait_length()?;
        let has = target.len();
        let Some(target) = target.get_mut(..needed) else {
            return Err(Error::TooSmall { needed: Bytes(needed as u64), has: Bytes(has as u64) });
        };
        if let Some(building) = self.building.take() {
            // `try_recv` had begun with it.
            let mut buffer = self.finish_building(building)?;
            buffer.place(target);
            return Ok(buffer.account().clone());
        }
        let result = link::drive(&mut Filling { receiver: self, target });
        self.told_of(result, target)
    }

    /// Waits for a message and gives it in memory of its own.
    ///
    /// # Errors
    /// As [`recv_into`](Self::recv_into), and [`Error::System`] where there is no memory for it.
    pub fn recv(&mut self) -> Result<Buffer, Error> {
        let length = self.wait_length()?;
        if let Some(buffer) = self.take_view()? {
            return Ok(buffer);
        }
        let building = self.memory(length)?;
        self.finish_building(building)
    }

    /// A message, if one is there whole or can be made so without waiting; `None` where
    /// [`as_fd`](Self::as_fd) is to be polled for reading first. Each call goes on where the one
    /// before it ended.
    ///
    /// # Errors
    /// As [`recv`](Self::recv). The deadline is the caller's to keep.
    pub fn try_recv(&mut self) -> Result<Option<Buffer>, Error> {
        self.lane.link.check_whole()?;
        let result = link::advance(&mut Taking { receiver: self });
        let Some(length) = self.told(result)? else { return Ok(None) };
        if let Some(buffer) = self.take_view()? {
            return Ok(Some(buffer));
        }
        let mut building = self.memory(length)?;
        let result = link::advance(&mut Filling { receiver: self, target: &mut building });
        match self.told_of(result, &building) {
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

    /// Waits for a message and says how long it is; the message stays.
    ///
    /// # Errors
    /// As [`recv_into`](Self::recv_into).
    pub fn wait_length(&mut self) -> Result<usize, Error> {
        self.lane.link.check_whole()?;
        let result = link::drive(&mut Taking { receiver: self });
        self.told(result)
    }

    /// What to poll for reading before [`try_recv`](Self::try_recv) is called again.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.lane.link.socket.as_fd()
    }

    pub(super) fn link(&self) -> &Link {
        &self.lane.link
    }

    fn finish_building(&mut self, mut building: Buffer) -> Result<Buffer, Error> {
        let result = link::drive(&mut Filling { receiver: self, target: &mut building });
        match self.told_of(result, &building) {
            Ok(account) => Ok(building.with(account)),
            Err(error) => {
                self.let_go(building);
                Err(error)
            }
        }
    }

    /// Memory for the message under way: what was begun with, or new.
    fn memory(&mut self, length: usize) -> Result<Buffer, Error> {
        if let Some(building) = self.building.take() {
            return Ok(building);
        }
        if matches!(&self.pending, Some(Pending { way: Way::Lease(_), .. }))
            // Without a pool the message goes through the ring, into memory of its own.
            && let Ok(lease) = self.pools.lease(length)
        {
            return Ok(Buffer::leased(lease, length));
        }
        Buffer::zeroed(length)
    }

    /// Gives memory back that a message did not come to, unless the peer may still write there:
    /// then its addresses stay taken, which costs memory once, as the channel is at its end.
    fn let_go(&self, building: Buffer) {
        if self.is_unsettled {
            std::mem::forget(building);
        }
    }

    /// There will be no more of the message that was on its way to this target.
    fn abandon(&mut self, target: &[u8]) {
        self.is_unsettled = !self.settle(target);
    }

    /// Memory that came sealed is given as it is.
    fn take_view(&mut self) -> Result<Option<Buffer>, Error> {
        let Some(Pending { way: Way::Memory(file), account, length, .. }) = &self.pending else {
            return Ok(None);
        };
        if account.mechanism != Mechanism::Sealed {
            return Ok(None);
        }
        let checked = region::check(file.as_fd(), *length, staged::SEALS);
        let view = checked.and_then(|()| Buffer::view(file.as_fd(), *length));
        let buffer = self.told(view)?;
        // Nothing of it waits for the peer: the sum of sealed memory came with its header.
        let compared = loop {
            match self.compare(&buffer) {
                Ok(Step::Moved) => {}
                Ok(Step::Done(())) => break Ok(()),
                Ok(Step::Blocked) => break Err(Error::protocol("state of a checksum", 1, 2)),
                Err(error) => break Err(error),
            }
        };
        self.told(compared)?;
        self.lane.system_calls += staged::CALLS_TO_COPY_OUT - 1;
        let account = self.complete();
        Ok(Some(buffer.with(account)))
    }

    fn told<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        self.told_of(result, &[])
    }

    /// What ends the channel, and what does not: waiting in vain, and a target too small.
    fn told_of<T>(&mut self, result: Result<T, Error>, target: &[u8]) -> Result<T, Error> {
        if let Err(error) = &result {
            let is_idle = self.pending.is_none();
            let is_harmless = match error {
                Error::Deadline { .. } | Error::Closed => is_idle,
                Error::TooLong { .. } | Error::TooSmall { .. } => true,
                _ => false,
            };
            if !is_harmless {
                self.lane.link.break_off();
                self.lane.set_state(layout::RECEIVER_STATE, layout::GIVEN_UP);
                self.abandon(target);
            }
        }
        result
    }

    /// Looks for a message; reads its header once and believes what can be true.
    fn take_header(&mut self) -> Result<Step<usize>, Error> {
        if let Some(pending) = &self.pending {
            return Ok(Step::Done(pending.length));
        }
        let state = self.lane.state(layout::SENDER_STATE);
        let told = self.lane.load(layout::PUBLISHED);
        if !(self.consumed..=self.consumed + SLOTS).contains(&told) {
            return Err(Error::protocol("count of messages", told, self.consumed + SLOTS));
        }
        if told == self.consumed {
            return match state {
                layout::OPEN => Ok(Step::Blocked),
                layout::CLOSED => Err(Error::Closed),
                _ => Err(Error::GivenUp { done: Bytes(0), size: Bytes(0) }),
            };
        }
        let at = self.lane.slot(self.consumed);
        let mut words = [0; HEADER_WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.lane.link.region.word64(at + index * 8).load(Relaxed);
        }
        let pending = self.believe(Header::from_words(words))?;
        let length = pending.length;
        self.pending = Some(pending);
        Ok(Step::Done(length))
    }

    fn believe(&mut self, header: Header) -> Result<Pending, Error> {
        if header.message != self.consumed {
            return Err(Error::protocol("message number", header.message, self.consumed));
        }
        let limit = self.lane.link.settings.size_max.min(isize::MAX as u64);
        if header.length > limit {
            return Err(Error::TooLong { size: Bytes(header.length), limit: Bytes(limit) });
        }
        let kinds = Mechanism::ALL.len() as u64;
        let mechanism = Mechanism::from_number(header.kind)
            .ok_or_else(|| Error::protocol("mechanism", header.kind, kinds))?;
        let calls_before = self.lane.system_calls;
        let meter = Meter::of(header.length);
        let way = self.way(mechanism, &header)?;
        let account = Account { mechanism, size_bytes: header.length, ..Account::default() };
        let check = (header.sum != SumState::None).then_some((Sum::default(), 0));
        let length = header.length as usize;
        Ok(Pending { length, way, is_moved: false, check, account, meter, calls_before })
    }

    fn way(&mut self, mechanism: Mechanism, header: &Header) -> Result<Way, Error> {
        let link = &self.lane.link;
        match mechanism {
            Mechanism::Inline if header.length > INLINE_BYTES_MAX as u64 => {
                let limit = INLINE_BYTES_MAX as u64;
                Err(Error::protocol("length of an inline message", header.length, limit))
            }
            Mechanism::Inline => Ok(Way::Inline),
            _ if header.length == 0 => Err(Error::protocol("length of a large message", 0, 1)),
            Mechanism::Ring => Ok(Way::Chunks(Run::new(0, header.length, link.chunk_bytes))),
            Mechanism::Staged | Mechanism::Sealed => {
                let file = link.take_file(Kind::Memory, header.message);
                let file = file.ok_or_else(|| Error::Memory {
                    found: "no memory, or several descriptors at once".into(),
                    expected: "one memory file for the message",
                })?;
                self.lane.system_calls += 2;
                Ok(Way::Memory(file))
            }
            Mechanism::Pull => {
                let (process, table) = self.table(header, link.can_pull)?;
                Ok(Way::Pull { process, table, offset: 0 })
            }
            Mechanism::Lease | Mechanism::Vmsplice if !link.is_trusted => {
                Err(Error::protocol("mechanism", header.kind, 0))
            }
            Mechanism::Lease => Ok(Way::Lease(Let::default())),
            Mechanism::Vmsplice => {
                if header.entries > 0 {
                    let pipe = link.take_file(Kind::Pipe, header.message);
                    self.pipe = pipe.filter(vmsplice::is_reader);
                    self.lane.system_calls += 3;
                }
                match &self.pipe {
                    Some(_) => Ok(Way::Pipe { offset: 0 }),
                    None => Err(Error::Memory {
                        found: "no pipe".into(),
                        expected: "the reading end of one",
                    }),
                }
            }
            Mechanism::Double => {
                let (process, table) = self.table(header, link.can_pull && link.peer_can_pull)?;
                Ok(Way::Double(Draw::new(process, table, header.length)))
            }
        }
    }

    /// Where the bytes stand in the sender, if it may be looked there at all.
    fn table(&self, header: &Header, is_allowed: bool) -> Result<(i32, Table), Error> {
        let link = &self.lane.link;
        let process = link.peer.identity.process.filter(|_| link.is_trusted && is_allowed);
        let process = process.ok_or_else(|| Error::protocol("mechanism", header.kind, 0))?;
        let table = Table::take(&self.lane, header.message, header.entries, header.length);
        let table = table.ok_or_else(|| {
            let what = "table of parts for a length of";
            Error::protocol(what, header.entries, header.length)
        })?;
        Ok((process, table))
    }

    /// Moves bytes of the message under way into a target of exactly its length.
    fn fill(&mut self, target: &mut [u8]) -> Result<Step<Account>, Error> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let sum = pending.check.as_mut().map(|(sum, _)| sum);
        let step = match &mut pending.way {
            _ if pending.is_moved => Step::Done(()),
            Way::Inline => {
                inline::take(&self.lane, self.consumed, target, sum);
                pending.account.copied_bytes = target.len() as u64;
                Step::Done(())
            }
            Way::Chunks(run) => {
                let before = run.offset;
                let step = ring::drain(&mut self.lane, target, run, &mut self.drained, sum)?;
                pending.account.copied_bytes += run.offset - before;
                step
            }
            Way::Memory(file) => {
                let copied = match pending.account.mechanism {
                    Mechanism::Sealed => sealed::put_into(file.as_fd(), target)?,
                    _ => {
                        staged::copy_out(file.as_fd(), target)?;
                        target.len()
                    }
                };
                self.lane.system_calls += staged::CALLS_TO_COPY_OUT;
                pending.account.copied_bytes = copied as u64;
                Step::Done(())
            }
            Way::Pull { .. } => self.pull(target),
            Way::Double(_) => self.draw(target)?,
            Way::Lease(_) => self.be_given(target),
            Way::Pipe { .. } => self.drain_pipe(target),
        };
        match step {
            Step::Done(()) => match self.compare(target)? {
                Step::Done(()) => {
                    self.check_still_the_peer(target.len())?;
                    self.check_not_given_up(target.len())?;
                    Ok(Step::Done(self.complete()))
                }
                Step::Moved => Ok(Step::Moved),
                Step::Blocked => {
                    self.check_still_coming()?;
                    Ok(Step::Blocked)
                }
            },
            Step::Moved => Ok(Step::Moved),
            Step::Blocked => {
                self.check_still_coming()?;
                Ok(Step::Blocked)
            }
        }
    }

    fn pull(&mut self, target: &mut [u8]) -> Step<()> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let Way::Pull { process, table, offset } = &mut pending.way else { return Step::Blocked };
        if *offset == target.len() {
            return Step::Done(());
        }
        self.lane.system_calls += 1;
        match table.pull(*process, &mut target[*offset..]) {
            Ok(count) if count > 0 => {
                *offset += count;
                pending.account.copied_bytes += count as u64;
                let pulled = self.lane.load(layout::PULLED).wrapping_add(count as u64);
                self.lane.note(layout::PULLED, pulled);
            }
            // Whatever the reason, the sender still has the bytes and can bring the rest itself.
            _ => {
                let offset = *offset;
                self.refuse(&target[..offset]);
            }
        }
        Step::Moved
    }

    fn draw(&mut self, target: &mut [u8]) -> Result<Step<()>, Error> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let Way::Double(draw) = &mut pending.way else { return Ok(Step::Blocked) };
        let before = draw.bytes();
        let drawn = draw.step(&mut self.lane, target, self.consumed + 1)?;
        pending.account.copied_bytes += draw.bytes() - before;
        match drawn {
            Drawn::Step(step) => Ok(step),
            Drawn::Refused(offset) => {
                self.refuse(&target[..offset as usize]);
                Ok(Step::Moved)
            }
        }
    }

    fn be_given(&mut self, target: &[u8]) -> Step<()> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let Way::Lease(lease) = &mut pending.way else { return Step::Blocked };
        match lease.step(&mut self.lane, target, &self.pools, self.consumed + 1) {
            Laid::Step(step) => step,
            Laid::Refused => {
                self.refuse(&[]);
                Step::Moved
            }
        }
    }

    fn drain_pipe(&mut self, target: &mut [u8]) -> Step<()> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        let (Way::Pipe { offset }, Some(pipe)) = (&mut pending.way, &self.pipe) else {
            return Step::Blocked;
        };
        let before = *offset;
        let drained = vmsplice::drain(&mut self.lane, pipe, target, offset, self.consumed + 1);
        let offset = *offset;
        pending.account.copied_bytes += (offset - before) as u64;
        match drained {
            Drained::Step(step) => step,
            Drained::Refused => {
                self.pipe = None;
                self.refuse(&target[..offset]);
                Step::Moved
            }
        }
    }

    /// Has the sender bring the rest of the message, which is there up to here, through the ring.
    fn refuse(&mut self, whole: &[u8]) {
        let offset = whole.len() as u64;
        let pending = self.pending.as_mut().expect("a header was taken before");
        if let Some((sum, _)) = &mut pending.check {
            *sum = Sum::default();
            sum.add(0, whole);
        }
        let run = Run::new(offset, pending.length as u64, self.lane.link.chunk_bytes);
        pending.way = Way::Chunks(run);
        pending.account.fell_back_from = Some(pending.account.mechanism);
        pending.account.mechanism = Mechanism::Ring;
        self.lane.note(layout::REFUSED_AT, offset);
        self.lane.tell(layout::REFUSED, self.consumed + 1);
    }

    /// Compares the bytes that are kept with the checksum, if there is one. What the processor
    /// copied was added then; what others brought is added here.
    fn compare(&mut self, target: &[u8]) -> Result<Step<()>, Error> {
        let pending = self.pending.as_mut().expect("a header was taken before");
        pending.is_moved = true;
        let Some((sum, summed)) = &mut pending.check else { return Ok(Step::Done(())) };
        let is_fused = matches!(pending.way, Way::Inline | Way::Chunks(_));
        if !is_fused && *summed < target.len() {
            let next = &target[*summed..];
            let next = &next[..next.len().min(SUM_BYTES)];
            sum.add(*summed as u64, next);
            *summed += next.len();
            return Ok(Step::Moved);
        }
        let SumState::Known(expected) = self.lane.sum(self.consumed) else {
            return Ok(Step::Blocked);
        };
        if *sum != expected {
            let (found, expected) = (sum.folded(), expected.folded());
            return Err(Error::Damaged { size: Bytes(target.len() as u64), found, expected });
        }
        pending.account.is_checked = true;
        Ok(Step::Done(()))
    }

    /// Makes sure that nothing is written to a target any more; false where that is not sure.
    fn settle(&mut self, target: &[u8]) -> bool {
        let message = self.consumed + 1;
        self.pools.retire();
        match self.pending.as_mut().map(|pending| &mut pending.way) {
            Some(Way::Double(draw)) => draw.settle(&mut self.lane, message),
            Some(Way::Lease(lease)) => lease.cut_off(target),
            _ => true,
        }
    }

    /// Bytes read from a sender that had given up by then may have changed already.
    fn check_not_given_up(&self, length: usize) -> Result<(), Error> {
        // SYNC: given up: the sender says so before it touches the bytes again; this asks after
        // having read them.
        fence(SeqCst);
        if self.lane.state(layout::SENDER_STATE) == layout::GIVEN_UP {
            let size = Bytes(length as u64);
            return Err(Error::GivenUp { done: size, size });
        }
        Ok(())
    }

    /// What was read from a process of the peer's number was the peer's if it lives.
    fn check_still_the_peer(&mut self, length: usize) -> Result<(), Error> {
        let way = self.pending.as_ref().map(|pending| &pending.way);
        if matches!(way, Some(Way::Pull { .. } | Way::Double(_))) && self.lane.is_peer_gone() {
            let size = Bytes(length as u64);
            return Err(Error::PeerGone { attempt: "receive", done: size, size });
        }
        Ok(())
    }

    /// Whoever closed in the middle of a message brings nothing more.
    fn check_still_coming(&self) -> Result<(), Error> {
        let (done, size) = self.progress();
        let (done, size) = (Bytes(done), Bytes(size));
        match self.lane.state(layout::SENDER_STATE) {
            layout::OPEN => Ok(()),
            // It published the rest before it closed: look once more.
            layout::CLOSED if self.lane.load(layout::FILLED) != self.drained => Ok(()),
            layout::CLOSED => Err(Error::PeerGone { attempt: "receive", done, size }),
            _ => Err(Error::GivenUp { done, size }),
        }
    }

    fn progress(&self) -> (u64, u64) {
        let Some(pending) = &self.pending else { return (0, 0) };
        let done = match &pending.way {
            Way::Chunks(run) => run.offset,
            Way::Pull { offset, .. } => *offset as u64,
            Way::Double(draw) => draw.bytes(),
            Way::Pipe { offset } => *offset as u64,
            Way::Inline | Way::Memory(_) | Way::Lease(_) => 0,
        };
        (done, pending.length as u64)
    }

    /// The message is whole: its slot, and what else it took, is the sender's again.
    fn complete(&mut self) -> Account {
        self.consumed += 1;
        self.lane.tell(layout::CONSUMED, self.consumed);
        let pending = self.pending.take().expect("only what was taken completes");
        let mut account = pending.account;
        account.system_calls = self.lane.system_calls - pending.calls_before;
        if let Some(meter) = pending.meter {
            meter.write_to(&mut account);
        }
        account
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let building = self.building.take();
        self.abandon(building.as_deref().unwrap_or_default());
        if let Some(building) = building {
            self.let_go(building);
        }
        if self.lane.state(layout::RECEIVER_STATE) == layout::OPEN {
            self.lane.set_state(layout::RECEIVER_STATE, layout::CLOSED);
        }
    }
}

/// Waits for a header.
struct Taking<'a> {
    receiver: &'a mut Receiver,
}

/// Moves the bytes.
struct Filling<'a> {
    receiver: &'a mut Receiver,
    target: &'a mut [u8],
}

impl Transfer for Taking<'_> {
    type Output = usize;

    fn step(&mut self) -> Result<Step<usize>, Error> {
        self.receiver.take_header()
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.receiver.lane
    }

    fn attempt(&self) -> &'static str {
        "receive"
    }

    fn progress(&self) -> (u64, u64) {
        (0, 0)
    }

    fn has_begun(&self) -> bool {
        false
    }
}

impl Transfer for Filling<'_> {
    type Output = Account;

    fn step(&mut self) -> Result<Step<Account>, Error> {
        self.receiver.fill(self.target)
    }

    fn lane(&mut self) -> &mut Lane {
        &mut self.receiver.lane
    }

    fn attempt(&self) -> &'static str {
        "receive"
    }

    fn progress(&self) -> (u64, u64) {
        self.receiver.progress()
    }

    fn has_begun(&self) -> bool {
        true
    }
}
