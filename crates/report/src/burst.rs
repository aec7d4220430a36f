//! Bursts of a running program: the packets of each burst, their rate, and the bytes that they move
//! across the link, estimated and counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use haul_model::experiment::{key, name};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Kind, Record};

use crate::select::field;
use crate::text::{self, escape};

/// Dimensions of a drawing in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;
const RIGHT: f64 = 12.0;
/// The largest number of bars in a drawing; neighbouring sizes share a bar if there are more.
const BARS_MAX: usize = 48;
/// The largest number of sizes that are drawn as rows, so that a phone shows all of them. More
/// sizes become columns.
const ROWS_MAX: usize = 12;
/// The largest number of points in a line; more intervals are averaged in groups.
const POINTS_MAX: usize = 360;

/// A rate above that of every link, in packets a second.
const MOST: f64 = 1e15;

/// The directions with their names for the reader.
const DIRECTIONS: [(&str, &str); 2] = [("rx", "received"), ("tx", "to be sent")];

/// The four metrics, in the order of the estimate.
const METRICS: [&str; 4] = ["inbound_read", "inbound_write", "outbound_read", "outbound_write"];

pub(crate) const TITLE: &str = "Bursts of a running program";
pub(crate) const ABOUT: &str = "The packets of each burst, as haul’s probe counted them in the program; the packet \
    rate in each interval; and the bytes that they move across the link, as the rules of the NIC’s driver predict \
    them, beside a counter of this machine if it has one.";

/// Draws the newest run of these records; `None` if they belong to another experiment.
pub(crate) fn html(experiment: &str, records: &[&Record]) -> Option<String> {
    let last = records.last().filter(|_| experiment == name::PCIE_BURST)?;
    let newest = records.iter().filter(|record| record.run == last.run);
    let mut ports: BTreeMap<u64, Vec<&Record>> = BTreeMap::new();
    for record in newest {
        let port = record.count(key::PORT);
        ports.entry(port?).or_default().push(record);
    }
    Some(ports.iter().map(|(port, records)| of_port(*port, records)).collect())
}

fn of_port(port: u64, records: &[&Record]) -> String {
    let said = |name| records.iter().find_map(|record| field(record, name)).unwrap_or_default();
    let mut html = format!(
        "<div class=\"bursts\"><h3>Port {port}: {} ({})</h3>",
        escape(&said(key::DEVICE)),
        escape(&said(key::PORT_DRIVER))
    );
    for (direction, title) in DIRECTIONS {
        let batches = sum_of_batches(records, direction);
        html.push_str(&histogram(&format!("Packets of a burst, {title}"), &batches));
    }
    html.push_str(&lines("Packets a second", &series(records)));
    html.push_str(&traffic(records));
    if let Some(note) = records.iter().find_map(|record| field(record, key::NOTE)) {
        let _ = write!(html, "<p class=\"about\">Note: {}.</p>", escape(&note));
    }
    html + "</div>"
}

/// The bursts of all queues of a direction, by size.
fn sum_of_batches(records: &[&Record], direction: &str) -> BTreeMap<u32, f64> {
    let mut sum = BTreeMap::new();
    let of = |record: &&&Record| field(record, key::DIRECTION).as_deref() == Some(direction);
    for text in records.iter().filter(of).filter_map(|record| field(record, key::BATCHES)) {
        for pair in text.split(',') {
            let Some((size, bursts)) = pair.split_once(':') else { continue };
            let (Ok(size), Ok(bursts)) = (size.parse(), bursts.parse::<f64>()) else { continue };
            if bursts.is_finite() && bursts > 0.0 {
                *sum.entry(size).or_insert(0.0) += bursts;
            }
        }
    }
    sum
}

/// Draws a bar for each size as a share of all bursts; returns nothing if there was no burst.
fn histogram(title: &str, batches: &BTreeMap<u32, f64>) -> String {
    let all: f64 = batches.values().sum();
    if all <= 0.0 || !all.is_finite() {
        return String::new();
    }
    let sizes: Vec<(u32, f64)> = batches.iter().map(|(size, bursts)| (*size, *bursts)).collect();
    let together = sizes.len().div_ceil(BARS_MAX);
    let bars: Vec<(String, f64)> = sizes
        .chunks(together)
        .map(|chunk| {
            let (first, last) = (chunk[0].0, chunk[chunk.len() - 1].0);
            let label = if first == last { first.to_string() } else { format!("{first}–{last}") };
            (label, chunk.iter().map(|(_, bursts)| bursts).sum::<f64>() / all * 100.0)
        })
        .collect();
    if bars.len() <= ROWS_MAX {
        return rows(title, &bars);
    }
    let mut svg = open(title);
    grid(&mut svg, 100.0, |value| format!("{value}%"));
    let step = (WIDTH - LEFT - RIGHT) / bars.len() as f64;
    let wide = (step * 0.8).min(60.0);
    for (place, (label, share)) in bars.iter().enumerate() {
        let x = LEFT + (place as f64 + 0.5) * step;
        let height = (HEIGHT - TOP - BOTTOM) * share / 100.0;
        let _ = write!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{height:.1}\" style=\"fill:var(--s0)\">\
             <title>{label} packets: {}% of bursts</title></rect>",
            x - wide / 2.0,
            HEIGHT - BOTTOM - height,
            text::number(*share)
        );
        // Overlapping labels are left out; each bar carries its size as a tooltip.
        if place % bars.len().div_ceil(24) == 0 {
            let _ = write!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                HEIGHT - BOTTOM + 16.0
            );
        }
    }
    close(svg, title)
}

/// A line with a bar for each size.
fn rows(title: &str, bars: &[(String, f64)]) -> String {
    let line = |(label, share): &(String, f64)| {
        let percent = if *share < 0.1 { "< 0.1".to_owned() } else { three_digits(*share) };
        format!(
            "<li title=\"{label} packets: {}% of bursts\"><span>{label}</span>\
             <div><i style=\"width:{share:.2}%\"></i></div><span>{}%</span></li>",
            three_digits(*share),
            escape(&percent)
        )
    };
    let lines: String = bars.iter().map(line).collect();
    format!(
        "<p class=\"about\"><b>{}</b>, in percent of bursts</p><ol class=\"bars\">{lines}</ol>",
        escape(title)
    )
}

/// The packet rate of each direction, interval by interval, over all queues.
fn series(records: &[&Record]) -> Vec<(&'static str, Vec<f64>)> {
    let of_direction = |direction: &str| {
        let mut sum: Vec<f64> = Vec::new();
        let of = |record: &&&Record| {
            record.metric == "packets"
                && field(record, key::DIRECTION).as_deref() == Some(direction)
        };
        for record in records.iter().filter(of) {
            sum.resize(sum.len().max(record.samples.len()), 0.0);
            sum.iter_mut().zip(&record.samples).for_each(|(sum, sample)| *sum += sample);
        }
        let together = sum.len().div_ceil(POINTS_MAX).max(1);
        let mean = |chunk: &[f64]| chunk.iter().sum::<f64>() / chunk.len() as f64;
        sum.chunks(together).map(mean).collect()
    };
    DIRECTIONS.map(|(direction, title)| (title, of_direction(direction))).to_vec()
}

fn lines(title: &str, series: &[(&str, Vec<f64>)]) -> String {
    let most = series.iter().flat_map(|(_, points)| points).copied().fold(0.0, f64::max);
    let count = series.iter().map(|(_, points)| points.len()).max().unwrap_or(0);
    if count < 2 || !(0.0..MOST).contains(&most) || most == 0.0 {
        return String::new();
    }
    let top = nice(most);
    let mut svg = open(title);
    grid(&mut svg, top, |value| format!("{} M", text::number(value / 1e6)));
    for (colour, (name, points)) in series.iter().enumerate() {
        let at = |(place, value): (usize, &f64)| {
            let x = LEFT + (WIDTH - LEFT - RIGHT) * place as f64 / (count - 1) as f64;
            let y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (value / top).clamp(0.0, 1.0);
            format!("{x:.1},{y:.1}")
        };
        let points: Vec<String> = points.iter().enumerate().map(at).collect();
        let dash = if colour == 1 { ";stroke-dasharray:5 3" } else { "" };
        let _ = write!(
            svg,
            "<polyline points=\"{}\" style=\"fill:none;stroke:var(--s{colour});stroke-width:1.5{dash}\">\
             <title>{name}</title></polyline>",
            points.join(" ")
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{LEFT}\" y=\"{0:.1}\">first interval</text>\
         <text x=\"{1:.1}\" y=\"{0:.1}\" text-anchor=\"end\">last interval</text>",
        HEIGHT - BOTTOM + 18.0,
        WIDTH - RIGHT
    );
    let legend: String = series
        .iter()
        .enumerate()
        .map(|(colour, (name, _))| format!("<i style=\"background:var(--s{colour})\"></i>{name} "))
        .collect();
    close(svg, title) + &format!("<p class=\"about\">{legend}</p>")
}

/// The four metrics, estimated and counted, and the share of the link's capacity.
fn traffic(records: &[&Record]) -> String {
    // An estimate names its NIC; the counts of a modelled NIC do not.
    let is_estimate =
        |record: &Record| record.kind == Kind::Modelled && record.parameters.contains_key(key::NIC);
    let modelled =
        |metric: &str| records.iter().find(|record| is_estimate(record) && record.metric == metric);
    let Some(first) = modelled(METRICS[0]) else { return String::new() };
    let counted_of = |metric: &str| {
        records.iter().find(|record| !is_estimate(record) && record.metric == metric)
    };
    let rate = |record: Option<&&Record>| {
        let median = record.and_then(|record| record.median());
        median.map_or("–".to_owned(), |rate| BytesPerSecond(rate).to_string())
    };
    let mut html = String::from(
        "<p class=\"about\"><b>Across the link</b>, data a second, the median of all intervals</p>\
         <div class=\"scroll\"><table class=\"sim\"><thead><tr><th></th><th>estimated</th><th>counted</th><th>by</th>\
         </tr></thead><tbody>",
    );
    for metric in METRICS {
        let counted = counted_of(metric);
        let _ = write!(
            html,
            "<tr><td style=\"text-align:left\">{}</td><td>{}</td><td>{}</td><td style=\"white-space:normal\">{}</td></tr>",
            metric.replace('_', " "),
            rate(modelled(metric)),
            rate(counted),
            counted.map_or("no counter here".into(), |record| escape(&record.subject))
        );
    }
    html.push_str("</tbody></table></div>");
    let share = |way: &str| {
        let record = modelled(way)?;
        let usable = record.number(key::USABLE_BYTES_PER_S)?;
        let share = record.median()? / usable;
        (usable > 0.0 && share.is_finite()).then(|| text::percent(share))
    };
    if let (Some(to_host), Some(to_device)) = (share("to_host"), share("to_device")) {
        let said = |name| escape(&field(first, name).unwrap_or_default());
        let _ = write!(
            html,
            "<p>By the estimate (rules of {}, {}, {}), {} is used {to_host} to the host and {to_device} to the device.\
             </p>",
            said(key::NIC),
            said(key::DRIVER_RULES),
            said(key::MODE),
            said(key::LINK)
        );
    }
    html
}

/// The smallest of 1, 2 and 5 times a power of ten that is at least the value.
fn nice(value: f64) -> f64 {
    let unit = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|step| step * unit)
        .find(|top| *top >= value)
        .unwrap_or(value)
}

fn open(title: &str) -> String {
    format!(
        "<div class=\"wide\"><svg class=\"simchart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" font-size=\"11\">\
         <title>{}</title>",
        escape(title)
    )
}

fn close(svg: String, title: &str) -> String {
    format!("<p class=\"about\"><b>{}</b></p>{svg}</svg></div>", escape(title))
}

fn grid(svg: &mut String, top: f64, label: impl Fn(f64) -> String) {
    for step in 0..=4 {
        let value = top * f64::from(step) / 4.0;
        let y = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * f64::from(step) / 4.0;
        let _ = write!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" style=\"stroke:var(--rule)\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            label(value)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(direction: &str, queue: u64, batches: &str, samples: &[f64]) -> Record {
        let mut record =
            Record::new("r", name::PCIE_BURST, "dpdk-22.11.11", "packets", "packets/s")
                .with(key::PORT, 0)
                .with(key::DEVICE, "<b>card</b>")
                .with(key::QUEUE, queue)
                .with(key::DIRECTION, direction)
                .with(key::BATCHES, batches);
        record.samples = samples.to_vec();
        record
    }

    fn modelled(metric: &str, sample: f64) -> Record {
        let mut record = Record::new("r", name::PCIE_BURST, "haul", metric, "bytes/s")
            .with(key::PORT, 0)
            .with(key::NIC, "ice")
            .with(key::USABLE_BYTES_PER_S, 8e9);
        (record.kind, record.samples) = (Kind::Modelled, vec![sample]);
        record
    }

    #[test]
    fn queues_are_summed_and_shares_are_drawn() {
        let records = [
            queue("rx", 0, "0:1,32:1", &[10.0, 20.0]),
            queue("rx", 1, "32:2", &[1.0, 2.0]),
            modelled("inbound_read", 1e9),
            modelled("to_host", 4e9),
            modelled("to_device", 2e9),
        ];
        let records: Vec<&Record> = records.iter().collect();
        assert_eq!(sum_of_batches(&records, "rx"), BTreeMap::from([(0, 1.0), (32, 3.0)]));
        assert_eq!(series(&records)[0].1, [11.0, 22.0]);
        let html = html(name::PCIE_BURST, &records).unwrap();
        assert!(html.contains("32 packets: 75.0% of bursts"), "{html}");
        assert!(html.contains("no counter here") && html.contains("50% to the host"), "{html}");
        assert!(!html.contains("<b>card") && html.contains("&lt;b&gt;card"), "{html}");
        assert!(super::html(name::PCIE_ESTIMATE, &records).is_none());
    }

    #[test]
    fn counter_is_shown_beside_the_estimate() {
        let mut counted = modelled("inbound_read", 1.2e9);
        (counted.kind, counted.subject) = (Kind::Measured, "intel-iio".into());
        let records = [modelled("inbound_read", 1e9), counted];
        let html = html(name::PCIE_BURST, &records.iter().collect::<Vec<_>>()).unwrap();
        assert!(html.contains("1.20 GB/s") && html.contains("intel-iio"), "{html}");
        // The counts of a modelled NIC are not mistaken for the estimate.
        let mut counted = modelled("inbound_read", 1.3e9);
        counted.parameters.remove(key::NIC);
        counted.subject = "modelled-nic".into();
        let records = [counted, modelled("inbound_read", 1e9)];
        let html = super::html(name::PCIE_BURST, &records.iter().collect::<Vec<_>>()).unwrap();
        assert!(
            html.contains("<td>1.00 GB/s</td><td>1.30 GB/s</td>") && html.contains("modelled-nic"),
            "{html}"
        );
    }

    #[test]
    fn malformed_batches_draw_nothing_and_many_sizes_are_joined() {
        for batches in ["", "x", "1:x", "1:-5", ":", "1:1e999"] {
            let record = queue("rx", 0, batches, &[f64::MAX, f64::MAX]);
            let html = html(name::PCIE_BURST, &[&record]).unwrap();
            assert!(!html.contains("<rect") && !html.contains("NaN"), "{batches}: {html}");
        }
        let many: Vec<String> = (1..=500).map(|size| format!("{size}:1")).collect();
        let record = queue("rx", 0, &many.join(","), &[]);
        let html = html(name::PCIE_BURST, &[&record]).unwrap();
        assert!(html.matches("<rect").count() <= BARS_MAX);
    }

    #[test]
    fn axis_maximum_is_a_round_number() {
        for (value, top) in [(1.0, 1.0), (1.1, 2.0), (4e6, 5e6), (5.1e6, 1e7)] {
            assert!((nice(value) / top - 1.0).abs() < 1e-9, "{value}");
        }
    }
}
