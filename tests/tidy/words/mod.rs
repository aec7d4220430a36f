//! Words that a reader from outside this project would have to guess.
//!
//! The rules apply to prose (documents, comments, messages and other string literals) and to
//! identifiers, including the names of tests. `cargo test -p haul-model --test tidy wording --
//! --nocapture` prints the number of findings in each folder; with `TIDY_WORDS=crates/heap` in
//! the environment it lists the findings of this folder only.
//!
//! - `rules`: the words, and what the field says instead;
//! - `text`: the parts of a file that people read.

mod rules;
mod text;

use std::collections::BTreeMap;

use crate::tree::{File, Tree};
use rules::{FIELD, NAMES, PAGES, PROSE, Rule, SETTLES, TYPES};
use text::{END, PAUSE, Text, Word, split};

/// The name of the environment variable that names a folder to list.
const LIST: &str = "TIDY_WORDS";

/// Private words in prose and identifiers. Prints the number of findings in each folder.
pub(crate) fn private(tree: &Tree) -> Vec<String> {
    let found = Found::of(tree);
    for (folder, count) in found.folders {
        eprintln!("{folder}: {count}");
    }
    found.counted
}

/// Findings in a tree.
#[derive(Default)]
struct Found {
    /// The number of findings in each folder.
    folders: BTreeMap<String, usize>,
    /// The findings in the folder that the environment names, or in all folders.
    counted: Vec<String>,
}

impl Found {
    fn of(tree: &Tree) -> Self {
        let listed = std::env::var(LIST).ok();
        let mut all = Self::default();
        for file in &tree.files {
            let found = of_file(file);
            if found.is_empty() {
                continue;
            }
            *all.folders.entry(folder(&file.path)).or_default() += found.len();
            if listed.as_ref().is_none_or(|listed| is_in(&file.path, listed)) {
                all.counted.extend(found);
            }
        }
        all
    }
}

fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || rest.is_empty())
}

/// The folder to whose count a file's findings are added.
fn folder(path: &str) -> String {
    let mut parts = path.split('/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(first @ ("crates" | "ffi" | "bench")), Some(second), Some(_)) => {
            format!("{first}/{second}")
        }
        (Some(first), Some(_), _) => first.into(),
        _ => ".".into(),
    }
}

fn of_file(file: &File) -> Vec<String> {
    // This folder names the words, and records of measurements are not rewritten.
    if is_in(&file.path, "tests/tidy/words") || is_in(&file.path, "bench/record") {
        return Vec::new();
    }
    let text = Text::of(file);
    let mut findings = Vec::new();
    let rules = PROSE.iter().chain(if is_page(&file.path) { &PAGES[..] } else { &[] });
    for rule in rules {
        findings.extend(in_prose(&text.prose, rule).map(|line| report(&file.path, line, rule)));
    }
    let settles = SETTLES.iter().any(|folder| is_in(&file.path, folder));
    let names = text.identifiers.into_iter().filter(|(name, _)| !FIELD.contains(&name.as_str()));
    for (name, line) in names {
        let words = split(&name);
        let of_words = NAMES.iter().find(|(pattern, _)| {
            let is_free = pattern.starts_with("settle") && settles;
            !is_free && in_name(&words, pattern)
        });
        let of_types = || TYPES.iter().find(|(exact, _)| *exact == name);
        if let Some((_, instead)) = of_words.or_else(of_types) {
            findings.push(format!("{}:{line}: `{name}`; say {instead}", file.path));
        }
    }
    findings
}

fn report(path: &str, line: usize, (pattern, instead): &Rule) -> String {
    format!("{path}:{line}: \"{pattern}\"; say {instead}")
}

/// Documents, and the arguments of the command line, whose comments are its help.
fn is_page(path: &str) -> bool {
    let arguments = "crates/cli/src/arguments";
    path.ends_with(".md") || is_in(path, arguments) || path == "crates/cli/src/arguments/mod.rs"
}

/// The lines at which the rule matches.
fn in_prose<'a>(words: &'a [Word], rule: &'a Rule) -> impl Iterator<Item = usize> {
    let parts = parts(rule.0);
    (0..words.len()).filter_map(move |at| {
        let is_found = parts.iter().enumerate().all(|(index, part)| {
            part.matches(words.get(at + index).map_or(END, |word| &word.word))
        });
        // These are allowed: a cache of 4 ways, a 4-way platform, and a request under way.
        let before = at.checked_sub(1).map_or("", |before| words[before].word.as_str());
        let is_of_field = rule.0.starts_with("way")
            && (before == "under" || before.contains(|c: char| c.is_ascii_digit()));
        let line = words[(at + parts.len() - 1).min(words.len() - 1)].line;
        (is_found && !is_of_field).then_some(line)
    })
}

/// Whether a pattern matches in an identifier.
fn in_name(words: &[String], pattern: &str) -> bool {
    let (pattern, is_first) = match pattern.strip_prefix('^') {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let parts = parts(pattern);
    let word = |at: usize| words.get(at).map_or(END, String::as_str);
    let mut starts = if is_first { 0..1 } else { 0..words.len() };
    starts.any(|at| parts.iter().enumerate().all(|(i, part)| part.matches(word(at + i))))
}

/// One word of a pattern.
enum Part<'a> {
    /// Any word.
    Any,
    OneOf(Vec<&'a str>),
    NoneOf(Vec<&'a str>),
}

fn parts(pattern: &str) -> Vec<Part<'_>> {
    let part = |part| match str::strip_prefix(part, '!') {
        Some(excluded) => Part::NoneOf(excluded.split('|').collect()),
        None if part == "*" => Part::Any,
        None => Part::OneOf(part.split('|').collect()),
    };
    pattern.split(' ').map(part).collect()
}

impl Part<'_> {
    fn matches(&self, word: &str) -> bool {
        match self {
            Self::Any => word != END && word != PAUSE,
            Self::OneOf(words) => words.contains(&word),
            Self::NoneOf(words) => !words.contains(&word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        Found::of(&Tree::of(&[(path, text)])).counted.len()
    }

    #[test]
    fn prose_rules_find_private_words_alone() {
        let dirty = [
            "It is told.",
            "Nobody waits.",
            "a device that is none",
            "what is no file",
            "A lease. Who asks is answered.",
            "it is held by who maps it",
            "Processes who may live.",
            "The key can be had.",
            "What stands behind it",
            "it is looked\nat twice",
        ];
        let clean = [
            "The value; none of the others. `told` and [x](told.md).",
            "somebody else's file",
            "Who is it for?",
            "a value that is no longer used",
            "a user who asks",
            "It had a name, and looks for it.",
        ];
        for (text, expected) in
            dirty.map(|text| (text, 1)).iter().chain(&clean.map(|text| (text, 0)))
        {
            let comment = text.replace('\n', "\n/// ");
            let message = text.replace('\n', " ");
            assert_eq!(count("docs/a.md", text), *expected, "{text}");
            assert_eq!(count("README.md", text), *expected, "{text}");
            assert_eq!(count("crates/sim/a.rs", &format!("/// {comment}")), *expected, "{text}");
            assert_eq!(count("tests/a.rs", &format!("f(\"{message}\")")), *expected, "{text}");
            assert_eq!(count("crates/sim/a.c", &format!("/* {text} */")), *expected, "{text}");
            assert_eq!(count("bench/record/README.md", text), 0, "{text}");
            assert_eq!(count("docs/a.md", &format!("```sh\n{text}\n```")), 0, "{text}");
        }
    }

    #[test]
    fn page_rules_hold_for_documents_and_help() {
        for dirty in ["| The Seed | x |", "both ways", "A Pair of", "a copy took"] {
            assert_eq!(count("docs/a.md", dirty), 1, "{dirty}");
            assert_eq!(count("crates/sim/src/a.rs", &format!("// {dirty}")), 0, "{dirty}");
            assert!(is_page("crates/cli/src/arguments/heap.rs"));
        }
        for clean in
            ["A cache of 8 ways and a 4-way platform.", "It is under way.", "Always a pathway."]
        {
            assert_eq!(count("docs/a.md", clean), 0, "{clean}");
        }
    }

    #[test]
    fn name_rules_find_private_identifiers() {
        let path = "crates/sim/src/a.rs";
        for dirty in [
            "fn told() {}",
            "struct TimeTook;",
            "let is_told = 1;",
            "fn what_is_lost_is_found() {}",
        ] {
            assert_eq!(count(path, dirty), 1, "{dirty}");
            assert_eq!(count(path, &format!("{dirty}\n{dirty}")), 1, "{dirty}");
        }
        for clean in
            ["fn take() {}", "struct Untold;", "let what = 1;", "fn if_any() {}", "Let_", "NOBODY"]
        {
            assert_eq!(count(path, clean), 0, "{clean}");
        }
        assert_eq!(count(path, "enum Lay {}"), 1);
        assert_eq!(count("crates/sim/src/a.c", "int told;"), 1);
    }

    #[test]
    fn folders_are_whole_names() {
        assert!(is_in("crates/haul/a.rs", "crates/haul") && is_in("a", "a"));
        assert!(!is_in("crates/haul-c/a.rs", "crates/haul"));
        assert_eq!(folder("crates/heap/src/a.rs"), "crates/heap");
        assert_eq!((folder("docs/a.md"), folder("README.md")), ("docs".into(), ".".into()));
        assert_eq!(folder("ffi/README.md"), "ffi");
    }
}
