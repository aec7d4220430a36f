//! Selects the fields that become controls for the reader: those without which two records would
//! have the same position in the same series.

use std::collections::BTreeSet;

use haul_model::experiment::key;

use super::drawing::{Drawing, Point};
use crate::select::{field, is_condition, parameter_names};

/// The value of a control for a record that lacks the field.
pub(super) const NOT_SAID: &str = "not said";

/// Fields that always become controls if they differ. Measurements of two runs are not drawn
/// together, because they were not compared with each other.
const ALWAYS: [&str; 7] =
    [key::FUNCTION, key::THREADS, "subject", key::PHASE, key::TARGET, key::BUSY_CORE, "run"];

/// Fields in the order in which they are tried; `run` and all others follow.
const FIRST: [&str; 9] = [
    key::FUNCTION,
    key::THREADS,
    "subject",
    key::LEVEL,
    key::PHASE,
    key::TARGET,
    key::BUSY_CORE,
    key::SIZE_BYTES,
    key::CALL,
];

/// Limit of the other fields that are tried, the most frequent ones first. haul's own records
/// have fewer; records from elsewhere may have many, and each attempt visits every record.
const TRIED_MAX: usize = 48;

/// Limit of controls, beyond which a reader cannot choose; the table shows such records separately.
const CONTROLS_MAX: usize = 12;

/// The fields that become controls, in order.
pub(crate) fn needed(drawing: &Drawing, points: &[Point<'_>]) -> Vec<String> {
    let own = drawing.own_fields();
    let others = parameter_names(points.iter().map(|point| point.record), |name| {
        is_condition(name) && !FIRST.contains(&name)
    });
    let others: BTreeSet<&str> = others.into_iter().take(TRIED_MAX).collect();
    let candidates: Vec<&str> = FIRST
        .into_iter()
        .chain(["run"])
        .chain(others)
        .chain(if drawing.is_by_metric() { None } else { Some("metric") })
        .filter(|name| !own.contains(name) && varies(points, name))
        .collect();
    let mut chosen: Vec<String> =
        candidates.iter().filter(|name| ALWAYS.contains(name)).map(ToString::to_string).collect();
    for name in candidates {
        let before = places(drawing, points, &chosen);
        if before == points.len() || chosen.len() >= CONTROLS_MAX {
            break;
        }
        let mut with = chosen.clone();
        if !with.iter().any(|chosen| chosen == name) {
            with.push(name.into());
        }
        if places(drawing, points, &with) > before {
            chosen = with;
        }
    }
    chosen
}

/// The value of a point for a control.
pub(crate) fn value(point: &Point<'_>, name: &str) -> String {
    match name {
        "metric" => point.record.metric.clone(),
        _ => field(point.record, name).unwrap_or_else(|| NOT_SAID.into()),
    }
}

fn varies(points: &[Point<'_>], name: &str) -> bool {
    let mut values = points.iter().map(|point| value(point, name));
    let first = values.next();
    values.any(|value| Some(value) != first)
}

/// The number of distinct positions of the points.
fn places(drawing: &Drawing, points: &[Point<'_>], controls: &[String]) -> usize {
    let place = |point: &Point<'_>| {
        let settings: Vec<String> = controls.iter().map(|name| value(point, name)).collect();
        let subject =
            if drawing.best_of_subjects { point.record.subject.clone() } else { String::new() };
        (settings, point.series.clone(), point.label.clone(), subject)
    };
    points.iter().map(place).collect::<BTreeSet<_>>().len()
}
