//! The parts of a file that people read: prose, and identifiers.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::source::Source;
use crate::tree::File;

/// The parts of a file that people read.
pub(super) struct Text {
    /// Documents, comments and string literals.
    pub(super) prose: Vec<Word>,
    /// The identifiers of Rust and C, each with its first line.
    pub(super) identifiers: BTreeMap<String, usize>,
}

/// A word of the prose, in lower case, or the end of a sentence.
#[derive(Debug, PartialEq)]
pub(super) struct Word {
    /// From 1.
    pub(super) line: usize,
    /// The word; [`END`] at the end of a sentence, a cell or a string, [`PAUSE`] inside it.
    pub(super) word: String,
}

/// Stands for the end of a sentence.
pub(super) const END: &str = ".";

/// Stands for a pause inside a sentence.
pub(super) const PAUSE: &str = ",";

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

impl Text {
    pub(super) fn of(file: &File) -> Self {
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
pub(super) fn split(identifier: &str) -> Vec<String> {
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
