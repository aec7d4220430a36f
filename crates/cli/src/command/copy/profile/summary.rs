//! A profile, for a person.

use haul_model::experiment::key;
use haul_model::profile::Profile;
use haul_model::{Bytes, Record};

/// Call sites that are shown.
const SITES_SHOWN: usize = 5;

/// The lines about one profile.
pub(super) fn lines(profile: &Profile, records: &[Record], lost: Option<&str>) -> Vec<String> {
    let whole = profile.bytes();
    let samples: u64 = profile.sites.iter().map(|site| site.samples).sum();
    let forked = profile.processes.iter().filter(|process| process.id.is_none()).count();
    let exact = if profile.work_per_sample == 1 { "" } else { "about " };
    let mut lines = vec![format!(
        "seen: {exact}{:.0} calls with {exact}{}, from {samples} samples, of {} processes ({forked} \
         of them forked) and {} threads",
        profile.calls(),
        Bytes(whole).approximate(),
        profile.processes.len(),
        profile.threads.len()
    )];
    let time = records.first().and_then(haul_report::profile::time);
    lines.extend(time.map(|time| format!("time of these calls: {time}")));
    let by = |record: &&Record, by| record.text(key::BY) == Some(by);
    let sites = records.iter().filter(|record| by(record, "site"));
    for record in sites.take(SITES_SHOWN) {
        let bytes = record.samples.first().copied().unwrap_or(0.0);
        lines.push(format!(
            "site {}: {:.1}% of bytes, {} calls, half up to {}",
            record.text(key::SITE).unwrap_or_default(),
            100.0 * bytes / (whole as f64).max(1.0),
            record.count(key::CALLS).unwrap_or(0),
            Bytes(record.count(key::SIZE_MEDIAN_BYTES).unwrap_or(0)).approximate()
        ));
    }
    if profile.sites.len() > SITES_SHOWN {
        lines.push(format!("{} other sites", profile.sites.len() - SITES_SHOWN));
    }
    if let Some(lost) = lost {
        lines.push(format!("not profiled, because without the library: {lost}"));
    }
    lines.push(format!("not seen: {}", super::NOT_SEEN));
    lines
}
