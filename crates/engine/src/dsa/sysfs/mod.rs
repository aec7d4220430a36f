//! The devices and queues that the kernel's idxd driver shows below `/sys/bus/dsa/devices`.
//!
//! The files are read once, with a limit, and never written. An absent or malformed value reads as
//! "not known", because the attributes differ between kernels.

mod operations;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::descriptor::Opcode;

pub use self::operations::Operations;

/// How many bytes of an attribute are read at most: one page, as sysfs writes at most.
const ATTRIBUTE_BYTES_MAX: u64 = 4096;

/// The folder of devices, below the root.
const DEVICES: &str = "sys/bus/dsa/devices";

/// The folder of queues' device files, below the root.
const NODES: &str = "dev/dsa";

/// The attribute of a device that only haul's fake has.
pub(crate) const FAKE_MARK: &str = "haul_fake";

/// The transfer limit of a queue that does not report one, in bytes: the smallest that
/// `accel-config` uses.
const TRANSFER_BYTES_DEFAULT: u64 = 2 << 20;

/// A machine's files, below a root that tests replace.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

/// A DSA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The name: `dsa0`.
    pub name: String,
    /// Whether the device is enabled.
    pub is_enabled: bool,
    /// Whether shared virtual addressing (PASIDs) is enabled; `None` if the kernel does not say.
    pub has_sva: Option<bool>,
    /// The NUMA node, if it has one.
    pub numa_node: Option<u32>,
    /// The version: 0x100 on Sapphire Rapids.
    pub version: Option<u64>,
    /// The operations that the kernel lets a program submit.
    pub operations: Option<Operations>,
    /// Whether haul's fake made it.
    pub is_fake: bool,
}

/// Whether a queue belongs to one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One program at a time; its portal takes MOVDIR64B, and drops descriptors when it is full.
    Dedicated,
    /// Any number of programs; its portal takes ENQCMD, and answers "retry" when it is full.
    Shared,
}

/// For which part of the system a queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueType {
    /// Not configured.
    None,
    /// For the kernel.
    Kernel,
    /// For programs.
    User,
    /// A type that haul does not know.
    Other,
}

/// A work queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The name: `wq0.1`.
    pub name: String,
    /// The name of its device: `dsa0`.
    pub device: String,
    /// Whether it is enabled.
    pub is_enabled: bool,
    /// For which part of the system it is.
    pub queue_type: QueueType,
    /// Whether it belongs to one program; `None` if it is not configured.
    pub mode: Option<Mode>,
    /// The number of descriptors that fit.
    pub size: u32,
    /// The driver that it is for: `user`.
    pub driver: Option<String>,
    /// Whether its descriptors may block on page faults.
    pub blocks_on_fault: bool,
    /// The largest transfer, in bytes.
    pub transfer_bytes_max: u64,
    /// The largest batch, in descriptors.
    pub batch_max: u32,
    /// The operations: those of the device that this queue is configured for.
    pub operations: Option<Operations>,
    /// The device file.
    pub node: PathBuf,
    /// Whether haul's fake made it.
    pub is_fake: bool,
}

impl Sysfs {
    /// The running machine.
    #[must_use]
    pub fn new() -> Self {
        Self::at("/")
    }

    /// A machine with its files below `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The DSAs in the order of their numbers. Costs a dozen system calls for each.
    ///
    /// ```
    /// let machine = haul_engine::dsa::Sysfs::at("/nonexistent");
    /// assert!(machine.devices().is_empty() && machine.queues().is_empty());
    /// ```
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        let mut devices: Vec<(u32, Device)> = self
            .names(DEVICES)
            .into_iter()
            .filter_map(|name| Some((name.strip_prefix("dsa")?.parse().ok()?, self.device(name))))
            .collect();
        devices.sort_by_key(|(number, _)| *number);
        devices.into_iter().map(|(_, device)| device).collect()
    }

    /// The queues of all DSAs, in the order of their numbers. Costs some twenty system calls for
    /// each.
    #[must_use]
    pub fn queues(&self) -> Vec<Queue> {
        let devices = self.devices();
        let mut queues: Vec<((u32, u32), Queue)> = self
            .names(DEVICES)
            .into_iter()
            .filter_map(|name| {
                let (device, queue) = name.strip_prefix("wq")?.split_once('.')?;
                let numbers: (u32, u32) = (device.parse().ok()?, queue.parse().ok()?);
                // The queues of an IAA share the folder, and their numbers are distinct.
                let device = devices.iter().find(|one| one.name == format!("dsa{device}"))?;
                Some((numbers, self.queue(name, device)))
            })
            .collect();
        queues.sort_by_key(|(numbers, _)| *numbers);
        queues.into_iter().map(|(_, queue)| queue).collect()
    }

    /// The text of an attribute without its line end; `None` if it cannot be read or is empty.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        let file = File::open(self.root.join(path)).ok()?;
        file.take(ATTRIBUTE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Whether the kernel says that a device or a queue is not enabled: it is listed with another
    /// state, or not at all. A state that cannot be read says nothing. Costs few system calls.
    pub(crate) fn is_disabled(&self, name: &str) -> bool {
        let mut text = String::new();
        let file = File::open(self.root.join(DEVICES).join(name).join("state"));
        let read = file.and_then(|file| file.take(ATTRIBUTE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => !text.trim().is_empty() && text.trim() != "enabled",
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        }
    }

    /// The sorted names in a folder.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path));
        let mut names: Vec<String> = entries
            .map(|entries| {
                entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect()
            })
            .unwrap_or_default();
        names.sort();
        names
    }

    fn device(&self, name: String) -> Device {
        let attribute = |attribute: &str| self.text(&format!("{DEVICES}/{name}/{attribute}"));
        Device {
            is_enabled: attribute("state").as_deref() == Some("enabled"),
            has_sva: attribute("pasid_enabled").map(|text| text == "1"),
            numa_node: attribute("numa_node").and_then(|text| text.parse().ok()),
            version: attribute("version").and_then(|text| number(&text)),
            operations: attribute("op_cap").and_then(|text| Operations::parse(&text)),
            is_fake: attribute(FAKE_MARK).is_some(),
            name,
        }
    }

    fn queue(&self, name: String, device: &Device) -> Queue {
        let attribute = |attribute: &str| self.text(&format!("{DEVICES}/{name}/{attribute}"));
        let count = |name: &str| attribute(name).and_then(|text| number(&text));
        let own = attribute("op_config").and_then(|text| Operations::parse(&text));
        let operations = match (device.operations, own) {
            (Some(device), Some(own)) => Some(device.and(own)),
            (device, own) => device.or(own),
        };
        Queue {
            device: device.name.clone(),
            is_enabled: attribute("state").as_deref() == Some("enabled"),
            queue_type: match attribute("type").as_deref() {
                Some("user") => QueueType::User,
                Some("kernel" | "mdev") => QueueType::Kernel,
                Some("none") | None => QueueType::None,
                Some(_) => QueueType::Other,
            },
            mode: match attribute("mode").as_deref() {
                Some("dedicated") => Some(Mode::Dedicated),
                Some("shared") => Some(Mode::Shared),
                _ => None,
            },
            size: count("size").and_then(|size| size.try_into().ok()).unwrap_or(0),
            driver: attribute("driver_name").filter(|name| name != "(null)"),
            blocks_on_fault: attribute("block_on_fault").as_deref() == Some("1"),
            transfer_bytes_max: count("max_transfer_size")
                .filter(|bytes| *bytes > 0)
                .unwrap_or(TRANSFER_BYTES_DEFAULT),
            batch_max: count("max_batch_size").and_then(|max| max.try_into().ok()).unwrap_or(0),
            operations,
            node: self.root.join(NODES).join(&name),
            is_fake: device.is_fake,
            name,
        }
    }
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// Whether a program can submit to it, as far as its configuration says.
    #[must_use]
    pub fn is_for_programs(&self) -> bool {
        let is_users = self.driver.as_deref().is_none_or(|driver| driver == "user");
        self.is_enabled && self.queue_type == QueueType::User && self.mode.is_some() && is_users
    }

    /// Whether the queue executes an operation. A kernel without the attributes executes the
    /// operations that every DSA has, and no batch from a program.
    #[must_use]
    pub fn has(&self, opcode: Opcode) -> bool {
        match self.operations {
            Some(operations) => operations.has(opcode),
            None => opcode != Opcode::Batch,
        }
    }
}

/// A decimal number, or a hexadecimal one behind `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod folder;

#[cfg(test)]
pub(crate) mod tests {
    use super::folder::folder_with;
    use super::*;

    /// A root with these files.
    pub(crate) fn root_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
        let folder = folder_with(files);
        let sysfs = Sysfs::at(folder.path());
        (folder, sysfs)
    }

    pub(super) const SPR: &str =
        "00000000,00000000,00000000,00000000,00000000,00000000,00000001,003f03fd";

    #[test]
    fn queues_are_read_with_their_device() {
        let at = |name: &str| format!("{DEVICES}/{name}");
        let files = [
            ("dsa0/state", "enabled\n"),
            ("dsa0/pasid_enabled", "1\n"),
            ("dsa0/numa_node", "0\n"),
            ("dsa0/version", "0x100\n"),
            ("dsa0/op_cap", SPR),
            ("wq0.1/state", "enabled\n"),
            ("wq0.1/type", "user\n"),
            ("wq0.1/mode", "shared\n"),
            ("wq0.1/size", "16\n"),
            ("wq0.1/driver_name", "user\n"),
            ("wq0.1/block_on_fault", "1\n"),
            ("wq0.1/max_transfer_size", "2147483648\n"),
            ("wq0.1/max_batch_size", "32\n"),
            ("wq0.1/op_config", "00000001,0000000c"),
            ("wq0.10/state", "disabled\n"),
            ("wq0.2/type", "kernel\n"),
            ("iax1/state", "enabled\n"),
            ("wq1.0/state", "enabled\n"),
            ("engine0.0/group_id", "0\n"),
            ("dsax/state", "enabled\n"),
        ];
        let files: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (at(name), *text)).collect();
        let files: Vec<(&str, &str)> =
            files.iter().map(|(name, text)| (&name[..], *text)).collect();
        let (folder, sysfs) = root_with(&files);
        let devices = sysfs.devices();
        assert_eq!(devices.len(), 1);
        let device = &devices[0];
        assert_eq!((device.has_sva, device.numa_node), (Some(true), Some(0)));
        assert_eq!((device.version, device.is_fake), (Some(0x100), false));
        let queues = sysfs.queues();
        let names: Vec<&str> = queues.iter().map(|queue| &queue.name[..]).collect();
        assert_eq!(names, ["wq0.1", "wq0.2", "wq0.10"]);
        let queue = &queues[0];
        assert!(queue.is_for_programs() && queue.blocks_on_fault);
        assert_eq!((queue.mode, queue.size, queue.batch_max), (Some(Mode::Shared), 16, 32));
        assert_eq!(queue.transfer_bytes_max, 1 << 31);
        assert_eq!(queue.node, folder.path().join("dev/dsa/wq0.1"));
        // op_config has copy and fill, and operation 32, which op_cap has too.
        assert!(queue.has(Opcode::Copy) && !queue.has(Opcode::Fill) && queue.has(Opcode::Flush));
        assert!(!queues[1].is_for_programs() && !queues[2].is_for_programs());
    }

    #[test]
    fn state_that_cannot_be_read_is_not_disabled() {
        let (_folder, sysfs) = root_with(&[
            ("sys/bus/dsa/devices/wq0.0/state", "enabled\n"),
            ("sys/bus/dsa/devices/wq0.1/state", "disabled\n"),
            ("sys/bus/dsa/devices/wq0.2/state", ""),
            // A folder in place of the file: an error other than a missing file.
            ("sys/bus/dsa/devices/wq0.3/state/odd", ""),
        ]);
        let disabled: Vec<bool> =
            (0..5).map(|number| sysfs.is_disabled(&format!("wq0.{number}"))).collect();
        assert_eq!(disabled, [false, true, false, false, true]);
    }

    #[test]
    fn malformed_attributes_read_as_unknown() {
        let huge = "9".repeat(100_000);
        let (_folder, sysfs) = root_with(&[
            ("sys/bus/dsa/devices/dsa0/numa_node", "-1\n"),
            ("sys/bus/dsa/devices/dsa0/op_cap", &huge),
            ("sys/bus/dsa/devices/wq0.0/size", "-5"),
            ("sys/bus/dsa/devices/wq0.0/type", "new"),
            ("sys/bus/dsa/devices/wq0.0/mode", "odd"),
            ("sys/bus/dsa/devices/wq0.0/state", "enabled"),
            ("sys/bus/dsa/devices/wq0.0/max_batch_size", &huge),
        ]);
        let device = &sysfs.devices()[0];
        assert_eq!((device.has_sva, device.numa_node, device.operations), (None, None, None));
        let queue = &sysfs.queues()[0];
        assert_eq!((queue.size, queue.batch_max, queue.mode), (0, 0, None));
        assert_eq!(queue.queue_type, QueueType::Other);
        assert!(!queue.is_for_programs());
        assert!(queue.has(Opcode::Copy) && !queue.has(Opcode::Batch));
    }
}
