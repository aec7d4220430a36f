//! The modules that a module may import: in every folder, a lower module never imports a higher
//! one.
//!
//! A module with submodules is a room. Its documentation lists the submodules from the bottom up,
//! in lines `//! - [`name`]: what it is`, because rustfmt sorts the `mod` lines. Without upward
//! imports, files cannot form a cycle. All modules of a room may import the items that the room
//! itself defines, such as a contract. Test code may import upwards.

use std::collections::BTreeMap;

use crate::reach::test_files;
use crate::source::{Source, closing_brace, identifier, line_of, starts_word};
use crate::tree::Tree;

/// The names from the crate's root down to a module. The path of the root is empty.
type Path = Vec<String>;

/// A module that declares other modules.
struct Room {
    file: String,
    /// Its modules in the order of its documentation, from the bottom up.
    order: Vec<String>,
    /// Its declared modules, without those for tests.
    declared: Vec<String>,
    /// The names that it re-exports, each with its module.
    reexports: Vec<(String, String)>,
}

/// Modules that their room does not list, and imports of modules that come later in the list.
pub(crate) fn findings(tree: &Tree) -> Vec<String> {
    let for_tests = test_files(tree);
    let mut findings = Vec::new();
    for manifest in tree.member_manifests() {
        let sources = format!("{}src/", manifest.path.trim_end_matches("Cargo.toml"));
        let files: Vec<(Path, &str, Source)> = tree
            .files
            .iter()
            .filter(|file| !for_tests.contains(&file.path))
            .filter_map(|file| {
                let below = file.path.strip_prefix(&sources)?.strip_suffix(".rs")?;
                Some((module_path(below), file.path.as_str(), Source::new(&file.text)))
            })
            .collect();
        let rooms: BTreeMap<Path, Room> = files
            .iter()
            .filter_map(|(path, file, source)| Some((path.clone(), room(path, file, source)?)))
            .collect();
        findings.extend(rooms.values().flat_map(unlisted));
        for (path, file, source) in &files {
            findings.extend(upward_imports(&rooms, path, file, source));
        }
    }
    findings
}

/// `channel/mod` and `channel` are [channel], `lib` is the root.
fn module_path(below_sources: &str) -> Path {
    let mut path: Path = below_sources.split('/').map(String::from).collect();
    let is_root = path.len() == 1 && matches!(path[0].as_str(), "lib" | "main");
    if is_root || path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

/// The room, if a file declares several modules. The root is always a room.
fn room(path: &Path, file: &str, source: &Source) -> Option<Room> {
    let declared = declared_modules(source, path.is_empty());
    let is_room = if path.is_empty() { !declared.is_empty() } else { declared.len() > 1 };
    is_room.then(|| Room {
        file: file.into(),
        order: listed_modules(&source.text),
        declared,
        reexports: reexports(source),
    })
}

fn unlisted(room: &Room) -> Vec<String> {
    let missing = room.declared.iter().filter(|module| !room.order.contains(module));
    let gone = room.order.iter().filter(|module| !room.declared.contains(module));
    let missing = missing.map(|module| {
        format!("{}: module `{module}` is not in the list of its documentation", room.file)
    });
    let gone = gone.map(|module| {
        format!(
            "{}: the list of its documentation has `{module}`, which is not a module",
            room.file
        )
    });
    missing.chain(gone).collect()
}

/// The modules in a room's list, from the bottom up.
fn listed_modules(text: &str) -> Vec<String> {
    let mut modules = Vec::new();
    for line in text.lines() {
        let Some(item) = line.strip_prefix("//! - ") else {
            continue;
        };
        let head = item.split(": ").next().unwrap_or(item);
        if !head.starts_with(['`', '[']) {
            continue;
        }
        let names = head.split('`').skip(1).step_by(2);
        modules.extend(names.map(|name| name.trim_start_matches("mod@").into()));
    }
    modules
}

/// Modules that are declared outside of tests. Inline modules count only in the root, because in
/// other files a reader sees them anyway.
fn declared_modules(source: &Source, is_root: bool) -> Vec<String> {
    let spans = inline_modules(&source.code);
    let mut modules: Vec<String> = Vec::new();
    let mut start = 0;
    for (index, line) in source.code.lines().enumerate() {
        let is_nested = spans.iter().any(|&(from, to)| from < start && start < to);
        let counts = !is_nested && !source.is_test[index] && (is_root || line.ends_with(';'));
        let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
        if counts && words.next() == Some("mod") {
            modules.extend(words.next().map(|name| identifier(name).into()));
        }
        start += line.len() + 1;
    }
    modules
}

/// The start and end of the inline modules.
fn inline_modules(code: &str) -> Vec<(usize, usize)> {
    let starts = code.match_indices("mod ").filter(|&(start, _)| starts_word(code, start));
    starts
        .filter_map(|(start, word)| {
            let name = identifier(&code[start + word.len()..]);
            let open = start + word.len() + name.len() + 1;
            let opens = !name.is_empty() && code.get(open - 1..=open) == Some(" {");
            opens.then(|| (start, closing_brace(code, open)))
        })
        .collect()
}

/// Names that a room re-exports, each with its module.
fn reexports(room: &Source) -> Vec<(String, String)> {
    let mut names = Vec::new();
    for (start, word) in room.code.match_indices("use ") {
        let is_public = room.code[..start]
            .rsplit('\n')
            .next()
            .is_some_and(|before| before.trim_start().starts_with("pub"));
        if !is_public || !starts_word(&room.code, start) {
            continue;
        }
        for mut path in paths(&room.code[start + word.len()..]) {
            if path.first().is_some_and(|first| first == "self") {
                path.remove(0);
            }
            if let [module, .., item] = path.as_slice() {
                names.push((item.clone(), module.clone()));
            }
        }
    }
    names
}

fn upward_imports(
    rooms: &BTreeMap<Path, Room>,
    importer: &Path,
    file: &str,
    source: &Source,
) -> Vec<String> {
    let code = product_code(source);
    let spans = inline_modules(&code);
    let mut findings = Vec::new();
    for (start, from) in import_starts(&code) {
        let depth = spans.iter().filter(|&&(open, end)| open < start && start < end).count();
        let Some((base, rest)) = base(importer, depth, &code[start..], from) else {
            continue;
        };
        for names in paths(rest) {
            let imported = resolve(rooms, [base.clone(), names].concat());
            if is_higher(rooms, importer, &imported) {
                let line = line_of(&code, start);
                let name = imported.join("::");
                findings.push(format!("{file}:{line}: imports `{name}`, which is higher"));
            }
        }
    }
    findings
}

fn product_code(source: &Source) -> String {
    let lines = source.code.lines().zip(&source.is_test);
    lines.map(|(line, is_test)| if *is_test { "\n".into() } else { format!("{line}\n") }).collect()
}

/// The starts of paths from the root or from a parent, each with its first word.
fn import_starts(code: &str) -> Vec<(usize, &'static str)> {
    let mut starts = Vec::new();
    for word in ["crate::", "super::"] {
        let found = code.match_indices(word).map(|(start, _)| start);
        starts.extend(
            found
                .filter(|&start| starts_word(code, start) && !code[..start].ends_with("::"))
                .map(|start| (start, word)),
        );
    }
    starts
}

/// The module at which a path starts, and the rest of the path. `None` if it stays within the file.
fn base<'a>(importer: &Path, depth: usize, path: &'a str, from: &str) -> Option<(Path, &'a str)> {
    if from == "crate::" {
        return Some((Vec::new(), &path[from.len()..]));
    }
    let mut rest = path;
    let mut supers = 0_usize;
    while let Some(after) = rest.strip_prefix("super::") {
        rest = after;
        supers += 1;
    }
    let up = supers.checked_sub(depth).filter(|up| *up > 0)?;
    let kept = importer.len().checked_sub(up)?;
    Some((importer[..kept].to_vec(), rest))
}

/// The module to which a path of names leads. Follows re-exports.
fn resolve(rooms: &BTreeMap<Path, Room>, names: Path) -> Path {
    let mut at = Vec::new();
    for name in names {
        let Some(room) = rooms.get(&at) else { break };
        if room.declared.contains(&name) {
            at.push(name);
        } else {
            let module = room.reexports.iter().find(|(item, _)| *item == name);
            at.extend(
                module.map(|(_, module)| module.clone()).filter(|m| room.declared.contains(m)),
            );
            break;
        }
    }
    at
}

/// Whether the two paths diverge in a room that lists the imported module later.
fn is_higher(rooms: &BTreeMap<Path, Room>, importer: &Path, imported: &Path) -> bool {
    let shared = importer.iter().zip(imported).take_while(|(a, b)| a == b).count();
    let (Some(low), Some(high)) = (importer.get(shared), imported.get(shared)) else {
        return false;
    };
    let Some(room) = rooms.get(&importer[..shared]) else {
        return false;
    };
    let rank = |module| room.order.iter().position(|each| each == module);
    matches!((rank(low), rank(high)), (Some(low), Some(high)) if high > low)
}

/// Every path in a use tree or an expression: `a::b` is [a, b]; `{a::{b, c}, d}` is [a, b], [a, c],
/// [d].
fn paths(text: &str) -> Vec<Path> {
    let mut found = Vec::new();
    collect(text, &Vec::new(), &mut found);
    found
}

/// Adds the paths that `text` spells below `prefix`. Returns the number of bytes that it has read.
fn collect(text: &str, prefix: &Path, found: &mut Vec<Path>) -> usize {
    let mut path = prefix.clone();
    let mut at = 0;
    loop {
        if text[at..].starts_with('{') {
            return at + collect_group(&text[at..], &path, found);
        }
        let name = identifier(&text[at..]);
        if name.is_empty() {
            break;
        }
        at += name.len();
        path.push(name.into());
        if !text[at..].starts_with("::") {
            break;
        }
        at += 2;
    }
    if path.len() > prefix.len() {
        found.push(path);
    }
    at
}

/// Like [`collect`], for the alternatives in a group in braces.
fn collect_group(text: &str, prefix: &Path, found: &mut Vec<Path>) -> usize {
    let mut at = 1;
    while let Some(next) = text[at..].chars().next() {
        if next == '}' {
            return at + 1;
        }
        let taken = collect(&text[at..], prefix, found);
        at += if taken > 0 { taken } else { next.len_utf8() };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module_tree(low: &str) -> Vec<String> {
        findings(&Tree::of(&[
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
    fn findings_include_upward_import() {
        for clean in [
            "use std::fmt;\n",
            "// crate::high\n",
            "#[cfg(test)]\nmod tests {\n    use crate::high::x;\n}\n",
            "mod inner {\n    use super::own;\n}\n",
            "mod inner {\n    use super::high::x;\n}\n",
        ] {
            assert_eq!(module_tree(clean), [""; 0], "{clean}");
        }
        for dirty in [
            "use crate::high::x;\n",
            "use crate::{low::y, high::x};\n",
            "use super::high;\n",
            "fn f(x: crate::Thing) {}\n",
            "mod inner {\n    use super::super::high::x;\n}\n",
        ] {
            assert_eq!(module_tree(dirty).len(), 1, "{dirty}");
        }
    }

    #[test]
    fn findings_include_unlisted_module() {
        let tree =
            Tree::of(&[("crates/x/Cargo.toml", ""), ("crates/x/src/lib.rs", "pub mod low;\n")]);
        assert_eq!(findings(&tree).len(), 1);
        let tree = Tree::of(&[
            ("crates/x/Cargo.toml", ""),
            ("crates/x/src/lib.rs", "//! - `low`, `gone`: a.\npub mod low;\n"),
        ]);
        assert_eq!(findings(&tree).len(), 1);
    }

    /// A crate with a folder `room`, which lists `first`, then `second`.
    fn nested(first: &str, second: &str) -> Vec<String> {
        findings(&Tree::of(&[
            ("crates/x/Cargo.toml", ""),
            ("crates/x/src/lib.rs", "//! - `room`: a;\n//! - `top`: b.\nmod room;\nmod top;\n"),
            (
                "crates/x/src/room/mod.rs",
                "//! - `first`: a;\n//! - `second`: b.\nmod first;\nmod second;\n\
                 pub(crate) use second::Thing;\npub(crate) trait Contract {}\n",
            ),
            ("crates/x/src/room/first.rs", first),
            ("crates/x/src/room/second.rs", second),
            ("crates/x/src/top.rs", "use crate::room::Thing;\n"),
        ]))
    }

    #[test]
    fn findings_include_upward_import_in_nested_room() {
        assert_eq!(nested("use super::Contract;\n", "use super::first::x;\n"), [""; 0]);
        assert_eq!(nested("", "use crate::room::first::x;\n"), [""; 0]);
        for dirty in [
            "use super::second::x;\n",
            "use super::{Contract, second};\n",
            "use super::Thing;\n",
            "use crate::room::{second::{y, z}};\n",
            "use super::super::top::x;\n",
            "fn f() { crate::top::x() }\n",
        ] {
            assert!(!nested(dirty, "").is_empty(), "{dirty}");
        }
    }
}
