//! The forwarder's figures: rates of a flow, where its packets were lost, how many a call moved,
//! and what both sides agreed on.
//!
//! From the bottom up:
//!
//! - `run`: the records of one run, by what was measured;
//! - `rates`: bars with intervals;
//! - `batches`: histograms of calls;
//! - `tables`: the ledger and the receipt.

mod batches;
mod rates;
mod run;
mod tables;

use haul_model::Record;
use haul_model::experiment::name;

/// What stands above a figure that is drawn here.
pub(crate) struct Heading {
    pub title: &'static str,
    pub about: &'static str,
}

/// The heading of an experiment that is drawn here.
pub(crate) fn heading(experiment: &str) -> Option<Heading> {
    let (title, about) = match experiment {
        name::FORWARD_PVP => (
            "Packets through a switch, a guest and back",
            "A generator and a switch on one processor, a guest with a virtio card on another; what comes back is \
             counted. Each bar is the median of restarts of both sides, interleaved in one run; the line through its \
             end spans the quartiles. “Copying nothing” is the ceiling: no copy can forward more. The ratio is paired \
             by restart, with its 95% interval.",
        ),
        name::FORWARD_ENQUEUE => (
            "Packets from a switch to a guest",
            "The switch makes packets and copies each into the guest’s buffers; the guest drops them.",
        ),
        name::FORWARD_DEQUEUE => (
            "Packets from a guest to a switch",
            "The guest makes packets; the switch copies each out of the guest’s memory and drops it.",
        ),
        name::FORWARD_LOOPBACK => (
            "Packets round and round between a switch and a guest",
            "A fixed number of packets goes to the guest and comes back, again and again.",
        ),
        name::FORWARD_BURST => (
            "How many packets a call moves",
            "Calls of each port by the number of packets that they moved. Many empty receive calls: there is time to \
             spare. Full ones: the forwarder is the bottleneck. In between, the other side sets the pace.",
        ),
        _ => return None,
    };
    Some(Heading { title, about })
}

/// The figure of an experiment of the forwarder; `None` where there is nothing to draw.
pub(crate) fn html(experiment: &str, records: &[&Record]) -> Option<String> {
    heading(experiment)?;
    let newest = run::newest(records);
    let parts = [
        rates::html(&newest),
        tables::ledger(&newest),
        batches::html(&newest),
        tables::receipt(&newest),
    ];
    let drawn = parts.concat();
    (!drawn.is_empty()).then(|| format!("<div class=\"forward\">{drawn}</div>"))
}
