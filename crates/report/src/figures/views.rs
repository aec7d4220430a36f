//! Lays out the points of a figure: one view per setting of its controls.

use std::collections::BTreeMap;

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Comparison, Record, Verdict};

use super::drawing::{Drawing, Place, Point, role};
use super::{Control, Guide, Plot, Role, Series, Shape, View, controls};
use crate::limit;
use crate::select::{Section, distinct, rank, threads};
use crate::{rerun, text};

/// The plot of an experiment's records, if any can be drawn, and the values that are the same for
/// all.
pub(crate) fn plot(
    drawing: &Drawing,
    section: &Section<'_>,
    records: &[&Record],
) -> (Vec<String>, Option<Plot>) {
    let points: Vec<Point<'_>> =
        records.iter().filter_map(|record| drawing.point(record)).collect();
    if points.is_empty() {
        return (Vec::new(), None);
    }
    let names = controls::needed(drawing, &points);
    let values: Vec<Vec<String>> = names.iter().map(|name| values_of(&points, name)).collect();
    let mut groups: BTreeMap<Vec<usize>, Vec<&Point<'_>>> = BTreeMap::new();
    for point in &points {
        let place = |(name, values): (&String, &Vec<String>)| {
            let value = controls::value(point, name);
            values.iter().position(|v| *v == value).unwrap_or(0)
        };
        groups.entry(names.iter().zip(&values).map(place).collect()).or_default().push(point);
    }
    let views: Vec<View> = groups
        .into_iter()
        .map(|(choice, points)| view(drawing, section, choice, &points))
        .collect();
    let fixed = same_for_all(drawing, &points, &names);
    // A line needs two positions; for a single position, the table says more.
    if drawing.shape != Shape::Dots && views.iter().all(|view| view.x.len() < 2) {
        return (fixed, None);
    }
    let controls = names
        .iter()
        .zip(values)
        .map(|(name, values)| Control {
            label: name.replace('_', " "),
            values: shown(name, values),
        })
        .collect();
    let guides = match (drawing.shape, drawing.experiment) {
        (Shape::Sizes, _) => caches(section),
        (_, name::FORWARD_SWEEP) => lines(&points),
        _ => Vec::new(),
    };
    let plot = Plot {
        shape: drawing.shape,
        x_title: drawing.x_title.into(),
        modes: drawing.modes.to_vec(),
        guides,
        controls,
        views,
    };
    (fixed, Some(plot))
}

fn values_of(points: &[Point<'_>], name: &str) -> Vec<String> {
    let records: Vec<&Record> = points.iter().map(|point| point.record).collect();
    let mut values = distinct(&records, name);
    for value in points.iter().map(|point| controls::value(point, name)) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

fn shown(name: &str, values: Vec<String>) -> Vec<String> {
    let show = |value: String| match name {
        key::LEVEL => text::level(&value),
        key::SIZE_BYTES => value.parse::<Bytes>().map_or(value, |bytes| bytes.to_string()),
        _ => value,
    };
    values.into_iter().map(show).collect()
}

/// The values that are the same for all points, such as `function memcpy` or `1 thread`, which a
/// reader would look for among the controls.
fn same_for_all(drawing: &Drawing, points: &[Point<'_>], controls: &[String]) -> Vec<String> {
    let own = drawing.own_fields();
    [key::FUNCTION, key::THREADS, key::LEVEL, key::PHASE]
        .into_iter()
        .filter(|name| !own.contains(name) && !controls.iter().any(|control| control == name))
        .filter_map(|name| {
            let values = values_of(points, name);
            if values.iter().any(|value| value == controls::NOT_SAID) {
                return None;
            }
            match (name, values.as_slice()) {
                (key::THREADS, [one]) => one.parse().ok().map(|n| text::count(n, "thread")),
                (key::LEVEL, [one]) if one == "nearest" => {
                    Some("data in the nearest cache that holds it".into())
                }
                (key::LEVEL, [one]) => Some(
                    format!("data in {}", text::level(one))
                        .replace("data in mixed", "mixed levels")
                        .replace("data in cold", "cold data"),
                ),
                (key::PHASE, [one]) => Some(format!("{one} phase")),
                (_, [one]) => Some(one.clone()),
                _ => None,
            }
        })
        .collect()
}

/// Guides at multiples of a cache line, as long as there are few enough to distinguish.
fn lines(points: &[Point<'_>]) -> Vec<Guide> {
    const LINE_BYTES: f64 = 64.0;
    const GUIDES_MAX: usize = 32;
    let places = || points.iter().filter_map(|point| point.x);
    let (first, last) = (places().fold(f64::MAX, f64::min), places().fold(0.0, f64::max));
    let guide = |x: f64| Guide { x, label: format!("{x}") };
    let lines = (1_u32..).map(|count| f64::from(count) * LINE_BYTES);
    let lines = lines.take_while(|x| *x <= last).filter(|x| *x >= first);
    let guides: Vec<Guide> = lines.take(GUIDES_MAX + 1).map(guide).collect();
    if guides.len() > GUIDES_MAX { Vec::new() } else { guides }
}

fn caches(section: &Section<'_>) -> Vec<Guide> {
    let Some(machine) = section.machine else { return Vec::new() };
    let last = machine.caches_bytes.len();
    #[expect(clippy::cast_precision_loss, reason = "the axis has a few thousand pixels")]
    let guide = |(index, size): (usize, &u64)| Guide {
        x: *size as f64,
        label: match index + 1 {
            level if level == last && level > 2 => {
                format!("LLC {}", Bytes(*size).approximate_whole())
            }
            level => format!("L{level} {}", Bytes(*size).approximate_whole()),
        },
    };
    machine.caches_bytes.iter().enumerate().filter(|(_, size)| **size > 0).map(guide).collect()
}

/// A short text of a size, exact if the exact text is short.
trait ShortSize {
    fn approximate_whole(self) -> String;
}

impl ShortSize for Bytes {
    fn approximate_whole(self) -> String {
        let exact = self.to_string();
        if exact.len() <= 8 { exact } else { self.approximate() }
    }
}

fn view(
    drawing: &Drawing,
    section: &Section<'_>,
    choice: Vec<usize>,
    points: &[&Point<'_>],
) -> View {
    let places = places(drawing, points);
    let baselines: Vec<&str> = points
        .iter()
        .filter_map(|point| point.record.comparison.as_ref())
        .map(|comparison| comparison.baseline.as_str())
        .collect();
    let mut series: Vec<Series> = series_names(drawing, points)
        .into_iter()
        .map(|name| {
            let own: Vec<&Point<'_>> =
                points.iter().copied().filter(|p| p.series == name).collect();
            one_series(drawing, &name, &baselines, &places, &own)
        })
        .collect();
    if drawing.shape == Shape::Sizes && drawing.series == "subject" {
        complete_baseline(drawing, &mut series);
    }
    if drawing.limits {
        let best = best_kernel(drawing, &series, places.len());
        let limit = memory_limit(drawing, section, points, &places);
        let at =
            series.iter().take_while(|s| matches!(s.role, Role::Haul | Role::Baseline)).count();
        series.splice(at..at, best.into_iter().chain(limit));
    }
    show_few(&mut series);
    let records: Vec<&Record> = points.iter().map(|point| point.record).collect();
    View {
        choice,
        x: places.iter().map(|(x, _)| *x).collect(),
        labels: places.into_iter().map(|(_, label)| label).collect(),
        series,
        rerun: rerun::command_of_all(&records),
    }
}

/// The largest number of series that are shown initially, because more lines are hard to read; a
/// click adds others.
const SHOWN_MAX: usize = 5;

/// Selects the series that are shown initially: first the series with a main role, then the
/// series that are best at most positions.
pub(super) fn show_few(series: &mut [Series]) {
    let is_main = |series: &Series| series.role != Role::Other;
    let mut room =
        SHOWN_MAX.saturating_sub(series.iter().filter(|s| is_main(s) && s.shown).count());
    let others: Vec<usize> =
        (0..series.len()).filter(|&n| !is_main(&series[n]) && series[n].shown).collect();
    if others.len() <= room {
        return;
    }
    let mut ranked: Vec<(usize, usize)> =
        others.iter().map(|&number| (wins(series, &others, number), number)).collect();
    // Other subjects come before further mechanisms of haul's own.
    let is_own = |number: usize| series[number].name.starts_with("haul:");
    ranked.sort_by_key(|&(wins, number)| (is_own(number), std::cmp::Reverse(wins), number));
    for (_, number) in ranked {
        series[number].shown = room > 0;
        room = room.saturating_sub(1);
    }
}

/// The number of positions at which this series is the highest or the lowest; a reader looks for
/// both.
fn wins(series: &[Series], others: &[usize], number: usize) -> usize {
    let places = series[number].y.first().map_or(0, Vec::len);
    let at = |number: usize, place: usize| series[number].y[0][place];
    let is_edge = |place: &usize| {
        let Some(own) = at(number, *place) else { return false };
        let mut all = others.iter().filter_map(|&other| at(other, *place));
        let values: Vec<f64> = all.by_ref().collect();
        values.iter().all(|value| *value >= own) || values.iter().all(|value| *value <= own)
    };
    (0..places).filter(is_edge).count()
}

/// The positions of the points, ascending; rows keep the order of the records.
fn places(drawing: &Drawing, points: &[&Point<'_>]) -> Vec<(f64, String)> {
    let mut places: Vec<(f64, String)> = Vec::new();
    for point in points {
        if !places.iter().any(|(_, label)| *label == point.label) {
            #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 rows")]
            let row = places.len() as f64;
            places.push((point.x.unwrap_or(row), point.label.clone()));
        }
    }
    if !matches!(drawing.place, Place::Row(_)) {
        places.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    places
}

fn series_names(drawing: &Drawing, points: &[&Point<'_>]) -> Vec<String> {
    let mut names: Vec<(usize, &str)> = Vec::new();
    for point in points {
        if !names.iter().any(|(_, name)| *name == point.series) {
            names.push((names.len(), &point.series));
        }
    }
    names.sort_by_key(|(seen, name)| rank(drawing.series, &name.to_lowercase(), *seen));
    names.into_iter().map(|(_, name)| name.to_string()).collect()
}

fn one_series(
    drawing: &Drawing,
    name: &str,
    baselines: &[&str],
    places: &[(f64, String)],
    points: &[&Point<'_>],
) -> Series {
    let role = if drawing.series == "subject" { role(name, baselines) } else { Role::Other };
    let mut series = empty(name, role, drawing.modes.len(), places.len());
    series.kind = points.first().map_or("measured", |point| text::kind(point.record.kind));
    series.shown = role != Role::Other || !drawing.limits;
    // A later record of the same position replaces the earlier one; the table has both.
    for point in points {
        let Some(place) = places.iter().position(|(_, label)| *label == point.label) else {
            continue;
        };
        if drawing.best_of_subjects && !is_better(point, series.y[0][place]) {
            continue;
        }
        for (mode, reading) in point.readings.iter().enumerate() {
            if reading.is_none() && drawing.is_by_metric() {
                continue;
            }
            series.y[mode][place] = reading.map(|r| six_digits(r.value));
            series.low[mode][place] = reading.map(|r| six_digits(r.low));
            series.high[mode][place] = reading.map(|r| six_digits(r.high));
            let comparison = point.record.of_metric().filter(|_| reading.is_some());
            series.floor[mode][place] = comparison.as_ref().map(|c| c.floor);
            series.remark[mode][place] = match drawing.best_of_subjects {
                true => Some(point.record.subject.clone()),
                false => comparison.map(|c| remark(&point.record.metric, &c)),
            };
        }
    }
    series
}

/// Whether a point's rate is above the best rate so far at its position.
fn is_better(point: &Point<'_>, held: Option<f64>) -> bool {
    let own = point.readings[0].map(|reading| six_digits(reading.value));
    own.is_some_and(|own| held.is_none_or(|held| own > held))
}

/// Rounds to the digits that a screen shows, which keeps the page short; the table has all digits.
pub(super) fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// The verdict on the record's own metric, which may differ from the one that a mode shows.
fn remark(metric: &str, c: &Comparison) -> String {
    let difference = text::percent(c.ratio - 1.0);
    match c.verdict() {
        Verdict::Less => format!("{difference} less {metric} than {}", c.baseline),
        Verdict::More => format!("{difference} more {metric} than {}", c.baseline),
        Verdict::NoDifference => format!("no difference from {}", c.baseline),
        Verdict::CannotTell => crate::findings::open(c),
    }
}

pub(super) fn empty(name: &str, role: Role, modes: usize, places: usize) -> Series {
    Series {
        name: name.into(),
        role,
        kind: "measured",
        shown: true,
        y: vec![vec![None; places]; modes],
        low: vec![vec![None; places]; modes],
        high: vec![vec![None; places]; modes],
        floor: vec![vec![None; places]; modes],
        remark: vec![vec![None; places]; modes],
    }
}

/// A baseline's ratio to itself is 1 by definition, at every position where it was measured.
fn complete_baseline(drawing: &Drawing, series: &mut [Series]) {
    let Some(ratio) = drawing.modes.iter().position(|mode| mode.name == "ratio") else { return };
    let Some(time) = drawing.modes.iter().position(|mode| mode.name == "time") else { return };
    for baseline in series.iter_mut().filter(|series| series.role == Role::Baseline) {
        for place in 0..baseline.y[time].len() {
            if baseline.y[time][place].is_some() && baseline.y[ratio][place].is_none() {
                baseline.y[ratio][place] = Some(1.0);
            }
        }
    }
}

/// The fastest subject at each size other than haul and the baseline.
fn best_kernel(drawing: &Drawing, series: &[Series], places: usize) -> Option<Series> {
    let time = drawing.modes.iter().position(|mode| mode.name == "time")?;
    let mut best = empty("best kernel", Role::Best, drawing.modes.len(), places);
    for place in 0..places {
        let fastest = series
            .iter()
            .filter(|s| {
                s.role == Role::Other && s.kind == "measured" && !s.name.starts_with("haul")
            })
            .filter_map(|s| s.y[time][place].map(|value| (value, s)))
            .min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, fastest)) = fastest else { continue };
        for mode in 0..drawing.modes.len() {
            best.y[mode][place] = fastest.y[mode][place];
            best.low[mode][place] = fastest.low[mode][place];
            best.high[mode][place] = fastest.high[mode][place];
            best.remark[mode][place] = Some(fastest.name.clone());
        }
    }
    best.y[time].iter().any(Option::is_some).then_some(best)
}

/// The bandwidth that memory allows this number of threads.
fn memory_limit(
    drawing: &Drawing,
    section: &Section<'_>,
    points: &[&Point<'_>],
    places: &[(f64, String)],
) -> Option<Series> {
    let first = points.first()?.record;
    let limit = limit::memory_limit(section.measured_by_run(), first)?;
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 threads")]
    let own_threads = threads(first) as f64;
    let mut series = empty("memory limit", Role::Limit, drawing.modes.len(), places.len());
    for (mode, place) in
        (0..drawing.modes.len()).flat_map(|m| (0..places.len()).map(move |p| (m, p)))
    {
        series.y[mode][place] = match drawing.modes[mode].name {
            "throughput" => Some(limit),
            "time" => Some(places[place].0 * own_threads / limit),
            _ => None,
        };
    }
    Some(series)
}
