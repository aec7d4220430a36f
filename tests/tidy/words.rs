//! Words that a reader outside of this project would have to guess at.

use crate::tree::{File, Tree};

/// Words that this project once gave a meaning of its own, and what the field says instead.
const PRIVATE: [(&str, &str); 9] = [
    ("told", "reported, named, known"),
    ("tells", "says, shows"),
    ("took", "needed, used, went by"),
    ("aside", "idle, apart"),
    ("way", "mechanism, kernel, direction"),
    ("ways", "mechanisms, kernels, directions"),
    ("pair", "two, a block and its free, A/A"),
    ("pairs", "combinations, blocks and their frees"),
    ("whoever", "who, the process that"),
];

/// The same of several words.
const PHRASES: [(&str, &str); 2] =
    [("the seed", "what it is called in the field"), ("looked at", "checked, read, inspected")];

/// Private words in the documents and in what `--help` says.
pub(crate) fn private(tree: &Tree) -> Vec<String> {
    let also = ["README.md", "CHANGELOG.md", "examples/README.md"];
    let is_read = |file: &&File| is_page(file) || also.contains(&file.path.as_str());
    let pages = tree.files.iter().filter(is_read);
    let of_pages = pages.flat_map(|page| findings(&page.path, &prose(&page.text)));
    let help = tree.files.iter().filter(|file| is_help(&file.path));
    let of_help = help.flat_map(|file| findings(&file.path, &help_text(&file.text)));
    of_pages.chain(of_help).collect()
}

fn is_page(file: &File) -> bool {
    file.path.starts_with("docs/") && file.path.ends_with(".md")
}

/// The command line, whose comments are its help.
fn is_help(path: &str) -> bool {
    let arguments =
        path == "crates/cli/src/arguments.rs" || path.starts_with("crates/cli/src/arguments/");
    arguments && path.ends_with(".rs")
}

/// Comments of a command line, line by line; everything else is blank.
fn help_text(text: &str) -> Vec<String> {
    let line = |line: &str| line.trim_start().strip_prefix("///").unwrap_or_default().to_owned();
    text.lines().map(line).map(|line| without_code(&line)).collect()
}

/// What a reader reads of a document, line by line: blocks of code are blank.
fn prose(text: &str) -> Vec<String> {
    let mut in_code = false;
    let mut line = |line: &str| {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            return String::new();
        }
        if in_code { String::new() } else { without_code(line) }
    };
    text.lines().map(&mut line).collect()
}

/// The line without what stands between back quotes, and without where links lead.
fn without_code(line: &str) -> String {
    let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
    let mut kept = String::new();
    for (index, part) in plain.split("](").enumerate() {
        kept.push_str(if index == 0 {
            part
        } else {
            part.split_once(')').map_or("", |(_, rest)| rest)
        });
    }
    kept.to_lowercase()
}

fn findings(path: &str, lines: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in lines.iter().enumerate().map(|(index, line)| (index + 1, line)) {
        for (phrase, instead) in PHRASES {
            if line.contains(phrase) {
                findings.push(format!("{path}:{number}: \"{phrase}\"; say {instead}"));
            }
        }
        let words: Vec<&str> = line.split(|c: char| !c.is_alphanumeric()).collect();
        for (place, word) in words.iter().enumerate() {
            // A cache of 4 ways, and a 4-way platform.
            let before = place.checked_sub(1).map_or("", |before| words[before]);
            let is_of_cache = before.chars().any(|c| c.is_ascii_digit());
            let found = PRIVATE.iter().find(|(private, _)| private == word);
            if let Some((private, instead)) = found.filter(|_| !is_of_cache) {
                findings.push(format!("{path}:{number}: \"{private}\"; say {instead}"));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_private_word_is_found_and_code_is_not() {
        let count = |path: &str, text: &str| private(&Tree::of(&[(path, text)])).len();
        let help = "crates/cli/src/arguments/heap.rs";
        for clean in [
            "A cache of 8 ways and a 4-way platform; half of it. `pairs` and [x](way/told.md).",
            "```sh\nhaul x # told\n```",
            "Always a pathway.",
        ] {
            assert_eq!(count("docs/a.md", clean), 0, "{clean}");
        }
        for dirty in
            ["It is told.", "| The Seed | x |", "both ways", "A Pair of", "it is looked at"]
        {
            assert_eq!(count("docs/a.md", dirty), 1, "{dirty}");
            assert_eq!(count("README.md", dirty), 1, "{dirty}");
            assert_eq!(count("docs/pcie.md", dirty), 1, "{dirty}");
            assert_eq!(count("CHANGELOG.md", dirty), 1, "{dirty}");
            assert_eq!(count("bench/record/README.md", dirty), 0, "{dirty}");
            assert_eq!(count(help, &format!("    /// {dirty}")), 1, "{dirty}");
            assert_eq!(count(help, &format!("    let it = 1; // {dirty}")), 0, "{dirty}");
        }
    }
}
