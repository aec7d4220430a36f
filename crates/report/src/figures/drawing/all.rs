//! Every experiment with a plot: its texts, its position, its series and its quantities.

use haul_model::experiment::{key, name};

use super::{Drawing, Place};
use crate::figures::{Mode, Shape};

const THROUGHPUT: Mode =
    Mode { name: "throughput", label: "GB/s", title: "GB/s (10⁹ bytes a second)", log: false };
const TIME: Mode = Mode { name: "time", label: "ns", title: "time of a call", log: true };
const RATIO: Mode =
    Mode { name: "ratio", label: "ratio to libc", title: "time over libc’s", log: false };

/// The time of an allocation, which must not grow from round to round.
const ALLOC_TIME: Mode =
    Mode { name: "alloc_time", label: "ns", title: "time of an allocation", log: true };

/// Memory of a process beyond its initial memory.
pub(super) const FOOTPRINT: Mode =
    Mode { name: "footprint", label: "MiB", title: "MiB resident", log: false };

/// The CPU time of a transfer in both processes together.
pub(super) const CPU: Mode =
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
pub(super) const SHARE: Mode =
    Mode { name: "share", label: "%", title: "% of the copy hidden", log: false };

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
    "A caller that has nothing else to do, while the engine polls. haul’s caller calls `execute` and takes part in \
     the copy.",
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
