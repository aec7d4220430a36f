//! Which NIC, driver, mode and link a port is: what the program and `/sys` say, unless it is wished
//! otherwise. What is not known takes the nearest rule, and is said to.

use haul_machine::sys::PcieDevice;
use haul_model::pcie::{Link, Mode, NICS, Nic, PcieError, Settings, Thresholds, Version};

use super::probe::Port;

/// What a user knows better.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The NIC.
    pub nic: Option<&'static Nic>,
    /// The driver's release.
    pub driver: Option<Version>,
    /// The burst mode, by name.
    pub mode: Option<String>,
    /// Build and start options.
    pub options: Vec<String>,
    /// The link.
    pub link: Option<String>,
    /// Its maximum payload size.
    pub mps: Option<u32>,
    /// Its maximum read request size.
    pub mrrs: Option<u32>,
    /// The receive free threshold.
    pub rx_free: Option<u32>,
    /// The report-status threshold.
    pub tx_rs: Option<u32>,
}

/// What an estimate takes to be true of a port.
#[derive(Clone, Debug)]
pub struct Place {
    /// The NIC, its options taken.
    pub nic: Nic,
    /// The driver's release.
    pub version: Version,
    /// Its burst mode.
    pub mode: Mode,
    /// Its thresholds.
    pub thresholds: Thresholds,
    /// The link.
    pub link: Link,
}

/// The link of which nothing is known: the one of most cards of 25 and 40 Gb/s.
const LINK: &str = "gen3x8";

/// DPDK's names of drivers whose rules we have, with the name of the NIC.
const DRIVERS: [(&str, &str); 15] = [
    ("net_ixgbe", "ixgbe"),
    ("net_ixgbe_vf", "ixgbe"),
    ("net_i40e", "i40e"),
    ("net_i40e_vf", "iavf"),
    ("net_ice", "ice"),
    ("net_ice_dcf", "ice"),
    ("net_iavf", "iavf"),
    ("net_idpf", "idpf"),
    ("net_e1000_igb", "igb"),
    ("net_e1000_igb_vf", "igb"),
    ("net_e1000_em", "e1000e"),
    ("mlx5_pci", "mlx5"),
    ("mlx5_auxiliary", "mlx5"),
    ("net_ena", "ena"),
    ("net_bnxt", "bnxt"),
];

/// Beginnings of the names of drivers whose packets cross no link of their own.
const SOFTWARE: [&str; 16] = [
    "net_null",
    "net_ring",
    "net_tap",
    "net_tun",
    "net_pcap",
    "net_virtio",
    "net_vhost",
    "net_memif",
    "net_af_packet",
    "net_af_xdp",
    "net_kni",
    "net_bonding",
    "net_failsafe",
    "net_softnic",
    "net_vmxnet3",
    // The forwarder's own ports.
    "haul_",
];

/// The place of a port, with what a reader must know; no place where its packets cross no link.
///
/// # Errors
/// A wish that cannot be: a mode or an option that the NIC does not have, a link that is none.
pub fn of_port(
    port: &Port,
    version: &str,
    devices: &[PcieDevice],
    wishes: &Wishes,
) -> Result<(Option<Place>, Vec<String>), PcieError> {
    let mut notes = Vec::new();
    let device = device_of(port, devices);
    let wishes = &with_modelled(wishes, port, &mut notes);
    let Some(base) = nic_of(port, wishes, &mut notes) else { return Ok((None, notes)) };
    let mut nic = *base;
    for option in &wishes.options {
        nic = nic.with(option)?;
    }
    let version = version_of(version, wishes, &mut notes);
    let mode = match &wishes.mode {
        Some(mode) => nic.mode(mode)?,
        None => mode_of(&nic, &port.rx_mode, &mut notes),
    };
    let thresholds = Thresholds {
        rx_free: wishes.rx_free.unwrap_or(nic.thresholds.rx_free),
        tx_rs: wishes.tx_rs.unwrap_or(nic.thresholds.tx_rs),
    };
    let link = link_of(device, wishes, &mut notes)?;
    Ok((Some(Place { nic, version, mode, thresholds, link }), notes))
}

/// The device of a port: DPDK names a port of a PCI device by its address, ports that share one by
/// the address and more.
#[must_use]
pub fn device_of<'a>(port: &Port, devices: &'a [PcieDevice]) -> Option<&'a PcieDevice> {
    devices.iter().find(|device| {
        port.name.strip_prefix(device.address.as_str()).is_some_and(|rest| {
            rest.chars().next().is_none_or(|next| !next.is_ascii_alphanumeric())
        })
    })
}

/// The wishes, and where there are none what the port says that it is a model of. With another NIC
/// wished for, none of that holds.
fn with_modelled(wishes: &Wishes, port: &Port, notes: &mut Vec<String>) -> Wishes {
    let said = |name: &str| port.modelled.get(name).map(String::as_str);
    let Some(nic) = said("nic") else { return wishes.clone() };
    let Some(nic) = NICS.iter().find(|known| known.name == nic) else {
        notes.push(format!("the port is a model of {nic:?}, which haul does not know"));
        return wishes.clone();
    };
    if wishes.nic.is_some_and(|wished| wished.name != nic.name) {
        return wishes.clone();
    }
    let number = |name: &str| said(name).and_then(|text| text.parse().ok());
    let text = |name: &str| said(name).map(str::to_owned);
    let options = said("options").unwrap_or_default().split(',').filter(|name| !name.is_empty());
    Wishes {
        nic: Some(nic),
        driver: wishes.driver.or(said("driver").and_then(|text| text.parse().ok())),
        mode: wishes.mode.clone().or(text("mode")),
        options: match wishes.options.is_empty() {
            true => options.map(str::to_owned).collect(),
            false => wishes.options.clone(),
        },
        link: wishes.link.clone().or(text("link")),
        mps: wishes.mps.or(number("mps")),
        mrrs: wishes.mrrs.or(number("mrrs")),
        rx_free: wishes.rx_free.or(number("rx_free")),
        tx_rs: wishes.tx_rs.or(number("tx_rs")),
    }
}

fn nic_of(port: &Port, wishes: &Wishes, notes: &mut Vec<String>) -> Option<&'static Nic> {
    if let Some(nic) = wishes.nic {
        return Some(nic);
    }
    let named = |name: &str| NICS.iter().find(|nic| nic.name == name);
    let driver = port.driver.as_str();
    let known = DRIVERS.iter().find(|(name, _)| *name == driver);
    if let Some(nic) = known.and_then(|(_, nic)| named(nic)) {
        return Some(nic);
    }
    if SOFTWARE.iter().any(|name| driver.starts_with(name)) {
        notes.push(format!(
            "port {} is driven by {driver}: its packets cross no link of their own, so that there is \
             nothing to estimate; name a NIC with --nic to see what they would cost on one",
            port.name
        ));
        return None;
    }
    let nearest = if driver.starts_with("mlx") { "mlx5" } else { "ice" };
    notes.push(format!(
        "haul has no rules of the driver {driver:?}: these are those of {nearest}, which may be far \
         from it; name another NIC with --nic"
    ));
    named(nearest)
}

/// Of `DPDK 22.11.11`, also with words behind it.
fn version_of(text: &str, wishes: &Wishes, notes: &mut Vec<String>) -> Version {
    if let Some(version) = wishes.driver {
        return version;
    }
    let number = text.trim_start_matches("DPDK ").split(['-', ' ']).next().unwrap_or_default();
    match format!("dpdk-{number}").parse::<Version>() {
        Ok(version) => {
            let rules = version.nearest();
            if rules != version {
                notes.push(format!(
                    "the sources of {version} were not read: these are the rules of the nearest \
                     release, {rules}"
                ));
            }
            version
        }
        Err(_) => {
            notes.push(format!(
                "the program calls its version {text:?}: these are the rules of {}; name another \
                 release with --driver",
                Version::LAST
            ));
            Version::LAST
        }
    }
}

/// The mode by how the driver says that it receives.
fn mode_of(nic: &Nic, said: &str, notes: &mut Vec<String>) -> Mode {
    let words = [("Vector", Mode::Vector), ("Bulk", Mode::Bulk), ("Scalar", Mode::Scalar)];
    let is_in = |word: &str| said.to_ascii_lowercase().contains(&word.to_ascii_lowercase());
    let found = words.iter().find(|(word, _)| is_in(word)).map(|(_, mode)| *mode);
    let has = |mode: &Mode| nic.modes.iter().any(|(known, _, _)| known == mode);
    match found.filter(has) {
        Some(mode) => mode,
        None => {
            let usual = nic.usual_mode();
            notes.push(format!(
                "the driver does not say in which burst mode it is: {} is taken, its usual one; name \
                 another with --mode",
                usual.name()
            ));
            usual
        }
    }
}

fn link_of(
    device: Option<&PcieDevice>,
    wishes: &Wishes,
    notes: &mut Vec<String>,
) -> Result<Link, PcieError> {
    let now = device.map(|device| device.now).unwrap_or_default();
    let seen =
        now.generation.zip(now.lanes).map(|(generation, lanes)| format!("gen{generation}x{lanes}"));
    let usual = Settings::default();
    let text = match wishes.link.clone().or(seen) {
        Some(text) => text,
        None => {
            notes.push(format!(
                "what link the device has is not known here: {LINK} is taken; name it with --link"
            ));
            LINK.to_owned()
        }
    };
    let mps = wishes.mps.or(device.and_then(|device| device.mps_bytes));
    let mrrs = wishes.mrrs.or(device.and_then(|device| device.mrrs_bytes));
    if mps.is_none() || mrrs.is_none() {
        let unread = device.and_then(|device| device.unread);
        let why = unread.map_or(String::new(), |unread| format!(" ({})", unread.text()));
        notes.push(format!(
            "MPS and MRRS are not known here{why}: {} B and {} B are taken where they are not; name them \
             with --mps and --mrrs",
            usual.mps, usual.mrrs
        ));
    }
    let settings =
        Settings { mps: mps.unwrap_or(usual.mps), mrrs: mrrs.unwrap_or(usual.mrrs), ..usual };
    match Link::new(&text, settings) {
        // A generation that nobody models, seen and not wished for.
        Err(error) if wishes.link.is_none() => {
            notes.push(format!("{error}: {LINK} is taken; name another with --link"));
            Link::new(LINK, settings)
        }
        link => link,
    }
}

#[cfg(test)]
mod tests {
    use haul_machine::sys::PcieLink;

    use super::*;

    fn port(name: &str, driver: &str, mode: &str) -> Port {
        let modelled = std::collections::BTreeMap::new();
        Port { name: name.into(), driver: driver.into(), rx_mode: mode.into(), modelled }
    }

    fn card() -> PcieDevice {
        PcieDevice {
            address: "0000:5e:00.0".into(),
            now: PcieLink { generation: Some(4), lanes: Some(16) },
            mps_bytes: Some(512),
            mrrs_bytes: Some(1024),
            ..PcieDevice::default()
        }
    }

    #[test]
    fn a_card_is_taken_as_the_program_and_sys_say() {
        let port = port("0000:5e:00.0", "net_ice", "Vector AVX512");
        let (place, notes) =
            of_port(&port, "DPDK 22.11.11", &[card()], &Wishes::default()).unwrap();
        let place = place.unwrap();
        assert_eq!((place.nic.name, place.mode), ("ice", Mode::Vector));
        assert_eq!(place.version.to_string(), "dpdk-22.11");
        assert_eq!((place.link.lanes(), place.link.settings().mps), (16, 512));
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn wishes_are_taken_first() {
        let wishes = Wishes {
            nic: NICS.iter().find(|nic| nic.name == "ixgbe"),
            mode: Some("bulk".into()),
            link: Some("gen3x4".into()),
            rx_free: Some(64),
            ..Wishes::default()
        };
        let port = port("0000:5e:00.0", "net_ice", "Vector");
        let (place, _) = of_port(&port, "DPDK 22.11.11", &[card()], &wishes).unwrap();
        let place = place.unwrap();
        assert_eq!((place.nic.name, place.mode, place.link.lanes()), ("ixgbe", Mode::Bulk, 4));
        assert_eq!(place.thresholds.rx_free, 64);
        let wishes = Wishes { mode: Some("quick".into()), ..Wishes::default() };
        assert!(of_port(&port, "DPDK 22.11.11", &[card()], &wishes).is_err());
    }

    #[test]
    fn what_is_not_known_takes_the_nearest_rule_and_says_so() {
        let (place, notes) = of_port(
            &port("0000:99:00.0", "net_future", ""),
            "DPDK 30.03.0-rc1",
            &[card()],
            &Wishes::default(),
        )
        .unwrap();
        let place = place.unwrap();
        assert_eq!((place.nic.name, place.link.to_string().as_str()), ("ice", "gen3x8"));
        let all = notes.join("\n");
        for part in ["net_future", "dpdk-30.03", "--mode", "--link", "--mps"] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let (_, notes) =
            of_port(&port("x", "net_ice", "Bulk Alloc"), "unknown", &[], &Wishes::default())
                .unwrap();
        assert!(notes.iter().any(|note| note.contains("--driver")), "{notes:?}");
    }

    #[test]
    fn software_ports_cross_no_link_unless_a_nic_is_named() {
        let null = port("net_null0", "net_null", "");
        let (place, notes) = of_port(&null, "DPDK 22.11.11", &[], &Wishes::default()).unwrap();
        assert!(place.is_none() && notes[0].contains("no link"), "{notes:?}");
        let wishes = Wishes { nic: NICS.first(), ..Wishes::default() };
        assert!(of_port(&null, "DPDK 22.11.11", &[], &wishes).unwrap().0.is_some());
    }

    #[test]
    fn a_model_is_what_it_says_unless_it_is_wished_otherwise() {
        let said = [("nic", "igb"), ("link", "gen2x4"), ("mps", "128"), ("tx_rs", "8")]
            .into_iter()
            .chain([("driver", "dpdk-22.11"), ("options", "82576")]);
        let mut nic = port("nic0", "haul_nic", "");
        nic.modelled = said.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let (place, _) = of_port(&nic, "haul 0.1.0", &[], &Wishes::default()).unwrap();
        let place = place.unwrap();
        assert_eq!((place.nic.name, place.nic.tx_completion.together), ("igb", 1));
        assert_eq!((place.link.to_string().as_str(), place.thresholds.tx_rs), ("gen2x4", 8));
        assert_eq!(
            (place.version.to_string().as_str(), place.link.settings().mps),
            ("dpdk-22.11", 128)
        );
        let wishes = Wishes { nic: NICS.iter().find(|nic| nic.name == "ena"), ..Wishes::default() };
        let place = of_port(&nic, "haul 0.1.0", &[], &wishes).unwrap().0.unwrap();
        assert_eq!((place.nic.name, place.link.to_string().as_str()), ("ena", "gen3x8"));
        for (name, value) in [("options", "quick"), ("mode", "x"), ("link", "gen9x8")] {
            let mut nic = nic.clone();
            nic.modelled.insert(name.into(), value.into());
            assert!(of_port(&nic, "haul 0.1.0", &[], &Wishes::default()).is_err(), "{name}");
        }
        nic.modelled.insert("nic".into(), "none".into());
        let (place, notes) = of_port(&nic, "haul 0.1.0", &[], &Wishes::default()).unwrap();
        assert!(place.is_none() && notes[0].contains("does not know"), "{notes:?}");
    }

    #[test]
    fn a_port_that_shares_a_device_is_its() {
        let devices = [card()];
        for (name, is_its) in [
            ("0000:5e:00.0", true),
            ("0000:5e:00.0_representor_vf0", true),
            ("0000:5e:00.01", false),
            ("net_null0", false),
        ] {
            assert_eq!(device_of(&port(name, "", ""), &devices).is_some(), is_its, "{name}");
        }
    }
}
