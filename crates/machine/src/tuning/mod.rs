//! `haul.toml`: the policy of copies that was measured on this machine, and what it was measured
//! by.
//!
//! The file is looked for once, by [`init`]: at `HAUL_TUNING`, else in the user's configuration
//! folder, else in `/etc/haul`; never in a program that runs with more rights than its caller has.
//! It comes from outside, so it is opened without blocking, read once with a limit, and checked; a
//! file that is malformed or was made for another machine is ignored with one warning. No value in
//! it can make a copy incorrect, only slower: what it says goes through [`Policy::clamped`] like
//! any other value. A choice that nobody knows, or that this processor cannot run, is passed over
//! with a line that says so.
//!
//! - `locate`: which file;
//! - `value`: one value of it, read and written;
//! - `channel`: its table of mechanisms, text to [`ChannelTable`] and back;
//! - `parse`: text to [`Tuning`], and every way in which it can be wrong;
//! - `write`: [`Tuning`] to text;
//! - `state`: what is in force, and [`init`].

mod channel;
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

pub use channel::{ChannelTable, Choice};
pub use locate::{Found, Origin, locate};
pub use state::{Force, in_force, init, load};

/// The `schema` of every file that this version writes, and the only one that it reads.
pub const SCHEMA: &str = "haul.tuning/1";

/// Longest file that is read, in bytes: a thousand times what `haul copy tune` writes at least.
pub const FILE_BYTES_MAX: u64 = 64 << 10;

/// What a `haul.toml` says.
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
    /// The id of the machine it holds for, see [`Sys::machine_id`](crate::sys::Sys::machine_id).
    pub machine: String,
    /// When it was written: RFC 3339, UTC.
    pub written: String,
    /// What of the [`Policy`] of copies is chosen by name, by the names in [`Policy::CHOICES`].
    /// Those that are absent, as in files that older versions wrote, keep their default.
    pub choices: BTreeMap<String, String>,
    /// Thresholds of the copy functions in bytes, by the names in [`Thresholds::NAMES`]. Those
    /// that are absent keep their default.
    pub copy: BTreeMap<String, usize>,
    /// Which way a message takes to another process.
    pub channel: ChannelTable,
    /// What the thresholds stand on.
    pub evidence: Vec<Evidence>,
}

/// One measurement that a threshold stands on, in short; the records have the rest.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The record's experiment: `copy.tune`.
    pub experiment: String,
    /// Subject and parameters, for a reader: `tuned, size_bytes 4096, level mixed`.
    pub what: String,
    /// Time over the baseline's.
    pub ratio: f64,
    /// The noise floor of the same run.
    pub floor: f64,
    /// The file that holds the record: `survey.jsonl`.
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
        Self { machine, written, choices, copy, channel, evidence }
    }

    /// Reads and checks a file. Whether it is for this machine is left to
    /// [`check_machine`](Self::check_machine).
    ///
    /// # Errors
    /// Everything that [`file::read_limited`] says of the file (the limit is [`FILE_BYTES_MAX`]),
    /// and everything that parsing says of its text.
    pub fn read(path: &Path) -> Result<Self, Error> {
        parse::bytes(&file::read_limited(path, FILE_BYTES_MAX)?)
    }

    /// Writes the file, all of it or nothing.
    ///
    /// # Errors
    /// [`Error::Write`]; what stood at `path` is then untouched.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        file::write_atomically(path, self.to_string().as_bytes())
    }

    /// Whether it holds for the machine with this id.
    ///
    /// # Errors
    /// [`Error::Foreign`] if not.
    pub fn check_machine(&self, id: &str) -> Result<(), Error> {
        if self.machine == id {
            return Ok(());
        }
        Err(Error::Foreign { found: shorten(&self.machine), this: id.into() })
    }

    /// The policy it stands for: this processor's default, with what the file says in its place,
    /// clamped.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.wanted().0.clamped()
    }

    /// What the file chooses and does not get, a sentence each: a value that this version does not
    /// know, or one that this processor cannot run.
    #[must_use]
    pub fn passed_over(&self) -> Vec<String> {
        let (wanted, mut told) = self.wanted();
        let (lacking, in_force) = (wanted.lacking(), wanted.clamped());
        let lacks = [
            ("small", lacking.small.map(|small| small.name())),
            ("isa", lacking.isa.map(|isa| isa.name())),
        ];
        for (name, value) in lacks {
            if let (Some(value), Some(instead)) = (value, in_force.choice(name)) {
                told.push(format!(
                    "copy.{name} = \"{value}\": this processor does not offer it; \"{instead}\" is used"
                ));
            }
        }
        told
    }

    /// The policy that the file asks for, clamped by nothing, and what it chooses that nobody
    /// knows.
    fn wanted(&self) -> (Policy, Vec<String>) {
        let mut policy = Policy::for_this_processor();
        let mut told = Vec::new();
        for (name, value) in &self.choices {
            if !policy.choose(name, value) {
                let known: Vec<&str> = Policy::values(name).collect();
                let (value, known) = (shorten(value), known.join(", "));
                told.push(format!(
                    "copy.{name} = \"{value}\": not one of {known}; the default is used"
                ));
            }
        }
        for (name, &bytes) in &self.copy {
            // A name that is not known is refused by the parser; made by hand it changes nothing.
            let _ = policy.thresholds.set(name, bytes);
        }
        (policy, told)
    }

    /// The thresholds of [`policy`](Self::policy).
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.policy().thresholds
    }
}

impl Evidence {
    /// The short form of a record that holds a comparison; `None` for one that does not. Of the
    /// parameters it keeps those that say what was measured, not what it took.
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
            match record.parameters.get(name) {
                None => {}
                Some(value) => match value.as_str() {
                    Some(text) => what += &format!(", {name} {text}"),
                    None => what += &format!(", {name} {value}"),
                },
            }
        }
        Some(Self {
            experiment: record.experiment.clone(),
            what,
            ratio: told(comparison.ratio),
            floor: told(comparison.floor),
            records: records.into(),
        })
    }
}

/// A ratio in the four decimals that say something.
fn told(ratio: f64) -> f64 {
    (ratio * 1e4).round() / 1e4
}
