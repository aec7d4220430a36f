//! Finds the rate at which a curve of outbound writes breaks, and the batch that causes the break.

use super::workload::Histogram;

/// The smallest relative step that counts. A smaller one is noise.
const STEP_LEAST: f64 = 0.05;
/// The smallest share of packets for which a batch counts as a peak.
const PEAK_LEAST: f64 = 0.05;

/// One rate of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Swept {
    /// The forwarded packets a second.
    pub packets_per_s: f64,
    /// The batches that polls returned.
    pub batches: Histogram,
    /// The writes to the device, in bytes of data a second.
    pub outbound_write: f64,
}

/// A break: the curve bends between two rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Fracture {
    /// The index in the sweep of the last rate before the break.
    pub before: usize,
    /// The batch whose share of the packets grew most, and its share before and after.
    pub batch: (u32, f64, f64),
    /// A description of the break.
    pub text: String,
}

/// The first drop of at least 5% in the writes per packet between two neighbouring rates. Rates
/// must ascend. `None` if there is no such drop. Later drops come from batches that grow further.
#[must_use]
pub fn fracture(sweep: &[Swept]) -> Option<Fracture> {
    let each = |point: &Swept| point.outbound_write / point.packets_per_s;
    let step = |pair: &[Swept]| 1.0 - each(&pair[1]) / each(&pair[0]);
    let before = sweep.windows(2).position(|pair| step(pair) >= STEP_LEAST)?;
    let (low, high) = (&sweep[before], &sweep[before + 1]);
    let grown = |batch: u32| share(&high.batches, batch) - share(&low.batches, batch);
    let sizes = high.batches.batches().iter().map(|(batch, _)| *batch);
    let batch = sizes.max_by(|a, b| grown(*a).total_cmp(&grown(*b)))?;
    let shares = (share(&low.batches, batch), share(&high.batches, batch));
    let text = format!(
        "The curve of outbound writes breaks between {:.2} and {:.2} M packets/s: below, polls return \
         {} packets, {:.2} on average; above, {:.0}% of the packets come in polls of {batch} ({:.0}% \
         before) and the average is {:.2}, so that fewer doorbells are written for as many packets: \
         {:.1} MB/s, where {:.1} would go straight on.",
        low.packets_per_s * 1e-6,
        high.packets_per_s * 1e-6,
        peaks(&low.batches),
        low.batches.mean_of_polls(),
        shares.1 * 100.0,
        shares.0 * 100.0,
        high.batches.mean_of_polls(),
        high.outbound_write * 1e-6,
        each(low) * high.packets_per_s * 1e-6,
    );
    Some(Fracture { before, batch: (batch, shares.0, shares.1), text })
}

/// The share of the packets that came in polls of `batch` packets.
fn share(batches: &Histogram, batch: u32) -> f64 {
    let all: f64 = batches.batches().iter().map(|(b, polls)| f64::from(*b) * *polls as f64).sum();
    let of = batches.batches().iter().find(|(b, _)| *b == batch);
    of.map_or(0.0, |(b, polls)| f64::from(*b) * *polls as f64 / all)
}

/// The peaks of a histogram as text: `0 or 4`, `0, 4 or 8`.
fn peaks(batches: &Histogram) -> String {
    let none = (batches.empty() > 0).then_some(0);
    let large = batches.batches().iter().map(|(batch, _)| *batch);
    let large = large.filter(|batch| share(batches, *batch) >= PEAK_LEAST);
    let names: Vec<String> = none.into_iter().chain(large).map(|b| b.to_string()).collect();
    match names.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) if rest.len() < 6 => format!("{} or {last}", rest.join(", ")),
        _ => format!("up to {}", batches.largest()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(millions: f64, batches: &str) -> Swept {
        let batches: Histogram = batches.parse().unwrap();
        // A doorbell of 4 B for 64 received packets, and one for each burst that is sent.
        let each = 4.0 * (1.0 / 64.0 + 1.0 / batches.mean_of_polls());
        Swept { packets_per_s: millions * 1e6, outbound_write: each * millions * 1e6, batches }
    }

    /// The example of VTune's cookbook: peaks of 0 and 4 at 10 Mpps, and at 13 Mpps another peak of
    /// 8.
    #[test]
    fn fracture_finds_and_names_new_peak() {
        let sweep = [point(4.0, "0:50,4:10"), point(10.0, "0:5,4:10"), point(13.0, "0:1,4:10,8:5")];
        let found = fracture(&sweep).unwrap();
        assert_eq!((found.before, found.batch), (1, (8, 0.0, 0.5)));
        for part in ["between 10.00 and 13.00 M", "0 or 4 packets, 4.00", "50%", "average is 5.33"]
        {
            assert!(found.text.contains(part), "{part}: {}", found.text);
        }
    }

    #[test]
    fn straight_curve_has_no_fracture() {
        let straight = [point(1.0, "4:1"), point(2.0, "4:1"), point(3.0, "0:1,4:100,8:1")];
        assert_eq!(fracture(&straight), None);
        assert_eq!(fracture(&straight[..1]), None);
        assert_eq!(fracture(&[]), None);
    }
}
