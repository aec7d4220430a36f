//! The best copy for a call site: `copy.advise`.
//!
//! haul inlined, haul by a pointer and libc are measured in the regime of the call site. The answer
//! follows the rule of every verdict, so that it is also `libc` or `no difference`.

use std::time::Duration;

use haul_measure::Caches;
use haul_model::experiment::{key, name};
use haul_model::{Bytes, Comparison, Record, Verdict};

use super::stream::Replay;
use super::subjects::Selection;
use super::workload::Branches;
use super::{Sizes, ThenRead};
use crate::context::Context;
use crate::error::Error;
use crate::experiment::Experiment;

/// The calls that the question is about.
#[derive(Clone, Debug)]
pub enum Question {
    /// Calls of one size.
    Size(Sizes),
    /// The calls of a recorded program, or of one of its call sites.
    Stream(Replay),
}

/// The answer, which is the subject of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// haul's functions, inlined into the caller.
    Inline,
    /// haul's functions, called through C.
    Pointer,
    /// libc's functions.
    Libc,
    /// haul and libc take the same time.
    NoDifference,
    /// The measurement neither shows nor excludes a difference.
    CannotTell,
}

impl Choice {
    /// Its name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Inline => "haul inline",
            Self::Pointer => "haul by pointer",
            Self::Libc => "libc",
            Self::NoDifference => "no difference",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// A question about a call site.
#[derive(Clone, Debug)]
pub struct Advise {
    question: Question,
}

impl Advise {
    /// The copy for calls of one size. `branches` are those of the call site, and `then_read` is
    /// its reader.
    #[must_use]
    pub fn of_size(sizes: Sizes) -> Self {
        let subjects = Selection::Named(["haul", "haul-inline"].map(str::to_owned).into());
        Self { question: Question::Size(Sizes { subjects, ..sizes }) }
    }

    /// The copy for a stream, or for the site that the replay names.
    #[must_use]
    pub fn of_stream(replay: Replay) -> Self {
        Self { question: Question::Stream(Replay { subjects: Selection::Products, ..replay }) }
    }

    fn experiment(&self) -> &dyn Experiment {
        match &self.question {
            Question::Size(sizes) => sizes,
            Question::Stream(replay) => replay,
        }
    }

    /// The kind of call to the subject with this name; `None` if it is not haul.
    fn choice(&self, subject: &str) -> Option<Choice> {
        match (&self.question, subject) {
            (Question::Size(_), "haul") | (Question::Stream(_), "haul-c") => Some(Choice::Pointer),
            (Question::Size(_), "haul-inline") | (Question::Stream(_), "haul") => {
                Some(Choice::Inline)
            }
            _ => None,
        }
    }

    /// The record of the answer; `None` if the measurement was stopped before its first round.
    fn answer(&self, measured: &[Record]) -> Option<Record> {
        let of =
            |record: &Record| Some((self.choice(&record.subject)?, record.comparison.clone()?));
        let compared: Vec<(Choice, Comparison)> = measured.iter().filter_map(of).collect();
        let (choice, call, comparison) = choose(&compared)?;
        let own = measured.iter().find(|it| self.choice(&it.subject) == Some(call))?;
        let call = if call == Choice::Inline { "inline" } else { "c" };
        let mut record = Record { comparison: Some(comparison), ..own.clone() };
        record.experiment = name::COPY_ADVISE.into();
        record.subject = choice.name().into();
        record.parameters.insert(key::CALL.into(), call.into());
        Some(record)
    }
}

/// The answer of these comparisons with libc, and the kind of haul's calls that it is based on: the
/// faster one. The order is: a gain, no difference, an open question, a loss.
fn choose(compared: &[(Choice, Comparison)]) -> Option<(Choice, Choice, Comparison)> {
    let best = |verdict| {
        let of_it = compared.iter().filter(|(_, comparison)| comparison.verdict() == verdict);
        of_it.min_by(|a, b| a.1.ratio.total_cmp(&b.1.ratio))
    };
    let order =
        [Verdict::Less, Verdict::NoDifference, Verdict::CannotTell, Verdict::More].into_iter();
    let (verdict, (call, comparison)) =
        order.filter_map(|verdict| Some((verdict, best(verdict)?))).next()?;
    let choice = match verdict {
        Verdict::Less => *call,
        Verdict::NoDifference => Choice::NoDifference,
        Verdict::CannotTell => Choice::CannotTell,
        Verdict::More => Choice::Libc,
    };
    Some((choice, *call, comparison.clone()))
}

impl Experiment for Advise {
    fn name(&self) -> String {
        format!("advice for {}", self.experiment().name())
    }

    fn budget(&self) -> Duration {
        self.experiment().budget()
    }

    fn set_budget(&mut self, budget: Duration) {
        match &mut self.question {
            Question::Size(sizes) => sizes.set_budget(budget),
            Question::Stream(replay) => replay.set_budget(budget),
        }
    }

    fn overhead(&self, caches: &Caches) -> Duration {
        self.experiment().overhead(caches)
    }

    /// A single call site needs less time than a whole stream.
    fn weight(&self) -> f64 {
        match &self.question {
            Question::Stream(Replay { site: Some(_), .. }) => 0.25,
            _ => 1.0,
        }
    }

    fn check_memory(&self) -> Result<(), Error> {
        self.experiment().check_memory()
    }

    /// Emits the records of the measurement, and then the answer.
    ///
    /// # Errors
    /// As the measurement.
    fn measure(&self, context: &mut Context<'_>) -> Result<(), Error> {
        let mut measured = Vec::new();
        let mut keep = |record: Record| {
            measured.push(record.clone());
            (context.sink)(record);
        };
        self.experiment().measure(&mut Context {
            run: context.run.clone(),
            machine: context.machine.clone(),
            stop: context.stop,
            caches: context.caches,
            cpus: context.cpus.clone(),
            sink: &mut keep,
            progress: &mut *context.progress,
            warn: &mut *context.warn,
        })?;
        if let Some(answer) = self.answer(&measured) {
            (context.sink)(answer);
        }
        Ok(())
    }
}

/// One sentence for an answer: the calls, the choice, and the ratio with its interval.
#[must_use]
pub fn sentence(record: &Record) -> String {
    let Some(c) = &record.comparison else { return String::new() };
    let (low, high, floor) = (c.ratio_low, c.ratio_high, c.floor);
    let figures = format!("{:.3} of libc's time ({low:.3}-{high:.3}, floor {floor:.3})", c.ratio);
    let call = match record.text(key::CALL) {
        Some("inline") => Choice::Inline.name(),
        _ => Choice::Pointer.name(),
    };
    let answer = match c.verdict() {
        Verdict::Less => format!("use {call}: {figures}"),
        Verdict::More => {
            format!("use libc: {call}, the faster of haul's two calls, takes {figures}")
        }
        Verdict::NoDifference => format!("no difference: {call} takes {figures}"),
        Verdict::CannotTell => {
            format!(
                "cannot tell: {call} takes {figures}; measure longer (--budget), or on a quieter \
                 machine"
            )
        }
    };
    format!("{}: {answer}.", calls(record))
}

/// The calls of an answer: `memcpy of 200 B at random alignments, target not read`.
fn calls(record: &Record) -> String {
    let text = |name: &str| record.shown(name).unwrap_or_default();
    if record.parameters.contains_key(key::STREAM) {
        let calls = record.count(key::CALLS).unwrap_or_default();
        let read = 100.0 * record.number(key::READ_SHARE).unwrap_or_default();
        let of = match record.text(key::SITE) {
            Some(site) => format!("{site} of {}", text(key::STREAM)),
            None => format!("all sites of {}", text(key::STREAM)),
        };
        return format!("{of}, {calls} calls, {read:.0}% of the targets read next");
    }
    let size = Bytes(record.count(key::SIZE_BYTES).unwrap_or_default());
    let branches = match text(key::BRANCHES) == Branches::Repeating.name() {
        true => "predictable",
        false => "unpredictable",
    };
    let read = match text(key::THEN_READ) == ThenRead::Nothing.name() {
        true => "target not read".to_owned(),
        false => format!("{} bytes read next", text(key::THEN_READ)).replace("first", "first 8"),
    };
    format!("{} of {size}, {branches}, {read}", text(key::FUNCTION))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(ratio: f64, half: f64, floor: f64) -> Comparison {
        let (ratio_low, ratio_high) = (ratio - half, ratio + half);
        Comparison { baseline: "libc".into(), ratio, ratio_low, ratio_high, floor }
    }

    #[test]
    fn answer_is_libc_where_libc_is_better() {
        let of = |inline: (f64, f64), pointer: (f64, f64)| {
            let inline = comparison(inline.0, inline.1, 0.01);
            let pointer = comparison(pointer.0, pointer.1, 0.01);
            let compared = [(Choice::Inline, inline), (Choice::Pointer, pointer)];
            let (choice, call, comparison) = choose(&compared).unwrap();
            (choice, call, comparison.ratio)
        };
        let (narrow, wide) = (0.01, 0.3);
        let (inline, pointer) = (Choice::Inline, Choice::Pointer);
        assert_eq!(of((0.7, narrow), (0.8, narrow)), (inline, inline, 0.7));
        assert_eq!(of((1.2, narrow), (0.8, narrow)), (pointer, pointer, 0.8));
        assert_eq!(of((1.2, narrow), (1.5, narrow)), (Choice::Libc, inline, 1.2));
        assert_eq!(of((1.2, narrow), (1.0, narrow)), (Choice::NoDifference, pointer, 1.0));
        assert_eq!(of((1.2, narrow), (0.9, wide)), (Choice::CannotTell, pointer, 0.9));
        // A difference that cannot be shown does not hide one that can.
        assert_eq!(of((0.7, wide), (0.9, narrow)), (pointer, pointer, 0.9));
        assert_eq!(choose(&[]), None);
    }

    #[test]
    fn sentence_says_choice_with_ratio_and_interval() {
        let record = |ratio| {
            let mut record = Record::new("r", name::COPY_ADVISE, "x", "time", "ns")
                .with(key::FUNCTION, "memcpy")
                .with(key::SIZE_BYTES, 200)
                .with(key::BRANCHES, "repeating")
                .with(key::THEN_READ, "first")
                .with(key::CALL, "inline");
            record.comparison = Some(comparison(ratio, 0.01, 0.002));
            sentence(&record)
        };
        let calls = "memcpy of 200 B, predictable, first 8 bytes read next";
        assert_eq!(
            record(0.7),
            format!("{calls}: use haul inline: 0.700 of libc's time (0.690-0.710, floor 0.002).")
        );
        assert!(record(1.3).starts_with(&format!("{calls}: use libc: haul inline")));
        assert!(record(1.0).starts_with(&format!("{calls}: no difference: haul inline")));
    }
}
