//! Network devices behind PCIe: the present and the possible state of their links, and their NUMA
//! location.
//!
//! All values come from `/sys`, which may be wrong or incomplete; an impossible value becomes
//! `None`.

mod settings;

use std::fs;

use self::settings::{Settings, bytes_of};
use super::Sys;
use super::topology::parse_list;

pub use self::settings::PcieUnread;

/// A network device behind PCIe: a device of a network class, or another device with a network
/// interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PcieDevice {
    /// `0000:01:00.0`.
    pub address: String,
    /// Its interfaces: `eth0`. Empty if a program controls the device, or if it has no driver.
    pub interfaces: Vec<String>,
    /// The kernel's driver: `ice`, `vfio-pci`.
    pub driver: Option<String>,
    /// The physical function, if this is a virtual function. Link and settings are then those of
    /// the physical function, because a virtual function has no registers for them, and its
    /// registers read as zero.
    pub physical: Option<String>,
    /// The present state of the device's link.
    pub now: PcieLink,
    /// The best state of the link that the device supports.
    pub most: PcieLink,
    /// The best state of the link that the port above the device, the slot, supports.
    pub slot: PcieLink,
    /// The configured maximum payload size, in bytes.
    pub mps_bytes: Option<u32>,
    /// The largest payload size, in bytes, that the device supports.
    pub mps_bytes_most: Option<u32>,
    /// The largest payload size, in bytes, that the port above the device supports.
    pub mps_bytes_slot: Option<u32>,
    /// The configured maximum read request size, in bytes.
    pub mrrs_bytes: Option<u32>,
    /// The reason if MPS and MRRS are unknown.
    pub unread: Option<PcieUnread>,
    /// The IOMMU between the device and memory: `off`, or the kernel's term: `DMA` (strict),
    /// `DMA-FQ` (lazy), `identity` (passed through).
    pub iommu: Option<String>,
    /// The NUMA node to which the device is attached.
    pub numa_node: Option<u32>,
    /// The nearest processors, in the kernel's list format: `0-15,32-47`.
    pub near: Option<String>,
    /// The highest Ethernet line rate that an interface reports, in Mb/s.
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
    /// Network devices behind PCIe, by address. Costs some twenty system calls per device; changes
    /// nothing.
    #[must_use]
    pub fn pcie_devices(&self) -> Vec<PcieDevice> {
        let all = self.names(DEVICES).into_iter().filter(|address| is_address(address));
        // Class 02 means network controllers, including InfiniBand. Accelerators and data
        // processing units have other classes, but they have network interfaces.
        let networks = |address: &String| {
            self.class(address).is_some_and(|class| class.starts_with("0x02"))
                || !self.names(&format!("{DEVICES}/{address}/net")).is_empty()
        };
        all.filter(networks).map(|address| self.pcie_device(&address)).collect()
    }

    fn class(&self, address: &str) -> Option<String> {
        self.text(&format!("{DEVICES}/{address}/class"))
    }

    fn pcie_device(&self, address: &str) -> PcieDevice {
        let folder = format!("{DEVICES}/{address}");
        let interfaces = self.interfaces(&folder);
        let physical = self.link_name(&format!("{folder}/physfn")).filter(|name| is_address(name));
        // The device whose registers are read.
        let owner = match physical {
            Some(_) => format!("{folder}/physfn"),
            None => folder.clone(),
        };
        let slot = self.slot(&owner);
        let (now, most) = (self.link(&owner, "current"), self.link(&owner, "max"));
        let settings = self.settings(&format!("{owner}/config"));
        let settings = settings.and_then(|settings| settings.unless_virtual(now));
        let known = settings.unwrap_or_default();
        let is_reserved = known.mps.is_none() || known.mrrs.is_none();
        PcieDevice {
            address: address.to_owned(),
            driver: self.link_name(&format!("{folder}/driver")),
            physical,
            now,
            most,
            slot: slot.as_ref().map_or(PcieLink::default(), |slot| self.link(slot, "max")),
            mps_bytes: known.mps,
            mps_bytes_most: known.mps_most,
            mps_bytes_slot: slot.and_then(|slot| {
                self.settings(&format!("{slot}/config")).ok().and_then(|port| port.mps_most)
            }),
            mrrs_bytes: known.mrrs,
            unread: settings.err().or(is_reserved.then_some(PcieUnread::Reserved)),
            iommu: self.iommu(&folder),
            numa_node: self
                .number(&format!("{folder}/numa_node"))
                .and_then(|node| u32::try_from(node).ok())
                .filter(|node| *node < NODES_MAX),
            near: self
                .text(&format!("{folder}/local_cpulist"))
                .filter(|list| parse_list(list).is_some()),
            line_megabits_per_s: self.line(address, &interfaces),
            interfaces: interfaces.into_iter().map(|(_, name)| name).collect(),
        }
    }

    /// The highest Ethernet line rate that these interfaces report.
    fn line(&self, address: &str, interfaces: &[(String, String)]) -> Option<u32> {
        /// The class of InfiniBand, whose lines carry no Ethernet frames. Source: `pci_ids.h` of
        /// Linux, PCI_CLASS_NETWORK_INFINIBAND.
        const INFINIBAND: &str = "0x0207";
        /// ARPHRD_ETHER of `if_arp.h`.
        const ETHERNET: u64 = 1;
        if self.class(address).is_some_and(|class| class.starts_with(INFINIBAND)) {
            return None;
        }
        let speed = |(holder, name): &(String, String)| {
            let kind = self.number(&format!("{holder}/net/{name}/type"));
            let megabits = self.number(&format!("{holder}/net/{name}/speed"))?;
            // An interface that is down reports -1, which cannot be parsed here, or 2^32 - 1.
            let megabits = u32::try_from(megabits).ok()?;
            let is_line = (1..=LINE_MEGABITS_MAX).contains(&megabits);
            (is_line && kind.is_none_or(|kind| kind == ETHERNET)).then_some(megabits)
        };
        interfaces.iter().filter_map(speed).max()
    }

    /// The device's interfaces. Each has the folder that contains its `net` entry: the folder of
    /// the device, or of a virtio device below it.
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

    fn settings(&self, config: &str) -> Result<Settings, PcieUnread> {
        Settings::read(&bytes_of(&self.path(config)).ok_or(PcieUnread::NoFile)?)
    }
}

/// The kernel's list of PCI devices.
const DEVICES: &str = "sys/bus/pci/devices";
/// A limit above the number of NUMA nodes in any machine.
const NODES_MAX: u32 = 1024;
/// A limit above any Ethernet line rate.
const LINE_MEGABITS_MAX: u32 = 10_000_000;

/// `0000:01:00.0`.
fn is_address(name: &str) -> bool {
    let is_part = |part: &str, least: usize| {
        part.len() >= least && part.len() <= 8 && part.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let mut parts = name.split([':', '.']);
    let mut next = |least| parts.next().is_some_and(|part| is_part(part, least));
    next(4) && next(2) && next(2) && next(1) && parts.next().is_none()
}

/// Parses `8.0 GT/s PCIe`; older kernels write `8 GT/s`.
fn generation(text: &str) -> Option<u32> {
    let number: f64 = text.split(" GT/s").next()?.trim().parse().ok()?;
    let speeds = [2.5, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let place = speeds.iter().position(|speed| *speed == number)?;
    (text.contains("GT/s")).then_some(place as u32 + 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::sys::tests::root_with;

    const CARD: &str = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    const PORT: &str = "sys/devices/pci0000:00/0000:00:01.0";

    /// A tree with a card below a port, in the kernel's layout.
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
    fn card_is_read_with_its_slot() {
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
        config[0x54] = 0x01;
        fs::write(folder.path().join(PORT).join("config"), config).unwrap();
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
            mps_bytes_slot: Some(256),
            mrrs_bytes: Some(512),
            unread: None,
            physical: None,
            iommu: Some("DMA-FQ".into()),
            numa_node: Some(1),
            near: Some("0-3,8".into()),
            line_megabits_per_s: Some(25_000),
        };
        assert_eq!(sys.pcie_devices(), [expected]);
    }

    #[test]
    fn impossible_and_missing_values_are_unknown() {
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
            unread: Some(PcieUnread::NoFile),
            ..PcieDevice::default()
        };
        assert_eq!(sys.pcie_devices(), [expected]);
        assert!(Sys::at("/nonexistent").pcie_devices().is_empty());
    }

    /// The registers of a virtual function read as zero, which would mean 128 B.
    #[test]
    fn virtual_function_has_the_settings_of_its_physical_one() {
        const VIRTUAL: &str = "sys/devices/pci0000:00/0000:00:01.0/0000:01:02.0";
        let link = [("current_link_speed", "16.0 GT/s PCIe\n"), ("current_link_width", "8\n")];
        let (folder, sys) = tree(&link, &[]);
        let config = |control: u16| {
            let mut config = [0_u8; 256];
            (config[6], config[0x34], config[0x40], config[0x44]) = (0x10, 0x40, 0x10, 0x02);
            config[0x48..0x4a].copy_from_slice(&control.to_le_bytes());
            config
        };
        let at = |name: &str| folder.path().join(VIRTUAL).join(name);
        fs::write(folder.path().join(CARD).join("config"), config(0x5040)).unwrap();
        fs::create_dir_all(at("net/eth1")).unwrap();
        for (name, text) in [
            ("class", "0x020000\n"),
            ("current_link_speed", "Unknown\n"),
            ("current_link_width", "0\n"),
            ("net/eth1/speed", "100000\n"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        fs::write(at("config"), config(0)).unwrap();
        let of = |sys: &Sys| sys.pcie_devices().into_iter().find(|d| d.address == "0000:01:02.0");
        symlink(
            Path::new("../../../..").join(VIRTUAL),
            folder.path().join(DEVICES).join("0000:01:02.0"),
        )
        .unwrap();
        // In a guest, without a physical function.
        let alone = of(&sys).unwrap();
        assert_eq!((alone.mps_bytes, alone.mrrs_bytes), (None, None));
        assert_eq!((alone.unread, alone.physical), (Some(PcieUnread::Virtual), None));
        symlink("../0000:01:00.0", at("physfn")).unwrap();
        let with = of(&sys).unwrap();
        assert_eq!((with.mps_bytes, with.mrrs_bytes), (Some(512), Some(4096)));
        assert_eq!((with.now.generation, with.now.lanes), (Some(4), Some(8)));
        assert_eq!(with.physical.as_deref(), Some("0000:01:00.0"));
        assert_eq!(with.interfaces, ["eth1"]);
        // A card whose settings really are 128 B has a link.
        fs::write(folder.path().join(CARD).join("config"), config(0)).unwrap();
        let card = sys.pcie_devices().into_iter().find(|d| d.address == "0000:01:00.0").unwrap();
        assert_eq!((card.mps_bytes, card.mrrs_bytes, card.unread), (Some(128), Some(128), None));
    }

    #[test]
    fn every_device_with_interface_is_listed_and_only_ethernet_has_a_line_rate() {
        let of = |class: &str, kind: Option<&str>| {
            let mut files = vec![("class", class), ("net/eth0/speed", "200000\n")];
            files.extend(kind.map(|kind| ("net/eth0/type", kind)));
            let (_folder, sys) = tree(&files, &[]);
            sys.pcie_devices().first().map(|device| device.line_megabits_per_s)
        };
        assert_eq!(of("0x020000\n", None), Some(Some(200_000)));
        assert_eq!(of("0x120000\n", Some("1\n")), Some(Some(200_000)));
        assert_eq!(of("0x020700\n", None), Some(None));
        assert_eq!(of("0x020000\n", Some("32\n")), Some(None));
    }

    #[test]
    fn addresses_are_distinguished_from_names() {
        for good in ["0000:01:00.0", "10000:e1:00.1"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "pci0000:00", "0000:01:00", "0000:01:00.0.1", "zzzz:01:00.0"] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
