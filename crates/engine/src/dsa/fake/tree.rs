//! The fake as files: a folder with the device below `sys/bus/dsa/devices`, the queues below
//! `dev/dsa`, and the settings. `libhaul_engine_fake.so` shows these files to a program in place of
//! the machine's.
//!
//! The files below `dev/dsa` are folders: without the library, a program cannot open them as a
//! device and lose what it writes.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use super::settings::{SETTINGS_BYTES_MAX, Settings};
use crate::dsa::sysfs::FAKE_MARK;

/// The environment variable that names the folder to the library.
pub const VARIABLE: &str = "HAUL_ENGINE_FAKE";

/// The folder of the device.
const DEVICE: &str = "sys/bus/dsa/devices/dsa0";

/// The file with the settings.
const SETTINGS: &str = "settings";

/// The version of a fake that refuses batches, as Sapphire Rapids does, and of one that does not.
const VERSIONS: (&str, &str) = ("0x100", "0x200");

/// Writes the files of a fake into `folder`, which must be empty and this user's own.
///
/// ```
/// use haul_engine::dsa::fake::{Settings, tree};
/// use haul_engine::dsa::{State, Sysfs, chain};
///
/// let folder = tempfile::tempdir()?;
/// tree::write(folder.path(), &Settings::default())?;
/// let sysfs = Sysfs::at(folder.path());
/// assert!(sysfs.queues()[0].is_fake);
/// assert!(chain(&sysfs).iter().all(|step| step.state == State::Holds));
/// assert_eq!(tree::read(folder.path())?, Settings::default());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// A file cannot be written, or exists already.
pub fn write(folder: &Path, settings: &Settings) -> io::Result<()> {
    let create = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    let devices = folder.join("sys/bus/dsa/devices");
    create(&devices)?;
    let put = |path: PathBuf, text: &str| {
        let mut file = fs::File::create_new(path)?;
        io::Write::write_all(&mut file, text.as_bytes())
    };
    let attributes = |name: &str, attributes: &[(&str, String)]| {
        let folder = devices.join(name);
        create(&folder)?;
        let mut each = attributes.iter();
        each.try_for_each(|(name, text)| put(folder.join(name), &format!("{text}\n")))
    };
    let operations = settings.operations().text();
    let version = if settings.batches { VERSIONS.1 } else { VERSIONS.0 };
    attributes(
        "dsa0",
        &[
            (FAKE_MARK, "1".into()),
            ("state", "enabled".into()),
            ("pasid_enabled", u8::from(settings.sva).to_string()),
            ("numa_node", "0".into()),
            ("version", version.into()),
            ("op_cap", operations.clone()),
            ("max_work_queues", settings.queues.len().to_string()),
            ("max_engines", settings.engines.to_string()),
        ],
    )?;
    for (number, queue) in settings.queues.iter().enumerate() {
        let (queue_type, mode) = queue.names();
        let state = if queue.is_enabled { "enabled" } else { "disabled" };
        attributes(
            &format!("wq0.{number}"),
            &[
                ("state", state.into()),
                ("type", queue_type.into()),
                ("mode", mode.into()),
                ("size", queue.size.to_string()),
                ("driver_name", "user".into()),
                ("name", "haul".into()),
                ("block_on_fault", u8::from(queue.blocks_on_fault).to_string()),
                ("max_transfer_size", queue.transfer_bytes_max.to_string()),
                ("max_batch_size", queue.batch_max.to_string()),
                ("op_config", operations.clone()),
            ],
        )?;
        if queue.is_enabled {
            create(&folder.join(format!("dev/dsa/wq0.{number}")))?;
        }
    }
    put(folder.join(SETTINGS), &settings.to_string())
}

/// Reads the settings of a fake's folder.
///
/// # Errors
/// The file cannot be read, is too large, or has text that is not a setting.
pub fn read(folder: &Path) -> io::Result<Settings> {
    let mut text = String::new();
    let file = fs::File::open(folder.join(SETTINGS))?;
    let limited = io::Read::take(file, SETTINGS_BYTES_MAX as u64 + 1);
    io::Read::read_to_string(&mut io::BufReader::new(limited), &mut text)?;
    text.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Whether the folder still shows a queue. Its removal is the removal of the device.
#[must_use]
pub fn has_queue(folder: &Path, queue: usize) -> bool {
    folder.join(format!("dev/dsa/wq0.{queue}")).exists()
}

/// Shows that the device executes nothing any more, as the kernel's attribute `state` does after a
/// halt. Changes only a folder with the files of a fake.
///
/// # Errors
/// The file cannot be written, or is no fake's.
pub fn show_halt(folder: &Path) -> io::Result<()> {
    let device = folder.join(DEVICE);
    fs::metadata(device.join(FAKE_MARK))?;
    // A reader sees the old text or the new one.
    let new = device.join(format!("state.{}", std::process::id()));
    fs::write(&new, "halted\n")?;
    fs::rename(new, device.join("state"))
}

#[cfg(all(test, not(loom), not(miri)))]
mod tests {
    use super::*;
    use crate::dsa::fake::{Event, QueueSettings, When};
    use crate::dsa::{Link, Mode, Opcode, Options, QueueType, Sysfs, chain};

    #[test]
    fn files_show_what_the_settings_say() {
        let folder = tempfile::tempdir().unwrap();
        let queue = QueueSettings { size: 7, mode: Mode::Dedicated, ..QueueSettings::default() };
        let kernels = QueueSettings { queue_type: QueueType::Kernel, ..QueueSettings::default() };
        let off = QueueSettings { is_enabled: false, ..QueueSettings::default() };
        let settings = Settings { batches: false, ..Settings::default() }
            .queues([queue, kernels, off])
            .inject(When::At(2), Event::Full);
        write(folder.path(), &settings).unwrap();
        assert_eq!(read(folder.path()).unwrap(), settings);
        let queues = Sysfs::at(folder.path()).queues();
        let facts: Vec<_> = queues.iter().map(|one| (one.size, one.is_for_programs())).collect();
        assert_eq!(facts, [(7, true), (16, false), (16, false)]);
        assert!(!queues[0].has(Opcode::Batch) && queues[0].has(Opcode::CopyCrc));
        assert!(has_queue(folder.path(), 0) && !has_queue(folder.path(), 2));
        // A second fake does not overwrite the first.
        assert!(write(folder.path(), &Settings::default()).is_err());
    }

    #[test]
    fn missing_sva_breaks_the_chain() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &Settings { sva: false, ..Settings::default() }).unwrap();
        assert_eq!(chain(&Sysfs::at(folder.path())).pop().unwrap().link, Link::Sva);
    }

    #[test]
    fn halt_shows_in_the_state_of_a_fake_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert!(show_halt(folder.path()).is_err());
        write(folder.path(), &Settings::default()).unwrap();
        let sysfs = Sysfs::at(folder.path());
        assert!(!sysfs.is_disabled("dsa0"));
        show_halt(folder.path()).unwrap();
        assert!(sysfs.is_disabled("dsa0") && !sysfs.devices()[0].is_enabled);
        assert_eq!(sysfs.devices().len(), 1, "no other file is left");
    }

    /// Without the library, the files are no device: nothing that is written there is lost.
    #[test]
    fn queue_of_files_cannot_be_opened_as_a_device() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &Settings::default()).unwrap();
        let slots = crate::slots::Slots::new(1);
        let sysfs = Sysfs::at(folder.path());
        let error = crate::dsa::Dsa::open(&sysfs, None, Options::default(), slots).unwrap_err();
        assert!(error.to_string().contains("directory"), "{error}");
    }

    #[test]
    fn settings_of_others_are_read_with_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(SETTINGS), " ".repeat(SETTINGS_BYTES_MAX + 1)).unwrap();
        assert_eq!(read(folder.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        fs::write(folder.path().join(SETTINGS), "queue size=0").unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("from 1 to 4096"));
    }
}
