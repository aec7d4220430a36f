//! A port that reads packets from a capture and writes packets into one: pcap and pcapng.
//!
//! A port reads one file, writes another, or both. It reads through a window of the file's bytes,
//! and copies packets from the window into buffers. It writes each burst with one system call, so
//! that every packet that was counted as sent is complete in the file, even if the process is
//! killed.
//!
//! From the bottom up:
//!
//! - `input`: the packets of a file, in order;
//! - `output`: a file to which packets are appended;
//! - `timing`: the times at which packets arrive, at their recorded distances.

mod input;
mod output;
mod timing;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use haul_model::capture::link_name;

use super::clock::{nanoseconds, now_ns};
use super::contract::{Link, Port};
use super::counters::{Counters, DropReason};
use super::error::Error;
use super::pool::{Burst, PACKET_BYTES_MAX, Pool};
use input::{Element, Input};
use output::Output;
use timing::Timing;

/// The size of an Ethernet header in bytes: shorter packets are not frames.
const FRAME_BYTES_MIN: usize = 14;

/// The longest pause of a capture that is kept by default: longer ones occur in joined captures, or
/// after a clock was set.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// When packets of a capture arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Replay {
    /// As fast as the port is polled.
    #[default]
    Free,
    /// At this number of packets a second.
    Rate(f64),
    /// At their recorded distances in time.
    Recorded,
}

/// The captures that a port reads and writes.
#[derive(Clone, Debug, Default)]
pub struct PcapSettings {
    /// The file whose packets arrive; `None` for no packets.
    pub input: Option<PathBuf>,
    /// How often the file is read; `None` for no limit.
    pub passes: Option<u64>,
    /// When packets arrive.
    pub replay: Replay,
    /// The longest pause that [`Replay::Recorded`] keeps: a longer one is skipped, and
    /// [`Port::notes`] reports it. `None`: a minute.
    pub pause_max: Option<Duration>,
    /// The file to which sent packets are written; an existing file is replaced. It is pcapng if
    /// its name ends in `.pcapng`, else pcap with times in nanoseconds. `None`: sent packets are
    /// dropped.
    pub output: Option<PathBuf>,
}

/// The port: see the module.
pub struct Pcap {
    name: String,
    input: Option<Input>,
    output: Option<Output>,
    replay: Replay,
    /// When the first packet of this pass arrived.
    start_ns: Option<u64>,
    timing: Timing,
    came: u64,
    /// The number of packets whose captured length exceeds their original length.
    understated: u64,
    /// The link type of the first packet that was not Ethernet.
    foreign: Option<u32>,
    failed: Option<Error>,
    counters: Counters,
}

impl fmt::Debug for Pcap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pcap").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Pcap {
    /// Opens a port on these files. The input is parsed up to its first packet.
    ///
    /// # Errors
    /// [`Error::Path`] if a file cannot be used, is not a capture, or has packets of a link type
    /// other than Ethernet; [`Error::Value`] for a rate outside the limits, or a port without
    /// files.
    pub fn open(name: &str, settings: &PcapSettings) -> Result<Self, Error> {
        let value = |what, value: String, limit| Err(Error::Value { what, value, limit });
        if let Replay::Rate(rate) = settings.replay
            && !(rate > 0.0 && rate <= 1e9)
        {
            return value("a rate of", format!("{rate} packets/s"), "choose above 0 and up to 1e9");
        }
        if settings.input.is_none() && settings.output.is_none() {
            return value(
                "a port of captures without",
                "files".into(),
                "choose one to read or to write",
            );
        }
        let passes = settings.passes.unwrap_or(u64::MAX);
        let input = settings.input.as_deref().map(|path| Input::open(path, passes)).transpose()?;
        let read = input.as_ref().map(Input::identity);
        let output = settings.output.as_deref().map(|path| Output::create(path, read));
        Ok(Self {
            name: name.into(),
            input,
            output: output.transpose()?,
            replay: settings.replay,
            start_ns: None,
            timing: Timing::new(nanoseconds(settings.pause_max.unwrap_or(PAUSE_MAX))),
            came: 0,
            understated: 0,
            foreign: None,
            failed: None,
            counters: Counters::default(),
        })
    }

    /// How many packets may arrive now, if that does not depend on their recorded times.
    fn due(&self, elapsed_ns: u64) -> u64 {
        match self.replay {
            Replay::Free | Replay::Recorded => u64::MAX,
            Replay::Rate(rate) => {
                ((elapsed_ns as f64 * rate / 1e9) as u64 + 1).saturating_sub(self.came)
            }
        }
    }

    /// Whether a packet may arrive now.
    #[inline]
    fn is_due(&mut self, time_ns: Option<i64>, elapsed_ns: u64) -> bool {
        match (self.replay, time_ns) {
            (Replay::Recorded, Some(time_ns)) => self.timing.due_ns(time_ns) <= elapsed_ns,
            _ => true,
        }
    }

    /// Records what an operator should know of a packet's header.
    #[cold]
    fn note(&mut self, link: u32, is_understated: bool, why: Option<DropReason>) {
        self.understated += u64::from(is_understated);
        if why == Some(DropReason::Foreign) {
            self.foreign.get_or_insert(link);
        }
    }

    /// Reads packets of the file until the burst is full or no more are due; returns their number
    /// and bytes.
    fn read(&mut self, pool: &mut Pool, burst: &mut Burst) -> Result<(usize, u64), Error> {
        let now_ns = if self.replay == Replay::Free { 0 } else { now_ns() };
        let elapsed_ns = now_ns - *self.start_ns.get_or_insert(now_ns);
        // Dropped packets count as well, so that a file of such packets does not delay a call.
        let mut room = self.due(elapsed_ns).min(burst.room() as u64);
        let (mut taken, mut bytes) = (0, 0);
        while room > 0 {
            let Some(input) = &mut self.input else { break };
            if let Element::Over { is_cut } = input.peek()? {
                self.counters.rx.dropped(DropReason::Cut, u64::from(is_cut));
                self.timing.begin();
                if self.replay == Replay::Recorded {
                    self.start_ns = None;
                }
                break;
            }
            let Some(found) = input.packet() else { break };
            let length = found.original as usize;
            let why = match length {
                ..FRAME_BYTES_MIN => Some(DropReason::TooShort),
                _ if length > PACKET_BYTES_MAX => Some(DropReason::TooLong),
                _ if !found.is_ethernet() => Some(DropReason::Foreign),
                _ if found.kept < found.original => Some(DropReason::Cut),
                _ => None,
            };
            let (time_ns, link, is_understated) = (found.time_ns, found.link, found.is_understated);
            if !self.is_due(time_ns, elapsed_ns) {
                break;
            }
            let Some(input) = &mut self.input else { break };
            if let Some(reason) = why {
                self.counters.rx.dropped(reason, 1);
            } else {
                let Some(packet) = pool.take(length) else { break };
                let is_whole = pool.write(&packet, 0, input.bytes());
                debug_assert!(is_whole, "a packet of {length} B holds {length} B");
                burst.push(packet);
                (taken, bytes) = (taken + 1, bytes + length as u64);
            }
            input.next(why.is_none());
            if is_understated || why.is_some() {
                self.note(link, is_understated, why);
            }
            self.came += 1;
            room -= 1;
        }
        Ok((taken, bytes))
    }
}

impl Port for Pcap {
    fn name(&self) -> &str {
        &self.name
    }

    fn rx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let before = burst.len();
        let bytes = match self.read(pool, burst) {
            Ok((_, bytes)) => bytes,
            Err(error) => {
                self.failed.get_or_insert(error);
                self.input = None;
                // The caller still owns the packets that arrived earlier in this call.
                let mut bytes = 0;
                burst.for_each_from(before, |packet| bytes += pool.length(packet) as u64);
                bytes
            }
        };
        let taken = burst.len() - before;
        self.counters.rx.batch(taken, bytes);
        taken
    }

    fn tx_burst(&mut self, pool: &mut Pool, burst: &mut Burst) -> usize {
        let Some(output) = &mut self.output else {
            self.counters.tx.dropped(DropReason::NoLink, burst.len() as u64);
            pool.free_burst(burst);
            self.counters.tx.batch(0, 0);
            return 0;
        };
        let (mut sent, mut bytes) = (0, 0);
        while let Some(packet) = burst.pop() {
            let length = pool.length(&packet);
            if length < FRAME_BYTES_MIN {
                self.counters.tx.dropped(DropReason::TooShort, 1);
            } else {
                output.append(length, |target| pool.read(&packet, 0, target));
                (sent, bytes) = (sent + 1, bytes + length as u64);
            }
            pool.free(packet);
        }
        if let Err(error) = output.write() {
            self.counters.tx.dropped(DropReason::Refused, sent as u64);
            (sent, bytes) = (0, 0);
            self.failed.get_or_insert(error);
            self.output = None;
        }
        self.counters.tx.batch(sent, bytes);
        sent
    }

    fn service(&mut self, _: &mut Pool) -> Result<(), Error> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn link(&self) -> Link {
        match &self.input {
            Some(input) if input.is_over() => Link::Finished,
            _ => Link::Up,
        }
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.timing.notes();
        if self.understated > 0 {
            notes.push(format!(
                "{} packets of the capture have a captured length above their original length: \
                 they arrived with all captured bytes",
                self.understated
            ));
        }
        if let Some(link) = self.foreign {
            notes.push(format!(
                "{} packets of the capture are not Ethernet ({}, link type {link}): they were \
                 left out",
                self.counters.rx.drops_for(DropReason::Foreign),
                link_name(link)
            ));
        }
        notes
    }

    fn quiesce(&mut self) {
        if let Some(input) = &mut self.input {
            input.stop();
        }
    }

    fn stop(&mut self, _: &mut Pool) {
        self.quiesce();
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

#[cfg(test)]
mod tests;
