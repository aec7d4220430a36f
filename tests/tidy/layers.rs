//! The crates that a crate may import: a lower crate never imports a higher one.

use crate::manifest::{Manifest, Table};
use crate::tree::Tree;

/// haul's crates from the bottom up. A crate must not import a later one.
const ORDER: [&str; 14] = [
    "haul-copy",
    "haul-heap",
    "haul-model",
    "haul-peer",
    "haul-engine",
    "haul-channel",
    "haul-machine",
    "haul-forward",
    "haul",
    "haul-sim",
    "haul-measure",
    "haul-experiments",
    "haul-report",
    "haul-cli",
];

/// Crates that may not import all crates that their layer allows. Each is listed with the crates
/// of the workspace that it may import.
const SEES_ONLY: [(&str, &[&str]); 4] =
    [("haul-copy", &[]), ("haul-heap", &[]), ("haul-model", &[]), ("haul-report", &["haul-model"])];

/// The crates that a crate in `ffi/` may import.
const FFI_SEES_ONLY: [&str; 7] =
    ["haul-copy", "haul-heap", "haul-model", "haul-peer", "haul-engine", "haul-machine", "haul"];

/// Crates without any dependency.
const ALONE: [&str; 1] = ["haul-copy"];

/// Dependencies of any kind on a higher crate. The order also applies to dependencies of tests.
/// Only the rule that a crate must have no dependency does not apply to them.
pub(crate) fn crate_findings(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.member_manifests() {
        let manifest = Manifest::parse(&file.text);
        let name = manifest.name.as_str();
        let place = ORDER.iter().position(|each| *each == name);
        let is_ffi = file.path.starts_with("ffi/");
        if place.is_none() && !is_ffi {
            findings.push(format!(
                "{}: {name} has no place in ORDER of tests/tidy/layers.rs",
                file.path
            ));
        }
        for (table, dependency) in &manifest.dependencies {
            let finding =
                |why: &str| format!("{}: {name} must not depend on {dependency}: {why}", file.path);
            if ALONE.contains(&name) && *table == Table::Normal {
                findings.push(finding("it must have no dependency"));
            }
            if !is_ours(dependency) {
                continue;
            }
            let allowed = if is_ffi {
                FFI_SEES_ONLY.contains(&dependency.as_str())
            } else {
                may_see(name, place, dependency)
            };
            if !allowed {
                findings.push(finding("it is higher, or this crate may not import it"));
            }
        }
    }
    findings
}

fn is_ours(package: &str) -> bool {
    package == "haul" || package.starts_with("haul-")
}

fn may_see(name: &str, place: Option<usize>, dependency: &str) -> bool {
    if let Some((_, seen)) = SEES_ONLY.iter().find(|(each, _)| *each == name) {
        return seen.contains(&dependency);
    }
    let below = ORDER.iter().position(|each| *each == dependency);
    matches!((below, place), (Some(below), Some(place)) if below < place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    fn findings_for(path: &str, name: &str, rest: &str) -> usize {
        crate_findings(&Tree::of(&[(path, &package(name, rest))])).len()
    }

    #[test]
    fn crate_findings_finds_upward_import() {
        let measure = "crates/measure/Cargo.toml";
        assert_eq!(
            findings_for(measure, "haul-measure", "[dependencies]\nhaul-model.workspace = true"),
            0
        );
        assert_eq!(
            findings_for(measure, "haul-measure", "[dependencies]\nhaul-cli.workspace = true"),
            1
        );
        assert_eq!(
            findings_for(measure, "haul-measure", "[dev-dependencies]\nhaul-report = \"1\""),
            1
        );
        let report = "crates/report/Cargo.toml";
        assert_eq!(findings_for(report, "haul-report", "[dependencies]\nhaul-model = \"1\""), 0);
        assert_eq!(findings_for(report, "haul-report", "[dependencies]\nhaul = \"1\""), 1);
        let copy = "crates/copy/Cargo.toml";
        assert_eq!(findings_for(copy, "haul-copy", "[dev-dependencies]\nproptest = \"1\""), 0);
        assert_eq!(findings_for(copy, "haul-copy", "[dependencies]\nlibc = \"0.2\""), 1);
        let c = "ffi/c/Cargo.toml";
        assert_eq!(findings_for(c, "haul-c", "[dependencies]\nhaul = \"1\""), 0);
        assert_eq!(findings_for(c, "haul-c", "[dependencies]\nhaul-measure = \"1\""), 1);
        assert_eq!(findings_for("crates/common/Cargo.toml", "haul-common", ""), 1);
    }
}
