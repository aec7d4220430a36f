//! `haul pcie list`: the links of this machine's network devices, and what is wrong with them.

use haul::sys::{PcieDevice, PcieLink, Sys};
use haul_model::Record;
use haul_model::pcie::{Bench, BenchNic, Link, Packets, Settings, Traffic};

use crate::arguments::pcie::List as Arguments;
use crate::command::{Command, record};
use crate::error::Error;
use crate::journal::{Journal, Outputs};
use crate::terminal;

/// Bytes of a frame's place on a line beside it: preamble, start and gap. Source: IEEE 802.3.
const LINE_BYTES: f64 = 20.0;
/// Frames from the shortest to the longest usual one.
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
                "no network device behind PCIe is seen here: /sys lists none (a container or a \
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
        ("mrrs_bytes", device.mrrs_bytes),
        ("numa_node", device.numa_node),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            record = record.with(name, number);
        }
    }
    let texts = [("driver", &device.driver), ("iommu", &device.iommu), ("near", &device.near)];
    for (name, text) in texts {
        if let Some(text) = text {
            record = record.with(name, text.as_str());
        }
    }
    record
}

fn text_of(device: &PcieDevice, width: usize) -> String {
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "not known".to_owned());
    let bytes = |bytes: Option<u32>| match bytes {
        Some(bytes) => format!("{bytes} B"),
        None => "not known (it takes root, and a device of PCI Express)".to_owned(),
    };
    let interfaces = match device.interfaces.is_empty() {
        true => "no interface".to_owned(),
        false => device.interfaces.join(", "),
    };
    let node = device.numa_node.map_or("not known".to_owned(), |node| node.to_string());
    let mut lines = vec![
        format!("{}  {interfaces}, driver {}", device.address, known(&device.driver)),
        format!(
            "  link: {} now, {} at most, {} in the slot",
            written(device.now),
            written(device.most),
            written(device.slot)
        ),
        format!("  MPS {}, MRRS {}", bytes(device.mps_bytes), bytes(device.mrrs_bytes)),
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

fn written(link: PcieLink) -> String {
    match (link.generation, link.lanes) {
        (Some(generation), Some(lanes)) => format!("gen{generation}x{lanes}"),
        (Some(generation), None) => format!("gen{generation}, width not known"),
        (None, Some(lanes)) => format!("x{lanes}, generation not known"),
        (None, None) => "not known".to_owned(),
    }
}

/// What is wrong, a sentence each.
fn findings(device: &PcieDevice) -> Vec<String> {
    let mut findings = Vec::new();
    let PcieDevice { now, most, slot, .. } = *device;
    let is_beyond = |now, most| matches!((now, most), (Some(now), Some(most)) if now > most);
    for (limit, whose) in [(most, "the card"), (slot, "the slot")] {
        if is_beyond(now.lanes, limit.lanes) || is_beyond(now.generation, limit.generation) {
            findings.push(format!(
                "/sys contradicts itself: {} now, and {} at most for {whose}. Rely on neither; \
                 lspci -vv as root reads the device itself.",
                written(now),
                written(limit)
            ));
        }
    }
    if let (Some(now), Some(most)) = (now.lanes, most.lanes)
        && now < most
    {
        findings.push(match slot.lanes {
            Some(slot) if slot < most => {
                format!("An x{most} card in an x{slot} slot: it uses {now} of its lanes.")
            }
            _ => format!(
                "An x{most} card that uses {now} of its lanes: seat it anew, or see how the \
                 firmware splits the slot."
            ),
        });
    }
    if let (Some(now), Some(most)) = (now.generation, most.generation)
        && now < most
    {
        findings.push(match slot.generation {
            Some(slot) if slot < most => {
                format!("A card of generation {most} in a slot of generation {slot}.")
            }
            _ => format!(
                "A card of generation {most} whose link runs at generation {now}: it may be \
                 saving power, or the firmware limits the slot."
            ),
        });
    }
    if let (Some(set), Some(most)) = (device.mps_bytes, device.mps_bytes_most)
        && set < 256
        && most > set
    {
        findings.push(format!(
            "MPS is {set} B though the card takes {most} B: the kernel's pci=pcie_bus_perf raises \
             it where the port allows."
        ));
    }
    findings.extend(line_rate(device));
    findings
}

/// Which frames the link cannot carry at the line's rate, where everything is known that it takes.
fn line_rate(device: &PcieDevice) -> Option<String> {
    let (generation, lanes) = (device.now.generation?, device.now.lanes?);
    let settings =
        Settings { mps: device.mps_bytes?, mrrs: device.mrrs_bytes?, ..Settings::default() };
    let link = Link::new(&format!("gen{generation}x{lanes}"), settings).ok()?;
    let line = f64::from(device.line_megabits_per_s?) * 1e6 / 8.0;
    let cannot = |frame: &u32| {
        let Ok(packets) = Packets::of_frames(u64::from(*frame)) else { return false };
        let bench = Bench::mended(&link);
        let most = bench.bandwidth_bytes_per_s(BenchNic::Dpdk, Traffic::Both, &packets);
        most < line / (f64::from(*frame) + LINE_BYTES) * packets.mean_bytes()
    };
    let largest = FRAMES.rev().find(cannot)?;
    Some(format!(
        "Frames of {largest} B, received and sent at the line's rate of {} Gb/s at once, cannot be \
         on {} (modelled: pcie-bench's DPDK NIC, an upper bound).",
        haul_model::units::three_digits(line * 8e-9),
        written(device.now)
    ))
}

#[cfg(test)]
mod tests {
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
    fn what_is_wrong_is_said_in_a_sentence() {
        let says = |device: &PcieDevice, part: &str| {
            let found = findings(device).join("\n");
            assert!(found.contains(part), "{part:?}: {found}");
        };
        says(&card((3, 4), (3, 8), (3, 4)), "An x8 card in an x4 slot");
        says(&card((3, 4), (3, 8), (3, 8)), "seat it anew");
        says(&card((3, 8), (4, 8), (3, 8)), "in a slot of generation 3");
        says(&card((1, 8), (4, 8), (4, 8)), "saving power");
        assert!(findings(&card((4, 8), (4, 8), (5, 16))).is_empty());
        says(&card((3, 16), (3, 8), (3, 16)), "gen3x16 now, and gen3x8 at most for the card");
        says(&card((4, 8), (4, 8), (3, 8)), "gen4x8 now, and gen3x8 at most for the slot");
        let mut slow = card((3, 4), (3, 4), (3, 4));
        assert!(findings(&slow).is_empty(), "nothing is said of a line that is not known");
        (slow.mps_bytes, slow.mrrs_bytes) = (Some(256), Some(512));
        slow.line_megabits_per_s = Some(40_000);
        says(&slow, "Frames of 1518 B");
        (slow.mps_bytes, slow.mps_bytes_most) = (Some(128), Some(512));
        says(&slow, "pcie_bus_perf");
    }

    #[test]
    fn gaps_are_said_to_be_gaps() {
        let text = text_of(&PcieDevice::default(), 100);
        assert_eq!(text.matches("not known").count(), 9, "{text}");
        let record = record_of(&PcieDevice::default());
        assert!(record.samples.is_empty() && !record.parameters.contains_key("mps_bytes"));
    }
}
