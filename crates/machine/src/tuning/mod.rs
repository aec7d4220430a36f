//! `haul.toml`: the policy of copies that was measured on this machine, with its evidence.
//!
//! [`init`] searches for the file once: at the path in `HAUL_TUNING`, or else in the user's
//! configuration folder, or else in `/etc/haul`. It never does so in a program that runs with
//! more rights than its caller has. The file is untrusted, so it is opened without blocking, read
//! once with a limit, and checked. A file that is malformed or for another machine is ignored
//! with one warning. All values pass [`Policy::clamped`], so no value can make a copy incorrect,
//! only slower. A choice that this version does not know, or that this processor cannot run, is
//! skipped and reported in one line.
//!
//! - `locate`: locates the file;
//! - `value`: reads and writes one value;
//! - `channel`: converts text to a [`ChannelTable`], the table of mechanisms, and back;
//! - `engine`: converts text to the [`BreakEven`] of engines, and back;
//! - `parse`: converts text to a [`Tuning`], and reports the errors of invalid files;
//! - `write`: converts a [`Tuning`] to text;
//! - `state`: the tuning in force, and [`init`].

mod channel;
mod engine;
mod locate;
mod parse;
mod value;
mod write;

mod state;

use std::collections::BTreeMap;
use std::path::Path;

use haul_copy::{Policy, Thresholds};
use haul_model::Record;

use crate::error::Error;
use crate::file;
use value::shorten;

pub use haul_channel::{ChannelTable, Choice};
pub use haul_engine::BreakEven;
pub use locate::{Found, Origin, locate};
pub use state::{Force, in_force, init, load};

/// The `schema` of every file that this version writes, and the only schema that it reads.
pub const SCHEMA: &str = "haul.tuning/1";

/// The size of the largest file that is read, in bytes: far more than `haul copy tune` writes.
pub const FILE_BYTES_MAX: u64 = 64 << 10;

/// The content of a `haul.toml`.
///
/// ```
/// # use haul_machine as haul;
/// use haul::tuning::Tuning;
/// let text = r#"
///     schema = "haul.tuning/1"
///     machine = "amd-25-17-1-avx2-l3-32MiB-2cpu"
///     written = "2026-01-31T12:00:00Z"
///     [copy]
///     small = "pieces"
///     isa = "sse2"
///     strings = "alike"
///     stream_copy_min = "24 MiB"
///     rep_movsb_min = "never"
/// "#;
/// let tuning: Tuning = text.parse().unwrap();
/// assert_eq!(tuning.choices["isa"], "sse2");
/// assert_eq!(tuning.copy["stream_copy_min"], 24 << 20);
/// assert_eq!(tuning.copy["rep_movsb_min"], usize::MAX);
/// assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The id of the machine for which the tuning is valid:
    /// [`Sys::machine_id`](crate::sys::Sys::machine_id).
    pub machine: String,
    /// The time at which the file was written: RFC 3339, UTC.
    pub written: String,
    /// The choices for the [`Policy`] of copies. The keys are the names in [`Policy::CHOICES`].
    /// An absent choice, for example in a file of an older version, keeps its default.
    pub choices: BTreeMap<String, String>,
    /// The thresholds of the copy functions in bytes. The keys are the names in
    /// [`Thresholds::NAMES`]. An absent threshold keeps its default.
    pub copy: BTreeMap<String, usize>,
    /// Which mechanism sends a message to another process.
    pub channel: ChannelTable,
    /// From which sizes a copy engine `auto` uses its helper thread; `None` keeps the defaults.
    pub engine: Option<BreakEven>,
    /// The measurements behind the thresholds.
    pub evidence: Vec<Evidence>,
}

/// A summary of one measurement behind a threshold. The records contain all details.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The record's experiment: `copy.tune`.
    pub experiment: String,
    /// The subject and the parameters, as text for a reader: `tuned, size_bytes 4096, level
    /// mixed`.
    pub what: String,
    /// The time divided by the baseline's time.
    pub ratio: f64,
    /// The noise floor of the same run.
    pub floor: f64,
    /// The file that contains the record: `survey.jsonl`.
    pub records: String,
}

impl Tuning {
    /// A tuning that sets the whole policy of copies.
    #[must_use]
    pub fn new(machine: &str, written: &str, policy: Policy) -> Self {
        let choices = Policy::CHOICES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), policy.choice(name)?.to_owned())))
            .collect();
        let copy = Thresholds::NAMES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), policy.thresholds.get(name)?)))
            .collect();
        let (machine, written) = (machine.into(), written.into());
        let (channel, evidence) = (ChannelTable::default(), Vec::new());
        Self { machine, written, choices, copy, channel, engine: None, evidence }
    }

    /// Reads and checks a file. Does not check whether the file is for this machine: see
    /// [`check_machine`](Self::check_machine).
    ///
    /// # Errors
    /// The errors of [`file::read_limited`] (the limit is [`FILE_BYTES_MAX`]), and the errors of
    /// parsing the text.
    pub fn read(path: &Path) -> Result<Self, Error> {
        parse::bytes(&file::read_limited(path, FILE_BYTES_MAX)?)
    }

    /// Writes the file completely, or not at all.
    ///
    /// # Errors
    /// [`Error::Write`]; a previous file at `path` is then unchanged.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        file::write_atomically(path, self.to_string().as_bytes())
    }

    /// Checks that the tuning is valid for the machine with this id.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it is for another machine.
    pub fn check_machine(&self, id: &str) -> Result<(), Error> {
        if self.machine == id {
            return Ok(());
        }
        Err(Error::Foreign { found: shorten(&self.machine), this: id.into() })
    }

    /// The resulting policy: this processor's default, with the file's values, clamped.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.wanted().0.clamped()
    }

    /// One sentence for each choice in the file that cannot be used, because this version does
    /// not know the value or this processor cannot run it.
    #[must_use]
    pub fn passed_over(&self) -> Vec<String> {
        let (wanted, mut unused) = self.wanted();
        let (lacking, in_force) = (wanted.lacking(), wanted.clamped());
        let lacks = [
            ("small", lacking.small.map(|small| small.name())),
            ("isa", lacking.isa.map(|isa| isa.name())),
        ];
        for (name, value) in lacks {
            if let (Some(value), Some(instead)) = (value, in_force.choice(name)) {
                unused.push(format!(
                    "copy.{name} = \"{value}\": this processor does not offer it; \"{instead}\" is used"
                ));
            }
        }
        unused
    }

    /// The policy that the file requests, before clamping, and a sentence for each unknown choice.
    fn wanted(&self) -> (Policy, Vec<String>) {
        let mut policy = Policy::for_this_processor();
        let mut unused = Vec::new();
        for (name, value) in &self.choices {
            if !policy.choose(name, value) {
                let known: Vec<&str> = Policy::values(name).collect();
                let (value, known) = (shorten(value), known.join(", "));
                unused.push(format!(
                    "copy.{name} = \"{value}\": not one of {known}; the default is used"
                ));
            }
        }
        for (name, &bytes) in &self.copy {
            // The parser rejects unknown names. In a tuning that a program built, unknown names
            // have no effect.
            let _ = policy.thresholds.set(name, bytes);
        }
        (policy, unused)
    }

    /// The thresholds of [`policy`](Self::policy).
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.policy().thresholds
    }
}

impl Evidence {
    /// A summary of a record with a comparison; `None` for a record without one. It contains the
    /// parameters that identify the measurement, but not those that determine its cost.
    #[must_use]
    pub fn of(record: &Record, records: &str) -> Option<Self> {
        const KEPT: [&str; 10] = [
            "phase",
            "choice",
            "function",
            "size_bytes",
            "distance_bytes",
            "size_class",
            "distribution",
            "level",
            "threads",
            "then_read",
        ];
        let comparison = record.comparison.as_ref()?;
        let mut what = record.subject.clone();
        for name in KEPT {
            if let Some(value) = record.shown(name) {
                what += &format!(", {name} {value}");
            }
        }
        Some(Self {
            experiment: record.experiment.clone(),
            what,
            ratio: rounded(comparison.ratio),
            floor: rounded(comparison.floor),
            records: records.into(),
        })
    }
}

/// Rounds a ratio to four decimals, because more are not significant.
fn rounded(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}
