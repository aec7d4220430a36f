//! Network devices behind PCIe: what their links do now and could do, and what is near them.
//!
//! Everything is from `/sys`, which may lie or leave out: what is no fact of any device is `None`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::Sys;
use super::topology::parse_list;

/// A network device behind PCIe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcieDevice {
    /// `0000:01:00.0`.
    pub address: String,
    /// Its interfaces: `eth0`. None where a program drives it, or nothing does.
    pub interfaces: Vec<String>,
    /// The kernel's driver: `ice`, `vfio-pci`.
    pub driver: Option<String>,
    /// What its link does.
    pub now: PcieLink,
    /// What the device could do.
    pub most: PcieLink,
    /// What the port above it could do: the slot.
    pub slot: PcieLink,
    /// Maximum payload size that is set, in bytes; reading it takes root.
    pub mps_bytes: Option<u32>,
    /// The largest that the device takes.
    pub mps_bytes_most: Option<u32>,
    /// Maximum read request size that is set, in bytes; reading it takes root.
    pub mrrs_bytes: Option<u32>,
    /// What stands between the device and memory: `off`, or the kernel's word: `DMA` (strict),
    /// `DMA-FQ` (lazy), `identity` (passed through).
    pub iommu: Option<String>,
    /// The NUMA node that it is attached to.
    pub numa_node: Option<u32>,
    /// The processors that are near, in the kernel's list format: `0-15,32-47`.
    pub near: Option<String>,
    /// The fastest that an interface says its line is, in Mb/s.
    pub line_megabits_per_s: Option<u32>,
}

/// A link's generation and width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieLink {
    /// 1 to 7.
    pub generation: Option<u32>,
    /// Lanes.
    pub lanes: Option<u32>,
}

impl Sys {
    /// Network devices behind PCIe, by address. Costs some twenty system calls a device; nothing is
    /// changed.
    #[must_use]
    pub fn pcie_devices(&self) -> Vec<PcieDevice> {
        let all = self.names(DEVICES).into_iter().filter(|address| is_address(address));
        // Class 02: network controllers, InfiniBand among them.
        let is_network = |address: &String| {
            self.text(&format!("{DEVICES}/{address}/class"))
                .is_some_and(|class| class.starts_with("0x02"))
        };
        all.filter(is_network).map(|address| self.pcie_device(&address)).collect()
    }

    fn pcie_device(&self, address: &str) -> PcieDevice {
        let folder = format!("{DEVICES}/{address}");
        let interfaces = self.interfaces(&folder);
        let speed = |(holder, name): &(String, String)| {
            let megabits = self.number(&format!("{holder}/net/{name}/speed"))?;
            // A line that is down says -1, which is no number, or 2^32 - 1.
            u32::try_from(megabits).ok().filter(|speed| (1..=LINE_MEGABITS_MAX).contains(speed))
        };
        let settings = self.settings(&format!("{folder}/config"));
        let slot = self.slot(&folder);
        PcieDevice {
            address: address.to_owned(),
            driver: self.link_name(&format!("{folder}/driver")),
            now: self.link(&folder, "current"),
            most: self.link(&folder, "max"),
            slot: slot.map_or(PcieLink::default(), |slot| self.link(&slot, "max")),
            mps_bytes: settings.and_then(|settings| settings.mps),
            mps_bytes_most: settings.and_then(|settings| settings.mps_most),
            mrrs_bytes: settings.and_then(|settings| settings.mrrs),
            iommu: self.iommu(&folder),
            numa_node: self
                .number(&format!("{folder}/numa_node"))
                .and_then(|node| u32::try_from(node).ok())
                .filter(|node| *node < NODES_MAX),
            near: self
                .text(&format!("{folder}/local_cpulist"))
                .filter(|list| parse_list(list).is_some()),
            line_megabits_per_s: interfaces.iter().filter_map(speed).max(),
            interfaces: interfaces.into_iter().map(|(_, name)| name).collect(),
        }
    }

    /// The device's interfaces, each with the folder whose `net` it is in: its own, or that of a
    /// virtio device below it.
    fn interfaces(&self, folder: &str) -> Vec<(String, String)> {
        let below = self.names(folder).into_iter().filter(|name| name.starts_with("virtio"));
        let below = below.map(|name| format!("{folder}/{name}"));
        let holders = std::iter::once(folder.to_owned()).chain(below);
        let of = |holder: String| {
            let names = self.names(&format!("{holder}/net"));
            let plain = names.into_iter().filter(|name| name.chars().all(|c| c.is_ascii_graphic()));
            plain.map(move |name| (holder.clone(), name)).collect::<Vec<_>>()
        };
        holders.flat_map(of).collect()
    }

    /// The folder of the port above a device.
    fn slot(&self, folder: &str) -> Option<String> {
        let real = fs::canonicalize(self.path(folder)).ok()?;
        let name = real.parent()?.file_name()?.to_str()?;
        is_address(name).then(|| format!("{DEVICES}/{name}"))
    }

    fn link(&self, folder: &str, which: &str) -> PcieLink {
        let speed = self.text(&format!("{folder}/{which}_link_speed"));
        let lanes = self.number(&format!("{folder}/{which}_link_width"));
        PcieLink {
            generation: speed.and_then(|text| generation(&text)),
            lanes: lanes
                .and_then(|lanes| u32::try_from(lanes).ok())
                .filter(|lanes| [1, 2, 4, 8, 12, 16, 32].contains(lanes)),
        }
    }

    fn iommu(&self, folder: &str) -> Option<String> {
        const GROUPS: &str = "sys/kernel/iommu_groups";
        if let Some(kind) = self.text(&format!("{folder}/iommu_group/type")) {
            let known = ["DMA", "DMA-FQ", "identity", "blocked", "unmanaged", "auto"];
            return known.contains(&kind.as_str()).then_some(kind);
        }
        let is_off = self.path(GROUPS).is_dir() && self.names(GROUPS).is_empty();
        is_off.then(|| "off".to_owned())
    }

    fn link_name(&self, link: &str) -> Option<String> {
        let target = fs::read_link(self.path(link)).ok()?;
        let name = target.file_name()?.to_str()?;
        name.chars().all(|c| c.is_ascii_graphic()).then(|| name.to_owned())
    }

    fn settings(&self, config: &str) -> Option<Settings> {
        Settings::read(&bytes_of(&self.path(config))?)
    }
}

/// Where the kernel lists its PCI devices.
const DEVICES: &str = "sys/bus/pci/devices";
/// More nodes than any machine has.
const NODES_MAX: u32 = 1024;
/// Faster than any line there is.
const LINE_MEGABITS_MAX: u32 = 10_000_000;
/// Configuration space without its extended part: the capabilities' list ends in it.
const CONFIG_BYTES: u64 = 256;

/// `0000:01:00.0`.
fn is_address(name: &str) -> bool {
    let is_part = |part: &str, least: usize| {
        part.len() >= least && part.len() <= 8 && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let mut parts = name.split([':', '.']);
    let mut next = |least| parts.next().is_some_and(|part| is_part(part, least));
    next(4) && next(2) && next(2) && next(1) && parts.next().is_none()
}

/// Of `8.0 GT/s PCIe`; older kernels write `8 GT/s`.
fn generation(text: &str) -> Option<u32> {
    let number: f64 = text.split(" GT/s").next()?.trim().parse().ok()?;
    let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let place = speeds.iter().position(|speed| *speed == number)?;
    (text.contains("GT/s")).then_some(place as u32 + 1)
}

fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(CONFIG_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// What a device's configuration space says of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Settings {
    mps: Option<u32>,
    mps_most: Option<u32>,
    mrrs: Option<u32>,
}

impl Settings {
    /// From the capability of PCI Express (PCIe 5.0 section 7.5.3); `None` where there is none, or
    /// where the bytes end before it: a user without rights gets 64.
    fn read(config: &[u8]) -> Option<Self> {
        const EXPRESS: u8 = 0x10;
        /// As many capabilities as fit; a list that goes in circles ends here.
        const CAPABILITIES_MAX: usize = 48;
        let has_list = config.get(6)? & 0x10 != 0;
        let mut at = usize::from(config.get(0x34)? & !3);
        for _ in 0..CAPABILITIES_MAX {
            if !has_list || at < 0x40 {
                return None;
            }
            if *config.get(at)? == EXPRESS {
                let capabilities = *config.get(at + 4)?;
                let control = u16::from_le_bytes([*config.get(at + 8)?, *config.get(at + 9)?]);
                return Some(Self {
                    mps: payload(u32::from(control >> 5)),
                    mps_most: payload(u32::from(capabilities)),
                    mrrs: payload(u32::from(control >> 12)),
                });
            }
            at = usize::from(config.get(at + 1)? & !3);
        }
        None
    }
}

/// 128 to 4096 B; codes above are reserved.
fn payload(code: u32) -> Option<u32> {
    let code = code & 7;
    (code <= 5).then(|| 128 << code)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::tests::root_with;
    use super::*;

    const CARD: &str = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    const PORT: &str = "sys/devices/pci0000:00/0000:00:01.0";

    /// A tree with a card below a port, as the kernel lays it out.
    fn tree(card: &[(&str, &str)], port: &[(&str, &str)]) -> (tempfile::TempDir, Sys) {
        let mut files = vec![(format!("{CARD}/class"), "0x020000\n")];
        files.push((format!("{PORT}/class"), "0x060400\n"));
        files.extend(card.iter().map(|(name, text)| (format!("{CARD}/{name}"), *text)));
        files.extend(port.iter().map(|(name, text)| (format!("{PORT}/{name}"), *text)));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let (folder, sys) = root_with(&files);
        let devices = folder.path().join(DEVICES);
        fs::create_dir_all(&devices).unwrap();
        for target in [CARD, PORT] {
            let name = target.rsplit('/').next().unwrap();
            symlink(Path::new("../../../..").join(target), devices.join(name)).unwrap();
        }
        (folder, sys)
    }

    #[test]
    fn a_card_is_read_with_its_slot() {
        let (folder, sys) = tree(
            &[
                ("current_link_speed", "8.0 GT/s PCIe\n"),
                ("current_link_width", "4\n"),
                ("max_link_speed", "16.0 GT/s PCIe\n"),
                ("max_link_width", "8\n"),
                ("numa_node", "1\n"),
                ("local_cpulist", "0-3,8\n"),
                ("net/eth0/speed", "25000\n"),
                ("iommu_group/type", "DMA-FQ\n"),
            ],
            &[("max_link_speed", "8 GT/s\n"), ("max_link_width", "4\n")],
        );
        let mut config = [0_u8; 256];
        (config[6], config[0x34]) = (0x10, 0x40);
        (config[0x40], config[0x41]) = (0x01, 0x50);
        (config[0x50], config[0x54]) = (0x10, 0x02);
        config[0x58..0x5a].copy_from_slice(&0x2030_u16.to_le_bytes());
        fs::write(folder.path().join(CARD).join("config"), config).unwrap();
        symlink("../../drivers/ice", folder.path().join(CARD).join("driver")).unwrap();
        let link =
            |generation, lanes| PcieLink { generation: Some(generation), lanes: Some(lanes) };
        let expected = PcieDevice {
            address: "0000:01:00.0".into(),
            interfaces: vec!["eth0".into()],
            driver: Some("ice".into()),
            now: link(3, 4),
            most: link(4, 8),
            slot: link(3, 4),
            mps_bytes: Some(256),
            mps_bytes_most: Some(512),
            mrrs_bytes: Some(512),
            iommu: Some("DMA-FQ".into()),
            numa_node: Some(1),
            near: Some("0-3,8".into()),
            line_megabits_per_s: Some(25_000),
        };
        assert_eq!(sys.pcie_devices(), [expected]);
    }

    #[test]
    fn lies_and_gaps_are_not_known() {
        let (_folder, sys) = tree(
            &[
                ("current_link_speed", "Unknown\n"),
                ("current_link_width", "0\n"),
                ("max_link_speed", "9.0 GT/s PCIe\n"),
                ("max_link_width", "255\n"),
                ("numa_node", "-1\n"),
                ("local_cpulist", "0-99999999999\n"),
                ("virtio0/net/eth0/speed", "-1\n"),
                ("iommu_group/type", "of another kernel\n"),
                ("config", "short"),
            ],
            &[("max_link_width", "1000\n")],
        );
        let expected = PcieDevice {
            address: "0000:01:00.0".into(),
            interfaces: vec!["eth0".into()],
            ..PcieDevice::default()
        };
        assert_eq!(sys.pcie_devices(), [expected]);
        assert!(Sys::at("/nonexistent").pcie_devices().is_empty());
    }

    #[test]
    fn a_list_of_capabilities_that_goes_in_circles_ends() {
        let mut config = [0_u8; 256];
        (config[6], config[0x34], config[0x41]) = (0x10, 0x40, 0x40);
        assert_eq!(Settings::read(&config), None);
        assert_eq!(Settings::read(&config[..64]), None);
        (config[0x40], config[0x49]) = (0x10, 0x70);
        let read = Settings::read(&config).unwrap();
        assert_eq!((read.mps, read.mrrs), (Some(128), None), "a reserved code is no size");
    }

    #[test]
    fn addresses_are_told_from_names() {
        for good in ["0000:01:00.0", "10000:e1:00.1"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "pci0000:00", "0000:01:00", "0000:01:00.0.1", "zzzz:01:00.0"] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
