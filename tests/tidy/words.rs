//! Words that a reader from outside this project would have to guess.
//!
//! The rules apply to prose (documents, comments, messages and other string literals) and to
//! identifiers, including the names of tests. `cargo test -p haul-model --test tidy wording --
//! --nocapture` prints the number of findings in each folder; with `TIDY_WORDS=crates/heap` in
//! the environment it lists the findings of this folder only.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::source::Source;
use crate::tree::{File, Tree};

/// The name of the environment variable that names a folder to list.
const LIST: &str = "TIDY_WORDS";

/// A pattern of words, and the words that the field uses instead. A word of the pattern may have
/// alternatives: `a|b`. `!a|b` matches any other word or the end of a sentence, `.` matches the
/// end of a sentence, `*` matches any word, and `^` matches the beginning of an identifier.
type Rule = (&'static str, &'static str);

/// Patterns in prose.
const PROSE: [Rule; 25] = [
    ("told", "reported, named, known, notified"),
    ("tells", "says, shows, reports, returns whether"),
    ("aside", "idle, apart, reserved, moved to"),
    ("whoever", "the process that, the caller, a user who"),
    ("nobody", "no process, no thread, no user"),
    ("anybody", "any process, another user"),
    ("everybody", "all processes, all users"),
    ("somebody !else's", "another process, a thread, a user"),
    ("looks|looked|looking at", "checks, reads, polls, inspects"),
    ("a|one|each|first|second|another|every|last look !up", "poll, check, read"),
    ("* that|which is|are none !of", "is not one, is not a ..."),
    ("what|who is|are none", "is not one, is not a ..."),
    ("* that|which is|are no !longer|more|less", "is not a ..."),
    ("what|who is|are no", "is not a ..."),
    (". who !am|are|is|was|.", "the process that, the user who"),
    ("by|for|than|and|or|but|if|with|from|of|process|thread|peer|end who", "name the actor"),
    ("by|than|and|or|but|that|from whom", "name the actor"),
    ("who may", "name the actor: a process that may"),
    ("is|be|are|was|were|being had", "is available, is held, can be allocated"),
    ("what stands", "the bytes, the file, the text that ..."),
    ("stands on", "depends on, is based on"),
    ("in vain", "without effect, fails"),
    ("of ours|theirs", "haul's, its, the peer's"),
    ("taken for dead|a|an|one|ones|its", "counts as, is treated as"),
    ("what|which it|they|that|this took !a", "the time or memory that it used"),
];

/// Patterns in documents and in `--help`, in addition to those in prose.
const PAGES: [Rule; 6] = [
    ("took", "needed, used"),
    ("way", "mechanism, kernel, direction"),
    ("ways", "mechanisms, kernels, directions"),
    ("pair", "two, a block and its free, A/A"),
    ("the seed", "what it is called in the field"),
    ("one's own", "the user's, the caller's, the same"),
];

/// Patterns in identifiers.
const NAMES: [Rule; 13] = [
    ("told", "reported, named, known"),
    ("tells", "reports, says"),
    // `took_ns`, a duration with its unit, is a field of traces.
    ("took !ns", "used, elapsed"),
    ("aside", "idle, apart, reserved"),
    ("whoever", "name the actor"),
    ("nobody", "no_process, no_thread, unused"),
    ("anybody", "any_process"),
    ("everybody", "all"),
    ("somebody", "another, other_user"),
    ("look|looks !up|like|alike|right", "polls, checks, reads"),
    ("looked !up", "polled, checked, read"),
    ("settle|settles|settled", "complete, finish, resolve"),
    ("^who|whom|whose|what|whatever|when|where|if * *", "the subject first: subject_verb_object"),
];

/// Folders in which more runs settle an open verdict.
const SETTLES: [&str; 3] = ["crates/cli", "crates/model", "crates/report"];

/// Names that the field uses: that of user 65534.
const FIELD: [&str; 1] = ["NOBODY"];

/// Names of types, and the names that the field uses instead.
const TYPES: [Rule; 5] = [
    ("Let", "Sending, Receiving"),
    ("Lay", "Sending, Receiving"),
    ("Pour", "Sending, Receiving"),
    ("Rest", "BackOff, Remainder"),
    ("Rests", "BackOff"),
];

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
    // This file names the words, and records of measurements are not rewritten.
    if file.path == "tests/tidy/words.rs" || file.path.starts_with("bench/record/") {
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

/// A word of the prose, in lower case, or the end of a sentence.
#[derive(Debug, PartialEq)]
struct Word {
    /// From 1.
    line: usize,
    /// The word; [`END`] at the end of a sentence, a cell or a string, [`PAUSE`] inside it.
    word: String,
}

/// Stands for the end of a sentence.
const END: &str = ".";
/// Stands for a pause inside a sentence.
const PAUSE: &str = ",";
/// Stands for code in prose.
const CODE: &str = "code";

/// How prose and identifiers are found in a file.
#[derive(Clone, Copy)]
enum Kind {
    /// Markdown, and other text without code.
    Document,
    /// Rust, C or JavaScript: comments, strings and identifiers.
    Source,
    /// Python, shell or TOML: comments behind `#`.
    Script,
}

fn kind(path: &str) -> Option<Kind> {
    let (_, name) = path.rsplit_once('/').unwrap_or(("", path));
    let is_script = path.starts_with("scripts/") || path.starts_with("bench/definitions/");
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("md") => Some(Kind::Document),
        Some("rs" | "c" | "h" | "cpp" | "js") => Some(Kind::Source),
        Some("py" | "toml" | "sh") => Some(Kind::Script),
        None if is_script => Some(Kind::Script),
        _ => None,
    }
}

/// The parts of a file that people read.
struct Text {
    /// Documents, comments and string literals.
    prose: Vec<Word>,
    /// The identifiers of Rust and C, each with its first line.
    identifiers: BTreeMap<String, usize>,
}

impl Text {
    fn of(file: &File) -> Self {
        let mut identifiers = BTreeMap::new();
        let text = match kind(&file.path) {
            Some(Kind::Document) => without_blocks(&file.text),
            Some(Kind::Source) => {
                let code = Source::new(&file.text).code;
                if !file.path.ends_with(".js") {
                    identifiers = identifiers_of(&code);
                }
                comments_and_strings(&file.text, &code)
            }
            Some(Kind::Script) => hash_comments(&file.text),
            None => String::new(),
        };
        let lines = text.lines().enumerate();
        let prose = lines.flat_map(|(index, line)| words(index + 1, &without_code(line))).collect();
        Self { prose, identifiers }
    }
}

fn identifiers_of(code: &str) -> BTreeMap<String, usize> {
    let mut identifiers = BTreeMap::new();
    for (line, text) in code.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        let parts = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        for name in parts.filter(|part| part.starts_with(|c: char| c.is_alphabetic() || c == '_')) {
            identifiers.entry(name.to_owned()).or_insert(line);
        }
    }
    identifiers
}

/// The words of an identifier in snake or camel case, in lower case.
fn split(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in identifier.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            parts.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        if c != '_' {
            parts.last_mut().expect("there is always one").extend(c.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The document with blank code blocks.
fn without_blocks(text: &str) -> String {
    let mut in_code = false;
    let mut line = |line: &str| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        let kept = if in_code || is_fence { "" } else { line };
        format!("{kept}\n")
    };
    text.lines().map(&mut line).collect()
}

/// Comments and strings; other code reads as the end of a sentence.
fn comments_and_strings(text: &str, code: &str) -> String {
    let both = text.lines().zip(code.lines());
    let of_line = |(text, code): (&str, &str)| {
        // Both texts have the same bytes except for the blanks, so each character begins at the
        // same byte.
        let kept = text.char_indices().map(|(at, c)| {
            let is_code = code.as_bytes()[at] == c as u8 && c.is_ascii() && !c.is_whitespace();
            if is_code { '.' } else { c }
        });
        let kept: String = kept.collect();
        let comment = kept.trim_start().trim_start_matches(['/', '*']);
        let body = comment.strip_prefix("! ").unwrap_or(comment);
        format!("{body}\n")
    };
    both.map(of_line).collect()
}

/// The text behind `#` at the beginning of a line or after a space.
fn hash_comments(text: &str) -> String {
    let of_line = |line: &str| {
        let from = if line.starts_with('#') { Some(0) } else { line.find(" #") };
        let comment = from.map_or("", |from| line[from..].trim_start().trim_start_matches('#'));
        if comment.starts_with('!') { "\n".into() } else { format!("{comment}\n") }
    };
    text.lines().map(of_line).collect()
}

/// The line without code between backquotes, and without the targets of links.
fn without_code(line: &str) -> String {
    let plain = line.split('`').step_by(2).collect::<Vec<_>>().join(CODE);
    let mut kept = String::new();
    for (index, part) in plain.split("](").enumerate() {
        let of_link = || part.split_once(')').map_or("", |(_, rest)| rest);
        kept.push_str(if index == 0 { part } else { of_link() });
    }
    kept
}

/// The words of a line, with the ends of sentences between them.
fn words(line: usize, text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_inside = c == '\'' && rest.peek().is_some_and(|next| next.is_alphabetic());
        if c.is_alphanumeric() || c == '_' || (is_inside && !word.is_empty()) {
            word.extend(c.to_lowercase());
            continue;
        }
        if !word.is_empty() {
            words.push(Word { line, word: std::mem::take(&mut word) });
        }
        if c == '{' {
            skip_placeholder(&mut rest);
        }
        let mark = match c {
            '.' | ':' | ';' | '?' | '!' | '|' | '"' => END,
            ',' | '(' | ')' | '{' | '}' => PAUSE,
            _ => continue,
        };
        if words.last().is_none_or(|last| last.word != mark) {
            words.push(Word { line, word: mark.into() });
        }
    }
    if !word.is_empty() {
        words.push(Word { line, word });
    }
    words
}

/// Skips the rest of a placeholder such as `{name:?}`, whose name is an identifier of the code.
fn skip_placeholder(rest: &mut Peekable<Chars<'_>>) {
    let mut ahead = rest.clone();
    let is_inside = |c: &char| c.is_alphanumeric() || matches!(c, '_' | ':' | '?' | '#' | '.');
    while ahead.next_if(is_inside).is_some() {}
    if ahead.next() == Some('}') {
        *rest = ahead;
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

    fn read(path: &str, text: &str) -> String {
        let file = File { path: path.into(), text: text.into() };
        let words = Text::of(&file).prose.into_iter().map(|word| word.word);
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn prose_has_comments_and_strings_without_code() {
        for (text, expected) in [
            ("/// One `two` three.\n", "one code three ."),
            ("//! One\n//! two\n", "one two"),
            ("let one = \"two three\"; // four", ". two three . four"),
            ("/* one\n * two */ int three;", "one two ."),
            ("\"one {two:?} three\"", ". one , three ."),
        ] {
            assert_eq!(read("a.rs", text), expected, "{text}");
        }
        assert_eq!(read("a.md", "One [two](three).\n```\nfour\n```\nfive's"), "one two . five's");
        assert_eq!(read("scripts/a", "#!/bin/sh\n# one\nx=2 # two"), "one two");
        assert_eq!(read("a.svg", "one"), "");
    }

    #[test]
    fn identifiers_are_split_into_words() {
        let file = |path: &str| File {
            path: path.into(),
            text: "fn one_two(x: ThreeFour) {}\n// five\nconst SIX_B: &str = \"seven\";".into(),
        };
        let names = Text::of(&file("a.rs")).identifiers;
        let names: Vec<(&str, usize)> =
            names.iter().map(|(name, line)| (&name[..], *line)).collect();
        let first = [("SIX_B", 3), ("ThreeFour", 1), ("const", 3), ("fn", 1), ("one_two", 1)];
        assert_eq!(names, [&first[..], &[("str", 3), ("x", 1)]].concat());
        assert!(Text::of(&file("a.md")).identifiers.is_empty());
        assert_eq!(split("ThreeFour"), ["three", "four"]);
        assert_eq!(split("one_Two2_x"), ["one", "two2", "x"]);
        assert_eq!(split("SIX_B"), ["six", "b"]);
    }
}
