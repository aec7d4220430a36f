//! `haul pcie list`: the links of this machine's network devices, and what limits them.

use haul_machine::sys::{PcieDevice, PcieLink, Sys};
use haul_model::Record;
use haul_model::pcie::{Bench, BenchNic, Link, Packets, Settings, Traffic, packets_per_s};

use crate::arguments::pcie::List as Arguments;
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// Frames from the shortest to the longest common size.
const FRAMES: std::ops::RangeInclusive<u32> = 64..=1518;

pub(super) struct List {
    devices: Vec<PcieDevice>,
    json: bool,
}

impl List {
    pub(super) fn new(arguments: Arguments) -> Self {
        Self { devices: Sys::new().pcie_devices(), json: arguments.json }
    }
}

impl Command for List {
    fn outputs(&self) -> Outputs {
        Outputs { json: self.json, ..Outputs::default() }
    }

    fn run(&mut self, journal: &mut Journal) -> Result<(), Error> {
        record("pcie list", self.devices.iter().map(record_of), journal)
    }

    fn render(&self, _journal: &Journal) -> Result<(), Error> {
        if self.json {
            return Ok(());
        }
        if self.devices.is_empty() {
            return terminal::print(
                "no network device on PCIe is visible here: /sys lists none (a container or a \
                 virtual machine may hide them)",
            );
        }
        let width = terminal::width();
        for device in &self.devices {
            terminal::print(&text_of(device, width))?;
        }
        Ok(())
    }
}

fn record_of(device: &PcieDevice) -> Record {
    let mut record = Record::new("", "pcie.list", &device.address, "lanes", "count")
        .with("interfaces", device.interfaces.join(","))
        .with("findings", findings(device).join(" "));
    record.samples = device.now.lanes.map(f64::from).into_iter().collect();
    let numbers = [
        ("generation", device.now.generation),
        ("generation_most", device.most.generation),
        ("lanes_most", device.most.lanes),
        ("generation_slot", device.slot.generation),
        ("lanes_slot", device.slot.lanes),
        ("mps_bytes", device.mps_bytes),
        ("mps_bytes_slot", device.mps_bytes_slot),
        ("mrrs_bytes", device.mrrs_bytes),
        ("numa_node", device.numa_node),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            record = record.with(name, number);
        }
    }
    let texts = [
        ("driver", &device.driver),
        ("iommu", &device.iommu),
        ("near", &device.near),
        ("physical_function", &device.physical),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            record = record.with(name, text.as_str());
        }
    }
    match device.unread {
        Some(unread) => record.with("unread", unread.text()),
        None => record,
    }
}

fn text_of(device: &PcieDevice, width: usize) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
    let interfaces = match device.interfaces.is_empty() {
        true => "no interface".to_owned(),
        false => device.interfaces.join(", "),
    };
    let of_physical = device.physical.as_ref().map_or(String::new(), |physical| {
        format!(", virtual function of {physical}, which has this link and these settings")
    });
    let node = device.numa_node.map_or("not known".to_owned(), |node| node.to_string());
    let mut lines = vec![
        format!("{}  {interfaces}, driver {}{of_physical}", device.address, known(&device.driver)),
        format!(
            "  link: {} now, {} at most, {} in the slot",
            written(device.now),
            written(device.most),
            written(device.slot)
        ),
        format!("  {}", payloads(device)),
        format!(
            "  IOMMU {}, NUMA node {node}, near processors {}",
            known(&device.iommu),
            known(&device.near)
        ),
    ];
    for finding in findings(device) {
        let wrapped = terminal::wrap(&finding, width.saturating_sub(5), 0);
        lines.push(format!("  -> {}", wrapped.replace('\n', "\n     ")));
    }
    lines.join("\n")
}

/// MPS and MRRS, or the reason why they are unknown.
fn payloads(device: &PcieDevice) -> String {
    let why = device.unread.map_or(String::new(), |unread| format!(": {}", unread.text()));
    match (device.mps_bytes, device.mrrs_bytes) {
        (Some(mps), Some(mrrs)) => format!("MPS {mps} B, MRRS {mrrs} B"),
        (Some(mps), None) => format!("MPS {mps} B, MRRS not known{why}"),
        (None, Some(mrrs)) => format!("MPS not known{why}, MRRS {mrrs} B"),
        (None, None) => format!("MPS and MRRS not known{why}"),
    }
}

fn written(link: PcieLink) -> String {
    match (link.generation, link.lanes) {
        (Some(generation), Some(lanes)) => format!("gen{generation}x{lanes}"),
        (Some(generation), None) => format!("gen{generation}, width not known"),
        (None, Some(lanes)) => format!("x{lanes}, generation not known"),
        (None, None) => "not known".to_owned(),
    }
}

/// The findings, a sentence each. The findings of a virtual function are shown at its physical
/// function.
fn findings(device: &PcieDevice) -> Vec<String> {
    if device.physical.is_some() {
        return Vec::new();
    }
    let mut findings = contradictions(device);
    findings.extend(width(device));
    findings.extend(generation(device));
    findings.extend(payload(device));
    findings.extend(line_rate(device));
    findings
}

fn contradictions(device: &PcieDevice) -> Vec<String> {
    let PcieDevice { now, most, slot, .. } = *device;
    let is_beyond = |now, most| matches!((now, most), (Some(now), Some(most)) if now > most);
    let limits = [(most, "the card"), (slot, "the slot")].into_iter();
    let beyond = limits.filter(|(limit, _)| {
        is_beyond(now.lanes, limit.lanes) || is_beyond(now.generation, limit.generation)
    });
    let sentences = beyond.map(|(limit, whose)| {
        format!(
            "/sys contradicts itself: {} now, and {} at most for {whose}. Rely on neither; lspci -vv \
             as root reads the device itself.",
            written(now),
            written(limit)
        )
    });
    sentences.collect()
}

fn width(device: &PcieDevice) -> Option<String> {
    let (now, most) = (device.now.lanes?, device.most.lanes?);
    (now < most).then(|| match device.slot.lanes {
        Some(slot) if slot < most => {
            format!("An x{most} card in an x{slot} slot: it uses {now} of its lanes.")
        }
        _ => format!(
            "An x{most} card that uses {now} of its lanes: reseat it, or check how the firmware \
             splits the slot."
        ),
    })
}

fn generation(device: &PcieDevice) -> Option<String> {
    let (now, most) = (device.now.generation?, device.most.generation?);
    let slot = device.slot.generation.filter(|slot| *slot < most);
    let tunnel = match now {
        1 => ", or it is behind Thunderbolt or USB4, whose tunnels always report generation 1",
        _ => "",
    };
    let reasons = format!("it may be saving power, or the firmware limits the slot{tunnel}");
    match slot {
        _ if now >= most => None,
        Some(slot) if now < slot => Some(format!(
            "A card of generation {most} in a slot of generation {slot} whose link runs at generation \
             {now}: {reasons}."
        )),
        Some(slot) => Some(format!("A card of generation {most} in a slot of generation {slot}.")),
        None => Some(format!(
            "A card of generation {most} whose link runs at generation {now}: {reasons}."
        )),
    }
}

/// The MPS that card and port could both use, if it is larger than the present MPS.
fn payload(device: &PcieDevice) -> Option<String> {
    let (set, card) = (device.mps_bytes?, device.mps_bytes_most?);
    let both = device.mps_bytes_slot.map_or(card, |port| port.min(card));
    (set < 256 && both > set).then(|| {
        let port = match device.mps_bytes_slot {
            Some(port) => {
                format!("and the port above it {port} B: the kernel's pci=pcie_bus_perf raises it.")
            }
            None => {
                "alone: the kernel's pci=pcie_bus_perf raises it if the port allows.".to_owned()
            }
        };
        format!("MPS is {set} B although the card accepts {card} B {port}")
    })
}

/// The frames that the link cannot carry at the line's rate, if all values for this are known.
fn line_rate(device: &PcieDevice) -> Option<String> {
    let (generation, lanes) = (device.now.generation?, device.now.lanes?);
    // An idle link or a tunnel reports less than it carries.
    let most = [device.most.generation, device.slot.generation].into_iter().flatten().min();
    if most.is_some_and(|most| generation < most) {
        return None;
    }
    let settings =
        Settings { mps: device.mps_bytes?, mrrs: device.mrrs_bytes?, ..Settings::default() };
    let link = Link::new(&format!("gen{generation}x{lanes}"), settings).ok()?;
    let line = f64::from(device.line_megabits_per_s?) * 1e6;
    let cannot = |frame: &u32| {
        let Ok(packets) = Packets::of_frames(u64::from(*frame)) else { return false };
        let bench = Bench::mended(&link);
        let most = bench.bandwidth_bytes_per_s(BenchNic::Dpdk, Traffic::Both, &packets);
        most < packets_per_s(line, &packets) * packets.mean_bytes()
    };
    let largest = FRAMES.rev().find(cannot)?;
    Some(format!(
        "Frames of {largest} B, received and sent at the line's rate of {} Gb/s at once, exceed \
         {} (modelled: pcie-bench's DPDK NIC, an upper bound).",
        haul_model::units::three_digits(line * 1e-9),
        written(device.now)
    ))
}

#[cfg(test)]
mod tests {
    use haul_machine::sys::PcieUnread;

    use super::*;

    fn card(now: (u32, u32), most: (u32, u32), slot: (u32, u32)) -> PcieDevice {
        let link =
            |(generation, lanes)| PcieLink { generation: Some(generation), lanes: Some(lanes) };
        PcieDevice {
            address: "0000:01:00.0".into(),
            now: link(now),
            most: link(most),
            slot: link(slot),
            ..PcieDevice::default()
        }
    }

    #[test]
    fn findings_are_sentences() {
        let check = |device: &PcieDevice, part: &str| {
            let found = findings(device).join("\n");
            assert!(found.contains(part), "{part:?}: {found}");
        };
        check(&card((3, 4), (3, 8), (3, 4)), "An x8 card in an x4 slot");
        check(&card((3, 4), (3, 8), (3, 8)), "reseat it");
        check(&card((3, 8), (4, 8), (3, 8)), "in a slot of generation 3");
        check(&card((1, 8), (4, 8), (4, 8)), "saving power");
        check(&card((1, 8), (4, 8), (4, 8)), "Thunderbolt");
        check(
            &card((2, 8), (4, 8), (3, 8)),
            "slot of generation 3 whose link runs at generation 2",
        );
        assert!(findings(&card((4, 8), (4, 8), (5, 16))).is_empty());
        check(&card((3, 16), (3, 8), (3, 16)), "gen3x16 now, and gen3x8 at most for the card");
        check(&card((4, 8), (4, 8), (3, 8)), "gen4x8 now, and gen3x8 at most for the slot");
        let mut slow = card((3, 4), (3, 4), (3, 4));
        assert!(findings(&slow).is_empty(), "an unknown line has no finding");
        (slow.mps_bytes, slow.mrrs_bytes) = (Some(256), Some(512));
        slow.line_megabits_per_s = Some(40_000);
        check(&slow, "Frames of 1518 B");
        (slow.mps_bytes, slow.mps_bytes_most) = (Some(128), Some(512));
        check(&slow, "accepts 512 B alone");
        slow.mps_bytes_slot = Some(256);
        check(&slow, "the port above it 256 B: the kernel's pci=pcie_bus_perf");
        // There is no finding if the port does not accept more, if the link is idle, or for a
        // virtual function.
        slow.mps_bytes_slot = Some(128);
        assert!(!findings(&slow).join("").contains("pcie_bus_perf"), "{:?}", findings(&slow));
        slow.most.generation = Some(4);
        slow.slot.generation = Some(4);
        assert!(!findings(&slow).join("").contains("Frames of"), "{:?}", findings(&slow));
        slow.physical = Some("0000:01:00.0".into());
        assert!(findings(&slow).is_empty());
    }

    #[test]
    fn unknown_values_are_shown_as_unknown() {
        let text = text_of(&PcieDevice::default(), 100);
        assert_eq!(text.matches("not known").count(), 8, "{text}");
        let record = record_of(&PcieDevice::default());
        assert!(record.samples.is_empty() && !record.parameters.contains_key("mps_bytes"));
        let mut hidden = PcieDevice { unread: Some(PcieUnread::Hidden), ..PcieDevice::default() };
        assert!(
            text_of(&hidden, 100)
                .contains("not known: the kernel shows them only with CAP_SYS_ADMIN")
        );
        (hidden.mps_bytes, hidden.unread) = (Some(256), Some(PcieUnread::Reserved));
        assert!(text_of(&hidden, 100).contains("MPS 256 B, MRRS not known: its value is reserved"));
        assert!(record_of(&hidden).parameters["unread"].as_str().unwrap().contains("reserved"));
    }
}
