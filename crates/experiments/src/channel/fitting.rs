//! The subjects for which the machine has enough memory. The other subjects are left out, and the
//! measurement continues without them.

use haul_measure::Error as Unmeasurable;
use haul_model::Bytes;

use super::bench::{Bench, Subject, is_sealed};
use super::protocol::Kind;
use super::transport::without_engine;
use crate::error::Error;

/// The memory for source and target at the two ends, in samples.
const PAIR: u64 = 2;

/// The subjects that can be measured, in the given order, and the subjects that cannot be
/// measured, each with the memory that it needs.
#[derive(Debug)]
pub(super) struct Fitting<'a> {
    pub(super) subjects: Vec<&'a Subject>,
    pub(super) left_out: Vec<(&'a Subject, Bytes)>,
}

impl Bench {
    /// The subjects that fit into this much memory, in bytes. The subjects that need the least
    /// memory are added first, so that one run measures the largest possible number of subjects.
    ///
    /// # Errors
    /// Not even source and target of the two ends fit.
    pub(super) fn fitting(&self, available: u64) -> Result<Fitting<'_>, Error> {
        let unit = (self.size as u64).saturating_mul(self.count(Kind::Transfer) as u64);
        let mut taken = unit.saturating_mul(PAIR);
        if taken > available {
            let (asked, available) = (Bytes(taken), Bytes(available));
            return Err(Unmeasurable::BeyondMemory { asked, available }.into());
        }
        let mut needs: Vec<(usize, &Subject, u64)> = self
            .entrants()
            .enumerate()
            .map(|(index, subject)| (index, subject, unit.saturating_mul(extra_samples(subject))))
            .collect();
        needs.sort_by_key(|(_, _, bytes)| *bytes);
        let (mut kept, mut left_out, mut has_sealed) = (Vec::new(), Vec::new(), false);
        for (index, subject, bytes) in needs {
            // Sealed subjects use the same memory in turn.
            let new = if is_sealed(&subject.name) && has_sealed { 0 } else { bytes };
            if taken.saturating_add(new) > available {
                left_out.push((subject, Bytes(bytes)));
                continue;
            }
            taken += new;
            has_sealed |= is_sealed(&subject.name);
            kept.push((index, subject));
        }
        kept.sort_by_key(|(index, _)| *index);
        let subjects = kept.into_iter().map(|(_, subject)| subject).collect();
        Ok(Fitting { subjects, left_out })
    }
}

/// The memory of a transport in addition to the source and the target of haul's own two ends, in
/// samples.
fn extra_samples(subject: &Subject) -> u64 {
    let own =
        if subject.found.as_ref().is_some_and(|found| found.launch.is_some()) { PAIR } else { 0 };
    own + match without_engine(&subject.name) {
        // Leased bytes arrive in the receiver's pool, in addition to B's target.
        "haul:staged" | "haul:lease" | "2014:memcpy" | "memcpy" | "2014:mymemcpy" => 1,
        // A builds the message once. B's view of it needs further pages for the bytes that B
        // writes.
        name if is_sealed(name) => 2,
        // iceoryx2 keeps samples in separate memory. Two samples wait at each end.
        "iceoryx2" => 4,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use haul_machine::sys::Sys;
    use haul_measure::Caches;

    use super::*;
    use crate::channel::Target;
    use crate::channel::pair::Launch;
    use crate::channel::peers::{Found, Peer};
    use crate::channel::run::Run;
    use crate::context::Context;
    use crate::drive::Program;

    const MIB: u64 = 1 << 20;

    fn launch() -> Launch {
        Launch { program: Program::new("/bin/false"), starts_both: false }
    }

    fn bench(names: &[&str]) -> Bench {
        let subject = |name: &&str| Subject {
            name: (*name).to_owned(),
            found: matches!(*name, "ucx" | "iceoryx2")
                .then(|| Found::started_by(Peer::Ucx, launch())),
        };
        Bench {
            size: 4 << 20,
            target: Target::Warm,
            is_busy: false,
            subjects: names.iter().map(subject).collect(),
            driver: launch(),
            left_out: Vec::new(),
            budget: Duration::ZERO,
            tries: 1,
            seed: 1,
        }
    }

    fn names(bench: &Bench, available: u64) -> (Vec<&str>, Vec<(&str, u64)>) {
        let fitting = bench.fitting(available * MIB).unwrap();
        let kept = fitting.subjects.iter().map(|subject| subject.name.as_str()).collect();
        let left_out = fitting.left_out.iter();
        let left_out = left_out.map(|(subject, needs)| (subject.name.as_str(), needs.0 / MIB));
        (kept, left_out.collect())
    }

    #[test]
    fn subject_that_does_not_fit_is_left_out_by_name() {
        let sealed = ["haul:sealed", "haul:sealed+announced"];
        let all = ["pipe", "iceoryx2", "haul:staged", "ucx", sealed[0], sealed[1], "haul:ring"];
        let bench = bench(&all);
        // 2 for source and target, 1 staged, 2 sealed, 2 ucx, 6 iceoryx2: 13 of 4 MiB.
        assert_eq!(names(&bench, 52), (all.to_vec(), vec![]));
        let (kept, left_out) = names(&bench, 51);
        assert_eq!(left_out, [("iceoryx2", 24)]);
        assert_eq!(kept, ["pipe", "haul:staged", "ucx", sealed[0], sealed[1], "haul:ring"]);
        let (kept, left_out) = names(&bench, 19);
        assert_eq!(kept, ["pipe", "haul:staged", "haul:ring"]);
        let expected = [("ucx", 8), (sealed[0], 8), (sealed[1], 8), ("iceoryx2", 24)];
        assert_eq!(left_out, expected);
        assert_eq!(names(&bench, 8).0, ["pipe", "haul:ring"]);
        let error = bench.fitting(8 * MIB - 1).unwrap_err().to_string();
        assert!(error.contains("8.00 MiB") && error.contains("measure smaller sizes"), "{error}");
    }

    #[test]
    fn run_warns_of_subjects_that_do_not_fit_and_keeps_others() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        // Other programs keep a part of the available memory: the run may use between 8 and 16
        // MiB.
        std::fs::write(root.path().join("proc/meminfo"), "MemAvailable: 15000 kB\n").unwrap();
        let mut bench = bench(&["pipe", "ucx", "haul:sealed", "haul:ring"]);
        bench.left_out = vec!["mpi".to_owned()];
        let mut warnings = Vec::new();
        let mut context = Context {
            run: String::new(),
            machine: String::new(),
            stop: &AtomicBool::new(false),
            caches: Caches::default(),
            cpus: vec![0, 1],
            sink: &mut |_| {},
            progress: &mut |_| {},
            warn: &mut |line| warnings.push(line.to_owned()),
        };
        let run = Run::new(&bench, &Sys::at(root.path()), &mut context).unwrap();
        let names: Vec<&str> = run.entrants.iter().map(|one| one.subject.name.as_str()).collect();
        assert_eq!(names, ["pipe", "haul:ring", "pipe"]);
        assert_eq!(run.left_out, ["mpi", "ucx", "haul:sealed"]);
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(
            warnings[0].starts_with("ucx is left out at 4 MiB: it needs 8 MiB"),
            "{}",
            warnings[0]
        );
    }
}
