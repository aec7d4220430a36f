//! Names of experiments and keys of their parameters: only `haul_model::experiment` spells them, so
//! that the reader and the writer of a record use the same spelling.

use std::collections::BTreeSet;

use crate::source::Source;
use crate::tree::Tree;

/// The beginnings of the paths of the files that contain the names of experiments, and the keys of
/// parameters.
const NAMES: &str = "crates/model/src/experiment/name.rs";
const KEYS: &str = "crates/model/src/experiment/key/";

/// The crates that write or read records.
const USERS: [&str; 3] = ["crates/experiments/src/", "crates/cli/src/", "crates/report/src/"];

/// The text before a key in code that sets or gets a record's parameter.
const USES: [&str; 9] = [
    ".with(",
    ".number(",
    ".count(",
    ".text(",
    ".shown(",
    "parameters.get(",
    "contains_key(",
    "parameters[",
    ".insert(",
];

/// The keys in this folder are read only by people so far.
const UNREAD: &str = "crates/cli/src/command/pcie/";

/// Literals for which the model has a constant.
pub(crate) fn spelled_out(tree: &Tree, path: &str, source: &Source) -> Vec<String> {
    if !USERS.iter().any(|folder| path.starts_with(folder)) || path.starts_with(UNREAD) {
        return Vec::new();
    }
    let (names, keys) = (constants(tree, NAMES), constants(tree, KEYS));
    let lines: Vec<&str> = source.text.lines().collect();
    let mut findings = Vec::new();
    for (number, _) in source.product_lines() {
        let line = lines[number - 1];
        if line.trim_start().starts_with("//") {
            continue;
        }
        for (before, literal) in literals(line) {
            let is_key = USES.iter().any(|of| before.ends_with(of)) && keys.contains(literal);
            if names.contains(literal) || is_key {
                let what = if is_key { "key" } else { "name" };
                findings.push(format!(
                    "{path}:{number}: {literal:?} has a constant in haul_model::experiment::{what}"
                ));
            }
        }
    }
    findings
}

/// The values of `pub const X: &str = "...";` in the files whose paths begin so.
fn constants<'a>(tree: &'a Tree, path: &str) -> BTreeSet<&'a str> {
    let files = tree.files.iter().filter(|file| file.path.starts_with(path));
    files
        .flat_map(|file| file.text.lines())
        .filter(|line| line.starts_with("pub const "))
        .filter_map(|line| line.split('"').nth(1))
        .collect()
}

/// Strings in a line, each with the text before it.
fn literals(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let quotes: Vec<usize> = line.match_indices('"').map(|(index, _)| index).collect();
    let pairs: Vec<(usize, usize)> =
        quotes.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().map(move |(open, close)| (&line[..open], &line[open + 1..close]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_spelled_out_is_found() {
        let tree = Tree::of(&[
            (NAMES, "pub const COPY_SIZE: &str = \"copy.size\";\n"),
            (&format!("{KEYS}copy.rs"), "pub const LEVEL: &str = \"level\";\n"),
        ]);
        let found = |path: &str, text: &str| spelled_out(&tree, path, &Source::new(text));
        let report = "crates/report/src/a.rs";
        let name = "r.experiment == \"copy.size\"\n";
        assert_eq!(
            found(report, name),
            [format!("{report}:1: \"copy.size\" has a constant in haul_model::experiment::name")]
        );
        assert_eq!(found("crates/model/src/a.rs", name), [""; 0]);
        assert_eq!(found(report, &format!("// {name}")), [""; 0]);
        assert_eq!(found(report, &format!("#[cfg(test)]\nmod t {{\n{name}}}\n")), [""; 0]);
        assert_eq!(found(report, "record.with(\"level\", 1).parameters[\"level\"]\n").len(), 2);
        assert_eq!(found(report, "table.add(\"level\")\n"), [""; 0]);
    }
}
