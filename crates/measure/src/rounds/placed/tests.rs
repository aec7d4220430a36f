//! The promises of a field test, on synthetic programs: a machine that drifts, a hypervisor that
//! takes time from single runs, and places that are not equal.

use super::*;

const PROGRAMS: u64 = 100;
const ROUNDS: usize = 15;
/// The difference on which a reader would act.
const MATTERS: f64 = haul_model::MATTERS;

/// A synthetic machine and program.
#[derive(Clone, Copy)]
struct Machine {
    /// The standard deviation of a run.
    noise: f64,
    /// The speed that the machine loses from the first run to the last, in a wave.
    drift: f64,
    /// The standard deviation of the change from one run to the next that stays.
    walk: f64,
    /// The share of runs from which the hypervisor takes time, and how much on average.
    steal: (f64, f64),
    places: [f64; ENTRANTS],
}

/// A virtual machine with other guests. Without its disturbances, a run differs by 0.5%.
const USUAL: Machine = Machine {
    noise: 0.005,
    drift: 0.08,
    walk: 0.002,
    steal: (0.08, 0.2),
    places: [0.03, 0.0, -0.01],
};

impl Machine {
    fn rounds(&self, count: usize, change: f64, seed: u64) -> Vec<Placed> {
        let mut random = Random::new(seed);
        let mut walked = 0.0;
        (0..count)
            .map(|round| {
                let order = order(round, seed);
                let mut values = [0.0; ENTRANTS];
                for (place, entrant) in order.into_iter().enumerate() {
                    walked += self.walk * normal(&mut random);
                    let time = (round * ENTRANTS + place) as f64 / (count * ENTRANTS) as f64;
                    let mut slower = self.drift * (4.0 * time).sin() + walked;
                    slower += self.places[place] + self.noise * normal(&mut random);
                    if random.chance(self.steal.0) {
                        slower -= self.steal.1 * random.unit().max(1e-9).ln();
                    }
                    if entrant == CHANGED {
                        slower += change;
                    }
                    values[entrant] = 2.0 * slower.exp();
                }
                Placed { order, values }
            })
            .collect()
    }
}

/// The sum of twelve uniform numbers is normally distributed for this purpose.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

fn verdict(found: &Compared) -> haul_model::Verdict {
    let ends = [found.low, found.high];
    haul_model::Verdict::decide(found.ratio, ends, ends, found.floor, MATTERS)
}

fn verdicts(machine: Machine, change: f64) -> Vec<haul_model::Verdict> {
    let of = |seed| {
        let rounds = machine.rounds(ROUNDS, change, seed);
        verdict(&compare(&rounds, TAILS, seed).unwrap())
    };
    (0..PROGRAMS).map(of).collect()
}

fn count(verdicts: &[haul_model::Verdict], of: haul_model::Verdict) -> usize {
    verdicts.iter().filter(|it| **it == of).count()
}

#[test]
fn test_of_nothing_finds_no_difference_in_95_of_100() {
    let found = verdicts(USUAL, 0.0);
    let same = count(&found, haul_model::Verdict::NoDifference);
    eprintln!("no difference: {same} of {PROGRAMS}");
    assert!(same >= 95, "{same}");
}

#[test]
fn slowdown_of_3_percent_is_found_in_95_of_100() {
    for (change, verdict) in
        [(1.03_f64, haul_model::Verdict::More), (1.0 / 1.03, haul_model::Verdict::Less)]
    {
        let found = verdicts(USUAL, change.ln());
        let seen = count(&found, verdict);
        eprintln!("{verdict:?}: {seen} of {PROGRAMS}");
        assert!(seen >= 95, "{verdict:?}: {seen}");
    }
}

/// A machine on which 3% cannot be seen must not report that nothing changed.
#[test]
fn noisy_machine_gives_no_wrong_verdict() {
    let noisy = Machine { noise: 0.1, steal: (0.3, 0.5), ..USUAL };
    let found = verdicts(noisy, 0.1_f64.ln_1p());
    assert_eq!(count(&found, haul_model::Verdict::Less), 0);
    assert!(count(&found, haul_model::Verdict::NoDifference) <= 5, "{found:?}");
}

/// Without its correction for places, the comparison would have the noise of the places.
#[test]
fn effect_of_places_is_removed() {
    let quiet = Machine { noise: 0.001, drift: 0.0, walk: 0.0, steal: (0.0, 0.0), ..USUAL };
    let found = compare(&quiet.rounds(ROUNDS, 0.01, 3), TAILS, 1).unwrap();
    assert!((found.ratio - 1.01).abs() < 0.001, "{found:?}");
    assert!(found.floor < 0.003, "{found:?}");
    for (place, expected) in found.places.iter().zip([1.03, 1.0, 0.99]) {
        assert!((place - expected).abs() < 0.003, "{found:?}");
    }
    assert!(noise(&quiet.rounds(ROUNDS, 0.01, 3)).unwrap() < 0.002);
}

/// A run that ends at the first decision is wrong no more often than a run of fixed length: 5% of
/// all analyses together.
#[test]
fn analyses_together_keep_the_error_of_one() {
    let plan = analyses(60);
    let tails = TAILS / plan.len() as f64;
    let mut wrong = 0;
    let mut decided = Vec::new();
    for seed in 0..PROGRAMS {
        let all = USUAL.rounds(60, 0.0, 1000 + seed);
        let at = plan.iter().find(|count| {
            let found = compare(&all[..**count], tails, seed).unwrap();
            wrong += usize::from(found.low > 1.0 || found.high < 1.0);
            verdict(&found) != haul_model::Verdict::CannotTell
        });
        decided.push(at.copied().unwrap_or(usize::MAX));
    }
    decided.sort_unstable();
    eprintln!("wrong: {wrong} of {PROGRAMS}; decided after {} rounds", decided[50]);
    assert!(wrong <= 5, "{wrong}");
    assert!(decided[95] <= 60, "{decided:?}");
}

#[test]
fn orders_balance_places_and_neighbours() {
    for seed in 0..20 {
        let mut at_place = [[0; ENTRANTS]; ENTRANTS];
        let mut follows = [[0; ENTRANTS]; ENTRANTS];
        for round in 0..12 {
            let order = order(round, seed);
            for (place, entrant) in order.into_iter().enumerate() {
                at_place[entrant][place] += 1;
            }
            order.windows(2).for_each(|two| follows[two[0]][two[1]] += 1);
        }
        assert_eq!(at_place, [[4; ENTRANTS]; ENTRANTS]);
        assert_eq!(follows, [[0, 4, 4], [4, 0, 4], [4, 4, 0]]);
    }
}

#[test]
fn extreme_values_stay_finite_or_are_refused() {
    let of = |values: [f64; ENTRANTS]| Placed { order: [0, 1, 2], values };
    assert_eq!(compare(&[], TAILS, 1), None);
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(compare(&[of([1.0, bad, 1.0])], TAILS, 1), None, "{bad}");
    }
    let one = compare(&[of([1e-300, 1e300, 1.0])], TAILS, 1).unwrap();
    assert_eq!((one.low, one.high), (0.0, f64::MAX));
    // A count that is equal in every run has no noise, and any difference of it is real.
    let equal: Vec<Placed> = (0..6).map(|_| of([100.0, 101.0, 100.0])).collect();
    let equal = compare(&equal, TAILS, 1).unwrap();
    assert!((equal.low - 1.01).abs() < 1e-9 && equal.floor.abs() < 1e-9, "{equal:?}");
    assert_eq!(verdict(&equal), haul_model::Verdict::More);
}

#[test]
fn effect_size_follows_ranks() {
    assert_eq!(rank_biserial(&[1.0, 2.0, 3.0]), 1.0);
    assert_eq!(rank_biserial(&[-1.0, -1.0]), -1.0);
    assert_eq!(rank_biserial(&[0.0, 0.0]), 0.0);
    // Ranks 1.5, 1.5 and 3: (1.5 - 1.5 + 3) / 6.
    assert_eq!(rank_biserial(&[1.0, -1.0, 2.0]), 0.5);
}

/// Rounds without noise are explained exactly, however far the places are apart.
#[test]
fn rounds_without_noise_are_exact() {
    for (seed, apart) in (0..20).flat_map(|seed| [(seed, 1.04), (seed, 1.5)]) {
        let of = |round: usize| {
            let order = order(round, seed);
            let slowed = if round.is_multiple_of(2) { 1.5 } else { 1.0 };
            let values = [0, 1, 2].map(|entrant: usize| {
                let place = if order[0] == entrant { apart } else { 1.0 };
                [100.0, 103.0, 100.1][entrant] * slowed * place
            });
            Placed { order, values }
        };
        let found = compare(&(0..ROUNDS).map(of).collect::<Vec<_>>(), TAILS, seed).unwrap();
        assert!((found.ratio - 1.03).abs() < 1e-3 && found.floor < 0.002, "{seed}: {found:?}");
    }
}
