//! Where a curve of outbound writes over the rate breaks, and which batch broke it.

use super::workload::Histogram;

/// A smaller step is noise.
const STEP_LEAST: f64 = 0.05;
/// A batch that fewer of the packets came in is no peak.
const PEAK_LEAST: f64 = 0.05;

/// One rate of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Swept {
    /// Packets a second that were forwarded.
    pub packets_per_s: f64,
    /// What polls returned.
    pub batches: Histogram,
    /// Writes to the device a second, in bytes of data.
    pub outbound_write: f64,
}

/// A break: the curve bends between two rates.
#[derive(Clone, Debug, PartialEq)]
pub struct Fracture {
    /// The place of the last rate before it, in the sweep.
    pub before: usize,
    /// The batch whose share of the packets grew most, and its share before and after.
    pub batch: (u32, f64, f64),
    /// What it is, as a sentence.
    pub text: String,
}

/// The first step down of 5% at least in writes a packet between two neighbouring rates, which are
/// ascending; `None` where there is none. Later ones are of batches that grow further.
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

/// Which share of the packets came in polls of so many.
fn share(batches: &Histogram, batch: u32) -> f64 {
    let all: f64 = batches.batches().iter().map(|(b, polls)| f64::from(*b) * *polls as f64).sum();
    let of = batches.batches().iter().find(|(b, _)| *b == batch);
    of.map_or(0.0, |(b, polls)| f64::from(*b) * *polls as f64 / all)
}

/// `0 or 4`, `0, 4 or 8`: the batches that matter.
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

    /// The cookbook's: peaks of 0 and 4 at 10 Mpps; at 13 one of 8 appears.
    #[test]
    fn a_new_peak_is_found_and_named() {
        let sweep = [point(4.0, "0:50,4:10"), point(10.0, "0:5,4:10"), point(13.0, "0:1,4:10,8:5")];
        let found = fracture(&sweep).unwrap();
        assert_eq!((found.before, found.batch), (1, (8, 0.0, 0.5)));
        for part in ["between 10.00 and 13.00 M", "0 or 4 packets, 4.00", "50%", "average is 5.33"]
        {
            assert!(found.text.contains(part), "{part}: {}", found.text);
        }
    }

    #[test]
    fn a_straight_curve_has_none() {
        let straight = [point(1.0, "4:1"), point(2.0, "4:1"), point(3.0, "0:1,4:100,8:1")];
        assert_eq!(fracture(&straight), None);
        assert_eq!(fracture(&straight[..1]), None);
        assert_eq!(fracture(&[]), None);
    }
}
