use super::*;
use crate::compare::whole;

/// A record of haul with libc as the baseline, whose time makes the ratio.
fn record(unit: &str, median: f64, ratio: Option<f64>, floor: f64) -> Record {
    let mut record = Record::new("r", "copy.size", "haul", "x", unit);
    record.samples = vec![median * 0.999, median, median * 1.001];
    record.comparison = ratio.map(|ratio| Comparison {
        baseline: "libc".into(),
        ratio,
        ratio_low: ratio * 0.999,
        ratio_high: ratio * 1.001,
        floor,
    });
    record
}

fn of(old: &[Record], new: &[Record]) -> Judged {
    let sides = Sides { old: old.iter().collect(), new: new.iter().collect() };
    judge(&[Observed::of(&sides).unwrap()], 0.02)[0]
}

/// Three runs whose figures and ratios differ slightly.
fn three(unit: &str, median: f64, ratio: Option<f64>, floor: f64) -> [Record; 3] {
    [0.998, 1.0, 1.002].map(|by| record(unit, median * by, ratio.map(|ratio| ratio * by), floor))
}

#[test]
fn change_requires_both_median_and_ratio_to_baseline() {
    let change = |median: f64, ratio: f64| {
        let old = three("ns", 100.0, Some(0.8), 0.005);
        of(&old, &three("ns", median, Some(ratio), 0.005)).verdict
    };
    assert_eq!(change(110.0, 0.88), Verdict::More);
    assert_eq!(change(90.0, 0.72), Verdict::Less);
    // The machine became slower, and all subjects with it.
    assert_eq!(change(110.0, 0.8), Verdict::NoDifference);
    // The baseline became slower, and haul did not.
    assert_eq!(change(100.0, 0.72), Verdict::NoDifference);
    // The least change that counts is 2%.
    assert_eq!(change(101.9, 0.8 * 1.019), Verdict::NoDifference);
    assert_eq!(change(102.5, 0.8 * 1.025), Verdict::More);
}

#[test]
fn single_runs_report_only_figures_that_doubled_or_halved() {
    let change = |median: f64, ratio: f64, floor: f64| {
        of(&[record("ns", 100.0, Some(0.8), floor)], &[record("ns", median, Some(ratio), floor)])
            .verdict
    };
    assert_eq!(change(100.5, 0.803, 0.005), Verdict::NoDifference);
    assert_eq!(change(120.0, 0.96, 0.005), Verdict::CannotTell);
    assert_eq!(change(250.0, 2.0, 0.005), Verdict::More);
    assert_eq!(change(40.0, 0.32, 0.005), Verdict::Less);
    assert_eq!(change(100.5, 0.803, 0.30), Verdict::CannotTell, "equals are far apart");
}

/// A figure needs 1.65 times its earlier time, and its baseline became five times as fast. This
/// must not give a ratio of 8.26.
#[test]
fn moved_baseline_makes_no_ratio() {
    for runs in [1, 3] {
        let old = vec![record("ns", 100.0, Some(0.5), 0.01); runs];
        let new = vec![record("ns", 165.0, Some(0.5 * 8.26), 0.01); runs];
        let judged = of(&old, &new);
        assert!(!judged.is_beside && (judged.ratio - 1.65).abs() < 1e-9, "{judged:?}");
        let expected = if runs == 1 { Verdict::CannotTell } else { Verdict::More };
        assert_eq!(judged.verdict, expected, "{judged:?}");
    }
}

#[test]
fn falling_rate_is_slower_and_ratio_is_of_cost() {
    let (old, new) = (three("GB/s", 10.0, None, 0.0), three("GB/s", 8.0, None, 0.0));
    let judged = of(&old, &new);
    assert_eq!(judged.verdict, Verdict::More);
    assert!((judged.ratio - 1.25).abs() < 1e-9, "{judged:?}");
    assert!(judged.low < 1.25 && judged.high > 1.25, "{judged:?}");
    assert_eq!(of(&new, &old).verdict, Verdict::Less);
}

#[test]
fn rate_is_judged_alike_for_ratios_of_rate_and_of_cost() {
    let before = three("GB/s", 10.0, Some(2.0), 0.005);
    let rates = three("GB/s", 12.0, Some(2.4), 0.005);
    let costs = rates.clone().map(|record| {
        let mut cost = record.clone();
        cost.compare(record.comparison);
        cost
    });
    for new in [&rates, &costs] {
        let judged = of(&before, new);
        assert_eq!(judged.verdict, Verdict::Less);
        assert!((judged.ratio - 2.0 / 2.4).abs() < 1e-9, "{judged:?}");
        assert!(judged.is_beside);
        assert_eq!(of(new, &before).verdict, Verdict::More);
    }
    assert_eq!(of(&rates, &costs).verdict, Verdict::NoDifference);
}

#[test]
fn spread_between_runs_hides_a_difference() {
    let spread = |by: f64| [0.9, 1.0, 1.1].map(|at| record("ns", 100.0 * at * by, None, 0.0));
    assert_eq!(of(&spread(1.0), &spread(1.05)).verdict, Verdict::CannotTell);
    assert_eq!(of(&spread(1.0), &spread(3.0)).verdict, Verdict::More);
}

#[test]
fn figure_without_cost_is_not_judged() {
    let observed = |unit: &str, median: f64| {
        let (old, new) = (record(unit, median, None, 0.0), record(unit, 1.0, None, 0.0));
        Observed::of(&Sides { old: vec![&old], new: vec![&new] })
    };
    assert!(observed("%", 1.0).is_none());
    assert!(observed("ns", 0.0).is_none());
    assert!(observed("ns", 1.0).is_some());
}

/// A pseudo-random generator with a fixed seed: the same numbers in every run of the test
/// (Marsaglia's xorshift).
struct Draw(u64);

impl Draw {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// A run of several figures, modelled on 80 runs under load on Zen 4: the machine is up to 3%
    /// faster or slower; each figure varies by half a percent; and one figure in six belongs to
    /// code whose time jumps by a fifth in one run of six. The interval that a run reports is
    /// five times narrower than the variation between runs. `longer` is the factor that a change
    /// adds to the time.
    fn run(&mut self, longer: impl Fn(usize) -> f64) -> Vec<Record> {
        let machine = 1.0 + 0.03 * self.normal();
        (0..FIGURES)
            .map(|figure| {
                let jump = if figure % 6 == 0 && self.unit() < 1.0 / 6.0 { 0.8 } else { 1.0 };
                let ratio = 0.8 * (1.0 + 0.005 * self.normal()) * jump * longer(figure);
                record("ns", 100.0 * ratio * machine, Some(ratio), 0.002)
            })
            .collect()
    }
}

const FIGURES: usize = 30;

/// Compares this many runs of each side. Returns the figures that are called slower, and whether
/// the whole is called slower. `longer` applies to the new runs.
fn slower(draw: &mut Draw, runs: usize, longer: impl Fn(usize) -> f64) -> (Vec<usize>, bool) {
    let old: Vec<Vec<Record>> = (0..runs).map(|_| draw.run(|_| 1.0)).collect();
    let new: Vec<Vec<Record>> = (0..runs).map(|_| draw.run(&longer)).collect();
    let side = |runs: &[Vec<Record>], figure: usize| -> Vec<Record> {
        runs.iter().map(|run| run[figure].clone()).collect()
    };
    let sides: Vec<_> = (0..FIGURES).map(|it| (side(&old, it), side(&new, it))).collect();
    let observed: Vec<Observed> = sides
        .iter()
        .filter_map(|(old, new)| {
            Observed::of(&Sides { old: old.iter().collect(), new: new.iter().collect() })
        })
        .collect();
    let figures: Vec<_> = sides.iter().map(|(_, new)| &new[0]).zip(&observed).collect();
    let whole = whole::wholes(&figures).remove(0);
    let mut all = observed.clone();
    all.push(whole.observed.clone());
    let judged = judge(&all, 0.02);
    let of_whole = if runs == 1 { whole.of_single_runs(0.02) } else { judged[FIGURES] };
    let is_slower = |place: &usize| judged[*place].verdict == Verdict::More;
    ((0..FIGURES).filter(is_slower).collect(), of_whole.verdict == Verdict::More)
}

/// At most one false alarm in twenty comparisons of a program with itself.
#[test]
fn program_compared_with_itself_is_seldom_called_slower() {
    for runs in [1, 3] {
        let mut draw = Draw(runs as u64 + 1);
        let is_alarm = |_: &u32| {
            let (figures, whole) = slower(&mut draw, runs, |_| 1.0);
            whole || !figures.is_empty()
        };
        let alarms = (0..100).filter(is_alarm).count();
        eprintln!("{runs} against {runs}: {alarms} false alarms in 100");
        assert!(alarms <= 5, "{runs} runs of each: {alarms} of 100");
    }
}

/// A true change of 5% is found in nine of ten comparisons: in one figure without jumps with
/// three runs of each side, and in all figures together with one run of each side.
#[test]
fn change_of_five_percent_is_found() {
    let mut draw = Draw(11);
    let one = (0..100).filter(|comparison| {
        let wanted = 1 + 6 * (comparison % 5);
        let longer = |figure| if figure == wanted { 1.05 } else { 1.0 };
        slower(&mut draw, 3, longer).0.contains(&wanted)
    });
    let one = one.count();
    let all = (0..100).filter(|_| slower(&mut draw, 1, |_| 1.05).1).count();
    eprintln!("of 100: {one} in one figure by three runs, {all} in all figures by one");
    assert!(one >= 90 && all >= 90, "{one} and {all} of 100");
}
