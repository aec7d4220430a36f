//! The machine of the page, and the kind of the page.

use std::fmt::Write as _;

use haul_model::experiment::name;
use haul_model::{Bytes, Machine};

use crate::findings::verdicts;
use crate::select::Section;
use crate::text::{self, escape};

/// A machine's name: its processor, or its id if the file has no line for it.
pub(super) fn name(section: &Section<'_>) -> String {
    match section.machine {
        Some(machine) if !machine.cpu.is_empty() => machine.cpu.clone(),
        _ if section.id.is_empty() => "a machine that the records do not name".into(),
        _ => format!("machine {}", section.id),
    }
}

/// The kind of the page as text before the machine's name.
pub(super) fn kind(section: &Section<'_>) -> &'static str {
    const KINDS: [(&str, &str); 16] = [
        (name::COMPARE, "What changed on"),
        (name::SIM_SWEEP, "A sweep of simulated servers, by"),
        (name::SIM, "A simulated server, by"),
        (name::HEAP_REPLAY, "A program’s allocations, replayed on"),
        (name::HEAP_MAP, "What a heap holds on"),
        (name::HEAP_TRACE, "A program’s allocations, recorded on"),
        (name::HEAP_LIST, "Heaps shared by name on"),
        (name::HEAP, "Allocation on"),
        (name::COPY_TUNE, "Thresholds tuned for"),
        (name::COPY_PROFILE, "A program’s copies, profiled on"),
        (COPY, "Copies on"),
        (name::CHANNEL_TRANSFER, "Transfers between processes on"),
        (name::PCIE_SWEEP, "A sweep of a modelled NIC, by"),
        (name::PCIE_BURST, "Bursts of a running program, on"),
        (name::PCIE, "What packets move across PCIe, on"),
        (name::FORWARD, "Packets forwarded on"),
    ];
    /// The prefix of every experiment with copies.
    const COPY: &str = "copy.";
    let experiments = section.experiments();
    let is_it = |(begin, _): &&(&str, &str)| {
        !experiments.is_empty() && experiments.iter().all(|name| name.starts_with(begin))
    };
    // Pages of copies of one size include the memory limit.
    let is_copy_of = |name: &&str| name.starts_with(COPY) || *name == name::MEMORY_BANDWIDTH;
    let is_of_copies = experiments.iter().any(|name| name.starts_with(COPY));
    let otherwise = match verdicts::is_survey(section) {
        true => "A survey of",
        false if is_of_copies && experiments.iter().all(is_copy_of) => "Copies on",
        false => "How to move bytes on",
    };
    KINDS.iter().find(is_it).map_or(otherwise, |(_, about)| about)
}

/// All facts, folded below one line.
pub(super) fn html(section: &Section<'_>) -> String {
    let mut rows: Vec<(String, String)> = Vec::new();
    let times: Vec<&str> = section
        .records
        .iter()
        .map(|record| record.time.as_str())
        .filter(|time| !time.is_empty())
        .collect();
    if let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) {
        rows.push((
            "date".into(),
            if first == last {
                spaced(first)
            } else {
                format!("{} to {}", spaced(first), spaced(last))
            },
        ));
    }
    if let Some(machine) = section.machine {
        rows.extend(machine_facts(machine));
    }
    let modelled = section.records.iter().filter(|r| r.kind == haul_model::Kind::Modelled).count();
    let measured = section.records.len() - modelled;
    rows.push((
        "figures".into(),
        format!("{} measured, {} modelled", text::grouped(measured), text::grouped(modelled)),
    ));
    let mut runs: Vec<&str> = section.records.iter().map(|record| record.run.as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    rows.push(("runs".into(), runs.join(", ")));
    rows.push(("machine id".into(), section.id.into()));
    let mut html = format!(
        "<details class=\"machine-facts\"><summary>{}</summary><dl class=\"facts\">",
        escape(&facts_line(section, measured, modelled))
    );
    for (name, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(html, "<div><dt>{}</dt><dd>{}</dd></div>", escape(name), escape(value));
    }
    html + "</dl></details>"
}

/// The machine, the day and the number of figures, in one line.
fn facts_line(section: &Section<'_>, measured: usize, modelled: usize) -> String {
    let mut parts = Vec::new();
    if let Some(machine) = section.machine {
        parts.push(text::count(machine.processors, "processor"));
        let last = machine.caches_bytes.len();
        parts.extend(machine.caches_bytes.iter().enumerate().map(|(index, size)| {
            let name = if index + 1 == last && last > 2 {
                "LLC".into()
            } else {
                format!("L{}", index + 1)
            };
            format!("{name} {}", Bytes(*size).approximate())
        }));
        if machine.memory_bytes > 0 {
            parts.push(Bytes(machine.memory_bytes).approximate());
        }
        let known = ["kernel", "libc", "hypervisor"];
        parts.extend(known.iter().filter_map(|name| machine.facts.get(*name).cloned()));
    }
    let days = section.records.iter().filter_map(|record| record.time.get(..10));
    parts.extend(days.max().map(str::to_owned));
    let counted = [(measured, "measured"), (modelled, "modelled")];
    let counted = counted.into_iter().filter(|(count, _)| *count > 0);
    parts.extend(counted.map(|(count, kind)| format!("{} {kind}", text::count(count, "figure"))));
    parts.join(" · ")
}

/// `2026-01-02T03:04:05Z` in a readable form; other text unchanged.
fn spaced(time: &str) -> String {
    match time.split_once('T') {
        Some((date, clock)) if clock.ends_with('Z') => {
            format!("{date} {} UTC", clock.trim_end_matches('Z'))
        }
        _ => time.into(),
    }
}

fn machine_facts(machine: &Machine) -> Vec<(String, String)> {
    let mut rows = vec![
        ("processors".into(), machine.processors.to_string()),
        ("instruction sets".into(), machine.isa.join(", ")),
    ];
    let caches: Vec<String> =
        machine.caches_bytes.iter().map(|size| Bytes(*size).to_string()).collect();
    rows.push(("caches for one core".into(), caches.join(", ")));
    if machine.memory_bytes > 0 {
        rows.push(("memory".into(), Bytes(machine.memory_bytes).approximate()));
    }
    rows.extend(machine.facts.iter().map(|(name, value)| (name.replace('_', " "), value.clone())));
    rows
}
