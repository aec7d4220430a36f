//! Lines of any text as a link, batches, packet sizes and a rate: the result is a readable
//! message, or an estimate with only finite numbers for every NIC.
#![no_main]

use std::fmt::Display;
use std::str::FromStr;

use haul_model::pcie::{
    Bench, BenchNic, Estimate, Histogram, Link, NICS, Packets, Rate, Sums, Transaction, Version,
    Way, Workload, estimate, recipe,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let mut next = || lines.next().unwrap_or_default();
    let (link, batches) = (read::<Link>(next()), read::<Histogram>(next()));
    let (packets, rate) = (read::<Packets>(next()), read::<Rate>(next()));
    let version = read::<Version>(next()).unwrap_or(Version::LAST);
    let (Some(link), Some(batches), Some(packets), Some(rate)) = (link, batches, packets, rate)
    else {
        return;
    };
    assert_eq!(link.to_string().parse(), Ok(link));
    let workload = Workload::forwarding(rate, packets, batches);
    for nic in &NICS {
        for (mode, _, _) in nic.modes {
            let terms = estimate(&Estimate {
                nic: *nic,
                version,
                mode: *mode,
                thresholds: nic.thresholds,
                workload: &workload,
                link: &link,
            });
            assert_sound(&terms.expect("a driver accepts its own thresholds"));
        }
        assert_sound(&recipe(nic, nic.thresholds, &workload).by_packets);
    }
    for nic in BenchNic::ALL {
        let bench = Bench::as_published(&link);
        let rate = workload.rate.packets_per_s();
        assert_sound(&bench.terms(nic, workload.traffic, rate, &workload.packets));
        let most = bench.bandwidth_bytes_per_s(nic, workload.traffic, &workload.packets);
        assert!(most > 0.0 && most < bench.usable_bytes_per_s());
    }
});

/// Parses the text. An error message must not be empty, and not much longer than the text.
fn read<T: FromStr<Err: Display>>(text: &str) -> Option<T> {
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => {
            let length = error.to_string().len();
            assert!((1..1024 + 16 * text.len()).contains(&length), "{error}");
            None
        }
    }
}

fn assert_sound(terms: &[Transaction]) {
    for term in terms {
        for number in [term.count_per_s, term.payload_bytes, term.header_bytes] {
            assert!(number.is_finite() && number >= 0.0, "{term:?}");
        }
        assert!(term.request_bytes <= term.header_bytes, "{term:?}");
    }
    let sums = Sums::of(terms);
    for direction in [Way::ToHost, Way::ToDevice] {
        assert!(sums.bytes_per_s_on(direction).is_finite(), "{terms:?}");
    }
}
