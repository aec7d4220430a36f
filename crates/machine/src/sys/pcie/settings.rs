//! The payload settings in a device's configuration space.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::PcieLink;

/// The size of the configuration space without its extended part. It contains the list of
/// capabilities.
const CONFIG_BYTES: u64 = 256;

/// Why a device's settings are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcieUnread {
    /// The kernel shows only the first 64 B of the device's registers.
    Hidden,
    /// Its registers are unreadable.
    NoFile,
    /// The device does not respond: every bit reads as one.
    Silent,
    /// The device has no PCI Express capability.
    NoExpress,
    /// A register contains a value that the specification reserves.
    Reserved,
    /// The registers read as zero, as for a virtual function without a visible physical function.
    Virtual,
}

impl PcieUnread {
    /// The reason and the remedy, as text.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Hidden => {
                "the kernel shows them only with CAP_SYS_ADMIN, which root has except in some \
                 containers"
            }
            Self::NoFile => "the kernel does not allow its registers to be read",
            Self::Silent => "the device does not respond: it was removed, or it is without power",
            Self::NoExpress => {
                "it has no PCI Express capability, as is usual for devices of plain PCI"
            }
            Self::Reserved => "its value is reserved by the specification",
            Self::Virtual => {
                "it reads as zero, as a virtual function does: only the host of its physical \
                 function can read them"
            }
        }
    }
}

/// The payload settings in a device's configuration space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) mps: Option<u32>,
    pub(super) mps_most: Option<u32>,
    pub(super) mrrs: Option<u32>,
}

impl Settings {
    /// Reads the PCI Express capability (PCIe 5.0 section 7.5.3).
    ///
    /// # Errors
    /// It is an error if there is no such capability, or if the bytes end before the capability,
    /// because an unprivileged user gets only 64 B.
    pub(super) fn read(config: &[u8]) -> Result<Self, PcieUnread> {
        const EXPRESS: u8 = 0x10;
        /// The size in bytes of the header, which every user may read.
        const HEADER_BYTES: usize = 64;
        /// The largest number of capabilities for which there is room. The limit also ends a
        /// cyclic list.
        const CAPABILITIES_MAX: usize = 48;
        if config.len() < HEADER_BYTES {
            return Err(PcieUnread::NoFile);
        }
        // The vendor field of a virtual function also reads as ones, but the whole header does
        // not.
        if config[..HEADER_BYTES].iter().all(|byte| *byte == 0xff) {
            return Err(PcieUnread::Silent);
        }
        let has_list = config[6] & 0x10 != 0;
        let mut at = usize::from(config[0x34] & !3);
        for _ in 0..CAPABILITIES_MAX {
            if !has_list || at < HEADER_BYTES {
                return Err(PcieUnread::NoExpress);
            }
            let byte = |at: usize| config.get(at).copied().ok_or(PcieUnread::Hidden);
            if byte(at)? == EXPRESS {
                let capabilities = byte(at + 4)?;
                let control = u16::from_le_bytes([byte(at + 8)?, byte(at + 9)?]);
                return Ok(Self {
                    mps: payload(u32::from(control >> 5)),
                    mps_most: payload(u32::from(capabilities)),
                    mrrs: payload(u32::from(control >> 12)),
                });
            }
            at = usize::from(byte(at + 1)? & !3);
        }
        Err(PcieUnread::NoExpress)
    }

    /// Returns these settings, or an error if the device seems to be a virtual function. The
    /// registers of a virtual function read as zero, so both settings are 128 B, and it has no
    /// link. A guest with a virtual function does not see the physical function.
    pub(super) fn unless_virtual(self, now: PcieLink) -> Result<Self, PcieUnread> {
        let is_zero = self.mps == payload(0) && self.mrrs == payload(0);
        match is_zero && now == PcieLink::default() {
            true => Err(PcieUnread::Virtual),
            false => Ok(self),
        }
    }
}

/// Decodes 128 to 4096 B; higher codes are reserved.
fn payload(code: u32) -> Option<u32> {
    let code = code & 7;
    (code <= 5).then(|| 128 << code)
}

/// The bytes of a file of settings; `None` if it cannot be read.
pub(super) fn bytes_of(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(CONFIG_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_settings_name_the_reason() {
        let mut config = [0_u8; 256];
        assert_eq!(Settings::read(&config), Err(PcieUnread::NoExpress), "no list");
        (config[6], config[0x34], config[0x41]) = (0x10, 0x40, 0x40);
        assert_eq!(Settings::read(&config), Err(PcieUnread::NoExpress), "it goes in circles");
        assert_eq!(Settings::read(&config[..64]), Err(PcieUnread::Hidden));
        assert_eq!(Settings::read(&config[..63]), Err(PcieUnread::NoFile));
        assert_eq!(Settings::read(&[0xff; 256]), Err(PcieUnread::Silent));
        (config[0x40], config[0x49]) = (0x10, 0x70);
        // The vendor and the device of a virtual function.
        config[..4].fill(0xff);
        let read = Settings::read(&config).unwrap();
        assert_eq!((read.mps, read.mrrs), (Some(128), None), "a reserved code is no size");
    }
}
