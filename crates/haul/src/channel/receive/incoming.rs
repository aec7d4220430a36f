//! What the header of a message says, read once, and what of it is believed.

use haul_model::Bytes;
use rustix::fd::OwnedFd;

use super::receiver::Receiver;
use crate::channel::mechanism::double::Draw;
use crate::channel::mechanism::lease::Let;
use crate::channel::mechanism::pull::Table;
use crate::channel::mechanism::ring::Run;
use crate::channel::mechanism::vmsplice;
use crate::channel::shared::account::{Account, Meter};
use crate::channel::shared::checksum::Sum;
use crate::channel::shared::closing;
use crate::channel::shared::error::Error;
use crate::channel::shared::header::{Header, SumState};
use crate::channel::shared::layout::{self, INLINE_BYTES_MAX, SLOTS};
use crate::channel::shared::link::Kind;
use crate::channel::shared::names::Mechanism;
use crate::channel::shared::pace::Pace;
use crate::channel::shared::transfer::Step;
use crate::peer::region::Fetch;

/// A message whose header was read and believed.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) length: usize,
    pub(crate) way: Way,
    /// Every byte is in its place; what is left is to compare the checksum.
    pub(crate) is_moved: bool,
    /// Bytes from the first on that came another way, before the ring took over.
    pub(crate) refused_at: usize,
    /// The checksum of the first bytes, and of those that the processor copied, where the message
    /// has one, and how many of the others were added.
    pub(crate) check: Option<(Sum, usize)>,
    pub(crate) account: Account,
    pub(crate) meter: Option<Meter>,
    pub(crate) calls_before: u64,
}

/// How its bytes come.
#[derive(Debug)]
pub(crate) enum Way {
    Inline,
    Chunks(Run),
    Memory { file: OwnedFd, offset: usize },
    Pull { process: i32, table: Table, offset: usize },
    Double(Draw),
    Lease(Let),
    Pipe { offset: usize },
}

impl Receiver {
    /// Looks for a message; reads its header once and believes what can be true.
    pub(crate) fn take_header(&mut self) -> Result<Step<usize>, Error> {
        if let Some(pending) = &self.pending {
            return Ok(Step::Done(pending.length));
        }
        let state = self.lane.state_word(layout::SENDER_STATE);
        let (state, told) = closing::look(state, || self.lane.load(layout::PUBLISHED));
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
        // All lines at once, while the header is on its way: what it says is needed for the copy.
        self.lane.link.region.fetch(at, layout::HEADER_BYTES + self.inline_before, Fetch::ToRead);
        let pending = self.believe(self.lane.header(self.consumed))?;
        let length = pending.length;
        self.inline_before = if matches!(pending.way, Way::Inline) { length } else { 0 };
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
        Ok(Pending {
            length,
            way,
            is_moved: false,
            refused_at: 0,
            check,
            account,
            meter,
            calls_before,
        })
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
            Mechanism::Ring => {
                let pace = Pace::from_word(header.detail);
                let pace =
                    pace.ok_or_else(|| Error::protocol("pace", header.detail, Pace::COUNT))?;
                Ok(Way::Chunks(Run::new(0, header.length, link.chunk_bytes, pace)))
            }
            Mechanism::Staged | Mechanism::Sealed => {
                let expected = "one memory file for the message";
                let file = link.take_file(Kind::Memory, header.message, expected)?;
                self.lane.system_calls += 2;
                Ok(Way::Memory { file, offset: 0 })
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
                let expected = "the reading end of a pipe";
                if header.detail > 0 {
                    let pipe = link.take_file(Kind::Pipe, header.message, expected)?;
                    self.pipe = Some(pipe).filter(vmsplice::is_reader);
                    self.lane.system_calls += 3;
                }
                match &self.pipe {
                    Some(_) => Ok(Way::Pipe { offset: 0 }),
                    None => Err(Error::Memory { found: "no pipe".into(), expected }),
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
        let table = Table::take(&self.lane, header.message, header.detail, header.length);
        let table = table.ok_or_else(|| {
            let what = "table of parts for a length of";
            Error::protocol(what, header.detail, header.length)
        })?;
        Ok((process, table))
    }
}
