//! The paper's machines, and the results of their runs.

use haul_model::experiment::{key, name};
use haul_model::{Kind, Record};
use haul_sim::configuration::Issue;

use super::ENGINES;
use crate::sim::paper::{COPY_SHARES, Mode};
use crate::sim::task::{Copying, Simulated, Task};

/// Whether the knob is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calibration {
    /// The machine as the paper describes it.
    None,
    /// The machine with additional compute per packet, so that BASE's in-order copy shares are
    /// those of the paper.
    OneKnob,
}

impl Calibration {
    /// The setting's name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OneKnob => "one-knob",
        }
    }
}

/// One of the paper's machines with one of its traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Payload of every packet.
    pub payload_bytes: u64,
    /// The copier.
    pub mode: Mode,
    /// Whether the processor issues in order.
    pub in_order: bool,
    /// Whether other instructions may overlap with a copy.
    pub overlap: bool,
    /// Memory channels: one has 3.2 GB/s.
    pub channels: u32,
    /// Memory latency.
    pub latency_ns: u64,
    /// The iterations of the knob's loop per packet.
    pub work: u64,
}

/// Figures 7 and 8 use this payload.
pub(super) const FIGURE_PAYLOAD: u64 = 1024;

/// The 48 machines. 36 of them are three traces on two processors, each with BASE, with three
/// engines, and with two engines without overlap: without overlap, a synchronous engine with
/// bypass is the same as an asynchronous one. Figure 7 adds four machines with one channel, and
/// Figure 8 adds eight machines with longer latency.
pub(super) fn all(work: u64) -> Vec<Point> {
    let mut points = Vec::new();
    for (payload_bytes, _) in COPY_SHARES {
        for in_order in [false, true] {
            let point = |mode, overlap| Point {
                payload_bytes,
                mode,
                in_order,
                overlap,
                channels: 2,
                latency_ns: 80,
                work,
            };
            points.extend(Mode::ALL.map(|mode| point(mode, true)));
            points.push(point(Mode::SyncNlb, false));
            points.push(point(Mode::SyncWlb, false));
        }
    }
    for mode in Mode::ALL {
        let usual = Point::usual(mode, work);
        points.push(Point { channels: 1, ..usual.clone() });
        points.push(Point { latency_ns: 95, ..usual.clone() });
        points.push(Point { latency_ns: 110, ..usual });
    }
    // The longest runs are first, so that no long run remains alone on one thread at the end.
    points.sort_by_key(|point| std::cmp::Reverse((point.mode == Mode::Base, point.payload_bytes)));
    points
}

/// The machines that determine the knob.
pub(super) fn base_in_order(work: u64) -> Vec<Point> {
    let payloads = COPY_SHARES.iter().map(|(payload_bytes, _)| *payload_bytes);
    payloads
        .map(|payload_bytes| Point {
            payload_bytes,
            in_order: true,
            ..Point::usual(Mode::Base, work)
        })
        .collect()
}

/// The additional time of a line on one channel of DDR2-400, compared with two channels in
/// lockstep.
const LINE_ON_ONE_CHANNEL_NS: u64 = 10;

impl Point {
    /// The machine of Figures 7 and 8, according to Table 1.
    pub(super) fn usual(mode: Mode, work: u64) -> Self {
        Self {
            payload_bytes: FIGURE_PAYLOAD,
            mode,
            in_order: false,
            overlap: true,
            channels: 2,
            latency_ns: 80,
            work,
        }
    }

    /// The task of this point.
    #[must_use]
    pub fn task(&self, packets: u64, warm_packets: u64) -> Task {
        let mut task = Task {
            packets,
            warm_packets,
            payload_bytes: self.payload_bytes,
            work: self.work,
            ..Task::default()
        };
        if let Some(policy) = self.mode.policy() {
            task.copying = Copying::Engine;
            task.machine.engine.policy = policy.into();
        }
        task.machine.engine.overlap = self.overlap;
        task.machine.core.issue = issue(self.in_order);
        let memory = &mut task.machine.memory;
        memory.dram.channels = self.channels;
        // The chipset is the same, but one channel needs more time per line than two.
        memory.latency_ns =
            self.latency_ns + if self.channels == 1 { LINE_ON_ONE_CHANNEL_NS } else { 0 };
        task
    }

    /// `in-order` or `out-of-order`.
    #[must_use]
    pub fn core(&self) -> &'static str {
        issue(self.in_order).name()
    }

    /// The record of the run.
    pub(super) fn record(&self, results: &Results, simulated: &Simulated) -> Record {
        let mut record = Record::new("", name::SIM_RUN, "haul", "time", "cycles")
            .with(key::PAYLOAD_BYTES, self.payload_bytes)
            .with(key::MODE, self.mode.name())
            .with(key::CORE, self.core())
            .with(key::OVERLAP, self.overlap)
            .with(key::CHANNELS, self.channels)
            .with(key::LATENCY_NS, self.latency_ns)
            .with(key::WORK, self.work)
            .with(key::PACKETS, results.packets)
            .with(key::PROGRAM_DIGEST, results.program_digest.clone())
            .with(key::INSTRUCTIONS, simulated.instructions);
        record.samples = vec![simulated.cycles_per_packet.unwrap_or(0.0)];
        record.kind = Kind::Modelled;
        record
    }
}

/// The issue order of the two processors.
pub(super) fn issue(in_order: bool) -> Issue {
    if in_order { Issue::InOrder } else { Issue::OutOfOrder }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} B {}", self.mode.name(), self.payload_bytes, self.core())
    }
}

/// Runs by point.
pub(super) struct Results {
    /// Packets of each.
    pub packets: u64,
    /// The digest of the program's bytes, which shows whether a record can be reproduced.
    pub program_digest: String,
    runs: Vec<(Point, Simulated)>,
}

/// BASE's in-order cycles per packet as a linear function of the payload. The function is `fixed
/// + per_byte * payload`.
#[derive(Clone, Copy, Debug)]
pub(super) struct BaseLine {
    pub(super) fixed: f64,
    pub(super) per_byte: f64,
}

impl Results {
    pub(super) fn new(packets: u64, program_digest: String) -> Self {
        Self { packets, program_digest, runs: Vec::new() }
    }

    pub(super) fn add(&mut self, point: Point, simulated: Simulated) {
        self.runs.push((point, simulated));
    }

    pub(super) fn runs(&self) -> impl Iterator<Item = (&Point, &Simulated)> {
        self.runs.iter().map(|(point, run)| (point, run))
    }

    /// Cycles per packet of the last run whose point meets a condition.
    pub(super) fn cycles(&self, is: impl Fn(&Point) -> bool) -> Option<f64> {
        self.runs.iter().rev().find(|(point, _)| is(point))?.1.cycles_per_packet
    }

    /// Cycles per packet of a row of Table 2, or of the same machine without overlap, with the
    /// last setting of the knob.
    pub(super) fn row(
        &self,
        payload_bytes: u64,
        mode: Mode,
        in_order: bool,
        overlap: bool,
    ) -> Option<f64> {
        // Without overlap, an early notification has no effect: one run serves both.
        let mode = if mode == Mode::Async && !overlap { Mode::SyncWlb } else { mode };
        self.cycles(|point| {
            (point.payload_bytes, point.mode, point.in_order, point.overlap)
                == (payload_bytes, mode, in_order, overlap)
                && (point.channels, point.latency_ns) == (2, 80)
        })
    }

    /// The line by least squares over the three traces.
    pub(super) fn base_line(&self, work: u64) -> Option<BaseLine> {
        let points: Vec<(f64, f64)> = COPY_SHARES
            .iter()
            .filter_map(|(payload_bytes, _)| {
                let cycles = self.cycles(|point| {
                    (point.payload_bytes, point.mode, point.in_order, point.work)
                        == (*payload_bytes, Mode::Base, true, work)
                })?;
                Some((*payload_bytes as f64, cycles))
            })
            .collect();
        BaseLine::through(&points)
    }
}

impl BaseLine {
    fn through(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        let (x, y) = (x / count, y / count);
        let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
        let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
        let per_byte = above / below;
        (points.len() > 1 && per_byte.is_finite())
            .then_some(Self { fixed: y - per_byte * x, per_byte })
    }

    /// The share of copying in a packet's time, in percent, with `more` additional cycles per
    /// packet.
    pub(super) fn copy_share(&self, payload_bytes: u64, more: f64) -> f64 {
        let copying = self.per_byte * payload_bytes as f64;
        copying / (self.fixed + more + copying) * 100.0
    }

    /// The additional cycles per packet for which the copy shares are nearest to the paper's.
    pub(super) fn missing_cycles(&self) -> f64 {
        let miss = |more: f64| -> f64 {
            let off = |(payload, share): &(u64, f64)| self.copy_share(*payload, more) - share;
            COPY_SHARES.iter().map(|entry| off(entry).powi(2)).sum()
        };
        // The error has one minimum, which a ternary search finds.
        let (mut low, mut high) = (0.0, 100_000.0);
        for _ in 0..200 {
            let third = (high - low) / 3.0;
            if miss(low + third) < miss(high - third) {
                high -= third;
            } else {
                low += third;
            }
        }
        (low + high) / 2.0
    }
}

/// BASE and the modes with an engine.
pub(super) fn modes() -> impl Iterator<Item = Mode> {
    std::iter::once(Mode::Base).chain(ENGINES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_has_48_different_machines() {
        let points = all(0);
        assert_eq!(points.len(), 48);
        for (place, point) in points.iter().enumerate() {
            assert!(!points[..place].contains(point), "{point:?}");
            point.task(10, 0).machine.validate().expect("a possible machine");
        }
    }

    #[test]
    fn knob_closes_gap_exactly() {
        // A machine with the paper's shares for 1800 cycles of compute: 4.85 cycles per byte.
        let line = |fixed| BaseLine { fixed, per_byte: 4.85 };
        let missing = line(800.0).missing_cycles();
        assert!((900.0..1100.0).contains(&missing), "{missing}");
        assert!(line(3000.0).missing_cycles() < 1.0, "compute cannot be taken away");
        let through = BaseLine::through(&[(512.0, 1024.0), (1024.0, 1536.0), (1400.0, 1912.0)]);
        let through = through.expect("three points");
        assert!((through.fixed - 512.0).abs() < 1e-6 && (through.per_byte - 1.0).abs() < 1e-9);
    }
}
