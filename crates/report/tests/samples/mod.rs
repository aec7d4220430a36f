//! Records in the form of a survey, computed by formulas, for tests of the page only.
#![allow(dead_code, reason = "each test file uses its own part")]

use haul_model::{Comparison, Kind, Line, Machine, Record};

pub(crate) const LEVELS: [&str; 5] = ["l1", "l2", "llc", "cold", "mixed"];
pub(crate) const DISTRIBUTIONS: [&str; 6] =
    ["fleet", "small-keys", "rpc", "storage", "packets", "logging"];
pub(crate) const KERNELS: [&str; 6] =
    ["scalar", "sse2", "avx2", "avx512", "rep_movsb", "stream_avx2"];

/// Kernels with the share of memory's bandwidth that each reaches.
pub(crate) const WAYS: [(&str, f64); 2] = [("libc", 0.8), ("stream_avx2", 1.0)];

/// Deterministic noise: a factor within `share` of 1.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }

    #[expect(clippy::cast_precision_loss)]
    pub(crate) fn factor(&mut self, share: f64) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1.0 + share * ((self.0 >> 33) as f64 / f64::from(1_u32 << 30) - 1.0)
    }

    pub(crate) fn samples(&mut self, median: f64) -> Vec<f64> {
        (0..9).map(|_| (median * self.factor(0.02) * 1000.0).round() / 1000.0).collect()
    }
}

pub(crate) fn machine(id: &str, cpu: &str) -> Machine {
    Machine {
        schema: haul_model::record::MACHINE_SCHEMA.into(),
        id: id.into(),
        cpu: cpu.into(),
        isa: ["sse2", "avx2", "avx512vl"].map(String::from).to_vec(),
        processors: 8,
        caches_bytes: vec![32 << 10, 1 << 20, 32 << 20],
        memory_bytes: 67_345_678_336,
        facts: [
            ("kernel", "Linux 6.12"),
            ("libc", "glibc 2.36"),
            ("hypervisor", "kvm"),
            ("page_sizes", "4 KiB, 2 MiB"),
        ]
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .into(),
    }
}

thread_local! {
    static ACCOUNTS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A record of the sample run.
pub(crate) fn record(machine: &str, experiment: &str, subject: &str) -> Record {
    let mut record = Record::new("run-7f3a", experiment, subject, "time", "ns");
    record.machine = machine.into();
    record.time = "2026-01-02T03:04:05Z".into();
    // Parameters that describe the run, as experiments write them: they differ in all records.
    ACCOUNTS.with(|accounts| {
        let account = accounts.get() + 1;
        accounts.set(account);
        record
            .with("operations_per_sample", 1000 + account)
            .with("cpu_ns", account)
            .with("page_faults", 0)
    })
}

pub(crate) fn against(baseline: &str, ratio: f64, spread: f64, floor: f64) -> Comparison {
    let three = |v: f64| (v * 1e4).round() / 1e4;
    Comparison {
        baseline: baseline.into(),
        ratio: three(ratio),
        ratio_low: three(ratio * (1.0 - spread)),
        ratio_high: three(ratio * (1.0 + spread)),
        floor: three(floor),
    }
}

/// GB/s of a subject at a size, depending on the cache that holds the copy.
fn speed(subject: &str, size: f64) -> f64 {
    let near = match subject {
        "scalar" => 24.0,
        "sse2" => 52.0,
        "avx512" => 118.0,
        "rep_movsb" => 96.0,
        "stream_avx2" => 14.5,
        "libc" => 92.0,
        _ => 104.0,
    };
    let call = match subject {
        "rep_movsb" => 32.0,
        "stream_avx2" => 60.0,
        "libc" => 4.6,
        _ => 3.1,
    };
    let far = if subject == "stream_avx2" { 14.5 } else { 9.8 };
    let (l1, l2, llc) = (16e3, 5e5, 1.4e7);
    let blend = |low: f64, high: f64, at: f64| high + (low - high) / (1.0 + (size / at).powi(3));
    let middle = blend(blend(near, near.min(46.0), l1), near.min(24.0), l2);
    let sustained = blend(middle, far, llc);
    size / (call + size / sustained)
}

pub(crate) fn sizes(lines: &mut Vec<Line>, noise: &mut Noise, machine: &str) {
    for power in 6..=30 {
        let size = 1_u64 << power;
        #[expect(clippy::cast_precision_loss)]
        let bytes = size as f64;
        let best =
            KERNELS.iter().map(|kernel| bytes / speed(kernel, bytes)).fold(f64::INFINITY, f64::min);
        let libc = bytes / speed("libc", bytes) * if power > 24 { 0.72 } else { 1.0 };
        let haul = best * if power == 20 { 1.09 } else { 1.012 };
        let mut times = vec![("haul", haul), ("libc", libc)];
        times.extend(KERNELS.iter().map(|kernel| (*kernel, bytes / speed(kernel, bytes))));
        for (subject, time) in times {
            let mut record = record(machine, "copy.size", subject)
                .with("function", "memcpy")
                .with("size_bytes", size)
                .with("level", "mixed")
                .with("threads", 1);
            let time = time * noise.factor(0.01);
            record.samples = noise.samples(time);
            if subject != "libc" {
                record.comparison = Some(against(
                    "libc",
                    time / libc,
                    0.008 * noise.factor(0.6),
                    0.006 * noise.factor(0.8),
                ));
            }
            lines.push(record.into());
        }
    }
}

pub(crate) fn distributions(lines: &mut Vec<Line>, noise: &mut Noise, machine: &str) {
    for function in ["memcpy", "memmove", "memset"] {
        for threads in [1, 2] {
            for (row, distribution) in DISTRIBUTIONS.iter().enumerate() {
                for (place, level) in LEVELS.iter().enumerate() {
                    #[expect(clippy::cast_precision_loss)]
                    let ratio = (0.74 + 0.03 * row as f64 + 0.055 * place as f64).min(0.995)
                        * noise.factor(0.02);
                    let lost = threads == 2 && *level == "cold" && *distribution == "logging";
                    let ratio = if lost { 1.045 } else { ratio };
                    let floor = [0.006, 0.008, 0.012, 0.03, 0.015][place] * noise.factor(0.4);
                    for subject in ["haul", "libc"] {
                        let mut record = record(machine, "copy.distribution", subject)
                            .with("function", function)
                            .with("distribution", *distribution)
                            .with("level", *level)
                            .with("threads", threads);
                        let libc = 7.3 * noise.factor(0.1);
                        record.samples =
                            noise.samples(if subject == "haul" { libc * ratio } else { libc });
                        if subject == "haul" {
                            record.comparison = Some(against("libc", ratio, floor * 0.7, floor));
                        }
                        lines.push(record.into());
                    }
                }
            }
        }
    }
}

pub(crate) fn classes(lines: &mut Vec<Line>, noise: &mut Noise, machine: &str) {
    for (class, ratio) in [
        ("0-16", 0.66),
        ("17-64", 0.74),
        ("65-256", 0.97),
        ("257-1024", 1.001),
        ("1025-16384", 0.99),
    ] {
        for (place, level) in ["l1", "l2"].iter().enumerate() {
            let mut record = record(machine, "copy.size_class", "haul")
                .with("function", "memcpy")
                .with("size_class", class)
                .with("level", *level)
                .with("threads", 1);
            #[expect(clippy::cast_precision_loss)]
            let ratio = ratio + 0.02 * place as f64;
            record.samples = noise.samples(3.0 * ratio);
            record.comparison = Some(against("libc", ratio, 0.008, 0.009 * noise.factor(0.3)));
            lines.push(record.into());
        }
    }
}

pub(crate) fn memory(lines: &mut Vec<Line>, noise: &mut Noise, machine: &str) {
    for (operation, one, most) in
        [("read", 17.2, 78.0), ("write", 12.9, 51.0), ("copy", 14.8, 46.0)]
    {
        for threads in 1..=8 {
            let rate: f64 = one * f64::from(threads);
            let rate = rate.min(most) * (1.0 - 0.02 * f64::from(threads - 1)).max(0.9);
            for (way, share) in WAYS {
                let mut record = record(machine, "memory.bandwidth", way)
                    .with("operation", operation)
                    .with("threads", threads)
                    .with("size_bytes", 1_u64 << 30);
                record.metric = "throughput".into();
                record.unit = "GB/s".into();
                record.samples = noise.samples(rate * share);
                lines.push(record.into());
            }
        }
    }
    for (pages, mode, cost) in [
        ("4KiB", "write-touch", 512.0),
        ("4KiB", "read-touch", 260.0),
        ("2MiB", "write-touch", 94_000.0),
        ("2MiB", "read-touch", 88_000.0),
    ] {
        let mut record =
            record(machine, "memory.fault", "kernel").with("pages", pages).with("mode", mode);
        record.samples = noise.samples(cost);
        lines.push(record.into());
    }
}

pub(crate) fn tuning(lines: &mut Vec<Line>, noise: &mut Noise, machine: &str) {
    for (phase, shift) in [("train", 0), ("check", 300)] {
        for power in 11..=26 {
            let size = (1_u64 << power) + shift;
            #[expect(clippy::cast_precision_loss)]
            let bytes = size as f64;
            for (subject, gain) in
                [("default", 1.0), ("tuned", if power > 17 { 0.93 } else { 1.0 })]
            {
                let time = bytes / speed("haul", bytes) * gain * noise.factor(0.01);
                let mut record = record(machine, "copy.tune", subject)
                    .with("function", "memcpy")
                    .with("phase", phase)
                    .with("size_bytes", size)
                    .with("threads", 1);
                record.samples = noise.samples(time);
                if subject == "tuned" {
                    record.comparison =
                        Some(against("default", gain * noise.factor(0.008), 0.006, 0.008));
                }
                lines.push(record.into());
            }
        }
    }
}

/// All measurements of a survey on one machine, and two experiments unknown to this version.
pub(crate) fn survey(id: &str, cpu: &str) -> Vec<Line> {
    ACCOUNTS.with(|accounts| accounts.set(0));
    let mut noise = Noise::new();
    let mut lines = vec![Line::from(machine(id, cpu))];
    distributions(&mut lines, &mut noise, id);
    classes(&mut lines, &mut noise, id);
    sizes(&mut lines, &mut noise, id);
    memory(&mut lines, &mut noise, id);
    tuning(&mut lines, &mut noise, id);
    let mut unknown = record(id, "channel.send", "shared-memory")
        .with("size_bytes", 65536)
        .with("note", "the clock’s frequency changed during this run");
    unknown.samples = noise.samples(1234.5);
    lines.push(unknown.into());
    let mut modelled = record(id, "pcie.estimate", "model").with("packet_bytes", 64);
    modelled.kind = Kind::Modelled;
    modelled.samples = vec![17.125];
    lines.push(modelled.into());
    lines
}
