//! The choice of a message's mechanism.

use std::sync::OnceLock;

use super::dispatch::obstacle;

use crate::shared::error::Error;
use crate::shared::header::SumState;
use crate::shared::idle;
use crate::shared::lane::Lane;
use crate::shared::layout::INTO_NEW_MEMORY;
use crate::shared::names::Mechanism;
use crate::shared::source::Source;
use crate::table::{self, ChannelTable};

/// From this size on, one copy by the kernel is faster than two copies by the processor if both
/// ends share the only processor. Below this size, the ring's chunks stay in the cache, and a
/// system call per message costs more than the second copy. If other programs keep several
/// processors busy, the ring remains the choice: on two busy processors of Zen 4 the ring moved
/// 5.5 GB/s at 0.18 s/GB, `pull` 1.6 at 0.25, `double` 1.8 at 0.25 (256 MiB). With one of the two
/// processors busy, the ring moved 1.55 GB/s and `pull` 1.52 at 64 KiB, 3.43 and 3.05 at 256 KiB,
/// 3.74 and 2.83 at 16 MiB.
const PULL_BYTES_MIN: u64 = 128 << 10;
/// From this size on `double` is the choice if each end has a processor and the receiver's memory
/// is new: page faults then take longer than copies, and with `double` each end handles half of
/// the faults. Into memory that was used before, the ring is at least as fast at every size,
/// wherever the two ends run (see `ring`), and needs less processor time. GB/s of `ring` and
/// `double` into new memory, Zen 4: 1.13 and 0.65 at 64 KiB, 1.26 and 1.57 at 128 KiB, 1.30 and
/// 2.09 at 1 MiB, 1.37 and 2.48 at 16 MiB.
const DOUBLE_INTO_NEW_BYTES_MIN: u64 = 128 << 10;
/// The mechanism for this message: the one that the settings name, otherwise `inline` up to
/// `longest_inline`, otherwise the fastest one as measured on this machine, otherwise the one
/// that a rule selects from size, permission, trust and processors.
///
/// # Errors
/// [`Error::Unavailable`] if the mechanism that the settings name is not available.
pub(crate) fn choose(
    lane: &Lane,
    source: &Source<'_>,
    length: u64,
    longest_inline: usize,
) -> Result<Mechanism, Error> {
    choose_with_reason(lane, source, length, longest_inline).map(|(mechanism, _)| mechanism)
}

/// Like [`choose`], but also returns the reason.
///
/// # Errors
/// The errors of [`choose`].
pub(crate) fn choose_with_reason(
    lane: &Lane,
    source: &Source<'_>,
    length: u64,
    longest_inline: usize,
) -> Result<(Mechanism, Reason), Error> {
    let Some(asked) = lane.link.settings.mechanism.filter(|_| length > 0) else {
        let is_short = length <= longest_inline as u64;
        let short = (Mechanism::Inline, Reason::Short);
        return Ok(if is_short { short } else { best(lane, source, length) });
    };
    match obstacle(asked, &lane.link, source, length) {
        None => Ok((asked, Reason::Asked)),
        Some(reason) => Err(Error::Unavailable { mechanism: asked, reason }),
    }
}

/// The reason for a message's mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// [`Settings::mechanism`](crate::Settings::mechanism) names it.
    Asked,
    /// The message fits into its slot.
    Short,
    /// The receiver put its last large message into memory that had no pages yet.
    IntoNew,
    /// The mechanism was the fastest for this size when this machine was measured: the
    /// `[channel]` table of the tuning in force.
    Measured,
    /// Both ends share one processor.
    OneProcessor,
    /// The default: no rule selects another mechanism.
    Usual,
}

impl Reason {
    /// The reason as the end of a sentence: `because ...`.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Asked => "the settings name it",
            Self::Short => "so short a message fits into its slot",
            Self::IntoNew => {
                "the receiver's memory has no pages yet, and each end handles half of the page faults"
            }
            Self::Measured => {
                "it was the fastest for this size when this machine was measured (haul.toml, [channel])"
            }
            Self::OneProcessor => {
                "both ends share one processor, and one copy by the kernel needs the least time on it"
            }
            Self::Usual => {
                "both copies overlap and stay in the caches, and no rule selects another mechanism"
            }
        }
    }
}

/// Whether choices use a table that was measured on this machine.
pub(crate) fn is_measured() -> bool {
    ladder().is_some()
}

fn best(lane: &Lane, source: &Source<'_>, length: u64) -> (Mechanism, Reason) {
    let link = &*lane.link;
    let ladder = ladder();
    // A false value from the peer can only make the transfer slower.
    let is_target_new = length >= DOUBLE_INTO_NEW_BYTES_MIN && lane.load(INTO_NEW_MEMORY) == 1;
    let busy = Facts {
        is_trusted: link.is_trusted,
        is_idle: false,
        has_one_cpu: lane.has_one_cpu(),
        is_target_new,
        is_summed: source.sum() != SumState::None,
    };
    let can = |mechanism| obstacle(mechanism, link, source, length).is_none();
    let best = |facts: Facts| facts.best(length, ladder, &can);
    let (if_busy, if_idle) = (best(busy), best(Facts { is_idle: true, ..busy }));
    // Checked only if the result changes the choice, because the check costs three system calls,
    // 7 us on Zen 4.
    let is_idle = if_busy.0 != if_idle.0 && !lane.has_one_cpu() && idle::is_one_for_each();
    if is_idle { if_idle } else { if_busy }
}

/// The facts on which a choice depends, in addition to the message.
#[derive(Clone, Copy, Debug)]
struct Facts {
    is_trusted: bool,
    /// Each end has a processor.
    is_idle: bool,
    /// Both ends share the only processor that they may run on.
    has_one_cpu: bool,
    /// The receiver put its last large message into memory that had no pages yet.
    is_target_new: bool,
    /// The message has a checksum. If the processor copies, the checksum is part of the copy; if
    /// the kernel copies, each end reads the bytes once more. On Cascade Lake at 256 MiB,
    /// `double` moves 6.2 GB/s and the ring 4.4; with a checksum, 3.7 and 4.7.
    is_summed: bool,
}

impl Facts {
    fn best(
        self,
        length: u64,
        ladder: Option<&Ladder>,
        can: &dyn Fn(Mechanism) -> bool,
    ) -> (Mechanism, Reason) {
        let is_new = self.is_target_new && length >= DOUBLE_INTO_NEW_BYTES_MIN;
        if is_new && self.is_idle && can(Mechanism::Double) {
            return (Mechanism::Double, Reason::IntoNew);
        }
        let ladder = ladder.filter(|ladder| length <= ladder.most);
        let mut rungs = ladder.into_iter().flat_map(|l| l.of(self.is_trusted, self.is_idle));
        let suits = |mechanism| {
            let is_by_kernel = matches!(mechanism, Mechanism::Pull | Mechanism::Double);
            !(self.is_summed && is_by_kernel) && can(mechanism)
        };
        if let Some(measured) = rungs.find(|rung| rung.from <= length && suits(rung.mechanism)) {
            return (measured.mechanism, Reason::Measured);
        }
        if self.has_one_cpu && length >= PULL_BYTES_MIN && suits(Mechanism::Pull) {
            return (Mechanism::Pull, Reason::OneProcessor);
        }
        (Mechanism::Ring, Reason::Usual)
    }
}

/// The choices of the table, prepared so that a message's choice allocates, sorts and parses
/// nothing.
#[derive(Debug)]
struct Ladder {
    /// The longest message to which the choices apply.
    most: u64,
    /// The choices, indexed by trust and by processors; in each list, the largest sizes come
    /// first.
    rungs: [Vec<Rung>; 4],
}

/// A mechanism, and the smallest size in bytes for which it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rung {
    from: u64,
    mechanism: Mechanism,
}

impl Ladder {
    /// `None` if the table has no choice.
    fn new(table: &ChannelTable) -> Option<Self> {
        let rungs = [(false, false), (false, true), (true, false), (true, true)];
        let rungs = rungs.map(|(trusted, idle)| {
            let known = table.fitting(u64::MAX, trusted, idle).into_iter().filter_map(|choice| {
                let mechanism = choice.mechanism.parse().ok()?;
                Some(Rung { from: choice.from as u64, mechanism })
            });
            known.collect()
        });
        (!table.choices.is_empty()).then_some(Self { most: table.longest(), rungs })
    }

    /// The choices for ends with this trust and load, the best first.
    fn of(&self, trusted: bool, idle: bool) -> impl Iterator<Item = &Rung> {
        self.rungs[usize::from(trusted) * 2 + usize::from(idle)].iter()
    }
}

/// The installed table's choices, prepared once; `None` before [`table::install`].
fn ladder() -> Option<&'static Ladder> {
    static LADDER: OnceLock<Option<Ladder>> = OnceLock::new();
    let table = table::installed()?;
    LADDER.get_or_init(|| Ladder::new(table)).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Choice;

    const QUIET: Facts = Facts {
        is_trusted: true,
        is_idle: true,
        has_one_cpu: false,
        is_target_new: false,
        is_summed: false,
    };

    #[test]
    fn rule_without_table_decides_by_size_memory_and_processors() {
        let busy = Facts { is_idle: false, ..QUIET };
        let alone = Facts { has_one_cpu: true, ..busy };
        let new = Facts { is_target_new: true, ..QUIET };
        let new_and_busy = Facts { is_target_new: true, ..busy };
        for (facts, length, mechanism) in [
            (QUIET, 8 << 10, Mechanism::Ring),
            (QUIET, 64 << 10, Mechanism::Ring),
            (QUIET, 32 << 20, Mechanism::Ring),
            (QUIET, 1 << 30, Mechanism::Ring),
            (new, 1 << 30, Mechanism::Double),
            (new, 64 << 10, Mechanism::Ring),
            (new, 128 << 10, Mechanism::Double),
            (busy, 64 << 10, Mechanism::Ring),
            (busy, 256 << 10, Mechanism::Ring),
            (busy, 1 << 30, Mechanism::Ring),
            (new_and_busy, 1 << 20, Mechanism::Ring),
            (alone, 64 << 10, Mechanism::Ring),
            (alone, 1 << 30, Mechanism::Pull),
            (Facts { is_summed: true, ..alone }, 1 << 30, Mechanism::Ring),
        ] {
            assert_eq!(facts.best(length, None, &|_| true).0, mechanism, "{facts:?}, {length}");
            let ring = facts.best(length, None, &|can| can == Mechanism::Ring);
            assert_eq!(ring.0, Mechanism::Ring, "{facts:?}, {length}");
        }
    }

    #[test]
    fn table_precedes_rule_up_to_four_times_measured_size() {
        let table = ChannelTable {
            measured_max: Some(1 << 20),
            choices: vec![choice(0, "pull", None), choice(1 << 20, "double", Some(true))],
            ..ChannelTable::default()
        };
        let ladder = Ladder::new(&table);
        let best = |facts: Facts, length| facts.best(length, ladder.as_ref(), &|_| true).0;
        assert_eq!(best(QUIET, 8 << 10), Mechanism::Pull);
        assert_eq!(best(QUIET, 4 << 20), Mechanism::Double);
        assert_eq!(best(QUIET, (4 << 20) + 1), Mechanism::Ring, "four times what was measured");
        let new = Facts { is_target_new: true, ..QUIET };
        assert_eq!(best(new, 512 << 10), Mechanism::Double, "the table is of memory used before");
        let summed = Facts { is_summed: true, ..QUIET };
        assert_eq!(best(summed, 4 << 20), Mechanism::Ring, "sums are part of its copies");
        let stranger = Facts { is_trusted: false, ..QUIET };
        assert_eq!(best(stranger, 8 << 10), Mechanism::Ring);
    }

    fn choice(from: usize, mechanism: &str, idle: Option<bool>) -> Choice {
        Choice { from, mechanism: mechanism.into(), trusted: Some(true), idle }
    }

    #[test]
    fn ladder_agrees_with_its_table() {
        let choices = vec![
            choice(0, "ring", None),
            choice(64 << 10, "pull", Some(false)),
            choice(1 << 20, "double", Some(true)),
            choice(1 << 21, "teleport", None),
        ];
        let table =
            ChannelTable { measured_max: Some(16 << 20), choices, ..ChannelTable::default() };
        let ladder = Ladder::new(&table).unwrap();
        assert_eq!(ladder.most, 64 << 20);
        let mut compared = 0;
        for length in [1, 5000, 64 << 10, 1 << 20, 1 << 24] {
            for (trusted, idle) in [(false, true), (true, false), (true, true)] {
                let by_name =
                    table.names(length, trusted, idle).filter_map(|name| name.parse().ok());
                let by_name: Vec<Mechanism> = by_name.collect();
                let rungs = ladder.of(trusted, idle).filter(|rung| rung.from <= length);
                assert_eq!(rungs.map(|rung| rung.mechanism).collect::<Vec<_>>(), by_name);
                compared += by_name.len();
            }
        }
        assert!(compared > 10, "{compared}");
        assert!(Ladder::new(&ChannelTable::default()).is_none());
        let unbounded = ChannelTable { measured_max: None, ..table };
        assert_eq!(Ladder::new(&unbounded).unwrap().most, u64::MAX);
    }
}
