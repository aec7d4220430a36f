//! An interval of a running program, for a terminal.

use haul_experiments::pcie::probe::Bursts;
use haul_experiments::pcie::source::Quantity;
use haul_experiments::pcie::watch::{Interval, PortInterval};
use haul_model::pcie::{Direction, Sums, Way};
use haul_model::units::three_digits;
use haul_model::{BytesPerSecond, Nanos};

use crate::terminal::{self, Table};

/// Sizes of a histogram that are shown; the other sizes are summed.
const SIZES_SHOWN: usize = 8;
/// Length of a full bar.
const BAR: usize = 30;

/// The interval as text, with lines of at most `width` columns, and at most `height` lines.
pub(super) fn text(interval: &Interval, head: &str, (width, height): (usize, usize)) -> String {
    let mut parts = vec![head.to_owned()];
    if interval.ports.is_empty() {
        parts.push("the program has no port".to_owned());
    }
    parts.extend(interval.ports.iter().map(|port| of_port(port, interval.seconds, width)));
    let lines = parts.join("\n");
    let cut = |line: &str| line.chars().take(width).collect::<String>();
    let mut lines: Vec<String> = lines.lines().map(cut).collect();
    if lines.len() > height && height > 0 {
        let left = lines.len() - (height - 1);
        lines.truncate(height - 1);
        lines.push(format!("{left} more lines: make the terminal higher, or record with --out"));
    }
    lines.join("\n")
}

fn of_port(port: &PortInterval, seconds: f64, width: usize) -> String {
    let mut parts =
        vec![format!("\nport {}: {} ({})", port.number, port.port.name, port.port.driver)];
    parts.push(rates(port, seconds));
    for (receives, title) in [(true, "received"), (false, "to send")] {
        parts.extend(histogram(&port.sum(receives), title));
    }
    parts.extend(traffic(port, width));
    parts.extend(stalls(port));
    parts.extend(port.notes.iter().map(|note| terminal::wrap(&format!("note: {note}"), width, 2)));
    parts.join("\n")
}

fn rates(port: &PortInterval, seconds: f64) -> String {
    let mut table = Table::new(&[
        "",
        ">packets/s",
        ">polls/s",
        ">empty",
        ">mean batch",
        ">packet B",
        ">between polls",
    ]);
    for (receives, name) in [(true, "rx"), (false, "tx")] {
        let bursts = port.sum(receives);
        let (polls, empty) = (bursts.polls() as f64, bursts.empty() as f64);
        let full = polls - empty;
        let some = |value: Option<f64>, unit: &str| {
            value.map_or("-".to_owned(), |value| format!("{}{unit}", three_digits(value)))
        };
        table.add(vec![
            name.to_owned(),
            super::count(bursts.packets() as f64 / seconds),
            super::count(polls / seconds),
            some((polls > 0.0).then(|| empty / polls * 100.0), "%"),
            some((full > 0.0).then(|| bursts.packets() as f64 / full), ""),
            some(bursts.mean_bytes(), ""),
            bursts.gap_ns().map_or("-".to_owned(), |gap| Nanos(gap).to_string()),
        ]);
    }
    let lost: f64 =
        ["imissed", "rx_nombuf"].iter().filter_map(|name| port.rate("ethdev", name)).sum();
    match lost > 0.0 {
        true => {
            format!("{}\n  lost before they were received: {}/s", table.text(), super::count(lost))
        }
        false => table.text(),
    }
}

/// A bar for each of the most frequent sizes.
fn histogram(bursts: &Bursts, title: &str) -> Option<String> {
    let polls = bursts.polls();
    if polls == 0 {
        return None;
    }
    let mut sizes: Vec<(String, u64)> =
        bursts.batches.iter().map(|(size, count)| (size.to_string(), *count)).collect();
    sizes.retain(|(_, count)| *count > 0);
    if bursts.larger.0 > 0 {
        sizes.push(("above 512".to_owned(), bursts.larger.0));
    }
    let mut shown: Vec<usize> = (0..sizes.len()).collect();
    shown.sort_by_key(|place| std::cmp::Reverse(sizes[*place].1));
    let others: u64 = shown.iter().skip(SIZES_SHOWN).map(|place| sizes[*place].1).sum();
    shown.truncate(SIZES_SHOWN);
    shown.sort_unstable();
    let mut rows: Vec<(String, u64)> = shown.iter().map(|place| sizes[*place].clone()).collect();
    if others > 0 {
        rows.push(("others".to_owned(), others));
    }
    let mut lines = vec![format!("  packets of a burst, {title}")];
    for (size, count) in rows {
        let share = count as f64 / polls as f64;
        let filled = (share * BAR as f64).round() as usize;
        let percent = share * 100.0;
        lines.push(format!(
            "  {size:>9}  {}{}  {:>5}%",
            "█".repeat(filled),
            " ".repeat(BAR - filled.min(BAR)),
            three_digits(percent)
        ));
    }
    Some(lines.join("\n"))
}

/// The four metrics, estimated and, if a counter exists, measured; and the link's use.
fn traffic(port: &PortInterval, width: usize) -> Option<String> {
    let profile = port.profile.as_ref()?;
    let sums = Sums::of(&port.terms);
    let measured = |direction: Direction| {
        port.rates.iter().find_map(|(source, rate)| {
            let is_it = rate.quantity == Quantity::of(direction);
            let rate = rate.per_s.ok().filter(|_| is_it)?;
            Some(format!("{} ({source})", BytesPerSecond(rate)))
        })
    };
    let is_measured = Direction::ALL.into_iter().any(|direction| measured(direction).is_some());
    let headings = ["", ">estimated", ">headers", ">measured"];
    let mut table = Table::new(if is_measured { &headings } else { &headings[..3] });
    for direction in Direction::ALL {
        let mut row = vec![
            direction.name().replace('_', " "),
            BytesPerSecond(sums.payload_bytes_per_s(direction)).to_string(),
            BytesPerSecond(sums.header_bytes_per_s(direction)).to_string(),
        ];
        if is_measured {
            row.push(measured(direction).unwrap_or("-".to_owned()));
        }
        table.add(row);
    }
    let usable = profile.link.usable_bytes_per_s();
    let share = |way| three_digits(sums.bytes_per_s_on(way) / usable * 100.0);
    let use_of_link = format!(
        "  {} ({}, {}): {} is used {}% to the host and {}% to the device, by the estimate",
        profile.nic.name,
        profile.version.nearest(),
        profile.mode.name(),
        profile.link,
        share(Way::ToHost),
        share(Way::ToDevice)
    );
    Some(format!("{}\n{}", table.text(), terminal::wrap(&use_of_link, width, 2)))
}

/// The counters of a driver about its link.
fn stalls(port: &PortInterval) -> Vec<String> {
    let of_link = port.rates.iter().filter(|(source, _)| *source == "mlx5");
    let known = of_link.filter_map(|(_, rate)| Some((rate, rate.per_s.ok()?)));
    let line = |(rate, value): (&haul_experiments::pcie::source::Rate, f64)| {
        format!("  {}: {} {}", rate.quantity.name(), three_digits(value), rate.quantity.rate_unit())
    };
    known.map(line).collect()
}
