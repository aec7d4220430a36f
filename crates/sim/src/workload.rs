//! haul's own programs: ELF files as `scripts/sim-workload` builds them.
//!
//! These files are committed beside their sources, so that runs need no compiler and are the same
//! everywhere. A test rebuilds them and compares the bytes.

/// Receives a TCP stream through lwIP: the paper's workload.
pub const RECEIVE: &str = "receive";
/// A key-value store.
pub const VALUES: &str = "values";

/// Each name with its file.
const BUILT: [(&str, &[u8]); 2] = [
    (RECEIVE, include_bytes!("../workload/built/receive.elf")),
    (VALUES, include_bytes!("../workload/built/values.elf")),
];

/// The names of all workloads.
#[must_use]
pub fn names() -> [&'static str; 2] {
    BUILT.map(|(name, _)| name)
}

/// The ELF file of the workload with this name; `None` if there is none.
///
/// ```
/// use haul_sim::{Image, workload};
/// let file = workload::named("receive").unwrap();
/// assert!(Image::from_elf(file).is_ok());
/// assert!(workload::named("./receive").is_none());
/// ```
#[must_use]
pub fn named(name: &str) -> Option<&'static [u8]> {
    BUILT.iter().find(|(known, _)| *known == name).map(|(_, file)| *file)
}
