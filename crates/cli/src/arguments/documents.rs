//! Checks that this program accepts every command in the documents, with every flag and value.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::Arguments;

/// The documents, by name and text.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = docs.chain([root.join("README.md")]).collect();
    paths.retain(|path| path.extension().is_some_and(|name| name == "md"));
    paths.sort();
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).unwrap());
    paths.into_iter().map(read).collect()
}

/// The lines of all shell blocks, with continued lines joined.
fn lines(document: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, block) in document.split("\n```").enumerate() {
        let Some((language, body)) = block.split_once('\n').filter(|_| number % 2 == 1) else {
            continue;
        };
        if ["", "sh", "console"].contains(&language) {
            lines.extend(body.replace("\\\n", " ").lines().map(str::to_owned));
        }
    }
    lines
}

/// A quoted text is a word, in which no character has a meaning for the shell. A quoted call of
/// this program is a separate command.
fn unquoted(line: &str) -> String {
    let pieces = line.split(['\'', '"']).enumerate();
    pieces
        .map(|(number, piece)| match number % 2 == 1 {
            true if piece.starts_with("haul ") => format!(" ; {piece} ; "),
            true => piece.chars().map(hidden).collect(),
            false => piece.to_owned(),
        })
        .collect()
}

/// Where the characters with a meaning are hidden: in an area for private use.
const HIDDEN: u32 = 0xe000;

fn hidden(c: char) -> char {
    let has_meaning = " |;&<>#".contains(c);
    char::from_u32(HIDDEN + u32::from(c)).filter(|_| has_meaning).unwrap_or(c)
}

fn shown(c: char) -> char {
    let ascii = u32::from(c).checked_sub(HIDDEN).filter(|it| *it < 0x80);
    ascii.and_then(char::from_u32).unwrap_or(c)
}

/// Each call of this program in a shell line, as its words; also after a pipe and within quotes.
fn calls(line: &str) -> Vec<Vec<String>> {
    let line = unquoted(line);
    let line = line.split(" #").next().unwrap_or_default();
    let line = line.replace("cargo run --release --", "haul");
    let mut calls = Vec::new();
    for command in line.split(['|', ';', '&']) {
        // A redirection is not part of the command's words.
        let command = command.split(['<', '>']).next().unwrap_or_default();
        let words = command.split_whitespace().map(|word| word.chars().map(shown).collect());
        let words: Vec<String> = words.collect();
        if words.first().is_some_and(|word| word == "haul") {
            calls.push(words);
        }
    }
    calls
}

/// The shell fills in a task's number.
fn filled_in(words: &[String]) -> Vec<String> {
    words.iter().map(|word| if word.starts_with('$') { "0".into() } else { word.clone() }).collect()
}

#[test]
fn program_accepts_every_command_of_the_documents() {
    let mut understood = 0;
    for (name, text) in documents() {
        for call in lines(&text).iter().flat_map(|line| calls(line)) {
            match Arguments::try_parse_from(filled_in(&call)) {
                Ok(_) => {}
                Err(error) if error.exit_code() == 0 => {} // --help
                Err(error) => panic!("{name}: {}: {error}", call.join(" ")),
            }
            understood += 1;
        }
    }
    assert!(understood >= 30, "{understood} commands, expected at least 30");
}

#[test]
fn calls_leave_out_shell_syntax() {
    let words =
        |line: &str| -> Vec<String> { calls(line).iter().map(|words| words.join(" ")).collect() };
    assert_eq!(
        words("producer | haul channel send --to S   # a pipe"),
        ["haul channel send --to S"]
    );
    assert_eq!(words("haul channel recv \"$X/s\" | tar x"), ["haul channel recv $X/s"]);
    assert_eq!(words("hq x sh -c 'haul sim task p $ID'"), ["haul sim task p $ID"]);
    assert_eq!(words("haul sim collect p --json > s.jsonl"), ["haul sim collect p --json"]);
    assert_eq!(words("cargo run --release -- survey"), ["haul survey"]);
    assert_eq!(words("haul field 'a=>b c' > x"), ["haul field a=>b c"]);
    assert!(Arguments::try_parse_from(["haul", "copy", "bench", "--agianst", "libc"]).is_err());
}
