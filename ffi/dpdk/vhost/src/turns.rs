//! A comparison inside of one running program: this library and DPDK serve all rings in turns, each
//! for a tenth of a second. Restarts of a program differ by more than the two sides do, and so do
//! the seconds of a shared machine; two turns in a row differ little.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::gate::Side;

/// The length of a turn: some ten thousand bursts. A stated default.
const TURN: Duration = Duration::from_millis(100);
/// The number of turns that are kept: half an hour. Later turns replace the first ones.
const TURNS: usize = 1 << 14;
/// The fewest comparisons for which a median has an interval.
const LEAST: usize = 8;

/// The packets of each turn.
pub(crate) struct Turns {
    /// The number of the current turn plus 1; 0 before the first one.
    now: AtomicU64,
    /// The packets of the current turn so far.
    packets: AtomicU64,
    /// The packets of each turn plus 1; 0 for a turn of which only a part was seen.
    all: [AtomicU64; TURNS],
}

/// What the turns have shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compared {
    /// Packets a second with each side, in medians.
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
    /// This library's rate in a turn by the mean of DPDK's in the turns before and after: the
    /// median, and its 95% interval.
    pub(crate) ratio: f64,
    pub(crate) interval: [f64; 2],
    /// The number of these ratios.
    pub(crate) count: usize,
}

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, theirs, ratio, interval: [low, high], count } = self;
        let [ours, theirs] = [ours, theirs].map(|rate| rate / 1e6);
        write!(
            f,
            "compared in {count} turns of all devices: {ours:.3} Mpps with haul, {theirs:.3} with \
             DPDK, {ratio:.3} times (95%: {low:.3} to {high:.3})"
        )
    }
}

/// The side of a turn.
fn side(turn: u64) -> Side {
    if turn.is_multiple_of(2) { Side::Ours } else { Side::Theirs }
}

impl Turns {
    pub(crate) const fn new() -> Self {
        let all = [const { AtomicU64::new(0) }; TURNS];
        Self { now: AtomicU64::new(0), packets: AtomicU64::new(0), all }
    }

    /// The side whose turn it is at a time since an arbitrary instant.
    #[inline]
    pub(crate) fn at(&self, time: Duration) -> Side {
        let turn = (time.as_nanos() / TURN.as_nanos()) as u64;
        let before = self.now.load(Ordering::Relaxed);
        if before != turn + 1 {
            self.change(before, turn);
        }
        side(turn)
    }

    /// Ends the turn before. Several threads may see the change; one of them makes it.
    #[cold]
    fn change(&self, before: u64, turn: u64) {
        let relaxed = Ordering::Relaxed;
        if before > turn + 1 {
            // This thread read the clock, and another one changed the turn meanwhile.
            return;
        }
        if self.now.compare_exchange(before, turn + 1, relaxed, relaxed).is_err() {
            return;
        }
        let packets = self.packets.swap(0, relaxed);
        // Turns that no thread saw, and those of an earlier lap.
        let skipped = before.max((turn + 1).saturating_sub(TURNS as u64))..=turn;
        skipped.for_each(|turn| self.place(turn).store(0, relaxed));
        // The turn before was seen whole if it is the one before, and if the one before it was
        // seen too. The first turn begins anywhere.
        if before == turn && self.place(turn.wrapping_sub(2)).load(relaxed) > 0 {
            self.place(turn - 1).store(packets + 1, relaxed);
        } else if before > 0 {
            // Marks that its successor is whole.
            self.place(before - 1).store(1, relaxed);
        }
    }

    fn place(&self, turn: u64) -> &AtomicU64 {
        &self.all[turn as usize % TURNS]
    }

    /// Counts packets that a burst has moved.
    #[inline]
    pub(crate) fn count(&self, packets: u16) {
        self.packets.fetch_add(packets.into(), Ordering::Relaxed);
    }

    /// Compares all turns that are kept; `None` if these are too few. Turns without packets do not
    /// count.
    pub(crate) fn compared(&self) -> Option<Compared> {
        let packets = |turn: u64| {
            let kept = self.place(turn).load(Ordering::Relaxed);
            (kept > 1).then(|| (kept - 1) as f64)
        };
        let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for turn in (0..TURNS as u64).filter(|turn| side(*turn) == Side::Ours) {
            let [before, own, after] = [turn.wrapping_sub(1), turn, turn + 1].map(packets);
            let (Some(before), Some(own), Some(after)) = (before, own, after) else { continue };
            let other = f64::midpoint(before, after);
            ratios.push(own / other);
            ours.push(own / TURN.as_secs_f64());
            theirs.push(other / TURN.as_secs_f64());
        }
        if ratios.len() < LEAST {
            return None;
        }
        for all in [&mut ratios, &mut ours, &mut theirs] {
            all.sort_by(f64::total_cmp);
        }
        let middle = |all: &[f64]| all[all.len() / 2];
        let [low, high] = ranks(ratios.len());
        let (ratio, interval) = (middle(&ratios), [ratios[low], ratios[high]]);
        let (ours, theirs, count) = (middle(&ours), middle(&theirs), ratios.len());
        Some(Compared { ours, theirs, ratio, interval, count })
    }
}

/// The ranks, from 0, between which the median of a distribution lies in 95% of samples of this
/// size: those of a binomial distribution, approximated by a normal one.
fn ranks(count: usize) -> [usize; 2] {
    let (half, reach) = (count as f64 / 2.0, 0.98 * (count as f64).sqrt());
    let low = (half - reach).floor().max(0.0) as usize;
    [low, count - 1 - low]
}

/// The turns of this process.
pub(crate) static PROCESS: Turns = Turns::new();

/// The time since the first call.
#[inline]
pub(crate) fn since_start() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns with packets, each seen twice.
    fn run(turns: &Turns, range: std::ops::Range<u64>, packets: impl Fn(u64) -> u16) {
        for turn in range {
            for part in 0..2 {
                let side_now = turns.at(TURN * turn as u32 + TURN / 2 * part);
                assert_eq!(side_now, side(turn));
                turns.count(packets(turn) / 2);
            }
        }
    }

    #[test]
    fn sides_take_turns_and_are_compared_with_their_neighbours() {
        let turns = Box::new(Turns::new());
        // The machine slows down by half meanwhile; haul's turns are 1.5 times as fast.
        let packets = |turn: u64| {
            let speed = if turn < 50 { 2.0 } else { 1.0 };
            (speed * if side(turn) == Side::Ours { 3000.0 } else { 2000.0 }) as u16
        };
        run(&turns, 7..107, packets);
        let compared = turns.compared().unwrap();
        assert_eq!((compared.ratio, compared.interval), (1.5, [1.5; 2]));
        assert!(compared.count >= 46, "{compared:?}");
    }

    #[test]
    fn parts_of_turns_and_idle_turns_do_not_count() {
        let turns = Box::new(Turns::new());
        run(&turns, 10..13, |_| 2000);
        assert_eq!(turns.compared(), None, "three turns are too few");
        // Nothing was called for two turns, and then nothing moved for ten.
        run(&turns, 15..25, |_| 0);
        run(&turns, 25..45, |turn| if turn % 2 == 0 { 1000 } else { 2000 });
        let compared = turns.compared().unwrap();
        assert_eq!((compared.ratio, compared.ours, compared.theirs), (0.5, 1e4, 2e4));
        assert!((8..=9).contains(&compared.count), "{compared:?}");
        // A thread that has read the clock before others went on.
        assert_eq!(turns.at(TURN * 30), side(30));
        turns.count(9);
        turns.at(TURN * 44);
        assert_eq!(turns.compared(), Some(compared));
    }

    #[test]
    fn turns_of_an_earlier_lap_do_not_count() {
        let turns = Box::new(Turns::new());
        run(&turns, 0..40, |_| 2000);
        assert!(turns.compared().is_some());
        // A pause in which the places of these turns come round again.
        let later = TURNS as u64 + 100;
        run(&turns, later..later + 4, |_| 2000);
        assert_eq!(turns.compared(), None);
    }

    #[test]
    fn ranks_are_those_of_the_binomial_distribution() {
        assert_eq!([8, 20, 100].map(ranks), [[1, 6], [5, 14], [40, 59]]);
    }
}
