//! The content of the plots as data; the page's script and [`crate::svg`] draw it.
//!
//! A figure is one experiment on one machine. Its records get a position on an axis and a series
//! (`drawing`), are separated by controls if they would coincide (`controls`), and are laid out
//! as one view per setting of the controls (`views`).
//!
//! From the bottom up:
//!
//! - `drawing`: how each experiment is drawn;
//! - `controls`: the fields that become controls for the reader;
//! - `views`: the points of a figure, laid out;
//! - `swept`: the plot of a sweep, whose records name the settings that it varies.

mod controls;

mod drawing;

mod views;

mod swept;

use haul_model::Record;
use haul_model::experiment::name;
use serde::Serialize;

use crate::select::Section;
use crate::{burst, compare, field, forward, map, profile, sim, sweep, terms, text};

pub(crate) use drawing::Drawing;

/// One experiment on one machine: a plot, or only a table if no drawing covers it.
pub(crate) struct Figure<'a> {
    pub id: String,
    pub experiment: &'a str,
    pub title: String,
    pub about: &'static str,
    /// What is true of the whole figure: `function memcpy`, `measured`.
    pub fixed: Vec<String>,
    pub records: Vec<&'a Record>,
    pub plot: Option<Plot>,
    /// A picture of another kind, as HTML.
    pub picture: Option<String>,
}

/// The data from which the script or an SVG draws a figure.
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
    /// One dot with its interval per row, on a horizontal axis.
    Dots,
}

/// A quantity that the plot can show on its value axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Mode {
    /// `throughput`, `time` or `ratio`.
    pub name: &'static str,
    /// The text of the button that selects it.
    pub label: &'static str,
    /// The title of the axis.
    pub title: &'static str,
    pub log: bool,
}

/// A marked value of the horizontal axis, such as a cache's size.
#[derive(Serialize)]
pub(crate) struct Guide {
    pub x: f64,
    pub label: String,
}

/// A choice for the reader, such as one function of several.
#[derive(Serialize)]
pub(crate) struct Control {
    pub label: String,
    pub values: Vec<String>,
}

/// The content for one setting of the controls.
#[derive(Serialize)]
pub(crate) struct View {
    /// An index into each control's values.
    pub choice: Vec<usize>,
    /// Positions on the horizontal axis, ascending; for dots the rows, from 0.
    pub x: Vec<f64>,
    /// The labels of the positions.
    pub labels: Vec<String>,
    pub series: Vec<Series>,
    /// The command that measures it again.
    pub rerun: String,
}

/// One subject, or one level, at all positions of a view.
#[derive(Serialize)]
pub(crate) struct Series {
    pub name: String,
    pub role: Role,
    pub kind: &'static str,
    /// Whether the series is drawn initially.
    pub shown: bool,
    /// One row per mode, one number per position.
    pub y: Vec<Vec<Option<f64>>>,
    pub low: Vec<Vec<Option<f64>>>,
    pub high: Vec<Vec<Option<f64>>>,
    /// The noise floor of each mode's metric: one row per mode, because modes may show different
    /// metrics.
    pub floor: Vec<Vec<Option<f64>>>,
    /// The verdict on each mode's metric, or the name of the kernel; one row per mode.
    pub remark: Vec<Vec<Option<String>>>,
}

/// The role of a series for the reader, which decides its colour and weight.
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
    cost: below 1 is better. If both runs measured a baseline beside it, the baseline’s own change is removed from \
    the ratio, and a figure counts as changed only if its own median changed too. Noise is the floors of both runs \
    together, or the threshold of the comparison.";

const MAP_TITLE: &str = "What the heap holds";
const MAP_ABOUT: &str = "Each bar is a page of 2 MiB, cut into 32 slices of 64 KiB. A slice is part of a span, \
    whose slots are all of one class, or of a large block, or free. Slots that threads hold ready are free, and \
    their next allocation needs no search. A slice has the colour of the most frequent tag of its live blocks, \
    or of its class, from small to large.";

/// Every experiment of a section: first those with a drawing, in the order of the page, then all
/// others, so that none is missing.
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
            .or_else(|| profile::html(experiment, &records))
            .or_else(|| sweep::html(experiment, &records))
            .or_else(|| terms::html(experiment, &records))
            .or_else(|| field::html(experiment, section)),
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
        (None, None, Some(_)) if experiment == name::COPY_PROFILE => {
            (profile::TITLE, profile::ABOUT)
        }
        (None, None, Some(_)) if experiment == name::PCIE_SWEEP => (sweep::TITLE, sweep::ABOUT),
        (None, None, Some(_)) if experiment == name::FIELD_VERDICT => (field::TITLE, field::ABOUT),
        (None, None, Some(_)) if experiment == name::HEAP_MAP => (MAP_TITLE, MAP_ABOUT),
        (None, None, None) if plot.is_some() => {
            swept::heading(experiment).unwrap_or((experiment, ""))
        }
        (None, None, _) => table_heading(experiment),
    };
    Figure { id, experiment, title: title.to_string(), about, fixed, records, plot, picture }
}

/// The heading of an experiment that is shown as a table.
fn table_heading(experiment: &str) -> (&str, &'static str) {
    match experiment {
        name::HEAP_LATENCY => (
            "Single allocations while the heap grows",
            "The time of one allocation at the median and at the slowest percentiles.",
        ),
        name::HEAP_BULK => ("Many blocks allocated, filled and freed", "Time a block."),
        name::HEAP_NO_BULK => ("One block at a time, with a pause between", "Time a block."),
        name::HEAP_LIFETIMES => ("Blocks of random sizes and lifetimes", "Time a block."),
        name::HEAP_REGROW => {
            ("A heap that grows and is emptied, again and again", "Time of an allocation by round.")
        }
        name::HEAP_REALLOC => ("Blocks that are doubled", "Time of a reallocation."),
        name::HEAP_REMOTE => ("Blocks that another thread frees", "Time of a block and its free."),
        name::HEAP_ZEROED => (
            "Blocks of zeros",
            "Time of a block that the caller fills, or an engine; the share that an engine hides.",
        ),
        name::HEAP_TRACE => ("What a recorded trace holds", "Counts and bytes."),
        name::HEAP_LIST => ("The heaps that processes share by name", "The contents of each."),
        "heap.rte_malloc" => (
            "rte_malloc and rte_free, size by size",
            "DPDK’s own functions and haul’s replacements, in one program.",
        ),
        "heap.rte_malloc_growth" => (
            "rte_malloc as the heap grows",
            "DPDK’s own functions and haul’s replacements: rounds with nothing freed between.",
        ),
        name::PCIE_LIST => ("Network devices and their links", "The capacity of each link."),
        name::PCIE_ESTIMATE => (
            "What a packet workload moves across PCIe, term by term",
            "Each kind of transaction with its rate and its bytes; then the sums by direction, and the packet rate \
             at which the link is full.",
        ),
        name::PCIE_EXPLAIN => (
            "The bytes of a workload by transaction, and changes that would save some",
            "Each kind of transaction and its bytes in both directions of the link; and the savings of each \
             change of the workload, the driver or the link, or the terms that differ between two workloads.",
        ),
        name::COPY_ADVISE => (
            "The copy for a call site",
            "haul inlined, haul by pointer, or libc. The ratio is that of the faster of haul’s two calls.",
        ),
        name::FIELD_RUN => (field::RUN_TITLE, field::RUN_ABOUT),
        name::CHANNEL_EXPLAIN => ("The mechanism for a message", "And the reason for it."),
        name::CHANNEL_SEND | name::CHANNEL_RECV => ("A stream to another process", "Its rate."),
        other => (other, "Every number of it."),
    }
}

/// `measured`, `modelled`, or the number of each.
fn kinds(records: &[&Record]) -> String {
    let modelled =
        records.iter().filter(|record| record.kind == haul_model::Kind::Modelled).count();
    match (records.len() - modelled, modelled) {
        (_, 0) => "measured".into(),
        (0, _) => "modelled".into(),
        (measured, modelled) => format!("{measured} measured, {modelled} modelled"),
    }
}
