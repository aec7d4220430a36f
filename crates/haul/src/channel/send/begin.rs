//! How a message begins, by each mechanism: until its header is published the receiver knows
//! nothing of it, and it can still go another way.

use haul_model::Bytes;
use rustix::fd::AsFd;
use rustix::io::Errno;

use super::sending::{Before, Sending, Stage};
use crate::channel::mechanism::double::Push;
use crate::channel::mechanism::lease::Lay;
use crate::channel::mechanism::ring::{self, Run, Tell};
use crate::channel::mechanism::sealed::Built;
use crate::channel::mechanism::staged::{self, Making};
use crate::channel::mechanism::vmsplice::{Pipe, Pour};
use crate::channel::mechanism::{choose, inline, pull};
use crate::channel::shared::error::Error;
use crate::channel::shared::header::Header;
use crate::channel::shared::layout;
use crate::channel::shared::link::Kind;
use crate::channel::shared::names::Mechanism;
use crate::channel::shared::transfer::Step;
use crate::peer::process::Readable;

impl Sending<'_> {
    /// There is room: the message begins. Until the header is out the receiver knows nothing.
    pub(crate) fn begin(&mut self) -> Result<Step<()>, Error> {
        if let Some(built) = self.built.take() {
            return self.give_up_built(built);
        }
        let mut detail = 0;
        self.before = Before::of(self.sender);
        let lane = &mut self.sender.lane;
        match self.account.mechanism {
            Mechanism::Inline => {
                inline::put(lane, self.sender.next, &mut self.source, self.length as usize);
                self.account.copied_bytes = self.length;
                self.account.extra_memory_bytes = layout::SLOTS_BYTES as u64;
            }
            Mechanism::Pull | Mechanism::Double => {
                self.readable = Readable::to(lane.link.peer.identity);
                if self.readable.is_none() {
                    // Another peer is being read. Whoever asked for this way by name waits.
                    let asked = lane.link.settings.mechanism;
                    let is_asked_for = asked == Some(self.account.mechanism);
                    return if is_asked_for { Ok(Step::Blocked) } else { self.fall_back() };
                }
                lane.note(layout::PUSHED, 0);
                detail = pull::put(lane, self.sender.next, &self.source);
            }
            Mechanism::Staged | Mechanism::Sealed => return self.begin_with_memory(),
            Mechanism::Vmsplice => return self.begin_with_pipe(),
            Mechanism::Lease => {}
            Mechanism::Ring => {
                return self.begin_with_chunks();
            }
        }
        self.publish(detail);
        self.stage = match self.account.mechanism {
            Mechanism::Inline => {
                self.sender.fetch_slot(self.length as usize);
                Stage::Complete
            }
            Mechanism::Pull => Stage::Answer,
            Mechanism::Double => Stage::Push(Push::new(self.length)),
            Mechanism::Lease => Stage::Lay(Lay::new(self.length)),
            _ => Stage::Failed,
        };
        Ok(Step::Moved)
    }

    /// A message of one chunk is in it before it is told of, if there is room: one word that the
    /// receiver waits for, not two.
    fn begin_with_chunks(&mut self) -> Result<Step<()>, Error> {
        let sender = &mut *self.sender;
        let pace = sender.pace(self.length);
        let mut run = Run::new(0, self.length, sender.lane.link.chunk_bytes, pace);
        self.have_cells(&run)?;
        let sender = &mut *self.sender;
        if run.is_last(sender.filled) {
            let counts = (&mut sender.filled, &mut sender.drained);
            let (lane, source) = (&mut sender.lane, &mut self.source);
            ring::fill(lane, source, &mut run, counts, Tell::Later)?;
            self.account.copied_bytes = run.offset;
        }
        self.publish(pace.word());
        self.stage = if run.is_complete() { Stage::Complete } else { Stage::Chunks(run) };
        Ok(Step::Moved)
    }

    /// Adds a piece of what was built in place to the checksum; as all of it is, gives it up.
    fn give_up_built(&mut self, mut built: Built) -> Result<Step<()>, Error> {
        if self.sender.lane.link.settings.integrity {
            if !built.sum_some() {
                self.built = Some(built);
                return Ok(Step::Moved);
            }
            self.source.set_sum(built.sum);
        }
        let link = &self.sender.lane.link;
        let (file, is_whole) = built.building.give_up(link.may_give_memory())?;
        self.account.mechanism = choose::for_built(&link.settings, is_whole);
        self.file = Some(file);
        Ok(Step::Moved)
    }

    /// Copies a piece of the message to memory of its own; true as all of it is there.
    fn make_some(&mut self) -> Result<bool, Error> {
        let length = self.length as usize;
        let mut making = match self.making.take() {
            Some(making) => making,
            None => Making::begin(length)?,
        };
        self.account.system_calls += staged::CALLS_TO_MAKE_SOME;
        if !making.step(&mut self.source, length)? {
            self.making = Some(making);
            return Ok(false);
        }
        self.file = Some(making.seal()?);
        self.account.system_calls += staged::CALLS_TO_MAKE;
        self.account.copied_bytes = self.length;
        self.account.extra_memory_bytes = self.length;
        Ok(true)
    }

    fn begin_with_memory(&mut self) -> Result<Step<()>, Error> {
        // What was built in place is nowhere else.
        let can_fall_back = self.source.length() == self.length;
        if self.file.is_none() {
            match self.make_some() {
                Ok(true) => {}
                Ok(false) => return Ok(Step::Moved),
                Err(_) => return self.fall_back(),
            }
        }
        let Some(file) = &self.file else { return Ok(Step::Blocked) };
        let lane = &mut self.sender.lane;
        lane.system_calls += 1;
        match lane.link.send_file(Kind::Memory, self.sender.next, file.as_fd()) {
            Ok(()) => {}
            // A full socket too: polling would not tell that there is room again.
            Err(_) if can_fall_back => {
                self.file = None;
                return self.fall_back();
            }
            Err(Errno::AGAIN) => return Ok(Step::Blocked),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => {
                let (done, size) = (Bytes(0), Bytes(self.length));
                return Err(Error::PeerGone { attempt: "send", done, size });
            }
            Err(reason) => return Err(Error::system("hand memory over")(reason)),
        }
        self.file = None;
        self.publish(0);
        self.stage = Stage::Complete;
        Ok(Step::Moved)
    }

    /// The first bytes go into the pipe before the receiver knows of the message, so that a kernel
    /// that refuses costs nothing.
    fn begin_with_pipe(&mut self) -> Result<Step<()>, Error> {
        let sender = &mut *self.sender;
        let is_new = sender.pipe.is_none();
        let mut pour = Pour::new(self.length);
        let pipe = match sender.pipe.take().map_or_else(Pipe::new, Ok) {
            Ok(pipe) => sender.pipe.insert(pipe),
            Err(_) => return self.fall_back(),
        };
        // First, so that where it is refused no message sends the receiver a pipe that nobody
        // takes.
        if pour.step(&mut sender.lane, &self.source, pipe).is_err() {
            sender.pipe = None;
            return self.fall_back();
        }
        if !pipe.is_handed_over {
            self.account.system_calls += if is_new { 3 } else { 1 };
            match sender.lane.link.send_file(Kind::Pipe, sender.next, pipe.reader.as_fd()) {
                Ok(()) => pipe.is_handed_over = true,
                // A full socket too: polling would not tell that there is room again. With what is
                // in it.
                Err(_) => {
                    sender.pipe = None;
                    return self.fall_back();
                }
            }
        }
        let number = pipe.number.get_or_insert(sender.next);
        let is_first = u64::from(*number == sender.next);
        self.publish(is_first);
        self.stage = Stage::Pour(pour);
        Ok(Step::Moved)
    }

    /// Before anything was published: through the ring instead.
    fn fall_back(&mut self) -> Result<Step<()>, Error> {
        self.take_the_ring();
        self.account.copied_bytes = 0;
        self.source.seek(0);
        Ok(Step::Moved)
    }

    pub(crate) fn take_the_ring(&mut self) {
        self.account.fell_back_from = Some(self.account.mechanism);
        self.account.mechanism = Mechanism::Ring;
    }

    /// Gives the part of the ring that a message goes through its pages.
    pub(crate) fn have_cells(&mut self, run: &Run) -> Result<(), Error> {
        let sender = &mut *self.sender;
        let bytes = run.used as usize * layout::CELL_BYTES;
        if sender.cells < run.used {
            sender.lane.link.region.reserve(sender.lane.chunks(), bytes)?;
            sender.lane.system_calls += 1;
            sender.cells = run.used;
        }
        self.account.extra_memory_bytes += bytes as u64;
        Ok(())
    }

    /// Writes the header and lets the receiver know.
    fn publish(&mut self, detail: u64) {
        let sender = &mut *self.sender;
        let kind = self.account.mechanism.number();
        let header = Header {
            message: sender.next,
            kind,
            length: self.length,
            detail,
            sum: self.source.sum(),
        };
        sender.lane.put_header(header);
        sender.next += 1;
        sender.lane.tell(layout::PUBLISHED, sender.next);
    }
}
