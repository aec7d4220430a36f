//! Source files that no `mod` reaches: the compiler never sees them, so nothing else would tell.

use std::collections::BTreeSet;

use crate::source::{Source, identifier, starts_word};
use crate::tree::Tree;

/// Rust files that are neither the root of a target nor reached from one.
pub(crate) fn dead_files(tree: &Tree) -> Vec<String> {
    let mut open: Vec<String> = tree
        .files
        .iter()
        .map(|f| f.path.clone())
        .filter(|p| is_root(tree, p))
        .collect();
    let mut reached: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(path) = open.pop() {
        let Some(text) = tree.get(&path) else {
            continue;
        };
        for child in children(tree, &path, &Source::new(text)) {
            if reached.insert(child.clone()) {
                open.push(child);
            }
        }
    }
    let dead = tree
        .paths
        .iter()
        .filter(|path| path.ends_with(".rs") && !reached.contains(*path));
    dead.map(|path| format!("{path}: no `mod` reaches it: declare it or delete it"))
        .collect()
}

/// Whether cargo compiles this file as the root of a target.
fn is_root(tree: &Tree, path: &str) -> bool {
    let Some(rest) = path.strip_suffix(".rs") else {
        return false;
    };
    let parts: Vec<_> = rest.split('/').collect();
    let by_place = matches!(
        parts[..],
        [.., "src", "lib" | "main"]
            | [.., "src", "bin", _]
            | ["crates" | "ffi", _, "build"]
            | ["crates" | "ffi", _, "tests" | "benches" | "examples", _]
            | [
                "crates" | "ffi",
                _,
                "tests" | "benches" | "examples",
                _,
                "main"
            ]
    );
    by_place || is_named_in_a_manifest(tree, path)
}

/// Whether a Cargo.toml names it by `path = "..."`, from its own folder.
fn is_named_in_a_manifest(tree: &Tree, path: &str) -> bool {
    tree.files
        .iter()
        .filter(|file| file.path.ends_with("Cargo.toml"))
        .any(|manifest| {
            let folder = manifest.path.trim_end_matches("Cargo.toml");
            let named = manifest
                .text
                .lines()
                .filter_map(|line| line.trim().strip_prefix("path = \""));
            named
                .filter_map(|rest| rest.split('"').next())
                .any(|to| normal(&format!("{folder}{to}")) == path)
        })
}

/// The files that this one declares as modules or includes.
fn children(tree: &Tree, path: &str, source: &Source) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let own = if is_root(tree, path) || file == "mod.rs" {
        folder.to_owned()
    } else {
        path.trim_end_matches(".rs").to_owned()
    };
    let mut children = Vec::new();
    for (start, _) in source.code.match_indices("mod ") {
        let rest = &source.code[start + 4..];
        let name = identifier(rest);
        if !starts_word(&source.code, start) || !rest[name.len()..].starts_with(';') {
            continue;
        }
        let attribute = source.text[..start]
            .trim_end()
            .rsplit('\n')
            .next()
            .unwrap_or_default();
        if let Some((_, to)) = attribute.split_once("#[path = \"") {
            children.extend(
                to.split('"')
                    .next()
                    .map(|to| normal(&format!("{folder}/{to}"))),
            );
        } else {
            children.extend([format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")]);
        }
    }
    for rest in source.text.split("include!(\"").skip(1) {
        children.extend(
            rest.split('"')
                .next()
                .map(|to| normal(&format!("{folder}/{to}"))),
        );
    }
    children
}

/// The path without `.` and `..`.
pub(crate) fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_file_is_found() {
        let dead = dead_files(&Tree::of(&[
            (
                "crates/x/Cargo.toml",
                "[[test]]\nname = \"y\"\npath = \"../../tests/y/main.rs\"\n",
            ),
            (
                "crates/x/src/lib.rs",
                "mod a;\npub(crate) mod b;\n// mod gone;\nmod inline {}\n",
            ),
            (
                "crates/x/src/a.rs",
                "mod c;\n#[path = \"elsewhere.rs\"]\nmod d;\n",
            ),
            ("crates/x/src/a/c.rs", ""),
            ("crates/x/src/elsewhere.rs", ""),
            ("crates/x/src/b/mod.rs", "mod e;\n"),
            ("crates/x/src/b/e.rs", ""),
            ("crates/x/src/gone.rs", ""),
            ("crates/x/src/c.rs", ""),
            ("crates/x/tests/t.rs", "mod helper;\n"),
            ("crates/x/tests/helper/mod.rs", ""),
            ("crates/x/tests/other/mod.rs", ""),
            ("tests/y/main.rs", "mod z;"),
            ("tests/y/z.rs", ""),
        ]));
        let paths: Vec<_> = dead
            .iter()
            .filter_map(|finding| finding.split(':').next())
            .collect();
        assert_eq!(
            paths,
            [
                "crates/x/src/gone.rs",
                "crates/x/src/c.rs",
                "crates/x/tests/other/mod.rs"
            ]
        );
    }

    #[test]
    fn paths_become_normal() {
        assert_eq!(normal("a/b/../../c/./d"), "c/d");
        assert_eq!(normal("a/../../b"), "../b");
    }
}
