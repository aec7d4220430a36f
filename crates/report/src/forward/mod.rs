//! The forwarder's figures: rates of a flow, packet losses by stage, packets per call, and the
//! features that both sides negotiated.
//!
//! From the bottom up:
//!
//! - `run`: the records of one run;
//! - `rates`: bars with intervals;
//! - `batches`: histograms of calls;
//! - `tables`: cycles, the ledger and the receipt.

mod batches;
mod rates;
mod run;
mod tables;

use haul_model::Record;
use haul_model::experiment::name;

/// The heading of a figure that is drawn here.
pub(crate) struct Heading {
    pub title: &'static str,
    pub about: &'static str,
}

/// The heading of an experiment that is drawn here.
pub(crate) fn heading(experiment: &str) -> Option<Heading> {
    let (title, about) = match experiment {
        name::FORWARD_PVP => (
            "Packets through a switch, a guest and back",
            "A generator and a switch on one processor, a guest with a virtio card on another; the packets that come \
             back are counted. Each bar is the median of restarts of both sides, interleaved in one run; the line \
             through its end spans the quartiles. “Copying nothing” is the upper limit of every copy. The ratio is \
             paired by restart, with its 95% interval.",
        ),
        name::FORWARD_ENQUEUE => (
            "Packets from a switch to a guest",
            "The switch generates packets and copies each into the guest’s buffers; the guest drops them.",
        ),
        name::FORWARD_DEQUEUE => (
            "Packets from a guest to a switch",
            "The guest generates packets; the switch copies each out of the guest’s memory and drops it.",
        ),
        name::FORWARD_LOOPBACK => (
            "Packets round and round between a switch and a guest",
            "A fixed number of packets goes to the guest and comes back, again and again.",
        ),
        name::FORWARD_RETURN => (
            "Packets from a guest to a switch and back",
            "The guest generates numbered packets at a given rate and checks those that the switch returns. This \
             finds the loss-free load of any switch.",
        ),
        name::FORWARD_BURST => (
            "How many packets a call moves",
            "Calls of each port by the number of packets that they moved. With many empty receive calls, the forwarder \
             has time to spare. With full ones, it is the bottleneck. In between, the other side limits the rate.",
        ),
        _ => return None,
    };
    Some(Heading { title, about })
}

/// The figure of an experiment of the forwarder; `None` if there is nothing to draw.
pub(crate) fn html(experiment: &str, records: &[&Record]) -> Option<String> {
    heading(experiment)?;
    let newest = run::newest(records);
    let parts = [
        rates::html(&newest),
        tables::cycles(&newest),
        tables::ledger(&newest),
        batches::html(&newest),
        tables::receipt(&newest),
    ];
    let drawn = parts.concat();
    (!drawn.is_empty()).then(|| format!("<div class=\"forward\">{drawn}</div>"))
}

#[cfg(test)]
mod tests {
    use haul_model::experiment::key;
    use haul_model::{Comparison, Record};

    use super::*;

    fn record(metric: &str, copy: &str, samples: &[f64]) -> Record {
        let mut record = Record::new("run", name::FORWARD_PVP, "haul", metric, "packets/s")
            .with(key::SIZE_BYTES, 64)
            .with(key::COPY, copy)
            .with(key::GUEST, "<b>guest</b>");
        record.samples = samples.to_vec();
        record
    }

    #[test]
    fn flow_shows_rates_ledger_batches_and_receipt() {
        let mut rate = record("rate_peak", "haul", &[12e6, 12.4e6, 12.2e6]);
        let (ratio, ratio_low, ratio_high) = (1.2, 1.1, 1.3);
        let baseline = "testpmd".into();
        rate.comparison = Some(Comparison { baseline, ratio, ratio_low, ratio_high, floor: 0.01 });
        let made = record("made", "haul", &[1000.0, 1000.0]);
        let lost =
            |stage: &str, samples: &[f64]| record("lost", "haul", samples).with(key::STAGE, stage);
        let batches = |size: u64, count: f64| {
            record("batches", "haul", &[count])
                .with(key::PORT, "vhost")
                .with(key::QUEUE, 0)
                .with(key::DIRECTION, "rx")
                .with(key::SIZE, size)
        };
        let records = [
            rate,
            made,
            lost("generator", &[0.0, 0.0]),
            lost("vhost_full", &[30.0, 20.0]),
            lost("unaccounted", &[0.0, 0.0]),
            batches(0, 75.0),
            batches(32, 25.0),
            Record { metric: "rate".into(), samples: vec![8.36e6], ..batches(0, 0.0) },
        ];
        let html = html(name::FORWARD_PVP, &records.iter().collect::<Vec<_>>()).unwrap();
        for holds in [
            "12.2 Mpps, 1.20 times testpmd’s (1.10–1.30)",
            "<td>2,000</td>",
            "<td>50 (2.5%)</td>",
            "8.36 Mpps. 75% of all calls were empty (grey); 32.0 packets in each other call.",
            "&lt;b&gt;guest&lt;/b&gt;",
        ] {
            assert!(html.contains(holds), "{holds}: {html}");
        }
        assert!(!html.contains("class=\"worse\"") && !html.contains("<b>"));
    }

    #[test]
    fn records_without_content_are_not_drawn() {
        assert_eq!(html(name::FORWARD_PVP, &[]), None);
        assert_eq!(html("copy.size", &[&record("rate_peak", "haul", &[1.0])]), None);
        assert_eq!(html(name::FORWARD_BURST, &[&record("packets", "haul", &[1.0])]), None);
        let older = Record { run: "a".into(), ..record("rate_peak", "haul", &[1e6]) };
        let newer = Record { time: "2026".into(), ..record("rate_peak", "libc", &[2e6]) };
        let html = html(name::FORWARD_PVP, &[&older, &newer]).unwrap();
        assert!(html.contains("copy of libc") && !html.contains("copy of haul"));
        // The newest run of a size may be older than that of another size.
        let small = older.with(key::SIZE_BYTES, 60);
        let html = super::html(name::FORWARD_PVP, &[&small, &newer]).unwrap();
        assert!(html.contains("copy of haul"));
        // Sizes ascend, whatever the order of the files.
        let cycles = |it: Record| Record { metric: "cycles_ring".into(), ..it };
        let of_both = [newer.clone(), cycles(newer.clone()), small.clone(), cycles(small.clone())];
        let html_of_both = super::html(name::FORWARD_PVP, &of_both.iter().collect::<Vec<_>>());
        let html_of_both = html_of_both.unwrap();
        let place = |cell: &str| html_of_both.find(cell).unwrap();
        assert!(place("<td>60 B</td>") < place("<td>64 B</td>"));
        assert!(html.contains("60 B") && html.contains("64 B"));
    }
}
