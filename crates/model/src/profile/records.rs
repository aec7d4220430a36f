//! A profile as records: one for all calls together, and one for each of the call sites, sizes and
//! threads with the most bytes. The rest is summed as "other".

use super::layout::CLASSES;
use super::{Calls, Profile, Site};
use crate::Record;
use crate::experiment::{key, name};

/// The most sites, and the most threads, that have a record of their own.
pub const OWN_RECORDS_MAX: usize = 100;

/// The names of functions in records, in the order of [`Site::kinds`].
pub const FUNCTIONS: [&str; 4] = ["memcpy", "memmove", "zero", "fill"];

/// The records of a profile. `symbol` names the function of a site if it is known.
///
/// The samples are estimated bytes; the parameter `by` says of which part: `all`, `site`, `size` or
/// `thread`. Run, time and machine are still empty.
#[must_use]
pub fn records(
    profile: &Profile,
    program: &str,
    symbol: impl Fn(&Site) -> Option<String>,
) -> Vec<Record> {
    let all = Profile::sum(&profile.sites);
    let mut records = vec![
        of_site(program, "all", &all)
            .with(key::SITES, profile.sites.len())
            .with(key::THREADS, profile.threads.len())
            .with(key::PROCESSES, profile.processes.len())
            .with(key::WORK_PER_SAMPLE_BYTES, profile.work_per_sample),
    ];
    let own = profile.sites.len().min(OWN_RECORDS_MAX);
    for site in &profile.sites[..own] {
        records.push(of_site(program, "site", site).with(key::SITE, site_name(site, &symbol)));
    }
    if own < profile.sites.len() {
        let other = Profile::sum(&profile.sites[own..]);
        let name = format!("other ({} sites)", profile.sites.len() - own);
        records.push(of_site(program, "site", &other).with(key::SITE, name));
    }
    for (class, (calls, bytes)) in all.classes.iter().enumerate().filter(|(_, it)| it.0 > 0.0) {
        records.push(record(program, "size", *calls, *bytes).with(key::SIZE_CLASS, sizes(class)));
    }
    records.extend(threads(profile, program));
    records
}

fn record(program: &str, by: &str, calls: f64, bytes: u64) -> Record {
    let mut record = Record::new("", name::COPY_PROFILE, program, "bytes", "B")
        .with(key::BY, by)
        .with(key::CALLS, calls.round() as u64);
    record.samples = vec![bytes as f64];
    record
}

fn of_site(program: &str, by: &str, site: &Site) -> Record {
    let mut record = record(program, by, site.calls, site.bytes).with(key::SAMPLED, site.samples);
    for (function, calls) in FUNCTIONS.iter().zip(site.kinds).filter(|(_, calls)| *calls > 0.0) {
        record = record.with(&format!("{function}_calls"), calls.round() as u64);
    }
    let record = Calls::of_sites([site]).on(record);
    let share = |part: f64, whole: f64| (part / whole.max(1e-9) * 1e4).round() / 1e4;
    let copies = site.kinds[0] + site.kinds[1];
    record
        .with(key::SIZE_MEDIAN_BYTES, median_size(site))
        .with(key::SIZE_MAX_BYTES, largest_size(site))
        .with(key::OVERLAP, share(site.overlaps, copies))
        .with(key::MISALIGNED, share(site.targets[..3].iter().sum(), site.calls))
        .with(key::NEAR, share(site.distances[..2].iter().sum(), copies))
}

/// The module's base name, the offset, and the function.
fn site_name(site: &Site, symbol: impl Fn(&Site) -> Option<String>) -> String {
    if site.module.is_empty() {
        return "other (no room in the profile)".into();
    }
    let module = site.module.rsplit('/').next().unwrap_or_default();
    let place = format!("{module}+{:#x}", site.offset);
    symbol(site).map_or(place.clone(), |symbol| format!("{place} ({symbol})"))
}

/// The upper end of the class below which half of the calls are.
fn median_size(site: &Site) -> u64 {
    let mut sum = 0.0;
    let half = site.classes.iter().position(|(calls, _)| {
        sum += calls;
        sum * 2.0 >= site.calls
    });
    upper(half.unwrap_or(0))
}

/// The upper end of the largest class with a call.
fn largest_size(site: &Site) -> u64 {
    upper(site.classes.iter().rposition(|(calls, _)| *calls > 0.0).unwrap_or(0))
}

fn upper(class: usize) -> u64 {
    (1_u64 << class) - 1
}

/// The sizes of a class: `64-127`.
fn sizes(class: usize) -> String {
    match class {
        0 => "0".into(),
        1 => "1".into(),
        _ if class == CLASSES - 1 => format!("{}-", 1_u64 << (class - 1)),
        _ => format!("{}-{}", 1_u64 << (class - 1), upper(class)),
    }
}

fn threads(profile: &Profile, program: &str) -> Vec<Record> {
    let mut threads: Vec<_> = profile.threads.iter().enumerate().collect();
    threads.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then(a.0.cmp(&b.0)));
    let own = threads.len().min(OWN_RECORDS_MAX);
    let mut records = Vec::new();
    for (index, thread) in &threads[..own] {
        let of_process = |it: &&super::Thread| it.process == thread.process;
        let number = profile.threads[..*index].iter().filter(of_process).count();
        let process = thread.process.map(|index| &profile.processes[index]);
        let what = match process {
            None => "other (no room in the profile)".to_owned(),
            Some(it) => match it.id {
                Some(id) => format!("{} {id}, thread {number}", it.program),
                None => format!("forked child of {}, thread {number}", it.program),
            },
        };
        records.push(record(program, "thread", thread.calls, thread.bytes).with(key::THREAD, what));
    }
    if own < threads.len() {
        let (mut calls, mut bytes) = (0.0, 0_u64);
        for (_, thread) in &threads[own..] {
            calls += thread.calls;
            bytes = bytes.saturating_add(thread.bytes);
        }
        let what = format!("other ({} threads)", threads.len() - own);
        records.push(record(program, "thread", calls, bytes).with(key::THREAD, what));
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Process, Thread};

    fn site(offset: u64, bytes: u64) -> Site {
        let mut classes = vec![(0.0, 0); CLASSES];
        classes[7] = (2.0, bytes);
        let module = "/usr/bin/sort".into();
        let kinds = [2.0, 0.0, 0.0, 0.0];
        Site { module, offset, samples: 2, calls: 2.0, bytes, kinds, classes, ..Site::default() }
    }

    #[test]
    fn records_sum_to_the_whole_and_the_tail_is_other() {
        let count = OWN_RECORDS_MAX as u64 + 20;
        let process = Process {
            id: None,
            parent: None,
            program: "sort".into(),
            isa: "avx2".into(),
            has_policy_file: false,
        };
        let threads =
            (0..count).map(|_| Thread { process: Some(0), samples: 2, calls: 2.0, bytes: 200 });
        let profile = Profile {
            work_per_sample: 1,
            processes: vec![process],
            threads: threads.collect(),
            sites: (0..count).map(|at| site(at, 200)).collect(),
        };
        let records = records(&profile, "sort", |site| (site.offset == 0).then(|| "main".into()));
        for by in ["all", "site", "size", "thread"] {
            let of = records.iter().filter(|record| record.text(key::BY) == Some(by));
            let sum: f64 = of.clone().map(|record| record.samples[0]).sum();
            let calls: u64 = of.filter_map(|record| record.count(key::CALLS)).sum();
            assert_eq!((sum, calls), (200.0 * count as f64, 2 * count), "{by}");
        }
        let texts = |key| records.iter().filter_map(|it| it.text(key)).collect::<Vec<_>>();
        assert!(texts(key::SITE).contains(&"sort+0x0 (main)"));
        assert!(texts(key::SITE).contains(&"other (20 sites)"));
        assert!(texts(key::THREAD).contains(&"other (20 threads)"));
        assert_eq!(texts(key::SIZE_CLASS), ["64-127"]);
        assert!(records.iter().all(|record| record.check().is_ok()));
    }
}
