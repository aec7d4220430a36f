//! The processor, the hypervisor above it, the kernel and the C library.

use std::ffi::CStr;

use super::Sys;

/// The vendor and the model of the processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Its own name: `AMD EPYC 9554 64-Core Processor`.
    pub name: String,
    /// `intel`, `amd`, `arm`, or the vendor's own code; `unknown` if it is not reported.
    pub vendor: String,
    /// The family on x86, the part number on Arm.
    pub family: u32,
    /// Model on x86, variant on Arm.
    pub model: u32,
    /// Stepping on x86, revision on Arm.
    pub stepping: u32,
}

impl Sys {
    /// The processor: CPUID on x86, `/proc/cpuinfo` elsewhere.
    #[must_use]
    pub fn processor(&self) -> Processor {
        from_cpuid().unwrap_or_else(|| from_cpuinfo(&self.text("proc/cpuinfo").unwrap_or_default()))
    }

    /// The hypervisor of this machine, if it identifies itself; `None` on bare metal.
    #[must_use]
    pub fn hypervisor(&self) -> Option<String> {
        hypervisor_from_cpuid().or_else(|| self.text("sys/hypervisor/type"))
    }

    /// Name and release of the kernel: `Linux 6.1.0`.
    #[must_use]
    pub fn kernel(&self) -> String {
        let name = rustix::system::uname();
        format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy())
    }

    /// The C library of this process: `glibc 2.36`.
    #[must_use]
    pub fn libc(&self) -> String {
        libc_name()
    }
}

/// Whether the kernel runs this process with more rights than its caller has (set-user-id, file
/// capabilities). The process must not trust its environment then.
#[must_use]
pub fn is_privileged_by_file() -> bool {
    // SAFETY: getauxval takes any number and reads only the process's own auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(target_env = "gnu")]
fn libc_name() -> String {
    // SAFETY: the function takes no arguments, and returns a pointer to a static string that ends
    // with NUL.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: see above: valid, NUL-terminated, and never changed or freed.
    let version = unsafe { CStr::from_ptr(version) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn libc_name() -> String {
    if cfg!(target_env = "musl") { "musl".into() } else { "unknown".into() }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn from_cpuid() -> Option<Processor> {
    let cpuid = raw_cpuid::CpuId::new();
    let vendor = cpuid.get_vendor_info()?;
    let vendor = match vendor.as_str() {
        "GenuineIntel" => "intel".to_owned(),
        "AuthenticAMD" => "amd".to_owned(),
        other => only_word(other),
    };
    let feature = cpuid.get_feature_info()?;
    let (family, model) = (feature.family_id(), feature.model_id());
    let name = cpuid.get_processor_brand_string().map(|brand| one_line(brand.as_str()));
    Some(Processor {
        name: name
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| format!("{vendor} family {family} model {model}")),
        vendor,
        family: family.into(),
        model: model.into(),
        stepping: feature.stepping_id().into(),
    })
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn from_cpuid() -> Option<Processor> {
    None
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn hypervisor_from_cpuid() -> Option<String> {
    use raw_cpuid::Hypervisor;
    let cpuid = raw_cpuid::CpuId::new();
    // Without this feature bit the leaf may have any content. (Intel processors return their
    // highest basic leaf.)
    cpuid.get_feature_info().filter(raw_cpuid::FeatureInfo::has_hypervisor)?;
    Some(match cpuid.get_hypervisor_info()?.identify() {
        Hypervisor::Unknown(..) => "of an unknown maker".to_owned(),
        known => format!("{known:?}"),
    })
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64")))]
fn hypervisor_from_cpuid() -> Option<String> {
    None
}

/// On Arm, `/proc/cpuinfo` contains the fields of MIDR_EL1 by name (Arm ARM, D19.2.122).
fn from_cpuinfo(text: &str) -> Processor {
    let field = |name: &str| {
        text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    let number = |name| field(name).and_then(|value| parse_number(&value)).unwrap_or(0);
    let vendor = match field("CPU implementer").as_deref() {
        Some("0x41") => "arm".to_owned(),
        Some(code) => only_word(code),
        None => "unknown".to_owned(),
    };
    let (family, model, stepping) =
        (number("CPU part"), number("CPU variant"), number("CPU revision"));
    let named = field("model name").or_else(|| field("Model")).map(|name| one_line(&name));
    Processor {
        name: named.unwrap_or_else(|| format!("{vendor} part {family:#x} variant {model}")),
        vendor,
        family,
        model,
        stepping,
    }
}

fn parse_number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Keeps only letters and digits, in lower case, which are the characters of a machine id.
fn only_word(text: &str) -> String {
    let word: String =
        text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
    if word.is_empty() { "unknown".into() } else { word }
}

/// Vendors pad names with spaces, and hypervisors may set any name.
fn one_line(text: &str) -> String {
    let printable = text.replace(|c: char| c.is_control(), " ");
    printable.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arm_processor_is_identified_by_its_id_register() {
        let text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\n\
                    CPU part\t: 0xd0c\nCPU revision\t: 1\n";
        let processor = from_cpuinfo(text);
        assert_eq!(processor.vendor, "arm");
        assert_eq!((processor.family, processor.model, processor.stepping), (0xd0c, 3, 1));
        assert_eq!(processor.name, "arm part 0xd0c variant 3");
    }

    #[test]
    fn empty_cpuinfo_gives_an_unknown_processor() {
        let processor = from_cpuinfo("");
        assert_eq!((processor.vendor.as_str(), processor.family), ("unknown", 0));
        assert!(!processor.name.is_empty());
    }

    #[test]
    fn names_are_sanitized() {
        assert_eq!(only_word("Hygon Genuine"), "hygongenuine");
        assert_eq!(only_word("\u{1b}[31m--"), "31m");
        assert_eq!(only_word("--"), "unknown");
        assert_eq!(one_line(" AMD   EPYC\n\t9554\u{1b}  "), "AMD EPYC 9554");
    }

    #[test]
    fn test_process_is_not_set_user_id() {
        assert!(!is_privileged_by_file());
    }
}
