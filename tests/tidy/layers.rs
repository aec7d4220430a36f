//! Which crate and which module may import which: lower never imports higher.

use crate::manifest::{Manifest, Table};
use crate::reach::test_files;
use crate::source::{Source, identifier, starts_word};
use crate::tree::Tree;

/// Our crates from the bottom up; none imports one that stands after it.
const ORDER: [&str; 9] = [
    "haul-copy",
    "haul-heap",
    "haul-model",
    "haul",
    "haul-sim",
    "haul-measure",
    "haul-experiments",
    "haul-report",
    "haul-cli",
];

/// Crates that see less of ours than their place allows, and what they see.
const SEES_ONLY: [(&str, &[&str]); 4] =
    [("haul-copy", &[]), ("haul-heap", &[]), ("haul-model", &[]), ("haul-report", &["haul-model"])];

/// What the crates under `ffi/` stand on.
const FFI_SEES_ONLY: [&str; 4] = ["haul-copy", "haul-heap", "haul-model", "haul"];

/// Crates that depend on nothing at all.
const ALONE: [&str; 1] = ["haul-copy"];

/// Dependencies of any kind that point upwards. Tests are held to the order too; only the demand
/// to depend on nothing at all speaks of the product alone.
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
                findings.push(finding("it depends on nothing"));
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
                findings.push(finding("it stands higher, or outside what this crate may see"));
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

/// Modules that the crate's root does not list, and imports of a module that is listed later.
/// The list is the root's own documentation: lines `//! - [`name`]: what it is`, from the bottom
/// up (rustfmt sorts the `mod` lines, so these can't tell the order). Test code may look upwards.
pub(crate) fn module_findings(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for manifest in tree.member_manifests() {
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        for root in ["lib.rs", "main.rs"] {
            let path = format!("{folder}src/{root}");
            if let Some(text) = tree.get(&path) {
                findings.extend(crate_module_findings(tree, &path, text));
            }
        }
    }
    findings
}

fn crate_module_findings(tree: &Tree, root_path: &str, root_text: &str) -> Vec<String> {
    let root = Source::new(root_text);
    let order = listed_modules(root_text);
    let reexports = reexports(&root);
    let mut findings: Vec<String> = declared_modules(&root)
        .into_iter()
        .filter(|module| !order.contains(module))
        .map(|module| {
            format!("{root_path}: module `{module}` is not in the list of its documentation")
        })
        .collect();
    let folder = root_path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let for_tests = test_files(tree);
    for (place, module) in order.iter().enumerate() {
        let own_folder = format!("{folder}/{module}/");
        let own_file = format!("{folder}/{module}.rs");
        let own = |path: &str| path == own_file || path.starts_with(&own_folder);
        let is_product = |path: &str| path.ends_with(".rs") && !for_tests.contains(path);
        for file in tree.files.iter().filter(|f| own(&f.path) && is_product(&f.path)) {
            let source = Source::new(&file.text);
            for (line, name) in imports(&source, file.path == own_file) {
                let module =
                    reexports.iter().find(|(item, _)| *item == name).map_or(&name, |(_, m)| m);
                if order.iter().position(|each| each == module).is_some_and(|other| other > place) {
                    findings.push(format!(
                        "{}:{line}: imports `{name}`, which stands higher",
                        file.path
                    ));
                }
            }
        }
    }
    findings
}

/// The modules in the root's list, from the bottom up.
fn listed_modules(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for line in text.lines() {
        let Some(item) = line.strip_prefix("//! - ") else {
            continue;
        };
        let head = item.split(": ").next().unwrap_or(item);
        modules.extend(head.split('`').skip(1).step_by(2).map(String::from));
    }
    modules
}

/// Modules declared in the root outside of tests, whether in a file of their own or not.
fn declared_modules(root: &Source) -> Vec<String> {
    let mut modules = Vec::new();
    for (_, line) in root.product_lines() {
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if words.next() == Some("mod") {
            modules.extend(words.next().map(|name| identifier(name).into()));
        }
    }
    modules
}

/// Names that the root re-exports, with the module that each comes from.
fn reexports(root: &Source) -> Vec<(String, String)> {
    let mut names = Vec::new();
    for (start, _) in root.code.match_indices("pub use ") {
        let rest = &root.code[start + "pub use ".len()..];
        let Some(path) = rest.split(';').next() else {
            continue;
        };
        let Some((module, items)) = path.trim_start_matches("self::").split_once("::") else {
            continue;
        };
        for item in
            items.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|i| !i.is_empty())
        {
            names.push((item.into(), module.trim().into()));
        }
    }
    names
}

/// What a file takes from its crate's root: line, and the first name after `crate::` (or after
/// `super::` where the root is its parent), each name of a group in braces on its own.
fn imports(source: &Source, is_child_of_root: bool) -> Vec<(usize, String)> {
    let code = product_code(source);
    let mut found = Vec::new();
    for prefix in ["crate::", "super::"] {
        if prefix == "super::" && !is_child_of_root {
            continue;
        }
        for (start, _) in code.match_indices(prefix).filter(|&(start, _)| starts_word(&code, start))
        {
            // `super::super::x` and `other::super::` are not the root's.
            if code[..start].ends_with("::") {
                continue;
            }
            let line = code[..start].matches('\n').count() + 1;
            for name in first_names(&code[start + prefix.len()..]) {
                found.push((line, name));
            }
        }
    }
    found
}

fn product_code(source: &Source) -> String {
    let lines = source.code.lines().zip(&source.is_test);
    lines.map(|(line, is_test)| if *is_test { "\n".into() } else { format!("{line}\n") }).collect()
}

/// `a::b` is [a]; `{a::{b, c}, d}` is [a, d].
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else {
        return vec![identifier(path).into()];
    };
    let mut names = Vec::new();
    let mut depth = 0usize;
    let mut at_start = true;
    for (index, character) in group.char_indices() {
        match character {
            '}' if depth == 0 => break,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => at_start = true,
            _ if at_start && !character.is_whitespace() => {
                names.push(identifier(&group[index..]).into());
                at_start = false;
            }
            _ => {}
        }
    }
    names
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
    fn a_crate_that_imports_upwards_is_found() {
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

    fn module_tree(low: &str) -> Vec<String> {
        module_findings(&Tree::of(&[
            ("crates/x/Cargo.toml", ""),
            (
                "crates/x/src/lib.rs",
                "//! - [`low`]: a;\n//! - `high`: b.\nmod high;\nmod low;\npub use high::Thing;\n",
            ),
            ("crates/x/src/low.rs", low),
            ("crates/x/src/high/mod.rs", "use crate::low::a;\n"),
        ]))
    }

    #[test]
    fn a_module_that_imports_upwards_is_found() {
        for clean in [
            "use std::fmt;\n",
            "// crate::high\n",
            "#[cfg(test)]\nmod tests {\n    use crate::high::x;\n}\n",
            "mod inner {\n    use super::own;\n}\n",
        ] {
            assert_eq!(module_tree(clean), [""; 0], "{clean}");
        }
        for dirty in [
            "use crate::high::x;\n",
            "use crate::{low::y, high::{x, z}};\n",
            "use super::high;\n",
            "fn f(x: crate::Thing) {}\n",
        ] {
            assert_eq!(module_tree(dirty).len(), 1, "{dirty}");
        }
    }

    #[test]
    fn a_module_outside_the_list_is_found() {
        let tree =
            Tree::of(&[("crates/x/Cargo.toml", ""), ("crates/x/src/lib.rs", "pub mod low;\n")]);
        assert_eq!(module_findings(&tree).len(), 1);
    }
}
