//! QEMU with the image of a guest, and its command line.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use crate::forward::flow::Layout;

/// The guest's memory: the kernel, its initial file system, and the buffers of two rings.
const MEMORY_MIB: u32 = 128;

/// Descriptors per ring: as many as with the other guests, which is the largest number that QEMU
/// allows.
const RING: u32 = 1024;

/// The time between two attempts of QEMU to connect to a switch.
const RECONNECT_S: u32 = 1;

/// The names of an image's files.
const KERNEL: &str = "vmlinuz";
const INITRD: &str = "initrd";

/// The name of the program in Debian.
const FILE: &str = "qemu-system-x86_64";

/// The accelerator that runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accelerator {
    Kvm,
    Tcg,
}

/// An installed QEMU with an image of a guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    path: PathBuf,
    version: String,
    image: PathBuf,
    accelerator: Accelerator,
}

/// The settings of a session.
#[derive(Clone, Copy, Debug)]
pub(in crate::forward) struct Setting<'a> {
    /// The socket of the switch.
    pub(in crate::forward) socket: &'a Path,
    /// The folder of the guest's console.
    pub(in crate::forward) folder: &'a Path,
    pub(in crate::forward) layout: Layout,
    /// The guest's processor, and all processors of the run.
    pub(in crate::forward) cpu: usize,
    pub(in crate::forward) cpus: &'a [usize],
    /// The flag that stops the run.
    pub(in crate::forward) stop: &'a AtomicBool,
}

impl Accelerator {
    /// KVM, if this process may use it and the processor supports it. In a virtual machine, the
    /// device file may exist although the processor does not support KVM.
    fn of_this_machine() -> Self {
        let device = OpenOptions::new().read(true).write(true).open("/dev/kvm");
        let facts = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let can = facts.split_whitespace().any(|word| ["vmx", "svm"].contains(&word));
        if device.is_ok() && can { Self::Kvm } else { Self::Tcg }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }
}

impl Qemu {
    /// The remedy if QEMU or the image is missing.
    pub const REMEDY: &'static str = "apt-get install qemu-system-x86, and scripts/vhost-guest \
                                      --image makes the guest (--guest-image names its folder)";

    /// The default folder of an image.
    pub const IMAGE: &'static str = "target/forward-guest";

    /// The QEMU on `PATH`, or in `HAUL_QEMU`, with the image in this folder.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn find(image: Option<&Path>) -> Result<Self, String> {
        let path = std::env::var_os("HAUL_QEMU").map_or_else(|| FILE.into(), PathBuf::from);
        let output = Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| format!("cannot run {}: {error}", path.display()))?;
        let version = parse_version(&String::from_utf8_lossy(&output.stdout))
            .ok_or_else(|| format!("{} is not QEMU", path.display()))?;
        let image = image.unwrap_or(Path::new(Self::IMAGE)).to_owned();
        for file in [KERNEL, INITRD].map(|name| image.join(name)) {
            if !file.is_file() {
                return Err(format!("no {}", file.display()));
            }
        }
        Ok(Self { path, version, image, accelerator: Accelerator::of_this_machine() })
    }

    /// The path of the program.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// QEMU's version, such as `7.2.22`.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// The name of the accelerator.
    pub(super) fn accelerator(&self) -> &'static str {
        self.accelerator.name()
    }

    pub(super) fn arguments(&self, setting: &Setting<'_>) -> Vec<OsString> {
        let is_tcg = self.accelerator == Accelerator::Tcg;
        let text = |path: &Path| path.to_string_lossy().replace(',', ",,");
        let reconnect = if self.is_since(9, 2) {
            format!("reconnect-ms={}", RECONNECT_S * 1000)
        } else {
            format!("reconnect={RECONNECT_S}")
        };
        let is_packed = if setting.layout.is_packed() { "on" } else { "off" };
        // Without MSI-X: with MSI-X, QEMU 7.2 crashes if there is no irqfd, which is the case if
        // it emulates the processor.
        let vectors = if is_tcg { ",vectors=0" } else { "" };
        let (socket, console) = (text(setting.socket), text(&console(setting.folder)));
        let mut words: Vec<String> = [
            "-accel",
            if is_tcg { "tcg,thread=multi" } else { "kvm" },
            "-cpu",
            if is_tcg { "max" } else { "host" },
            // More than one processor would change the order of the packets.
            "-smp",
            "1",
        ]
        .map(str::to_owned)
        .into();
        for word in ["-nodefaults", "-no-reboot", "-no-user-config", "-display", "none"] {
            words.push(word.to_owned());
        }
        let card = format!(
            "virtio-net-pci,netdev=net,mac=52:54:00:00:00:10,romfile=,packed={is_packed},\
             rx_queue_size={RING},tx_queue_size={RING}{vectors}"
        );
        let memory = format!("memory-backend-memfd,id=memory,size={MEMORY_MIB}M,share=on");
        for (option, value) in [
            ("-m", MEMORY_MIB.to_string()),
            ("-object", memory),
            ("-machine", "pc,memory-backend=memory".to_owned()),
            ("-kernel", self.image.join(KERNEL).to_string_lossy().into_owned()),
            ("-initrd", self.image.join(INITRD).to_string_lossy().into_owned()),
            ("-append", "console=ttyS0 quiet panic=-1 ipv6.disable=1".to_owned()),
            ("-chardev", format!("socket,id=console,path={console},server=on,wait=off")),
            ("-serial", "chardev:console".to_owned()),
            ("-chardev", format!("socket,id=card,path={socket},{reconnect}")),
            ("-netdev", "vhost-user,id=net,chardev=card".to_owned()),
            ("-device", card),
        ] {
            words.extend([option.to_owned(), value]);
        }
        words.into_iter().map(OsString::from).collect()
    }

    /// Whether this QEMU has this version or a newer one.
    fn is_since(&self, major: u32, minor: u32) -> bool {
        let mut numbers = self.version.split('.').map_while(|number| number.parse().ok());
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
    }

    /// The processors of QEMU's threads. With KVM, one thread uses the guest's processor. An
    /// emulator has other threads with work to do, which use all processors except the switch's.
    pub(super) fn cpus(&self, setting: &Setting<'_>) -> Vec<usize> {
        if self.accelerator == Accelerator::Kvm {
            return vec![setting.cpu];
        }
        let switch = setting.cpus.first();
        setting.cpus.iter().copied().filter(|cpu| Some(cpu) != switch).collect()
    }

    /// A QEMU for tests, which may not exist and has no image.
    #[cfg(test)]
    pub(super) fn for_tests(path: &str, version: &str) -> Self {
        let (version, image) = (version.to_owned(), "/image".into());
        Self { path: path.into(), version, image, accelerator: Accelerator::Tcg }
    }
}

/// The guest's console, in the folder of its run.
pub(super) fn console(folder: &Path) -> PathBuf {
    folder.join("console")
}

/// `7.2.22` from `QEMU emulator version 7.2.22 (Debian ...)`.
fn parse_version(text: &str) -> Option<String> {
    let rest = text.strip_prefix("QEMU emulator version ")?;
    rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(folder: &Path) -> Setting<'_> {
        static STOP: AtomicBool = AtomicBool::new(false);
        let (socket, layout) = (Path::new("/a,b/socket"), Layout::Packed);
        Setting { socket, folder, layout, cpu: 5, cpus: &[3, 5, 7], stop: &STOP }
    }

    #[test]
    fn qemu_version_is_parsed() {
        let version = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)\nCopyright";
        assert_eq!(parse_version(version).as_deref(), Some("7.2.22"));
        assert_eq!(parse_version("dpdk"), None);
    }

    #[test]
    fn command_line_depends_on_release_and_accelerator() {
        for (version, accelerator, has, cpus) in [
            ("7.2.22", Accelerator::Tcg, ["reconnect=1", "vectors=0"], vec![5, 7]),
            ("9.2.0", Accelerator::Kvm, ["reconnect-ms=1000", "host"], vec![5]),
            ("11.1.3", Accelerator::Kvm, ["reconnect-ms=1000", "-accel kvm"], vec![5]),
        ] {
            let qemu = Qemu { accelerator, ..Qemu::for_tests(FILE, version) };
            let setting = setting(Path::new("/run"));
            let words = qemu.arguments(&setting);
            let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
            let text = words.join(" ");
            for part in has.iter().chain(&["/a,,b/socket", "packed=on", "/image/initrd"]) {
                assert!(text.contains(part), "{part}: {text}");
            }
            assert_eq!(qemu.cpus(&setting), cpus);
        }
    }
}
