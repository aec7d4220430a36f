//! haul's own programs, which travel with it: ELF files as `scripts/sim-workload` builds them.
//!
//! They are committed beside their sources, so that a run is the same wherever haul is, without a
//! compiler; a test builds them anew and compares the bytes.

/// A TCP stream through lwIP: the paper's workload.
pub const RECEIVE: &str = "receive";
/// A store of values.
pub const VALUES: &str = "values";

/// Each name with its file.
const BUILT: [(&str, &[u8]); 2] = [
    (RECEIVE, include_bytes!("../workload/built/receive.elf")),
    (VALUES, include_bytes!("../workload/built/values.elf")),
];

/// The names of all.
#[must_use]
pub fn names() -> [&'static str; 2] {
    BUILT.map(|(name, _)| name)
}

/// The ELF file of the workload with this name; `None` where it has none.
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
