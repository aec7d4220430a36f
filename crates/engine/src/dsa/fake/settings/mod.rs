//! What a fake device is, and what goes wrong in it: lines of words, for an option, a file or a
//! test.
//!
//! ```text
//! device engines=2 batches=no portal=no
//! queue mode=shared size=16
//! queue mode=dedicated size=8 transfer=65536
//! inject at=3 fault=100 access=write
//! inject every=5 status=0x20
//! ```

mod text;

use std::fmt;
use std::time::Duration;

use crate::dsa::descriptor::Opcode;
use crate::dsa::sysfs::{Mode, Operations, QueueType};
use crate::outcome::Access;

/// The largest settings that are read, in bytes.
pub const SETTINGS_BYTES_MAX: usize = 64 << 10;

/// A fake device.
///
/// ```
/// use haul_engine::dsa::fake::Settings;
///
/// let settings: Settings = "queue mode=dedicated size=8\ninject at=2 status=0x20".parse()?;
/// assert_eq!((settings.queues.len(), settings.injections.len()), (1, 1));
/// assert_eq!(settings.to_string().parse::<Settings>()?, settings);
/// assert!("queue size=0".parse::<Settings>().is_err());
/// # Ok::<(), haul_engine::dsa::fake::SettingsError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The threads that execute descriptors.
    pub engines: u32,
    /// Whether a program may submit a batch; Sapphire Rapids refuses them.
    pub batches: bool,
    /// Whether a program may map a portal; without it, only `write()` submits.
    pub portal: bool,
    /// Whether shared virtual addressing is enabled. Without it, no queue can be opened.
    pub sva: bool,
    /// Whether a page that is not resident faults, as on a device without block-on-fault. Without
    /// it, the kernel resolves the fault and only an unmapped page faults.
    pub strict: bool,
    /// The queues. A parsed text without one has the queues of the default.
    pub queues: Vec<QueueSettings>,
    /// What goes wrong.
    pub injections: Vec<Injection>,
}

/// A queue of a fake device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Dedicated or shared.
    pub mode: Mode,
    /// The descriptors that fit.
    pub size: u32,
    /// The largest transfer, in bytes.
    pub transfer_bytes_max: u32,
    /// The largest batch, in descriptors.
    pub batch_max: u32,
    /// Whether the queue is enabled.
    pub is_enabled: bool,
    /// For which part of the system it is.
    pub queue_type: QueueType,
    /// Whether descriptors may block on page faults.
    pub blocks_on_fault: bool,
}

/// Something that goes wrong, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injection {
    /// The descriptors that it concerns, by their number in the order of submission, from 1.
    pub when: When,
    /// Only descriptors with this operation.
    pub opcode: Option<Opcode>,
    /// What happens.
    pub event: Event,
}

/// Numbers of descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This one.
    At(u64),
    /// This one and its multiples.
    Every(u64),
    /// These, the first and the last included.
    Between(u64, u64),
}

/// What happens to a descriptor, or to the device when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A page fault at a byte, if the operation reaches it.
    Fault {
        /// The byte, from the beginning of the range in the direction of the copy.
        byte: u32,
        /// The access that faults.
        access: Access,
    },
    /// A status byte, after some bytes were copied.
    Status {
        /// The byte, with the bit of a faulting write.
        byte: u8,
        /// The bytes that are copied before.
        bytes: u32,
    },
    /// A time before it executes.
    Delay(Duration),
    /// The queue is full at this submission.
    Full,
    /// The device is removed when it arrives: pending descriptors never complete, and submissions
    /// fail.
    Remove,
    /// The device halts when it arrives: pending descriptors never complete, and submissions
    /// disappear.
    Halt,
    /// The device executes nothing from it on, and a close hangs.
    Wedge,
}

/// Text that is not a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingsError {
    line: usize,
    word: String,
    reason: String,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, word, reason } = self;
        write!(f, "cannot use {word:?} in line {line} of the fake's settings: {reason}")
    }
}

impl std::error::Error for SettingsError {}

impl Default for Settings {
    /// One device with a shared and a dedicated queue of 16 descriptors, batches and portals, on
    /// which nothing goes wrong.
    fn default() -> Self {
        Self {
            engines: 1,
            batches: true,
            portal: true,
            sva: true,
            strict: false,
            queues: vec![
                QueueSettings::default(),
                QueueSettings { mode: Mode::Dedicated, ..QueueSettings::default() },
            ],
            injections: Vec::new(),
        }
    }
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Shared,
            size: 16,
            transfer_bytes_max: 1 << 31,
            batch_max: 32,
            is_enabled: true,
            queue_type: QueueType::User,
            blocks_on_fault: true,
        }
    }
}

impl Settings {
    /// The same with one more injection.
    #[must_use]
    pub fn inject(mut self, when: When, event: Event) -> Self {
        self.injections.push(Injection { when, opcode: None, event });
        self
    }

    /// The same with these queues.
    #[must_use]
    pub fn queues(mut self, queues: impl IntoIterator<Item = QueueSettings>) -> Self {
        self.queues = queues.into_iter().collect();
        self
    }

    /// The operations that the device reports.
    #[must_use]
    pub fn operations(&self) -> Operations {
        let all = Opcode::ALL.into_iter().filter(|opcode| self.batches || *opcode != Opcode::Batch);
        Operations::of(&all.collect::<Vec<_>>())
    }
}

impl Injection {
    /// Whether it concerns a descriptor.
    pub(crate) fn concerns(&self, number: u64, opcode: u8) -> bool {
        let is_operation = self.opcode.is_none_or(|only| only as u8 == opcode);
        is_operation
            && match self.when {
                When::At(at) => number == at,
                When::Every(step) => number.is_multiple_of(step),
                When::Between(first, last) => (first..=last).contains(&number),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn injections_concern_their_numbers_alone() {
        let concerned = |when: When| {
            let injection = Injection { when, opcode: Some(Opcode::Copy), event: Event::Full };
            assert!((1..9).all(|number| !injection.concerns(number, Opcode::Fill as u8)));
            (1..9).filter(|number| injection.concerns(*number, 3)).collect::<Vec<u64>>()
        };
        assert_eq!(concerned(When::At(3)), [3]);
        assert_eq!(concerned(When::Every(4)), [4, 8]);
        assert_eq!(concerned(When::Between(6, 7)), [6, 7]);
    }
}
