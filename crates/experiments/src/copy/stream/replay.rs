//! The experiment: a stream with every subject against libc.

use std::time::Duration;

use haul_machine::sys::Sys;
use haul_measure::memory::check_available;
use haul_measure::{Caches, Sampling, Subject};
use haul_model::experiment::{key, name};
use haul_model::shell::quoted;
use haul_model::stream::{ReadsBy, Stream};

use super::recorded::{self, Recorded};
use super::subjects::{self, Candidate};
use super::track::{OnTrack, Track};
use crate::context::Context;
use crate::copy::Selection;
use crate::error::Error;
use crate::experiment::{Experiment, SMALL, nanoseconds};
use crate::outcome::{self, Metric, Template};

/// The intended time of a sample, which has at least one pass over the stream.
const SAMPLE: Duration = Duration::from_micros(300);

/// The time beyond the rounds: calibration and the fewest rounds of every subject, for each call
/// and for each copied byte in L2 and beyond it; and touching and proving each byte of the arena.
const OVERHEAD_NS_PER_CALL: f64 = 700.0;
const OVERHEAD_NS_PER_BYTE: f64 = 1.2;
const OVERHEAD_NS_PER_BYTE_FAR: f64 = 4.0;
const OVERHEAD_NS_PER_ARENA_BYTE: f64 = 4.0;

/// The calls of a program in their order, which compares subjects with libc.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The stream.
    pub recorded: Recorded,
    /// The site whose calls alone are replayed; `None` for all.
    pub site: Option<u16>,
    /// The subjects that are measured against libc.
    pub subjects: Selection,
    /// The longest time of the rounds.
    pub budget: Duration,
    /// The seed of the order of subjects.
    pub seed: u64,
}

impl Replay {
    /// All calls, with `haul` inlined and called through C, for two seconds.
    #[must_use]
    pub fn new(recorded: Recorded) -> Self {
        Self {
            recorded,
            site: None,
            subjects: Selection::Products,
            budget: Duration::from_secs(2),
            seed: 1,
        }
    }

    /// Checks the names of the subjects, and the memory.
    ///
    /// # Errors
    /// A subject is unknown, or the arena is larger than the available memory.
    pub fn check(&self) -> Result<(), Error> {
        subjects::select(&self.subjects)?;
        self.check_memory()
    }

    fn stream(&self) -> &Stream {
        &self.recorded.stream
    }

    fn sampling(&self, track: &Track) -> Sampling {
        Sampling {
            sample: SAMPLE,
            iterations_multiple: track.calls() as u64,
            budget: self.budget,
            seed: self.seed,
            ..Sampling::default()
        }
    }

    /// The command that measures this again.
    fn rerun(&self) -> String {
        let name = quoted(&self.recorded.name);
        match self.site {
            Some(_) => format!("haul copy advise --stream {name} --json"),
            None => format!("haul copy bench --stream {name} --json"),
        }
    }

    fn parameters(&self, track: &Track) -> Vec<(&'static str, serde_json::Value)> {
        let (stream, header) = (self.stream(), &self.stream().header);
        let reads_by = match header.reads_by {
            ReadsBy::Breakpoint => "breakpoint",
            ReadsBy::LaterCalls => "later calls",
        };
        let read_share = match self.site {
            Some(site) => f64::from(u8::from(super::track::is_read(stream, site))),
            None => Track::read_share(stream),
        };
        let mut parameters = vec![
            (key::STREAM, header.program.clone().into()),
            (key::THREAD, header.thread.into()),
            (key::CALLS, track.calls().into()),
            (key::SITES, stream.sites.len().into()),
            (key::ARENA_BYTES, stream.arena_bytes().into()),
            (key::READS_BY, reads_by.into()),
            (key::READ_SHARE, ((read_share * 1e4).round() / 1e4).into()),
            (key::RERUN, self.rerun().into()),
        ];
        if !header.about.is_empty() {
            parameters.push((key::ABOUT, header.about.clone().into()));
        }
        if let Some(site) = self.site {
            parameters.push((key::SITE, site_name(stream, site).into()));
        }
        if let Some(file) = &self.recorded.file {
            parameters.push((key::FILE, file.display().to_string().into()));
        }
        parameters
    }
}

/// A site by its module and offset, with the function that contains it: `git+0x12345 (strbuf_add)`.
#[must_use]
pub fn site_name(stream: &Stream, site: u16) -> String {
    let site = &stream.sites[usize::from(site)];
    let place = format!("{}+{:#x}", site.module, site.offset);
    site.symbol.as_ref().map_or_else(|| place.clone(), |symbol| format!("{place} ({symbol})"))
}

impl Experiment for Replay {
    fn name(&self) -> String {
        let stream = format!("stream of {}", self.recorded.program());
        self.site.map_or_else(
            || stream.clone(),
            |site| format!("{stream}, {}", site_name(self.stream(), site)),
        )
    }

    fn budget(&self) -> Duration {
        self.budget
    }

    fn set_budget(&mut self, budget: Duration) {
        self.budget = budget;
    }

    fn overhead(&self, caches: &Caches) -> Duration {
        let stream = self.stream();
        let is_near = stream.arena_bytes() <= caches.l2_bytes as u64;
        let each_byte = if is_near { OVERHEAD_NS_PER_BYTE } else { OVERHEAD_NS_PER_BYTE_FAR };
        SMALL
            + nanoseconds(OVERHEAD_NS_PER_CALL, stream.calls.len())
            + nanoseconds(each_byte, stream.bytes() as usize)
            + nanoseconds(OVERHEAD_NS_PER_ARENA_BYTE, stream.arena_bytes() as usize)
    }

    /// Checks whether the arena and the expected bytes fit into memory.
    fn check_memory(&self) -> Result<(), Error> {
        Ok(check_available(2 * self.stream().arena_bytes(), &Sys::new())?)
    }

    /// Emits one record for each subject and for libc.
    ///
    /// # Errors
    /// A subject is unknown or copied wrongly; the machine does not have enough memory for the
    /// arena; see [`haul_measure::Error`].
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let candidates = subjects::select(&self.subjects)?;
        let mut track = match self.site {
            Some(site) => Track::of_site(self.stream(), site)?,
            None => Track::new(self.stream())?,
        };
        let on: Vec<OnTrack<'_>> =
            candidates.iter().map(|candidate| OnTrack::new(*candidate, &track)).collect();
        let entrants: Vec<&dyn Subject> = on.iter().map(|it| it as &dyn Subject).collect();
        let outcome =
            outcome::measure(context, &self.name(), &entrants, 0, &self.sampling(&track))?;
        drop(entrants);
        drop(on);
        track.prove(self.recorded.program(), &candidates)?;
        let template = Template {
            experiment: name::COPY_STREAM,
            parameters: self.parameters(&track),
            metric: Metric::Time,
            notes: Vec::new(),
        };
        outcome::emit_each(context, &outcome, &template, |subject| {
            vec![(key::CALL, call_of(&candidates, subject).into())]
        });
        Ok(())
    }
}

/// The kind of call to the subject with this name, as the record parameter `call`.
fn call_of(candidates: &[Candidate], subject: &str) -> &'static str {
    let found = candidates.iter().find(|candidate| candidate.name == subject);
    found.map_or("", |candidate| candidate.calls.name())
}

/// The replays of several streams, one after the other, as one step of a plan.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The replays, each with its share of the budget.
    pub replays: Vec<Replay>,
}

impl Programs {
    /// The streams that haul contains, within `budget`; `None` if it contains none.
    #[must_use]
    pub fn built_in(budget: Duration) -> Option<Self> {
        let replays: Vec<Replay> = recorded::built_in().into_iter().map(Replay::new).collect();
        let mut all = (!replays.is_empty()).then_some(Self { replays })?;
        all.set_budget(budget);
        Some(all)
    }
}

impl Experiment for Programs {
    fn name(&self) -> String {
        let count = self.replays.len();
        format!("copies as your programs call: {count} stream{}", if count == 1 { "" } else { "s" })
    }

    fn budget(&self) -> Duration {
        self.replays.iter().map(|replay| replay.budget).sum()
    }

    fn set_budget(&mut self, budget: Duration) {
        let count = u32::try_from(self.replays.len()).unwrap_or(u32::MAX).max(1);
        self.replays.iter_mut().for_each(|replay| replay.budget = budget / count);
    }

    fn overhead(&self, caches: &Caches) -> Duration {
        self.replays.iter().map(|replay| replay.overhead(caches)).sum()
    }

    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        for replay in &self.replays {
            if context.is_stopped() {
                break;
            }
            replay.measure(context)?;
        }
        Ok(())
    }
}
