use haul_model::experiment::key;
use haul_model::{Comparison, Line, RatioOf};

use super::*;
use crate::select::sections;

fn test(verdict: &str, ratios: [f64; 3], floor: f64) -> Record {
    let mut record = Record::new("r", name::FIELD_VERDICT, "env:<b>=1", "wall", "s")
        .with(key::PROGRAM, "sort <b>")
        .with(key::VERDICT, verdict)
        .with(key::HIGHER_IS_BETTER, false)
        .with(key::RUNS, 3);
    let [ratio_low, ratio, ratio_high] = ratios;
    let baseline = "without".into();
    record.samples = vec![1.0, 1.1, 1.2];
    record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
    record
}

#[test]
fn sentence_has_verdict_and_interval() {
    for (record, text) in [
        (test("faster", [0.9, 0.92, 0.95], 0.01), "faster by 8.0% (5.0% to 10%), by wall"),
        (test("slower", [1.02, 1.03, 1.05], 0.01), "slower by 3.0% (2.0% to 5.0%)"),
        (test("no difference", [0.99, 1.0, 1.005], 0.012), "no difference above 1.2%"),
        (
            test("cannot tell", [0.9, 1.0, 1.1], 0.02),
            "cannot tell: between 10% faster and 10% slower; more rounds would",
        ),
        (test("cannot tell", [0.9, 1.0, 1.1], 0.2), "a quieter machine, or more rounds"),
        (test("cannot tell", [0.0, 1.0, f64::MAX], 0.2), "too few rounds"),
    ] {
        let sentence = sentence(&record).unwrap();
        assert!(sentence.contains(text), "{sentence}");
        assert!(sentence.contains("3 runs of each side"), "{sentence}");
    }
    let mut memory = test("slower", [1.02, 1.03, 1.05], 0.01);
    memory.unit = "B".into();
    assert!(sentence(&memory).unwrap().contains("worse by 3.0%"));
    let rate = Record { ratio_of: Some(RatioOf::Cost), ..memory };
    let rate = rate.with(key::HIGHER_IS_BETTER, true);
    assert!(sentence(&rate).unwrap().contains("slower by 3.0%"));
    assert_eq!(sentence(&Record { experiment: "copy.size".into(), ..rate }), None);
}

#[test]
fn drawing_has_intervals_and_runs() {
    let without = |subject: &str| {
        let mut record = Record::new("r", name::FIELD_RUN, subject, "wall", "s");
        record.samples = vec![1.0, 1.3, 1.1];
        record
    };
    let lines: Vec<Line> =
        [without("without"), without("again"), test("faster", [0.9, 0.92, 0.95], 0.01)]
            .map(Line::from)
            .into();
    let sections = sections(&lines);
    let drawn = html(name::FIELD_VERDICT, &sections[0]).unwrap();
    assert_eq!(drawn.matches("<polyline").count(), 3);
    assert_eq!(drawn.matches("<circle").count(), 1);
    assert!(!drawn.contains("<b>=") && drawn.contains("env:&lt;b&gt;"), "{drawn}");
    assert!(!drawn.contains("NaN"));
    assert_eq!(html(name::FIELD_RUN, &sections[0]), None);
    assert!(!drawn.contains("Copies and fills"), "the test did not tell their share");
}

#[test]
fn runs_of_a_figure_without_unit_name_none() {
    for (unit, title) in [("s", "round by round, in s<"), ("value", "round by round<")] {
        let mut record = test("faster", [0.9, 0.92, 0.95], 0.01);
        record.unit = unit.into();
        let drawn = html(name::FIELD_VERDICT, &sections(&[Line::from(record)])[0]).unwrap();
        assert!(drawn.contains(title), "{drawn}");
    }
}

#[test]
fn share_of_the_copies_is_beside_the_verdict() {
    let of = |without: f64, with: f64| {
        let record = test("no difference", [0.99, 1.0, 1.005], 0.012);
        record.with(key::COPY_SHARE, without).with(key::COPY_SHARE_CHANGED, with)
    };
    for (shares, part) in [
        (
            (0.2, 0.15),
            "about 20% of the program's processor time with libc's functions, and haul's save 5.0%",
        ),
        ((0.2, 0.2001), "haul's take the same time"),
        ((0.2, 0.23), "haul's take 3.0% of it in addition"),
    ] {
        let sentence = copies(&of(shares.0, shares.1)).unwrap();
        assert!(sentence.contains(part), "{sentence}");
    }
    assert_eq!(copies(&of(f64::NAN, 0.1)), None);
    let lines = [Line::from(of(0.2, 0.15))];
    let drawn = html(name::FIELD_VERDICT, &sections(&lines)[0]).unwrap();
    assert!(drawn.contains("save 5.0% of it.</p>"), "{drawn}");
}

#[test]
fn hostile_figures_draw_nothing_that_is_not_finite() {
    let mut hostile = test("faster", [0.0, 1.0, f64::MAX], f64::MAX);
    hostile.samples = vec![f64::MAX, 0.0];
    let lines = [Line::from(hostile)];
    let drawn = html(name::FIELD_VERDICT, &sections(&lines)[0]).unwrap();
    assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
}
