//! What was recorded, for a person.

use std::collections::BTreeMap;
use std::path::Path;

use haul_model::Bytes;
use haul_model::statistics::quantile_of_sorted;
use haul_model::stream::recording::{Recording, Thread};
use haul_model::stream::{ReadsBy, Site, Stream};

/// Call sites that are shown.
const SITES_SHOWN: usize = 5;

/// The lines about one stream.
pub(super) fn of_stream(stream: &Stream, thread: &Thread, path: &Path) -> Vec<String> {
    let header = &stream.header;
    let mut lines = vec![
        format!(
            "recorded {} ({}, thread {}): {} of its {} calls",
            path.display(),
            header.program,
            header.thread,
            stream.calls.len(),
            header.thread_calls
        ),
        functions(thread),
    ];
    if !stream.calls.is_empty() {
        let arena = Bytes(stream.arena_bytes()).approximate();
        lines.push(format!("kept: {}; in {arena} of pages", sizes(stream, None)));
        lines.extend(busiest(stream));
        lines.push(reads(stream));
    }
    if header.left_out > 0 {
        lines.push(format!(
            "left out: {} calls that are longer than 64 MiB, or beyond 256 MiB of pages",
            header.left_out
        ));
    }
    lines
}

/// The calls of the thread by function, kept or not.
fn functions(thread: &Thread) -> String {
    let [memcpy, memmove, zero, fill] = thread.functions;
    let bytes = Bytes(thread.bytes).approximate();
    format!(
        "calls: {memcpy} of memcpy, {memmove} of memmove, {} of memset ({zero} with 0); {bytes}",
        zero.saturating_add(fill)
    )
}

/// The quantiles of sizes, of one site or of all.
fn sizes(stream: &Stream, site: Option<u16>) -> String {
    let calls = stream.calls.iter().filter(|call| site.is_none_or(|site| call.site == site));
    let mut sizes: Vec<f64> = calls.map(|call| f64::from(call.size)).collect();
    sizes.sort_by(f64::total_cmp);
    let up_to = |share| Bytes(quantile_of_sorted(&sizes, share).unwrap_or(0.0) as u64);
    let [half, most, nearly, all] = [0.5, 0.9, 0.99, 1.0].map(|share| up_to(share).approximate());
    format!("half up to {half}, 90% {most}, 99% {nearly}, all {all}")
}

fn busiest(stream: &Stream) -> Vec<String> {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    stream.calls.iter().for_each(|call| *counts.entry(call.site).or_default() += 1);
    let mut counts: Vec<(u16, u64)> = counts.into_iter().collect();
    counts.sort_by_key(|(site, count)| (std::cmp::Reverse(*count), *site));
    let total = stream.calls.len() as f64;
    let shown = counts.iter().take(SITES_SHOWN).map(|(index, count)| {
        let site = &stream.sites[usize::from(*index)];
        let share = 100.0 * *count as f64 / total;
        format!("site {}: {share:.1}% of calls, {}", name(site), sizes(stream, Some(*index)))
    });
    let mut lines: Vec<String> = shown.collect();
    if counts.len() > SITES_SHOWN {
        lines.push(format!("{} other sites", counts.len() - SITES_SHOWN));
    }
    lines
}

fn name(site: &Site) -> String {
    format!("{}+{:#x}", site.module, site.offset)
}

/// The share of targets that were read soon.
fn reads(stream: &Stream) -> String {
    let sampled: u64 = stream.sites.iter().map(|site| site.sampled).sum();
    let soon: u64 = stream.sites.iter().map(|site| site.read_soon).sum();
    let how = match stream.header.reads_by {
        ReadsBy::Breakpoint => "watched by breakpoints",
        ReadsBy::LaterCalls => "inferred from later calls alone: the kernel gave no breakpoints",
    };
    if sampled == 0 {
        return format!("read soon: unknown, no call was sampled ({how})");
    }
    let share = 100.0 * soon as f64 / sampled as f64;
    format!("read soon: {share:.0}% of {sampled} targets ({how})")
}

/// The calls that the streams do not have.
pub(super) fn left_out(recording: &Recording<'_>, kept: Option<usize>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(kept) = kept {
        lines.extend(others(recording, kept));
    }
    let sum = |of: fn(&Thread) -> u64| recording.threads.iter().map(of).sum::<u64>();
    let (nested, no_room) = (sum(|thread| thread.nested), sum(|thread| thread.no_room));
    for (count, why) in [
        (nested, "calls of signal handlers, which interrupted the recorder"),
        (no_room, "calls for which there was no room: raise --room, or lower --calls"),
        (recording.without_room, "processes or threads beyond the recorder's tables"),
    ] {
        if count > 0 {
            lines.push(format!("not recorded: {count} {why}"));
        }
    }
    lines.push(
        "not seen: copies that the compiler inlined, calls within libc, programs that are linked \
         statically or started without LD_PRELOAD"
            .into(),
    );
    lines
}

/// The threads and processes that are not in the one stream.
fn others(recording: &Recording<'_>, kept: usize) -> Vec<String> {
    let process = recording.threads[kept].process;
    let (mut threads, mut calls) = (0_u64, 0_u64);
    let mut elsewhere: BTreeMap<usize, u64> = BTreeMap::new();
    for (index, thread) in recording.threads.iter().enumerate() {
        if thread.process != process {
            *elsewhere.entry(thread.process).or_default() += thread.calls;
        } else if index != kept {
            threads += 1;
            calls += thread.calls;
        }
    }
    let mut lines = Vec::new();
    if threads > 0 {
        lines.push(format!("left out: {threads} other threads of the process, with {calls} calls"));
    }
    if let Some((most, most_calls)) = elsewhere.iter().max_by_key(|(_, calls)| **calls) {
        let total: u64 = elsewhere.values().sum();
        let program = &recording.processes[*most].program;
        lines.push(format!(
            "left out: {} other processes, with {total} calls; the most, {most_calls}, are of \
             {program}; --all-threads FOLDER keeps each thread",
            elsewhere.len()
        ));
    }
    lines
}
