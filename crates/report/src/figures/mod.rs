//! What the plots draw, as data: the page's script and [`crate::svg`] only draw it.
//!
//! A figure is one experiment on one machine. Its records are placed on an axis and in a series
//! (`drawing`), told apart by controls where they would fall on one another (`controls`), and laid
//! out as one view for each setting of the controls (`views`).
//!
//! From the bottom up:
//!
//! - `drawing`: how each experiment is drawn;
//! - `controls`: which fields the reader must choose between;
//! - `views`: the points of a figure, laid out;
//! - `swept`: the same of a sweep, whose records say what it varies.

mod controls;

mod drawing;

mod views;

mod swept;

use haul_model::Record;
use haul_model::experiment::name;
use serde::Serialize;

use crate::select::Section;
use crate::{burst, compare, forward, map, sim, sweep, terms, text};

pub(crate) use drawing::Drawing;

/// One experiment on one machine: a plot, or only a table where no drawing says how to draw it.
pub(crate) struct Figure<'a> {
    pub id: String,
    pub experiment: &'a str,
    pub title: String,
    pub about: &'static str,
    /// What holds for the whole figure: `function memcpy`, `measured`.
    pub fixed: Vec<String>,
    pub records: Vec<&'a Record>,
    pub plot: Option<Plot>,
    /// What is drawn in another way: HTML.
    pub picture: Option<String>,
}

/// What a script or an SVG needs to draw a figure.
#[derive(Serialize)]
pub(crate) struct Plot {
    pub shape: Shape,
    pub x_title: String,
    pub modes: Vec<Mode>,
    pub guides: Vec<Guide>,
    pub controls: Vec<Control>,
    pub views: Vec<View>,
}

/// How a plot is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Shape {
    /// Lines over a size in bytes, on a logarithmic axis to base 2.
    Sizes,
    /// Lines over a count, on a linear axis.
    Counts,
    /// A dot and its interval a row, on a horizontal axis.
    Dots,
}

/// A quantity that the plot can show on its value axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Mode {
    /// `throughput`, `time` or `ratio`.
    pub name: &'static str,
    /// On the button that chooses it.
    pub label: &'static str,
    /// Along the axis.
    pub title: &'static str,
    pub log: bool,
}

/// A marked value of the horizontal axis, such as a cache's size.
#[derive(Serialize)]
pub(crate) struct Guide {
    pub x: f64,
    pub label: String,
}

/// Something the reader chooses: one function of several.
#[derive(Serialize)]
pub(crate) struct Control {
    pub label: String,
    pub values: Vec<String>,
}

/// What is drawn for one setting of the controls.
#[derive(Serialize)]
pub(crate) struct View {
    /// An index into each control's values.
    pub choice: Vec<usize>,
    /// Places on the horizontal axis, ascending; for dots the rows, from 0.
    pub x: Vec<f64>,
    /// What the places are called.
    pub labels: Vec<String>,
    pub series: Vec<Series>,
    /// How to measure it again.
    pub rerun: String,
}

/// One subject, or one level, over all places of a view.
#[derive(Serialize)]
pub(crate) struct Series {
    pub name: String,
    pub role: Role,
    pub kind: &'static str,
    /// Drawn before the reader asks for it.
    pub shown: bool,
    /// A row a mode, a number a place.
    pub y: Vec<Vec<Option<f64>>>,
    pub low: Vec<Vec<Option<f64>>>,
    pub high: Vec<Vec<Option<f64>>>,
    /// The noise floor of what the mode shows: a row a mode, for modes may show metrics of their
    /// own.
    pub floor: Vec<Vec<Option<f64>>>,
    /// The verdict on what the mode shows, or which kernel it is: likewise.
    pub remark: Vec<Vec<Option<String>>>,
}

/// What a series is to the reader; decides its colour and weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Role {
    Haul,
    Baseline,
    Best,
    Limit,
    Other,
}

const COMPARE_TITLE: &str = "What changed";
const COMPARE_ABOUT: &str = "Each figure that both files have. A ratio is the new figure over the old one in time or \
    cost: below 1 is better. Where both runs measured a baseline beside it, what that baseline changed is taken \
    out of the ratio, and a figure counts as changed only where its own median changed too. Noise is the floors of \
    both runs together, or the least change that was asked for.";

const MAP_TITLE: &str = "What the heap holds";
const MAP_ABOUT: &str = "Each bar is a page of 2 MiB, cut into 32 slices of 64 KiB. A slice is part of a span, \
    whose slots are all of one class, or of a large block, or free. What threads hold ready is free, and \
    comes back without a search. A slice has the colour of the tag that most of its live blocks have, or \
    of its class, from small to large.";

/// Every experiment of a section: those we know how to draw first, in the order of the page, then
/// all others, so that nothing is dropped.
pub(crate) fn figures<'a>(section: &Section<'a>, index: usize) -> Vec<Figure<'a>> {
    let present = section.experiments();
    let known = drawing::ALL.iter().filter_map(|drawing| {
        let experiment = present.iter().find(|experiment| **experiment == drawing.experiment)?;
        Some((*experiment, Some(drawing)))
    });
    let is_known =
        |experiment: &str| drawing::ALL.iter().any(|drawing| drawing.experiment == experiment);
    let mut unknown: Vec<&str> =
        present.iter().copied().filter(|experiment| !is_known(experiment)).collect();
    unknown.sort_by_key(|experiment| sim::place(experiment));
    let unknown = unknown.into_iter().map(|experiment| (experiment, None));
    let mut records = section.by_experiment();
    known
        .chain(unknown)
        .enumerate()
        .map(|(order, (experiment, drawing))| {
            let id = format!("m{index}-{order}-{}", text::slug(experiment));
            let records = records.remove(experiment).unwrap_or_default();
            figure(section, id, experiment, drawing, records)
        })
        .collect()
}

fn figure<'a>(
    section: &Section<'a>,
    id: String,
    experiment: &'a str,
    drawing: Option<&Drawing>,
    records: Vec<&'a Record>,
) -> Figure<'a> {
    let (mut fixed, plot) = match drawing {
        Some(drawing) => views::plot(drawing, section, &records),
        None => (Vec::new(), swept::plot(experiment, &records)),
    };
    fixed.push(kinds(&records));
    let picture = match experiment {
        name::COMPARE => compare::html(&records),
        name::HEAP_MAP => map::html(&id, &records),
        _ => sim::html(experiment, &records)
            .or_else(|| forward::html(experiment, &records))
            .or_else(|| burst::html(experiment, &records))
            .or_else(|| sweep::html(experiment, &records))
            .or_else(|| terms::html(experiment, &records)),
    };
    let is_forward = forward::heading(experiment);
    let (title, about) = match (drawing, sim::heading(experiment), &picture) {
        (Some(drawing), ..) => (drawing.title, drawing.about),
        (None, Some(heading), _) => (heading.title, heading.about),
        (None, None, _) if is_forward.is_some() => {
            is_forward.map_or((experiment, ""), |heading| (heading.title, heading.about))
        }
        (None, None, Some(_)) if experiment == name::COMPARE => (COMPARE_TITLE, COMPARE_ABOUT),
        (None, None, Some(_)) if experiment == name::PCIE_BURST => (burst::TITLE, burst::ABOUT),
        (None, None, Some(_)) if experiment == name::PCIE_SWEEP => (sweep::TITLE, sweep::ABOUT),
        (None, None, Some(_)) if experiment == name::HEAP_MAP => (MAP_TITLE, MAP_ABOUT),
        (None, None, None) if plot.is_some() => {
            swept::heading(experiment).unwrap_or((experiment, ""))
        }
        (None, None, _) => table_heading(experiment),
    };
    Figure { id, experiment, title: title.to_string(), about, fixed, records, plot, picture }
}

/// What stands above an experiment whose figure is its table.
fn table_heading(experiment: &str) -> (&str, &'static str) {
    match experiment {
        name::HEAP_LATENCY => (
            "Single allocations while the heap grows",
            "What one allocation takes at the median and at the slowest percents.",
        ),
        name::HEAP_BULK => ("Many blocks allocated, filled and freed", "Time a block."),
        name::HEAP_NO_BULK => ("One block at a time, with a pause between", "Time a block."),
        name::HEAP_LIFETIMES => ("Blocks of random sizes and lifetimes", "Time a block."),
        name::HEAP_REGROW => {
            ("A heap that grows and is emptied, again and again", "Time of an allocation by round.")
        }
        name::HEAP_REALLOC => ("Blocks that are doubled", "Time of a reallocation."),
        name::HEAP_REMOTE => ("Blocks that another thread frees", "Time of a block and its free."),
        name::HEAP_TRACE => ("What a recorded trace holds", "Counts and bytes."),
        name::HEAP_LIST => ("The heaps that processes share by name", "What each holds."),
        "heap.rte_malloc" => (
            "rte_malloc and rte_free, size by size",
            "DPDK’s own functions and haul’s in their place, in one program.",
        ),
        "heap.rte_malloc_growth" => (
            "rte_malloc as the heap grows",
            "DPDK’s own functions and haul’s in their place: rounds with nothing freed between.",
        ),
        name::PCIE_LIST => ("Network devices and their links", "What each link carries."),
        name::PCIE_ESTIMATE => (
            "What a packet workload moves across PCIe, term by term",
            "Each kind of transaction, how often it comes, and its bytes; then the sums by direction, and the \
             rate at which the link is full.",
        ),
        name::PCIE_EXPLAIN => (
            "What a workload’s bytes go to, and what would save some",
            "Each kind of transaction and its bytes, both ways of the link; and what each change of the \
             workload, the driver or the link would save, or which terms make a difference.",
        ),
        name::CHANNEL_EXPLAIN => ("Which mechanism a message goes by", "And why."),
        name::CHANNEL_SEND | name::CHANNEL_RECV => ("A stream to another process", "Its rate."),
        other => (other, "Every number of it."),
    }
}

/// `measured`, `modelled`, or how many of each.
fn kinds(records: &[&Record]) -> String {
    let modelled =
        records.iter().filter(|record| record.kind == haul_model::Kind::Modelled).count();
    match (records.len() - modelled, modelled) {
        (_, 0) => "measured".into(),
        (0, _) => "modelled".into(),
        (measured, modelled) => format!("{measured} measured, {modelled} modelled"),
    }
}
