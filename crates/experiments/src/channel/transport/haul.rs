//! haul's channels: one for each mechanism. Both ends trust each other unless the name says
//! otherwise.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use haul::channel::{Account, Buffer, Building, Channel, Listener, Mechanism, Settings};
use haul::engine::Queue;

use super::{Transport, meet, path};
use crate::channel::content;
use crate::channel::protocol::{Kind, Side, Task};

/// The receiver of a message that was built in place writes to one of this many pages. A program
/// changes only a small part of a large message, and the kernel copies each page of a sealed
/// message that is written to.
pub const DIRTY_PAGES: usize = 10;

/// Suffix of a mechanism's name: with a checksum over the bytes that the receiver keeps.
pub const INTEGRITY: &str = "+integrity";

/// Suffix of `haul:sealed`: the ends do not trust each other, so that the receiver maps sealed
/// memory privately.
pub const UNTRUSTED: &str = "+untrusted";

/// Suffix of `haul:sealed`: the ends do not trust each other, and the receiver announces the part
/// that it will write to: the first tenth of the pages.
pub const ANNOUNCED: &str = "+announced";

/// Suffix of a mechanism's name, followed by the name of an engine: an engine of each end copies
/// for it.
pub const ENGINE: &str = "+engine=";

/// The mechanisms that an engine can copy for.
pub const BY_ENGINE: [&str; 3] = ["haul:auto", "haul:ring", "haul:lease"];

/// The name without the engine.
#[must_use]
pub fn without_engine(name: &str) -> &str {
    name.split_once(ENGINE).map_or(name, |(name, _)| name)
}

/// The number of tasks per channel. The location of a ring's memory, which decides its sets in
/// the caches, is random for each channel. For this reason alone, the speeds of two equal
/// channels differ by up to a quarter.
const TASKS_OF_A_CHANNEL: u32 = 2;

/// The largest number of messages, and of bytes, that pass through a new channel before the timed
/// part, so that the new channel is as warm as a channel that has performed tasks.
const WARMING_MESSAGES_MAX: usize = 256;
const WARMING_BYTES_MAX: usize = 4 << 20;

/// A channel to the other end.
pub(super) struct Haul {
    channel: Channel,
    meeting: Meeting,
    /// The number of tasks that this channel has performed.
    tasks: u32,
    mechanism: Option<Mechanism>,
    /// Whether the receiver of sealed messages announces the part that it will write to.
    announces: bool,
    /// The next messages, which are built before the timed part, because a real producer would
    /// have built them in place.
    built: VecDeque<Building>,
    /// Messages that arrived in separate memory instead of the target.
    kept: Vec<Buffer>,
    extra_bytes: u64,
    /// The seed of the next messages.
    seed: u64,
    used: Mechanism,
    fell_back: bool,
}

/// The socket and the settings with which the ends connect, once for each channel.
struct Meeting {
    path: PathBuf,
    side: Side,
    settings: Settings,
    /// The number of connections so far.
    times: u32,
}

impl Meeting {
    fn connect(&mut self) -> Result<Channel, String> {
        self.times += 1;
        let path = self.path.with_added_extension(self.times.to_string());
        match self.side {
            Side::A => meet(|| Channel::connect(&path, &self.settings)),
            Side::B => {
                let listener = Listener::bind(&path).map_err(|error| error.to_string())?;
                listener.accept(&self.settings).map_err(|error| error.to_string())
            }
        }
    }
}

impl Haul {
    /// Connects to the other end, for `haul:auto` or for a mechanism.
    pub(super) fn open(name: &str, side: Side, folder: &Path) -> Result<Self, String> {
        let asked =
            name.strip_prefix("haul:").ok_or_else(|| format!("unknown transport {name}"))?;
        let (asked, engine) = match asked.split_once(ENGINE) {
            Some((asked, engine)) => (asked, Some(engine)),
            None => (asked, None),
        };
        let engine = engine.map(Queue::by_name).transpose().map_err(|error| error.to_string())?;
        let (asked, verifies) = match asked.strip_suffix(INTEGRITY) {
            Some(asked) => (asked, true),
            None => (asked, false),
        };
        let (asked, announces) = match asked.strip_suffix(ANNOUNCED) {
            Some(asked) => (asked, true),
            None => (asked, false),
        };
        let (asked, is_trusted) = match asked.strip_suffix(UNTRUSTED) {
            Some(asked) => (asked, false),
            None => (asked, !announces),
        };
        let mechanism = match asked {
            "auto" => None,
            name => Some(name.parse::<Mechanism>()?),
        };
        // A sealed message is always built in place, so the settings name no mechanism. The other
        // direction uses haul's choice.
        let by_settings = mechanism.filter(|&mechanism| mechanism != Mechanism::Sealed);
        let settings = Settings {
            trusts_peer: is_trusted,
            mechanism: by_settings,
            integrity: verifies,
            engine,
            ..Settings::default()
        };
        let path = path(folder, name);
        let mut meeting = Meeting { path, side, settings, times: 0 };
        let channel = meeting.connect()?;
        let used = mechanism.unwrap_or_default();
        let (built, kept) = (VecDeque::new(), Vec::new());
        Ok(Self {
            channel,
            meeting,
            tasks: 0,
            mechanism,
            announces,
            built,
            kept,
            extra_bytes: 0,
            seed: 0,
            used,
            fell_back: false,
        })
    }

    fn note(&mut self, account: &Account) {
        self.extra_bytes = self.extra_bytes.max(account.extra_memory_bytes);
        self.used = account.mechanism;
        self.fell_back |= account.fell_back_from.is_some();
    }

    /// Replaces a channel that has performed its tasks, if its mechanism uses memory of the
    /// channel. The old channel is dropped after the new one exists: otherwise, the new channel
    /// would get the old channel's memory.
    fn renew(&mut self, task: &Task) -> Result<(), String> {
        let has_ring = matches!(self.mechanism, None | Some(Mechanism::Inline | Mechanism::Ring));
        self.tasks += 1;
        // A new channel does not expect a target without pages, and uses another mechanism for
        // the first message into such a target.
        if !has_ring || task.is_cold || self.tasks <= TASKS_OF_A_CHANNEL {
            return Ok(());
        }
        self.tasks = 1;
        self.channel = self.meeting.connect()?;
        let bytes = task.size.min(WARMING_BYTES_MAX);
        let mut message = vec![0; bytes];
        let comes_back = task.kind == Kind::Echo;
        for _ in 0..(WARMING_BYTES_MAX / bytes).clamp(1, WARMING_MESSAGES_MAX) {
            match self.meeting.side {
                Side::A => {
                    self.send(&message)?;
                    if comes_back {
                        self.receive(&mut message)?;
                    }
                }
                Side::B => {
                    self.receive(&mut message)?;
                    if comes_back {
                        self.send(&message)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks the outcome of a message of this length.
    fn received(
        &mut self,
        received: Result<Account, haul::channel::Error>,
        length: usize,
    ) -> Result<(), String> {
        let account = received.map_err(|error| error.to_string())?;
        self.note(&account);
        is_whole(account.size_bytes, length)
    }

    fn is_sealed(&self) -> bool {
        self.mechanism == Some(Mechanism::Sealed)
    }

    /// Whether a message arrives in separate memory instead of the target: a view of sealed
    /// memory, or a slot of the receiver's pool.
    fn is_kept(&self) -> bool {
        matches!(self.mechanism, Some(Mechanism::Sealed | Mechanism::Lease))
    }
}

impl Transport for Haul {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        let sent = match self.built.pop_front() {
            Some(building) => self.channel.send_built(building),
            None => self.channel.send(message),
        };
        let account = sent.map_err(|error| error.to_string())?;
        self.note(&account);
        Ok(())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        if !self.is_kept() {
            let received = self.channel.recv_into(target);
            return self.received(received, target.len());
        }
        let mut buffer = self.channel.recv().map_err(|error| error.to_string())?;
        if self.is_sealed() {
            let before = self.kept.iter().map(|kept| kept.len()).sum();
            if self.announces {
                change_first(&mut buffer, before, self.seed);
            } else {
                change_some(&mut buffer, before, self.seed);
            }
        }
        let account = buffer.account().clone();
        self.note(&account);
        is_whole(buffer.len() as u64, target.len())?;
        self.kept.push(buffer);
        Ok(())
    }

    unsafe fn receive_exposed(&mut self, target: &mut [u8]) -> Result<(), String> {
        if self.is_kept() {
            return self.receive(target);
        }
        // SAFETY: the caller keeps the target mapped if this fails.
        let received = unsafe { self.channel.recv_into_exposed(target) };
        self.received(received, target.len())
    }

    fn before(&mut self, task: &Task, source: &[u8]) -> Result<(), String> {
        self.built.clear();
        self.kept.clear();
        self.renew(task)?;
        self.extra_bytes = 0;
        self.seed = task.seed;
        if self.is_sealed() {
            for message in source.chunks(task.size) {
                let mut building =
                    Building::new(message.len()).map_err(|error| error.to_string())?;
                building.copy_from_slice(message);
                self.built.push_back(building);
            }
        }
        Ok(())
    }

    fn after(&mut self, target: &mut [u8]) -> Result<(), String> {
        let mut rest = target;
        for buffer in self.kept.drain(..) {
            let (own, behind) = rest.split_at_mut(buffer.len());
            own.copy_from_slice(&buffer);
            rest = behind;
        }
        Ok(())
    }

    fn extra_bytes(&self) -> Option<u64> {
        Some(self.extra_bytes)
    }

    fn remark(&self) -> String {
        let fallen = if self.fell_back { ",fell-back" } else { "" };
        format!("{}{fallen}", self.used)
    }
}

/// Writes one byte per [`DIRTY_PAGES`] pages without reading it. Each write stores the byte that
/// is already there, because the run verifies the sent bytes. The message begins at byte `before`
/// of the seed's content.
fn change_some(buffer: &mut [u8], before: usize, seed: u64) {
    let page_bytes = haul_measure::sys::page_bytes();
    for start in (0..buffer.len()).step_by(page_bytes * DIRTY_PAGES) {
        buffer[start] = content::byte(seed, before + start);
    }
    std::hint::black_box(buffer);
}

/// Like [`change_some`], but announces the first pages and writes to them. These are consecutive
/// pages, as many as the pages that [`change_some`] writes to.
fn change_first(buffer: &mut Buffer, before: usize, seed: u64) {
    let page_bytes = haul_measure::sys::page_bytes();
    let part = buffer.len().div_ceil(page_bytes * DIRTY_PAGES) * page_bytes;
    let part = part.min(buffer.len());
    buffer.will_write(0..part);
    for start in (0..part).step_by(page_bytes) {
        buffer[start] = content::byte(seed, before + start);
    }
    std::hint::black_box(&mut buffer[..]);
}

fn is_whole(came: u64, wanted: usize) -> Result<(), String> {
    if came == wanted as u64 {
        Ok(())
    } else {
        Err(format!("{came} B arrived instead of {wanted}"))
    }
}
