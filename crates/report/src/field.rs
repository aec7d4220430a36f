//! Field tests: the verdict as a sentence, the intervals, and the runs in their order, drawn.

use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{Comparison, Record, Verdict};

use crate::select::{Section, field};
use crate::text::{self, escape};

/// Dimensions of a drawing in its own units.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;
/// The height of a row with an interval, and of the drawing of the runs.
const ROW: f64 = 30.0;
const RUNS_HEIGHT: f64 = 240.0;
/// The number of ticks of an axis.
const TICKS: usize = 5;

pub(crate) const TITLE: &str = "A whole program with a change and without";
pub(crate) const ABOUT: &str = "In each round, the program ran without the change, with it, and without it again, each \
    time with a new start and in an order in which each takes each place equally often. The ratio is paired by round \
    and in cost: below 1 is better. The grey band is the noise floor: the distance from 1 of the farther end of the \
    interval of the program without the change to itself.";
pub(crate) const RUN_TITLE: &str = "What the program used, with the change and without";
pub(crate) const RUN_ABOUT: &str = "Time, processor time and largest memory of the same runs.";

/// The verdict of a field test: `faster`, `slower`, `no difference` or `cannot tell`. `None` if the
/// record is not one of a field test.
#[must_use]
pub fn verdict(record: &Record) -> Option<Verdict> {
    let said = record.text(key::VERDICT).filter(|_| record.experiment == name::FIELD_VERDICT)?;
    [Verdict::Less, Verdict::More, Verdict::NoDifference, Verdict::CannotTell]
        .into_iter()
        .find(|verdict| verdict.name() == said)
}

/// The verdict of a field test in a sentence. `None` if the record is not one of a field test, or
/// has no comparison.
///
/// ```
/// use haul_model::{Comparison, Record};
/// let mut record = Record::new("r", "field.verdict", "env:X=1", "wall", "s")
///     .with("program", "sort big").with("verdict", "faster").with("runs", 15);
/// let (ratio, ratio_low, ratio_high, floor) = (0.97, 0.96, 0.98, 0.01);
/// let baseline = "without".into();
/// record.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor });
/// assert_eq!(
///     haul_report::field::sentence(&record).unwrap(),
///     "sort big with env:X=1: faster by 3.0% (2.0% to 4.0%), by wall; 15 runs of each side, \
///      noise floor 1.0%."
/// );
/// ```
#[must_use]
pub fn sentence(record: &Record) -> Option<String> {
    let verdict = verdict(record)?;
    let it = record.cost()?;
    let finding = match verdict {
        Verdict::Less => {
            by(better(record), 1.0 - it.ratio, [1.0 - it.ratio_high, 1.0 - it.ratio_low])
        }
        Verdict::More => {
            by(worse(record), it.ratio - 1.0, [it.ratio_low - 1.0, it.ratio_high - 1.0])
        }
        Verdict::NoDifference => format!("no difference above {}", text::percent(bound(&it))),
        Verdict::CannotTell => undecided(record, &it),
    };
    let program = field(record, key::PROGRAM).unwrap_or_default();
    let floor = match it.floor < f64::MAX / 2.0 {
        true => format!("noise floor {}", text::percent(it.floor)),
        false => "noise floor unknown".to_owned(),
    };
    Some(format!(
        "{} with {}: {finding}, by {}; {}, {floor}.",
        shortened(&program),
        shortened(&record.subject),
        record.metric,
        sides(record),
    ))
}

/// What haul's copies can change, in a sentence: the share of the program's processor time in its
/// copies and fills. `None` if the test did not tell it.
///
/// ```
/// let record = haul_model::Record::new("r", "field.verdict", "copy", "wall", "s")
///     .with("copy_share", 0.031).with("copy_share_changed", 0.022);
/// assert_eq!(
///     haul_report::field::copies(&record).unwrap(),
///     "Copies and fills take about 3.1% of the program's processor time with libc's functions, \
///      and haul's save 0.9% of it."
/// );
/// ```
#[must_use]
pub fn copies(record: &Record) -> Option<String> {
    let share = record.number(key::COPY_SHARE)?;
    let saved = share - record.number(key::COPY_SHARE_CHANGED)?;
    let change = match saved {
        _ if !saved.is_finite() => return None,
        saved if saved.abs() < 0.000_5 => "haul's take the same time".to_owned(),
        saved if saved > 0.0 => format!("haul's save {} of it", percent(saved)),
        saved => format!("haul's take {} of it in addition", percent(-saved)),
    };
    Some(format!(
        "Copies and fills take about {} of the program's processor time with libc's functions, and {change}.",
        percent(share)
    ))
}

/// `faster by 3.1% (2.4% to 3.8%)`.
fn by(word: &str, change: f64, [low, high]: [f64; 2]) -> String {
    format!("{word} by {} ({} to {})", percent(change), percent(low.max(0.0)), percent(high))
}

/// The largest difference that the test does not exclude.
fn bound(it: &Comparison) -> f64 {
    [it.ratio_low, it.ratio_high].map(|end| (end - 1.0).abs()).into_iter().fold(it.floor, f64::max)
}

/// `cannot tell: between 4.2% faster and 6.0% slower; a quieter machine would settle it`.
fn undecided(record: &Record, it: &Comparison) -> String {
    let is_bounded = it.ratio_low > 0.0 && it.ratio_high < f64::MAX;
    if !is_bounded {
        return "cannot tell: too few rounds for an interval".to_owned();
    }
    let end = |ratio: f64| match ratio < 1.0 {
        true => format!("{} {}", percent(1.0 - ratio), better(record)),
        false => format!("{} {}", percent(ratio - 1.0), worse(record)),
    };
    let matters = record.number(key::MATTERS).unwrap_or(haul_model::MATTERS);
    let settle = match it.floor > matters {
        true => "a quieter machine, or more rounds, would settle it",
        false => "more rounds would settle it",
    };
    format!("cannot tell: between {} and {}; {settle}", end(it.ratio_low), end(it.ratio_high))
}

/// A share as a percentage. An interval that is not bounded has no end.
fn percent(share: f64) -> String {
    if share < 1e6 { text::percent(share) } else { "any".into() }
}

/// The words for a gain and a loss: of times and rates, or of another quantity.
fn better(record: &Record) -> &'static str {
    if is_speed(record) { "faster" } else { "better" }
}

fn worse(record: &Record) -> &'static str {
    if is_speed(record) { "slower" } else { "worse" }
}

fn is_speed(record: &Record) -> bool {
    let is_rate = record.parameters.get(key::HIGHER_IS_BETTER).and_then(serde_json::Value::as_bool);
    matches!(record.unit.as_str(), "s" | "ms" | "us" | "ns") || is_rate == Some(true)
}

fn sides(record: &Record) -> String {
    let runs = record.count(key::RUNS).map_or(record.samples.len(), |runs| runs as usize);
    format!("{} of each side", text::count(runs, "run"))
}

/// The beginning of a long command line.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Draws the newest test of a section: the intervals for the verdict, and the runs in their order.
/// `None` for other experiments.
pub(crate) fn html(experiment: &str, section: &Section<'_>) -> Option<String> {
    let of = |experiment: &str| section.of(experiment);
    let last = *of(name::FIELD_VERDICT).last().filter(|_| experiment == name::FIELD_VERDICT)?;
    let of_test = |record: &&Record| record.run == last.run;
    let beside: Vec<&Record> = of(name::FIELD_RUN).into_iter().filter(of_test).collect();
    let compared = beside.iter().copied().filter(|record| record.comparison.is_some());
    let rows: Vec<&Record> = [last].into_iter().chain(compared).collect();
    let mut html = String::from("<div class=\"bursts\">");
    if let Some(sentence) = sentence(last) {
        let _ = write!(html, "<p><b>{}</b></p>", escape(&sentence));
    }
    if let Some(copies) = copies(last) {
        let _ = write!(html, "<p>{}</p>", escape(&copies));
    }
    html.push_str(&intervals(&rows));
    let same = beside.into_iter().filter(|record| record.metric == last.metric);
    let series: Vec<&Record> = same.chain([last]).collect();
    html.push_str(&runs(&series));
    Some(html + "</div>")
}

/// A row for each quantity: its ratio, its interval and its floor.
fn intervals(rows: &[&Record]) -> String {
    let rows: Vec<(&Record, Comparison)> = rows
        .iter()
        .filter_map(|record| Some((*record, record.cost()?)))
        .filter(|(_, it)| it.ratio_low > 0.0 && it.ratio_high < 1e6 && it.floor < 1e6)
        .collect();
    // The axis is logarithmic, so that twice and half are equally far from 1.
    let ends = rows.iter().flat_map(|(_, it)| [it.ratio_low, it.ratio_high, 1.0 + it.floor]);
    let far = ends.map(|end| end.ln().abs()).fold(0.005, f64::max) * 1.1;
    if rows.is_empty() {
        return String::new();
    }
    let at = |ratio: f64| LEFT + (WIDTH - LEFT - RIGHT) * (ratio.ln() + far) / (2.0 * far);
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let mut svg = open("Ratio with the change over without, in cost", height);
    for tick in 0..TICKS {
        let ratio = (2.0 * far * tick as f64 / (TICKS - 1) as f64 - far).exp();
        let label = if tick == TICKS / 2 { "1".into() } else { format!("{ratio:.3}") };
        let _ = write!(
            svg,
            "<line x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{1:.1}\" style=\"stroke:var(--rule)\"/>\
             <text x=\"{0:.1}\" y=\"{2:.1}\" text-anchor=\"middle\">{label}</text>",
            at(ratio),
            height - BOTTOM,
            height - BOTTOM + 16.0
        );
    }
    for (row, (record, it)) in rows.iter().enumerate() {
        let y = TOP + ROW * (row as f64 + 0.5);
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" style=\"fill:var(--band)\"/>\
             <line x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" style=\"stroke:var(--s0);stroke-width:2\"/>\
             <circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4.5\" style=\"fill:var(--s0)\"><title>{} ({} to {})</title></circle>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at(1.0 / (1.0 + it.floor)),
            y - ROW * 0.35,
            at(1.0 + it.floor) - at(1.0 / (1.0 + it.floor)),
            ROW * 0.7,
            at(it.ratio_low),
            at(it.ratio_high),
            at(it.ratio),
            three_digits(it.ratio),
            three_digits(it.ratio_low),
            three_digits(it.ratio_high),
            LEFT - 10.0,
            y + 4.0,
            escape(&label(&record.metric)),
        );
    }
    close(svg, "Ratio with the change over without, in cost")
}

/// The metric's name, if it fits beside the drawing.
fn label(metric: &str) -> String {
    const FITTING: usize = 18;
    match metric.char_indices().nth(FITTING) {
        Some((at, _)) => format!("{}…", &metric[..at]),
        None => metric.to_owned(),
    }
}

/// The values of the runs, round by round.
fn runs(series: &[&Record]) -> String {
    let values = || series.iter().flat_map(|record| &record.samples).copied();
    let (low, high) = values()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), it| (low.min(it), high.max(it)));
    let rounds = series.iter().map(|record| record.samples.len()).max().unwrap_or(0);
    if rounds < 2 || !low.is_finite() || !high.is_finite() || high > 1e300 {
        return String::new();
    }
    let margin = ((high - low) * 0.08).max(high.abs() * 1e-3);
    let (low, high) = (low - margin, high + margin);
    let y = |value: f64| TOP + (RUNS_HEIGHT - TOP - BOTTOM) * (high - value) / (high - low);
    let x = |round: usize| LEFT + (WIDTH - LEFT - RIGHT) * round as f64 / (rounds - 1) as f64;
    let unit = series.first().map_or("", |record| record.unit.as_str());
    let title = format!("Each run, round by round, in {unit}");
    let mut svg = open(&title, RUNS_HEIGHT);
    for tick in 0..TICKS {
        let value = low + (high - low) * tick as f64 / (TICKS - 1) as f64;
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{1:.1}\" y2=\"{1:.1}\" style=\"stroke:var(--rule)\"/>\
             <text x=\"{2:.1}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
            WIDTH - RIGHT,
            y(value),
            LEFT - 8.0,
            y(value) + 4.0,
            escape(&text::number(value)),
        );
    }
    for (colour, record) in series.iter().enumerate() {
        let at = |(round, value): (usize, &f64)| format!("{:.1},{:.1}", x(round), y(*value));
        let points: Vec<String> = record.samples.iter().enumerate().map(at).collect();
        let dash = if colour == 1 { ";stroke-dasharray:5 3" } else { "" };
        let _ = write!(
            svg,
            "<polyline points=\"{}\" style=\"fill:none;stroke:var(--{});stroke-width:1.5{dash}\">\
             <title>{}</title></polyline>",
            points.join(" "),
            colour_of(colour),
            escape(&record.subject),
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{0:.1}\">first round</text>\
         <text x=\"{1:.1}\" y=\"{0:.1}\" text-anchor=\"end\">last round</text>",
        RUNS_HEIGHT - BOTTOM + 18.0,
        WIDTH - RIGHT
    );
    let legend: String = series
        .iter()
        .enumerate()
        .map(|(colour, record)| {
            let name = escape(&shortened(&record.subject));
            format!("<i style=\"background:var(--{})\"></i>{name} ", colour_of(colour))
        })
        .collect();
    close(svg, &title) + &format!("<p class=\"about\">{legend}</p>")
}

/// The program without the change, again without it, and with it.
fn colour_of(series: usize) -> &'static str {
    ["s1", "soft", "s0"].get(series).copied().unwrap_or("s2")
}

fn open(title: &str, height: f64) -> String {
    format!(
        "<div class=\"wide\"><svg class=\"simchart\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" font-size=\"11\">\
         <title>{}</title>",
        escape(title)
    )
}

fn close(svg: String, title: &str) -> String {
    format!("<p class=\"about\"><b>{}</b></p>{svg}</svg></div>", escape(title))
}

#[cfg(test)]
mod tests {
    use haul_model::{Line, RatioOf};

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
}
