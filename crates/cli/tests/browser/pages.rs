//! A page of every kind, made by the program from its own records or from committed records.

use std::fs;
use std::process::{Command, Stdio};

use haul_model::Line;

use crate::{elf, recorded, samples, trace};

/// Each kind and its page.
pub(crate) fn all() -> Vec<(&'static str, String)> {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let survey = survey();
    let (old, new) = (at("old.jsonl"), at("new.jsonl"));
    fs::write(&old, text(&survey)).unwrap();
    fs::write(&new, text(&slower(survey.clone()))).unwrap();
    let changes = at("changes.jsonl");
    fs::write(&changes, haul(&["compare", &old, &new, "--json"])).unwrap();

    let program = elf::program(folder.path(), "ends.elf", &elf::ENDS);
    let (program, plan) = (program.to_str().unwrap(), at("plan.jsonl"));
    let latencies = ["--vary", "memory.latency_ns=80..110:5"];
    let issues = ["--vary", "core.issue=in-order,out-of-order", "--program", program];
    let into = ["--out-file", &plan, "--run"];
    haul(&[&["sim", "sweep"][..], &latencies, &issues, &into].concat());
    let traced = ["sim", "run", program, "--window", "0-400", "--json"];

    let trace = trace::trace(folder.path()).to_str().unwrap().to_owned();
    let nic = ["--nic", "ice", "--mode", "vector"];
    let rates = ["--core", "120:55", "--rates", "2M..16M:2800k", "--for", "2ms"];
    let swept = [&["pcie", "sweep", "--json"][..], &nic, &rates].concat();
    let sizes = ["--rate", "10M", "--sizes", "60..130:1"];
    let estimated = [&["pcie", "estimate", "--json"][..], &nic, &sizes].concat();
    let ports = ["--port", "gen:size=64,count=20000", "--port", "sink"];
    let forwarded = [&["forward", "--json"][..], &ports].concat();
    let explained = ["pcie", "explain", "--json", "--nic", "ice", "--rate", "10M", "--sizes", "64"];
    let modelled = ["--port", "nic:model=ice,rate=1M,count=20000", "--port", "null"];
    let modelled = [&["forward", "--json"][..], &modelled].concat();
    let lines = |words: &[&str]| haul_model::parse(&haul(words)).unwrap();
    let two = [survey.clone(), samples::survey("m2", "Another CPU 7")].concat();
    let mut all = vec![
        ("survey", survey),
        ("two machines", two),
        ("comparison", haul_model::parse(&fs::read_to_string(changes).unwrap()).unwrap()),
        ("heaps", heaps()),
        ("transfers", transfers()),
        ("trace replayed", replay()),
        ("map of a heap", lines(&["heap", "map", "--trace", &trace, "--json"])),
        ("what a trace holds", lines(&["heap", "info", &trace, "--json"])),
        ("paper simulated", recorded::lines("2026-11-22-sim-paper/quick.jsonl")),
        ("workers", recorded::lines("2026-11-22-sim-workers/workers.jsonl")),
        ("sweep of simulations", lines(&["sim", "collect", &plan, "--json"])),
        ("trace of a simulation", lines(&traced)),
        ("sweep of a NIC", lines(&swept)),
        ("estimate by size", lines(&estimated)),
        ("estimate explained", lines(&explained)),
        ("devices", lines(&["pcie", "list", "--json"])),
        ("bursts watched", recorded::watched()),
        ("forward", lines(&forwarded)),
        ("forward by a modelled NIC", lines(&modelled)),
        ("nothing", Vec::new()),
    ];
    all.extend(recorded::all());
    let others = recorded::of_no_page(all.iter().flat_map(|(_, lines)| lines));
    all.push(("tables", others));
    all.into_iter().map(|(kind, lines)| (kind, haul_report::html(&lines))).collect()
}

/// The program's standard output.
fn haul(arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.args(arguments).env("HAUL_TUNING", "off").stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "haul {arguments:?}: {message}");
    String::from_utf8(output.stdout).expect("haul writes text")
}

fn text(lines: &[Line]) -> String {
    lines.iter().map(|line| line.to_json() + "\n").collect()
}

/// The records of a survey on one machine.
pub(crate) fn survey() -> Vec<Line> {
    samples::survey("m1", "Sample CPU 9000")
}

/// The records of a survey from another run, in which a fill became slower.
fn slower(mut lines: Vec<Line>) -> Vec<Line> {
    for line in &mut lines {
        let Line::Record(record) = line else { continue };
        record.run = "run-8".into();
        let is_fill = record.text("function") == Some("memset");
        let factor = if is_fill && record.subject == "haul" { 2.4 } else { 1.0 };
        record.samples.iter_mut().for_each(|sample| *sample *= factor);
        if let Some(comparison) = &mut record.comparison {
            comparison.ratio *= factor;
            comparison.ratio_low *= factor;
            comparison.ratio_high *= factor;
        }
    }
    lines
}

fn record(experiment: &str, subject: &str, metric: &str, unit: &str) -> haul_model::Record {
    let mut record = samples::record("m1", experiment, subject);
    (record.metric, record.unit) = (metric.into(), unit.into());
    record
}

/// The records of six growing heaps, and of allocations with their frees.
fn heaps() -> Vec<Line> {
    let mut lines = vec![Line::from(samples::machine("m1", "Sample CPU 9000"))];
    let heaps = ["haul", "dpdk", "mimalloc", "jemalloc", "tcmalloc", "libc"];
    for (place, heap) in heaps.into_iter().enumerate() {
        let cost = [16.0, 200.0, 60.0, 90.0, 70.0, 110.0][place];
        for round in 1..=5_u8 {
            let growth = if heap == "dpdk" { f64::from(round).powi(3) } else { 1.0 };
            let mut record = record("heap.growth", heap, "alloc_time", "ns")
                .with("size_bytes", 4096)
                .with("align_bytes", 4096)
                .with("threads", 1)
                .with("round", round);
            record.samples = vec![cost * growth * 0.98, cost * growth, cost * growth * 1.03];
            lines.push(record.into());
        }
        for size in [64, 4096] {
            let mut record = record("heap.pairs", heap, "time", "ns")
                .with("size_bytes", size)
                .with("threads", 1);
            record.samples = vec![cost / 10.0, cost / 9.5, cost / 9.0];
            if heap != "dpdk" {
                record.comparison = Some(samples::against(
                    "dpdk",
                    [0.08, 1.0, 0.3, 0.45, 0.35, 0.55][place],
                    0.02,
                    0.01,
                ));
            }
            lines.push(record.into());
        }
    }
    lines
}

/// Messages of sizes that span decades, through more mechanisms than a reader follows at once.
pub(crate) fn transfers() -> Vec<Line> {
    let mut lines = vec![Line::from(samples::machine("m1", "Sample CPU 9000"))];
    let subjects =
        ["haul:auto", "haul:ring", "haul:inline", "ucx", "mpi", "iceoryx2", "pipe", "unix"];
    for (place, subject) in subjects.into_iter().enumerate() {
        for power in [6_u32, 10, 14, 18, 22, 26, 28] {
            let share = f64::from(2_u32.pow(power));
            let rate = share / (share / (16.0 - f64::from(place as u32)) + 150.0);
            for (metric, unit, value) in [
                ("throughput", "GB/s", rate),
                ("cpu", "s/GB", 2.0 / rate),
                ("latency", "ns", 100.0 + share / rate),
            ] {
                let mut record = record("channel.transfer", subject, metric, unit)
                    .with("size_bytes", 2_u64.pow(power))
                    .with("target", "warm")
                    .with("busy_core", 0);
                record.samples = vec![value * 0.99, value, value * 1.01];
                lines.push(record.into());
            }
        }
    }
    lines
}

/// A program's memory over its operations, on two heaps.
fn replay() -> Vec<Line> {
    let mut lines = vec![Line::from(samples::machine("m1", "Sample CPU 9000"))];
    for (place, heap) in ["asked for", "haul", "libc"].into_iter().enumerate() {
        for step in 1..=20_u32 {
            let asked = f64::from(step * (25 - step)) / 10.0;
            let mut footprint = record("heap.replay", heap, "footprint", "MiB")
                .with("trace", "sort.trace")
                .with("operations_done", step * 50_000);
            footprint.samples = vec![asked * (1.0 + 0.1 * f64::from(place as u32))];
            lines.push(footprint.into());
            if heap == "asked for" {
                continue;
            }
            let mut time = record("heap.replay", heap, "time", "ns")
                .with("trace", "sort.trace")
                .with("operations_done", step * 50_000);
            time.samples = vec![30.0 + 12.0 * f64::from(place as u32) + f64::from(step % 3)];
            lines.push(time.into());
        }
    }
    lines
}
