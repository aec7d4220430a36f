//! Source files that no `mod` reaches. The compiler never reads them, so only this rule finds them.

use std::collections::BTreeSet;

use crate::source::{Source, identifier, line_of, starts_word};
use crate::tree::Tree;

/// Rust files that are neither the root of a target nor reached from one.
pub(crate) fn dead_files(tree: &Tree) -> Vec<String> {
    let roots = tree.files.iter().map(|file| &file.path).filter(|path| is_root(tree, path));
    let reached = reach(tree, roots.cloned().collect());
    let dead = tree.paths.iter().filter(|path| path.ends_with(".rs") && !reached.contains(*path));
    dead.map(|path| format!("{path}: no `mod` reaches it: declare it or delete it")).collect()
}

/// Rust files that are compiled only for tests, because a `mod` under `#[cfg(test)]` declares them.
pub(crate) fn test_files(tree: &Tree) -> BTreeSet<String> {
    let rust = tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    let declared = rust
        .flat_map(|file| children(tree, &file.path, &Source::new(&file.text)))
        .filter(|child| child.is_test)
        .map(|child| child.path);
    reach(tree, declared.collect())
}

/// The files in `open` and every file that they reach.
fn reach(tree: &Tree, mut open: Vec<String>) -> BTreeSet<String> {
    let mut reached: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(path) = open.pop() {
        let Some(text) = tree.get(&path) else { continue };
        for child in children(tree, &path, &Source::new(text)) {
            if reached.insert(child.path.clone()) {
                open.push(child.path);
            }
        }
    }
    reached
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
            | ["ffi", _, _, "build"]
            | ["crates" | "ffi", _, "tests" | "benches" | "examples", _]
            | ["crates" | "ffi", _, "tests" | "benches" | "examples", _, "main"]
    );
    by_place || is_named_in_a_manifest(tree, path)
}

/// Whether a Cargo.toml names the file by `path = "..."`, relative to its folder.
fn is_named_in_a_manifest(tree: &Tree, path: &str) -> bool {
    tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml")).any(|manifest| {
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        let named = manifest.text.lines().filter_map(|line| line.trim().strip_prefix("path = \""));
        named
            .filter_map(|rest| rest.split('"').next())
            .any(|to| normal(&format!("{folder}{to}")) == path)
    })
}

/// A file that another one declares as a module or includes.
struct Child {
    path: String,
    /// Whether the declaration is under `#[cfg(test)]`.
    is_test: bool,
}

fn children(tree: &Tree, path: &str, source: &Source) -> Vec<Child> {
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
        let is_test = source.is_test[line_of(&source.code, start) - 1];
        let attribute = source.text[..start].trim_end().rsplit('\n').next().unwrap_or_default();
        let paths = match attribute.split_once("#[path = \"") {
            Some((_, to)) => {
                vec![normal(&format!("{folder}/{}", to.split('"').next().unwrap_or_default()))]
            }
            None => vec![format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")],
        };
        children.extend(paths.into_iter().map(|path| Child { path, is_test }));
    }
    for rest in source.text.split("include!(\"").skip(1) {
        let to = rest.split('"').next().unwrap_or_default();
        children.push(Child { path: normal(&format!("{folder}/{to}")), is_test: false });
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
    fn dead_files_finds_unreached_file() {
        let dead = dead_files(&Tree::of(&[
            ("crates/x/Cargo.toml", "[[test]]\nname = \"y\"\npath = \"../../tests/y/main.rs\"\n"),
            ("crates/x/src/lib.rs", "mod a;\npub(crate) mod b;\n// mod gone;\nmod inline {}\n"),
            ("crates/x/src/a.rs", "mod c;\n#[path = \"elsewhere.rs\"]\nmod d;\n"),
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
        let paths: Vec<_> = dead.iter().filter_map(|finding| finding.split(':').next()).collect();
        assert_eq!(
            paths,
            ["crates/x/src/gone.rs", "crates/x/src/c.rs", "crates/x/tests/other/mod.rs"]
        );
    }

    #[test]
    fn test_files_finds_files_under_cfg_test() {
        let files = test_files(&Tree::of(&[
            ("crates/x/src/lib.rs", "mod a;\n\n#[cfg(test)]\nmod tests;\n"),
            ("crates/x/src/a.rs", ""),
            ("crates/x/src/tests.rs", "mod oracle;\n"),
            ("crates/x/src/tests/oracle.rs", ""),
        ]));
        assert!(!files.contains("crates/x/src/a.rs"));
        assert!(files.contains("crates/x/src/tests.rs"));
        assert!(files.contains("crates/x/src/tests/oracle.rs"));
    }

    #[test]
    fn normal_removes_dots() {
        assert_eq!(normal("a/b/../../c/./d"), "c/d");
        assert_eq!(normal("a/../../b"), "../b");
    }
}
