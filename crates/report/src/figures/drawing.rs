//! How each experiment is drawn: which parameter is the position, which one names the series, and
//! which quantities are shown.

use haul_model::experiment::{key, name};
use haul_model::{Bytes, Kind, Record};

use super::{Mode, Role, Shape};
use crate::select::{bytes, field, threads};
use crate::stats::quantile;
use crate::text;

/// How one experiment is drawn.
pub(crate) struct Drawing {
    pub experiment: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub shape: Shape,
    pub x_title: &'static str,
    pub place: Place,
    /// The field that names a series.
    pub series: &'static str,
    pub modes: &'static [Mode],
    /// Adds the best kernel and the memory limit.
    pub limits: bool,
    /// Whether each series shows the best of all subjects at each position, with a remark that
    /// names this subject.
    pub best_of_subjects: bool,
}

/// The parameters that determine a record's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A size in bytes.
    Size(&'static str),
    /// A count, and the name of the counted things.
    Count(&'static str, &'static str),
    /// A row for each combination of values.
    Row(&'static [&'static str]),
}

/// A record on the plot.
pub(crate) struct Point<'a> {
    pub record: &'a Record,
    pub series: String,
    /// `None` for rows, which are placed by their label.
    pub x: Option<f64>,
    pub label: String,
    /// One reading per mode.
    pub readings: Vec<Option<Reading>>,
}

/// A value and its interval: the ratio's confidence interval, or the quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reading {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

const THROUGHPUT: Mode =
    Mode { name: "throughput", label: "GB/s", title: "GB/s (10⁹ bytes a second)", log: false };
const TIME: Mode = Mode { name: "time", label: "ns", title: "time of a call", log: true };
const RATIO: Mode =
    Mode { name: "ratio", label: "ratio to libc", title: "time over libc’s", log: false };

/// The time of an allocation, which must not grow from round to round.
const ALLOC_TIME: Mode =
    Mode { name: "alloc_time", label: "ns", title: "time of an allocation", log: true };

/// Memory of a process beyond its initial memory.
const FOOTPRINT: Mode = Mode { name: "footprint", label: "MiB", title: "MiB resident", log: false };

/// The CPU time of a transfer in both processes together.
const CPU: Mode =
    Mode { name: "cpu", label: "CPU", title: "CPU seconds a GB, both processes", log: true };

/// Packets a second.
const PACKETS: Mode =
    Mode { name: "packets", label: "Mpps", title: "million packets a second", log: false };

/// Half a round trip.
const LATENCY: Mode =
    Mode { name: "latency", label: "latency", title: "half a round trip", log: true };

/// The time of a copy beside the CPU over that of a copy by its caller.
const BESIDE: Mode =
    Mode { name: "ratio", label: "ratio to copy", title: "time over copy’s", log: true };

/// The share of a copy that its caller does not pay.
const SHARE: Mode = Mode { name: "share", label: "%", title: "% of the copy hidden", log: false };

/// A figure of copies beside the CPU by size.
const fn beside(
    experiment: &'static str,
    title: &'static str,
    about: &'static str,
    modes: &'static [Mode],
) -> Drawing {
    Drawing {
        experiment,
        title,
        about,
        shape: Shape::Sizes,
        x_title: "size of the copy",
        place: Place::Size(key::SIZE_BYTES),
        series: "subject",
        modes,
        limits: false,
        best_of_subjects: false,
    }
}

const OVERLAP: Drawing = beside(
    name::ENGINE_OVERLAP,
    "Copies beside computing",
    "The share of a copy that is hidden behind computing that takes as long. “copy” is a call of haul’s copy, which \
     hides nothing; what it seems to hide is noise. A share below 0, of an engine that costs its caller more than the \
     copy, is drawn as 0.",
    &[SHARE],
);

const SUBMISSION: Drawing = beside(
    name::ENGINE_SUBMIT,
    "The submission of a copy",
    "The caller’s time until it can go on, while the engine polls. “copy” and “inline” copy within this time.",
    &[Mode { title: "time of a submission", ..TIME }],
);

const WAITED_FOR: Drawing = beside(
    name::ENGINE_LATENCY,
    "A copy that is waited for at once",
    "From the submission until the caller has its buffers back, while the engine polls. haul’s caller takes part in \
     the copy while it waits.",
    &[Mode { title: "time of a copy", ..TIME }, BESIDE],
);

const BY_ENGINE: Drawing = beside(
    name::ENGINE_THROUGHPUT,
    "Copies that an engine does alone",
    "Up to 8 copies are pending, and the caller only polls.",
    &[THROUGHPUT],
);

const STREAMS: Drawing = Drawing {
    experiment: name::COPY_STREAM,
    title: "Copies as your programs call",
    about: "Time over libc’s of the calls of recorded programs, in their order, with the sizes, alignments and \
            reads of the programs. Left of 1 is faster than libc. haul is inlined at each of the program’s call \
            sites; haul-c is called through C, as libc is. “empty” is the loop without a copy, which is in \
            every time. A dot inside its grey bar is no difference.",
    shape: Shape::Dots,
    x_title: "time over the baseline’s",
    place: Place::Row(&[key::STREAM, key::ABOUT, key::SITE]),
    series: "subject",
    modes: &[RATIO],
    limits: false,
    best_of_subjects: false,
};

/// Every experiment with a plot, in the order of the page.
pub(crate) const ALL: [Drawing; 17] = [
    STREAMS,
    Drawing {
        experiment: name::COPY_SIZE,
        title: "Copy by size",
        about: "One call of each size. The best kernel is the fastest of all kernels at that size, chosen with \
                hindsight; the memory limit is what the same number of threads copies from memory to memory. \
                Vertical lines mark the caches: a copy touches twice its size, so it outgrows a cache at half \
                the marked size.",
        shape: Shape::Sizes,
        x_title: "size of the copy",
        place: Place::Size(key::SIZE_BYTES),
        series: "subject",
        modes: &[THROUGHPUT, TIME, RATIO],
        limits: true,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::COPY_DISTRIBUTION,
        title: "Copies as services make them",
        about: "Time over libc’s on sizes drawn from distributions, by where the data lies. Left of 1 is faster \
                than libc. haul is compiled into its caller: up to 64 bytes are inlined code, and a larger copy is one \
                call. haul-c is called through C at every size, as libc is (so is haul in records that do not state \
                the call). The line through a dot is the 95% interval of the ratio; the grey bar is the noise \
                floor, libc against itself: a dot inside it is no difference.",
        shape: Shape::Dots,
        x_title: "time over the baseline’s",
        place: Place::Row(&[key::DISTRIBUTION]),
        series: key::LEVEL,
        modes: &[RATIO],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::COPY_SIZE_CLASS,
        title: "Copies by size class",
        about: "Time over libc’s on sizes drawn evenly from a class. Left of 1 is faster than libc; a dot inside \
                its grey bar is no difference. haul is called through C, as libc is; haul-inline is inlined into \
                its caller up to 64 bytes.",
        shape: Shape::Dots,
        x_title: "time over the baseline’s",
        place: Place::Row(&[key::SIZE_CLASS]),
        series: key::LEVEL,
        modes: &[RATIO],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::MEMORY_BANDWIDTH,
        title: "Memory bandwidth by threads",
        about: "The rate at which this machine reads, writes and copies beyond its caches, by the best of all kernels \
                that were tried. A copy counts its bytes once, though memory transfers them at least twice.",
        shape: Shape::Counts,
        x_title: "threads",
        place: Place::Count(key::THREADS, "thread"),
        series: key::OPERATION,
        modes: &[THROUGHPUT],
        limits: false,
        best_of_subjects: true,
    },
    Drawing {
        experiment: name::MEMORY_FAULT,
        title: "What a page fault costs",
        about: "The time of the first touch of a page that the kernel has not provided yet. The line through a \
                dot spans the quartiles.",
        shape: Shape::Dots,
        x_title: "time of a page",
        place: Place::Row(&[key::PAGES, key::MODE]),
        series: "subject",
        modes: &[Mode { name: "time", label: "ns", title: "time of a page", log: true }],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::COPY_TUNE,
        title: "What tuning changed",
        about: "The default thresholds beside the tuned ones. The check phase uses sizes that the tuner has not \
                seen: only a gain in that phase counts.",
        shape: Shape::Sizes,
        x_title: "size of the copy",
        place: Place::Size(key::SIZE_BYTES),
        series: "subject",
        modes: &[
            Mode { label: "ratio to default", title: "time over the default’s", ..RATIO },
            THROUGHPUT,
            TIME,
        ],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::HEAP_GROWTH,
        title: "Allocation as the heap grows",
        about: "Rounds of allocations with nothing freed between, as in a program that keeps all its blocks. A heap \
                that searches through its allocated blocks takes longer in every round; a heap with a flat line does \
                not. The table has the last round’s time over the first’s, and the memory of the blocks over their \
                requested size.",
        shape: Shape::Counts,
        x_title: "round",
        place: Place::Count(key::ROUND, "round"),
        series: "subject",
        modes: &[ALLOC_TIME],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::HEAP_MIXED,
        title: "Allocation of two sizes in turn as the heap grows",
        about: "As above, but blocks alternate between the size and twice the size, each aligned to its own size.",
        shape: Shape::Counts,
        x_title: "round",
        place: Place::Count(key::ROUND, "round"),
        series: "subject",
        modes: &[ALLOC_TIME],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::HEAP_PAIRS,
        title: "A block and its free",
        about: "Each thread allocates a block and frees it at once. The time is that from the start of all threads to \
                the end of the last, divided by the blocks of one thread. The line through a dot spans the quartiles.",
        shape: Shape::Dots,
        x_title: "time of a block and its free",
        place: Place::Row(&[key::SIZE_BYTES]),
        series: "subject",
        modes: &[Mode {
            name: "time",
            label: "ns",
            title: "time of a block and its free",
            log: true,
        }],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::HEAP_REPLAY,
        title: "A program’s allocations, replayed",
        about: "A program’s allocator calls, recorded once and replayed on each heap in turn within one run. Every \
                block is written to, page by page. “Asked for” is the total size of the live blocks: no heap can \
                stay below it once they are written. A time is that of the operations since the previous point, \
                writes included.",
        shape: Shape::Counts,
        x_title: "operations",
        place: Place::Count(key::OPERATIONS_DONE, "operation"),
        series: "subject",
        modes: &[FOOTPRINT, Mode { title: "time of an operation", ..TIME }],
        limits: false,
        best_of_subjects: false,
    },
    Drawing {
        experiment: name::CHANNEL_TRANSFER,
        title: "Transfers between two processes",
        about: "Messages from private memory of one process to private memory of another, every byte verified. \
                The processor time is that of both processes, waiting included. “memcpy” is not a transfer, but one \
                copy within one process; only a transfer that hands pages over avoids that copy. “haul:auto” is \
                haul’s own choice of a mechanism. UCX, MPI and iceoryx2 poll: they are fast while they have both \
                processors to themselves.",
        shape: Shape::Sizes,
        x_title: "size of the message",
        place: Place::Size(key::SIZE_BYTES),
        series: "subject",
        modes: &[THROUGHPUT, CPU, LATENCY],
        limits: false,
        best_of_subjects: false,
    },
    OVERLAP,
    SUBMISSION,
    WAITED_FOR,
    BY_ENGINE,
    Drawing {
        experiment: name::FORWARD_SWEEP,
        title: "Packets of many sizes",
        about: "The rate of a flow through a guest by packet size, for each copy function; every restart measures all \
                sizes. Vertical lines are multiples of a cache line: the rate is constant between two of them unless \
                the copy processes each byte by itself. “none” copies nothing and is the upper limit. Where all \
                lines are level, the guest is the bottleneck.",
        shape: Shape::Counts,
        x_title: "bytes of a packet",
        place: Place::Count(key::SIZE_BYTES, "byte"),
        series: key::COPY,
        modes: &[PACKETS],
        limits: false,
        best_of_subjects: false,
    },
];

impl Drawing {
    /// The record's point on this plot; `None` if it lacks a field that the plot needs. The table
    /// shows it anyway.
    pub(crate) fn point<'a>(&self, record: &'a Record) -> Option<Point<'a>> {
        let mut series = field(record, self.series)?;
        if self.series == key::LEVEL {
            series = text::level(&series);
        }
        if record.kind == Kind::Modelled {
            series.push_str(" (modelled)");
        }
        let (x, label) = self.place(record)?;
        let readings: Vec<Option<Reading>> = self
            .modes
            .iter()
            .map(|mode| self.reading(mode, record).filter(|reading| reading.is_drawable(mode)))
            .collect();
        readings.iter().any(Option::is_some).then_some(Point { record, series, x, label, readings })
    }

    fn place(&self, record: &Record) -> Option<(Option<f64>, String)> {
        #[expect(clippy::cast_precision_loss, reason = "the axis has a few thousand pixels")]
        match self.place {
            Place::Size(name) => {
                let size = bytes(record, name).filter(|size| *size > 0)?;
                Some((Some(size as f64), Bytes(size).to_string()))
            }
            Place::Count(name, noun) => {
                let count = record.count(name)?;
                Some((Some(count as f64), text::count(usize::try_from(count).ok()?, noun)))
            }
            Place::Row(names) => {
                let parts: Vec<String> =
                    names.iter().filter_map(|name| field(record, name)).collect();
                let label = match (parts.is_empty(), self.experiment) {
                    (true, _) => return None,
                    (_, name::COPY_SIZE_CLASS) => text::size_class(&parts[0]),
                    (_, name::MEMORY_FAULT) => {
                        let page = Bytes(bytes(record, key::PAGES)?).to_string();
                        let rest = parts.iter().skip(1).cloned();
                        std::iter::once(page).chain(rest).collect::<Vec<_>>().join(", ")
                    }
                    (_, name::HEAP_PAIRS) => Bytes(bytes(record, key::SIZE_BYTES)?).to_string(),
                    _ => parts.join(", "),
                };
                Some((None, label))
            }
        }
    }

    fn reading(&self, mode: &Mode, record: &Record) -> Option<Reading> {
        if mode.name == "ratio" {
            let c = record.cost()?;
            return Some(Reading { value: c.ratio, low: c.ratio_low, high: c.ratio_high });
        }
        let own = Reading {
            value: record.median()?,
            low: quantile(&record.samples, 0.25)?,
            high: quantile(&record.samples, 0.75)?,
        };
        match (mode.name, record.metric.as_str(), record.unit.as_str()) {
            ("time", "time", "ns")
            | ("alloc_time", "alloc_time", "ns")
            | ("footprint", "footprint", "MiB")
            | ("cpu", "cpu", "s/GB")
            | ("latency", "latency", "ns")
            | ("throughput", "throughput", "GB/s") => Some(own),
            ("packets", "rate_peak", "packets/s") => Some(own.times(1e-6)),
            ("time", "time", "s") => Some(own.times(1e9)),
            ("throughput", "throughput", "bytes/s") => Some(own.times(1e-9)),
            ("share", "share", "share") => Some(own.times(100.0)),
            ("throughput", "time", "ns") => {
                // Bytes per nanosecond are GB/s, of all threads together; the quartiles swap.
                #[expect(
                    clippy::cast_precision_loss,
                    reason = "the axis has a few thousand pixels"
                )]
                let size = (bytes(record, key::SIZE_BYTES)? * threads(record)) as f64;
                Some(Reading {
                    value: size / own.value,
                    low: size / own.high,
                    high: size / own.low,
                })
            }
            _ => None,
        }
    }

    /// Whether each mode shows a different metric, so that several records make up one point.
    pub(crate) fn is_by_metric(&self) -> bool {
        self.modes.contains(&FOOTPRINT) || self.modes.contains(&CPU)
    }

    /// The parameters that determine a record's position or series, and so distinguish records
    /// already.
    pub(crate) fn own_fields(&self) -> Vec<&'static str> {
        let mut own = vec![self.series];
        if self.best_of_subjects {
            own.push("subject");
        }
        match self.place {
            Place::Size(name) | Place::Count(name, _) => own.push(name),
            Place::Row(names) => own.extend(names),
        }
        own
    }
}

impl Reading {
    /// The reading in another unit; at least 0.
    fn times(self, factor: f64) -> Self {
        let [value, low, high] =
            [self.value, self.low, self.high].map(|value| (value * factor).max(0.0));
        Self { value, low, high }
    }

    /// Whether the plot can show it. A share may be 0.
    fn is_drawable(&self, mode: &Mode) -> bool {
        let is_finite = [self.value, self.low, self.high].iter().all(|value| value.is_finite());
        is_finite && (self.value > 0.0 || mode.name == SHARE.name)
    }
}

/// The role of a series for the reader.
pub(crate) fn role(series: &str, baselines: &[&str]) -> Role {
    match series {
        "haul" | "haul:auto" | "auto" | "tuned" => Role::Haul,
        "asked for" | "memcpy" | "none" | "empty" => Role::Limit,
        other if baselines.contains(&other) => Role::Baseline,
        "libc" if baselines.is_empty() => Role::Baseline,
        _ => Role::Other,
    }
}
