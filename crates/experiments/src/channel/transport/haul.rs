//! haul's channels: one for each mechanism, both ends trusting each other unless the name says
//! otherwise.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use haul::channel::{Account, Buffer, Building, Channel, Listener, Mechanism, Settings};

use super::{Transport, meet, path};
use crate::channel::content;
use crate::channel::protocol::{Kind, Side, Task};

/// One page of so many is written to by the receiver of what was built in place: what a program
/// changes of a large message is little, and of what came sealed a page that is written to is
/// copied.
pub const DIRTY_PAGES: usize = 10;

/// Behind a mechanism's name: with a checksum over what the receiver keeps.
pub const INTEGRITY: &str = "+integrity";

/// Behind `haul:sealed`: the ends do not trust each other, so the receiver has a private view of
/// sealed memory, and not the memory itself.
pub const UNTRUSTED: &str = "+untrusted";

/// Behind `haul:sealed`: likewise, and the receiver says beforehand where it will write to, which
/// is the first tenth of the pages, in one piece.
pub const ANNOUNCED: &str = "+announced";

/// So many tasks a channel has. Where the memory of a ring lies, and so in which sets of the
/// caches, is drawn once for each channel, and two that do the same differ by up to a quarter for
/// that alone.
const TASKS_OF_A_CHANNEL: u32 = 2;

/// What goes through a new channel, untimed, before what is measured does: at most so many messages
/// of at most so many bytes, so that it is as warm as one that had tasks.
const WARMING_MESSAGES_MAX: usize = 256;
const WARMING_BYTES_MAX: usize = 4 << 20;

/// A channel to the other end.
pub(super) struct Haul {
    channel: Channel,
    meeting: Meeting,
    /// Tasks that this channel had.
    tasks: u32,
    mechanism: Option<Mechanism>,
    /// Whether the receiver of what is sealed says where it will write.
    announces: bool,
    /// What was built for the next messages, untimed: the producer would have made it there.
    built: VecDeque<Building>,
    /// What came as memory of its own.
    kept: Vec<Buffer>,
    extra_bytes: u64,
    /// Of the messages that come next.
    seed: u64,
    took: Mechanism,
    fell_back: bool,
}

/// How the ends meet, each time that they do.
struct Meeting {
    path: PathBuf,
    side: Side,
    settings: Settings,
    /// How often they met.
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
    /// Meets the other end, for `haul:auto` or a mechanism.
    pub(super) fn open(name: &str, side: Side, folder: &Path) -> Result<Self, String> {
        let asked =
            name.strip_prefix("haul:").ok_or_else(|| format!("no transport is called {name}"))?;
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
        // What is sealed was built, whatever the settings say; the way back takes haul's choice.
        let by_settings = mechanism.filter(|&mechanism| mechanism != Mechanism::Sealed);
        let settings = Settings {
            trusts_peer: is_trusted,
            mechanism: by_settings,
            integrity: verifies,
            ..Settings::default()
        };
        let path = path(folder, name);
        let mut meeting = Meeting { path, side, settings, times: 0 };
        let channel = meeting.connect()?;
        let took = mechanism.unwrap_or_default();
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
            took,
            fell_back: false,
        })
    }

    fn note(&mut self, account: &Account) {
        self.extra_bytes = self.extra_bytes.max(account.extra_memory_bytes);
        self.took = account.mechanism;
        self.fell_back |= account.fell_back_from.is_some();
    }

    /// Makes the channel anew where it had its tasks and goes by memory of its own. The one before
    /// goes after that, or its memory would come back.
    fn renew(&mut self, task: &Task) -> Result<(), String> {
        let has_ring = matches!(self.mechanism, None | Some(Mechanism::Inline | Mechanism::Ring));
        self.tasks += 1;
        // Of a target without pages a new channel knows nothing, and takes another mechanism for
        // the first message.
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

    /// What became of a message of this length.
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

    /// Whether what comes is memory of its own, and not the target's: a view of what was handed
    /// over, or a place of the receiver's pool.
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
        // SAFETY: the caller keeps the target where this fails.
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
        format!("{}{fallen}", self.took)
    }
}

/// Writes to one page of so many, without having read it: the byte that is there already, for what
/// is verified is what was sent. The message is the one after so many bytes of the seed's content.
fn change_some(buffer: &mut [u8], before: usize, seed: u64) {
    let page_bytes = haul_measure::sys::page_bytes();
    for start in (0..buffer.len()).step_by(page_bytes * DIRTY_PAGES) {
        buffer[start] = content::byte(seed, before + start);
    }
    std::hint::black_box(buffer);
}

/// As [`change_some`], as many pages, but one behind the other from the first on, and announced.
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
    if came == wanted as u64 { Ok(()) } else { Err(format!("{came} B came instead of {wanted}")) }
}
