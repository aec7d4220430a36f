//! What lies between a program and a DSA, as a chain: the device, its driver, shared virtual
//! addressing, a queue, the permission, the operations, and the rule about forks.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::descriptor::Opcode;
use super::sysfs::{Device, Queue, QueueType, Sysfs};

/// The folder of PCI devices, below the root.
const PCI: &str = "sys/bus/pci/devices";

/// Intel's PCI vendor.
const INTEL: &str = "0x8086";

/// PCI devices that are DSAs: Sapphire and Emerald Rapids, Granite Rapids D, Diamond Rapids (Linux
/// `drivers/dma/idxd/registers.h`).
const DSA_IDS: [&str; 3] = ["0x0b25", "0x11fb", "0x1212"];

/// A link of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The processor has a DSA that this system sees.
    Present,
    /// The kernel's driver idxd has it.
    Driver,
    /// Shared virtual addressing is enabled.
    Sva,
    /// A queue for programs is enabled.
    Queue,
    /// This process may open the queue.
    Permission,
    /// The queue copies; whether it executes batches.
    Operations,
    /// What a forked child must do.
    Fork,
}

/// Whether a link holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It holds.
    Holds,
    /// It does not, so that no later link was checked.
    Broken,
    /// The system does not report it.
    Unknown,
}

/// The state of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The link.
    pub link: Link,
    /// Whether it holds.
    pub state: State,
    /// What was found.
    pub detail: String,
    /// The next command, if the link does not hold.
    pub remedy: Option<String>,
}

impl Link {
    /// The name for a list: `DSA: driver`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "DSA: device",
            Self::Driver => "DSA: driver",
            Self::Sva => "DSA: shared addresses",
            Self::Queue => "DSA: queue",
            Self::Permission => "DSA: permission",
            Self::Operations => "DSA: operations",
            Self::Fork => "DSA: fork",
        }
    }
}

/// The chain up to its first broken link, which has the next command. Opens and changes nothing;
/// costs some hundred system calls on a machine with a DSA.
///
/// ```
/// use haul_engine::dsa::{Link, Sysfs, chain};
///
/// let steps = chain(&Sysfs::at("/nonexistent"));
/// assert_eq!((steps.len(), steps[0].link), (1, Link::Present));
/// assert!(steps[0].remedy.is_some());
/// ```
#[must_use]
pub fn chain(sysfs: &Sysfs) -> Vec<Step> {
    let walk = [present, driver, sva, queue, permission, operations, fork];
    let mut steps = Vec::new();
    for link in walk {
        let step = link(sysfs);
        let is_broken = step.state == State::Broken;
        steps.push(step);
        if is_broken {
            break;
        }
    }
    steps
}

fn holds(link: Link, detail: String) -> Step {
    Step { link, state: State::Holds, detail, remedy: None }
}

fn broken(link: Link, detail: String, remedy: String) -> Step {
    Step { link, state: State::Broken, detail, remedy: Some(remedy) }
}

/// A DSA on the PCI bus: its address, and the driver that has it.
struct Function {
    address: String,
    driver: Option<String>,
}

fn functions(sysfs: &Sysfs) -> Vec<Function> {
    let is_dsa = |address: &String| {
        let attribute = |name: &str| sysfs.text(&format!("{PCI}/{address}/{name}"));
        attribute("vendor").as_deref() == Some(INTEL)
            && attribute("device").is_some_and(|id| DSA_IDS.contains(&&id[..]))
    };
    let driver = |address: &str| {
        let link = std::fs::read_link(sysfs.root().join(format!("{PCI}/{address}/driver"))).ok()?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    };
    let addresses = sysfs.names(PCI).into_iter().filter(is_dsa);
    addresses.map(|address| Function { driver: driver(&address), address }).collect()
}

fn present(sysfs: &Sysfs) -> Step {
    let (functions, devices) = (functions(sysfs), sysfs.devices());
    if devices.is_empty() && functions.is_empty() {
        return broken(
            Link::Present,
            "none".into(),
            "Xeon has DSAs since the 4th generation (Sapphire Rapids); in a guest, have the \
             hypervisor pass one through; without one, `haul engine fake -- CMD` gives CMD a fake"
                .into(),
        );
    }
    let names = match functions.is_empty() {
        true => devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>(),
        false => functions.into_iter().map(|function| function.address).collect(),
    };
    holds(Link::Present, names.join(" "))
}

fn driver(sysfs: &Sysfs) -> Step {
    let devices = sysfs.devices();
    if !devices.is_empty() {
        let names = devices.iter().map(|device| match device.is_fake {
            true => format!("{} (haul's fake)", device.name),
            false => format!("{} by idxd", device.name),
        });
        return holds(Link::Driver, names.collect::<Vec<_>>().join(", "));
    }
    let functions = functions(sysfs);
    let other = functions.iter().find_map(|function| {
        Some((function.address.clone(), function.driver.clone().filter(|name| name != "idxd")?))
    });
    match other {
        Some((address, driver)) => broken(
            Link::Driver,
            format!("{address} belongs to the driver {driver}, for a guest or for DPDK"),
            format!(
                "give it to the kernel: echo {address} | sudo tee \
                 /sys/bus/pci/drivers/{driver}/unbind; echo {address} | sudo tee \
                 /sys/bus/pci/drivers/idxd/bind"
            ),
        ),
        None => broken(
            Link::Driver,
            "no driver has the device".into(),
            "load the kernel's: sudo modprobe idxd (a kernel with CONFIG_INTEL_IDXD and \
             CONFIG_INTEL_IDXD_SVM)"
                .into(),
        ),
    }
}

fn sva(sysfs: &Sysfs) -> Step {
    let devices = sysfs.devices();
    let named = |devices: Vec<&Device>| {
        devices.iter().map(|device| &device.name[..]).collect::<Vec<_>>().join(" ")
    };
    let with: Vec<&Device> = devices.iter().filter(|one| one.has_sva == Some(true)).collect();
    if !with.is_empty() {
        return holds(Link::Sva, format!("enabled for {}", named(with)));
    }
    if devices.iter().all(|device| device.has_sva.is_none()) {
        return Step {
            link: Link::Sva,
            state: State::Unknown,
            detail: "the kernel does not report it".into(),
            remedy: Some("a queue for programs exists only with it; see the next line".into()),
        };
    }
    broken(
        Link::Sva,
        format!("not enabled for {}: the kernel refuses queues for programs", named(devices.iter().collect())),
        "boot with intel_iommu=on,sm_on and enable VT-d in the firmware; in a guest, the hypervisor \
         must offer an IOMMU with scalable mode and PASIDs, which QEMU does not by default"
            .into(),
    )
}

fn queue(sysfs: &Sysfs) -> Step {
    let queues = sysfs.queues();
    let usable: Vec<String> =
        queues.iter().filter(|one| one.is_for_programs()).map(described).collect();
    if !usable.is_empty() {
        return holds(Link::Queue, usable.join(", "));
    }
    let device = sysfs.devices().first().map_or("dsa0".into(), |device| device.name.clone());
    let number = device.trim_start_matches("dsa").to_owned();
    let detail = match queues.iter().find(|queue| queue.is_enabled) {
        Some(queue) if queue.queue_type != QueueType::User => {
            format!("{} is enabled, but not for programs (its type is not user)", queue.name)
        }
        Some(queue) => format!("{} is enabled, but its driver is not user", queue.name),
        None => "none is enabled".into(),
    };
    broken(
        Link::Queue,
        detail,
        format!(
            "enable one: sudo accel-config config-engine {device}/engine{number}.0 --group-id=0 && \
             sudo accel-config config-wq {device}/wq{number}.0 --group-id=0 --mode=shared \
             --wq-size=16 --threshold=16 --type=user --driver-name=user --name=haul --priority=10 \
             && sudo accel-config enable-device {device} && sudo accel-config enable-wq \
             {device}/wq{number}.0"
        ),
    )
}

/// `wq0.0 (shared, 16 descriptors)`.
fn described(queue: &Queue) -> String {
    let mode = match queue.mode {
        Some(super::sysfs::Mode::Dedicated) => "dedicated",
        _ => "shared",
    };
    format!("{} ({mode}, {} descriptors)", queue.name, queue.size)
}

/// Whether this process may open a file for reading and writing. The call goes through libc, so
/// that a library that stands between can serve it.
pub(crate) fn may_open(node: &Path) -> bool {
    let Ok(path) = CString::new(node.as_os_str().as_bytes()) else { return false };
    // SAFETY: the path is a C string that lives until the call returns.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}

fn permission(sysfs: &Sysfs) -> Step {
    let queues = sysfs.queues();
    let usable = || queues.iter().filter(|queue| queue.is_for_programs());
    let open: Vec<&str> =
        usable().filter(|queue| may_open(&queue.node)).map(|queue| &queue.name[..]).collect();
    if !open.is_empty() {
        return holds(Link::Permission, format!("this user may open {}", open.join(" ")));
    }
    let node =
        usable().next().map_or("/dev/dsa/wq0.0".into(), |queue| queue.node.display().to_string());
    let (detail, remedy) = match Path::new(&node).exists() {
        true => (
            format!("this user may not open {node}"),
            format!("let a group open it: sudo chgrp GROUP {node} && sudo chmod 660 {node}"),
        ),
        false => (
            format!("{node} does not exist"),
            "in a container, pass it in: docker run --device /dev/dsa".to_owned(),
        ),
    };
    broken(Link::Permission, detail, remedy)
}

fn operations(sysfs: &Sysfs) -> Step {
    let queues = sysfs.queues();
    let usable: Vec<&Queue> =
        queues.iter().filter(|queue| queue.is_for_programs() && may_open(&queue.node)).collect();
    let Some(queue) = usable.iter().find(|queue| queue.has(Opcode::Copy)) else {
        return broken(
            Link::Operations,
            "no queue may copy (op_config)".into(),
            "configure a queue with copies: accel-config config-wq ... --op-config=3,4,5,16,17"
                .into(),
        );
    };
    let batches = match queue.has(Opcode::Batch) {
        true => "copies, also in batches",
        false => "copies; no batches, which the kernel refuses on this version of the device",
    };
    holds(Link::Operations, format!("{}: {batches}", queue.name))
}

fn fork(_: &Sysfs) -> Step {
    let detail = "a queue belongs to the process that opened it; haul opens it again in a child";
    holds(Link::Fork, detail.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dsa::sysfs::tests::root_with;

    const FILES: [(&str, &str); 10] = [
        ("sys/bus/pci/devices/0000:6a:01.0/vendor", "0x8086\n"),
        ("sys/bus/pci/devices/0000:6a:01.0/device", "0x0b25\n"),
        ("sys/bus/dsa/devices/dsa0/pasid_enabled", "1\n"),
        ("sys/bus/dsa/devices/dsa0/op_cap", "00000001,003f03fd\n"),
        ("sys/bus/dsa/devices/wq0.0/state", "enabled\n"),
        ("sys/bus/dsa/devices/wq0.0/type", "user\n"),
        ("sys/bus/dsa/devices/wq0.0/mode", "shared\n"),
        ("sys/bus/dsa/devices/wq0.0/size", "16\n"),
        ("sys/bus/dsa/devices/wq0.0/driver_name", "user\n"),
        ("dev/dsa/wq0.0", ""),
    ];

    /// The last link, after changes to a complete chain. `None` removes a file.
    fn last_with(changes: &[(&str, Option<&str>)]) -> Step {
        let mut files: Vec<(&str, &str)> = FILES.to_vec();
        for (path, text) in changes {
            files.retain(|(other, _)| !other.starts_with(path));
            files.extend(text.map(|text| (*path, text)));
        }
        let (_folder, sysfs) = root_with(&files);
        chain(&sysfs).pop().unwrap()
    }

    #[test]
    fn complete_chain_ends_with_the_rule_about_forks() {
        let (_folder, sysfs) = root_with(&FILES);
        let steps = chain(&sysfs);
        assert_eq!(steps.len(), 7);
        assert!(steps.iter().all(|step| step.state == State::Holds && step.remedy.is_none()));
        assert!(steps[3].detail.contains("wq0.0 (shared, 16 descriptors)"), "{steps:?}");
        // Batches are cleared in op_cap, as on Sapphire Rapids.
        assert!(steps[5].detail.contains("no batches"), "{steps:?}");
    }

    #[test]
    fn each_broken_link_names_the_next_command() {
        let dsa = "sys/bus/dsa/devices/";
        for (changes, link, remedy) in [
            (vec![("sys/bus", None)], Link::Present, "haul engine fake"),
            (vec![(dsa, None)], Link::Driver, "modprobe idxd"),
            (vec![("sys/bus/dsa/devices/dsa0/pasid_enabled", Some("0"))], Link::Sva, "sm_on"),
            (
                vec![("sys/bus/dsa/devices/wq0.0", None)],
                Link::Queue,
                "accel-config config-wq dsa0/wq0.0",
            ),
            (vec![("sys/bus/dsa/devices/wq0.0/type", Some("kernel"))], Link::Queue, "--type=user"),
            (
                vec![("sys/bus/dsa/devices/wq0.0/driver_name", Some("mdev"))],
                Link::Queue,
                "--driver-name=user",
            ),
            (vec![("dev/dsa/wq0.0", None)], Link::Permission, "--device /dev/dsa"),
            (vec![("sys/bus/dsa/devices/dsa0/op_cap", Some("0"))], Link::Operations, "--op-config"),
        ] {
            let step = last_with(&changes);
            assert_eq!((step.link, step.state), (link, State::Broken), "{changes:?}");
            assert!(step.remedy.clone().unwrap().contains(remedy), "{step:?}");
        }
    }

    /// A DSA that a guest or DPDK has: it is present, and has no queue for programs.
    #[test]
    fn device_of_another_driver_is_named() {
        let (folder, sysfs) = root_with(&FILES[..2]);
        let link = folder.path().join("sys/bus/pci/devices/0000:6a:01.0/driver");
        std::os::unix::fs::symlink("../../../bus/pci/drivers/vfio-pci", link).unwrap();
        let step = chain(&sysfs).pop().unwrap();
        assert_eq!(step.link, Link::Driver);
        assert!(step.detail.contains("vfio-pci"), "{step:?}");
        assert!(step.remedy.unwrap().contains("drivers/idxd/bind"));
    }

    #[test]
    fn unreported_sva_does_not_end_the_chain() {
        let mut files = FILES.to_vec();
        files.retain(|(path, _)| !path.ends_with("pasid_enabled"));
        let (_folder, sysfs) = root_with(&files);
        let steps = chain(&sysfs);
        assert_eq!((steps.len(), steps[2].state), (7, State::Unknown));
    }

    #[test]
    fn permission_is_that_of_this_user() {
        use std::os::unix::fs::PermissionsExt as _;
        if rustix::process::geteuid().is_root() {
            eprintln!(
                "SKIPPED: a queue that this user may not open: running as root: run as a user"
            );
            return;
        }
        let (folder, sysfs) = root_with(&FILES);
        let node = folder.path().join("dev/dsa/wq0.0");
        std::fs::set_permissions(&node, std::fs::Permissions::from_mode(0o000)).unwrap();
        let step = chain(&sysfs).pop().unwrap();
        assert_eq!(step.link, Link::Permission);
        assert!(step.remedy.unwrap().contains("chgrp"), "{node:?}");
    }
}
