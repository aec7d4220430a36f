//! Lengths, banned words and calls, and the attributes that a crate must carry.

use crate::source::{Source, closing_brace, identifier, line_of, starts_word};
use crate::tree::Tree;

/// Lines that a file should not exceed.
pub(crate) const FILE_LINES_AIM: usize = 400;
/// The most lines of a file; a longer file must be split.
pub(crate) const FILE_LINES_MAX: usize = 1000;
/// The most lines of a function, from `fn` to its closing brace; a longer function must be split.
const FUNCTION_LINES_MAX: usize = 70;

/// The most columns of a comment line, the same as rustfmt allows for code.
const COLUMNS_MAX: usize = 100;

/// The endings of file names with code.
const CODE: [&str; 9] = [".rs", ".c", ".cc", ".cpp", ".h", ".js", ".css", ".py", ".toml"];

/// Attributes that a crate's root must carry.
const ATTRIBUTES: [(&str, &str); 6] = [
    ("crates/model/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("crates/sim/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("crates/report/src/lib.rs", "#![forbid(unsafe_code)]"),
    ("crates/cli/src/main.rs", "#![forbid(unsafe_code)]"),
    ("crates/copy/src/lib.rs", "no_std"),
    ("crates/copy/src/lib.rs", "no_builtins"),
];

/// A call that product code must not make: its text, the rule's name, and the alternative.
struct Ban {
    call: &'static str,
    rule: &'static str,
    instead: &'static str,
    /// Whether the program `haul` may make the call.
    in_cli: bool,
}

const BANS: [Ban; 7] = [
    Ban { call: "println!", rule: "print", instead: "return it to the caller", in_cli: false },
    Ban { call: "print!", rule: "print", instead: "return it to the caller", in_cli: false },
    Ban { call: "eprintln!", rule: "print", instead: "return it to the caller", in_cli: true },
    Ban { call: "eprint!", rule: "print", instead: "return it to the caller", in_cli: true },
    Ban { call: "dbg!", rule: "dbg", instead: "remove it", in_cli: false },
    Ban {
        call: ".unwrap()",
        rule: "unwrap",
        instead: "return an error, or expect(\"why it holds\")",
        in_cli: false,
    },
    Ban { call: "process::exit", rule: "exit", instead: "return an error", in_cli: true },
];

/// Files of code with more lines than `limit`.
pub(crate) fn long_files(tree: &Tree, limit: usize) -> Vec<String> {
    let code = tree.files.iter().filter(|file| is_code(&file.path) && !is_generated(&file.text));
    code.map(|file| (&file.path, file.text.lines().count()))
        .filter(|&(_, lines)| lines > limit)
        .map(|(path, lines)| format!("{path}: {lines} lines, the limit is {limit}"))
        .collect()
}

/// Whether the first lines of a file say that a program generated it. The length of such a file
/// depends on its sources.
fn is_generated(text: &str) -> bool {
    text.lines().take(5).any(|line| line.contains("do not edit"))
}

fn is_code(path: &str) -> bool {
    CODE.iter().any(|ending| path.ends_with(ending)) || path.starts_with("scripts/")
}

/// Comment lines that are too long. (rustfmt wraps lines of code.) A table row may be longer, and
/// a word that cannot be broken, such as an address.
pub(crate) fn long_comments(path: &str, source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate();
    lines
        .filter(|(_, text)| text.chars().count() > COLUMNS_MAX)
        .filter_map(|(index, text)| Some((index, text.trim_start().strip_prefix("//")?)))
        .map(|(index, comment)| (index, comment.trim_start_matches(['/', '!']).trim_start()))
        .filter(|(_, comment)| !comment.starts_with('|') && comment.contains(' '))
        .map(|(index, _)| format!("{path}:{}: longer than {COLUMNS_MAX} columns", index + 1))
        .collect()
}

/// Functions that are too long.
pub(crate) fn long_functions(path: &str, source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (start, _) in source.code.match_indices("fn ") {
        let name = identifier(&source.code[start + 3..]);
        if name.is_empty() || !starts_word(&source.code, start) {
            continue;
        }
        let Some(open) = body(&source.code, start) else {
            continue;
        };
        let first = line_of(&source.code, start);
        let lines = line_of(&source.code, closing_brace(&source.code, open) - 1) - first + 1;
        if lines > FUNCTION_LINES_MAX {
            findings.push(format!(
                "{path}:{first}: fn {name} has {lines} lines, the limit is {FUNCTION_LINES_MAX}"
            ));
        }
    }
    findings
}

/// The start of the body of the function at `start`; `None` for a declaration.
fn body(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (index, byte) in code.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(index),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Values with a `Drop` that are created even if a condition is false. `then_some` takes an
/// existing value and drops it if the condition is false. The drop then undoes an action that was
/// never performed.
pub(crate) fn eager_guards(path: &str, source: &Source) -> Vec<String> {
    const DROP: &str = "impl Drop for ";
    const EAGER: &str = ".then_some(";
    let code = &source.code;
    let names = code.match_indices(DROP).map(|(at, _)| identifier(&code[at + DROP.len()..]));
    let guards: Vec<&str> = names.collect();
    let eager = code.match_indices(EAGER).filter(|(at, _)| {
        let made = identifier(&code[at + EAGER.len()..]);
        guards.contains(&made) || (made == "Self" && !guards.is_empty())
    });
    eager
        .map(|(at, _)| line_of(code, at))
        .filter(|line| !source.is_allowed(*line, "guard"))
        .map(|line| {
            format!("{path}:{line}: create a guard only if the condition holds: .then(|| ..)")
        })
        .collect()
}

/// Words that mark unfinished work. The second word is allowed with the number of an issue.
pub(crate) fn left_for_later(path: &str, text: &str) -> Vec<String> {
    if !is_code(path) {
        return Vec::new();
    }
    // The words are spelled in two halves, so that the rule does not find this file.
    let (banned, needs_issue) = (concat!("TO", "DO"), concat!("FIX", "ME"));
    let mut findings = Vec::new();
    for (line, text) in text.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        if text.contains(banned) {
            findings.push(format!("{path}:{line}: {banned}: do it, or file an issue"));
        }
        if text.split(needs_issue).skip(1).any(|rest| !names_an_issue(rest)) {
            findings.push(format!("{path}:{line}: {needs_issue} without (#issue)"));
        }
    }
    findings
}

fn names_an_issue(rest: &str) -> bool {
    let number = rest.strip_prefix("(#").and_then(|rest| rest.split_once(')'));
    number
        .is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Calls that product code must not make.
pub(crate) fn banned_calls(path: &str, source: &Source) -> Vec<String> {
    let is_product =
        (path.starts_with("crates/") || path.starts_with("ffi/")) && path.contains("/src/");
    if !is_product {
        return Vec::new();
    }
    let is_cli = path.starts_with("crates/cli/");
    let mut findings = Vec::new();
    for (line, code) in source.product_lines() {
        for ban in BANS.iter().filter(|ban| !(is_cli && ban.in_cli)) {
            let is_made = code
                .match_indices(ban.call)
                .any(|(index, _)| ban.call.starts_with('.') || starts_word(code, index));
            if is_made && !source.is_allowed(line, ban.rule) {
                findings.push(format!("{path}:{line}: {}: {}", ban.call, ban.instead));
            }
        }
    }
    findings
}

/// Paths that climb two modules. A path that begins with `crate` says where the item is.
pub(crate) fn long_climbs(path: &str, source: &Source) -> Vec<String> {
    let lines = source.code.lines().enumerate();
    let climbs = lines.filter(|(_, line)| line.contains(concat!("super::", "super")));
    climbs.map(|(index, _)| format!("{path}:{}: begin the path with crate", index + 1)).collect()
}

/// Crates whose root lacks an attribute that the design needs, or whose manifest lacks the
/// workspace's lints.
pub(crate) fn missing_attributes(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, attribute) in ATTRIBUTES {
        if tree.get(path).is_some_and(|text| !Source::new(text).code.contains(attribute)) {
            findings.push(format!("{path}: lacks {attribute}"));
        }
    }
    for manifest in tree.member_manifests() {
        if !manifest.text.contains("[lints]\nworkspace = true") {
            findings.push(format!("{}: lacks [lints] workspace = true", manifest.path));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_finds_long_file() {
        let tree =
            Tree::of(&[("a.rs", "x\nx\nx\n"), ("b.md", "x\nx\nx\n"), ("scripts/c", "x\nx\n")]);
        assert_eq!(long_files(&tree, 2), ["a.rs: 3 lines, the limit is 2"]);
    }

    #[test]
    fn long_functions_finds_long_function() {
        let of_lines = |lines: usize| {
            format!(
                "fn a() {{}}\n\nfn b(\n    x: [u8; 2],\n) {{\n{}}}\n",
                "    x;\n".repeat(lines - 4)
            )
        };
        let findings = |lines| long_functions("a.rs", &Source::new(&of_lines(lines)));
        assert_eq!(findings(70), [""; 0]);
        assert_eq!(findings(71), ["a.rs:3: fn b has 71 lines, the limit is 70"]);
        let braces_in_strings = of_lines(71).replace("    x;\n", "    \"}\";\n");
        assert_eq!(long_functions("a.rs", &Source::new(&braces_in_strings)).len(), 1);
    }

    #[test]
    fn eager_guards_finds_guard_in_then_some() {
        let findings = |text: &str| eager_guards("a.rs", &Source::new(text));
        let guard = "impl Drop for Guard<'_> {}\nfn a() {\n    x.then_some(Self(m));\n}\n";
        assert_eq!(findings(guard).len(), 1);
        assert!(findings(guard)[0].starts_with("a.rs:3: "));
        assert_eq!(findings(&guard.replace("Self", "Guard")).len(), 1);
        assert_eq!(findings(&guard.replace("some(Self(m))", "(|| Self(m))")), [""; 0]);
        assert_eq!(findings(&guard.replace("Drop", "Deref")), [""; 0]);
        assert_eq!(findings(&guard.replace("Self", "Other")), [""; 0]);
    }

    #[test]
    fn left_for_later_finds_marks() {
        let (todo, fixme) = (concat!("TO", "DO"), concat!("FIX", "ME"));
        assert_eq!(left_for_later("a.rs", &format!("// {todo}: x")).len(), 1);
        assert_eq!(left_for_later("a.rs", &format!("// {fixme}: x")).len(), 1);
        assert_eq!(left_for_later("a.rs", &format!("// {fixme}(#x): x")).len(), 1);
        assert_eq!(left_for_later("a.rs", &format!("// {fixme}(#12): x")).len(), 0);
    }

    #[test]
    fn banned_calls_finds_call_outside_tests() {
        let findings = |path: &str, text: &str| banned_calls(path, &Source::new(text)).len();
        let library = "crates/haul/src/lib.rs";
        for call in
            ["println!(\"x\");", "eprintln!();", "dbg!(x);", "x.unwrap();", "std::process::exit(1)"]
        {
            assert_eq!(findings(library, call), 1, "{call}");
            assert_eq!(findings(library, &format!("// {call}")), 0, "{call}");
            assert_eq!(
                findings(library, &format!("#[cfg(test)]\nmod t {{\n{call}\n}}\n")),
                0,
                "{call}"
            );
            assert_eq!(findings("crates/haul/tests/a.rs", call), 0, "{call}");
        }
        assert_eq!(findings(library, "x.unwrap_or(1);"), 0);
        assert_eq!(findings("crates/cli/src/main.rs", "eprintln!();"), 0);
        assert_eq!(findings("crates/cli/src/main.rs", "x.unwrap();"), 1);
    }

    #[test]
    fn missing_attributes_finds_root_and_manifest() {
        let lints = "[lints]\nworkspace = true\n";
        let findings = |root: &str, manifest: &str| {
            missing_attributes(&Tree::of(&[
                ("crates/report/src/lib.rs", root),
                ("crates/report/Cargo.toml", manifest),
            ]))
            .len()
        };
        assert_eq!(findings("#![forbid(unsafe_code)]\n", lints), 0);
        assert_eq!(findings("// #![forbid(unsafe_code)]\n", lints), 1);
        assert_eq!(findings("#![forbid(unsafe_code)]\n", ""), 1);
    }

    #[test]
    fn long_climbs_finds_climb() {
        let climb = concat!("use super::", "super::a;\n");
        assert_eq!(long_climbs("a.rs", &Source::new(climb)), ["a.rs:1: begin the path with crate"]);
        assert_eq!(long_climbs("a.rs", &Source::new("use super::a;\n")).len(), 0);
        assert_eq!(long_climbs("a.rs", &Source::new(&format!("// {climb}"))).len(), 0);
    }

    #[test]
    fn long_comments_finds_long_line() {
        let long = "word ".repeat(21);
        let found = |text: &str| long_comments("x.rs", &Source::new(text)).len();
        assert_eq!(found(&format!("/// {0}\n//! {0}\n    // {0}\n", long.trim_end())), 3);
        let fine = ["w ".repeat(48), format!("| {long} |"), "w".repeat(110)];
        assert_eq!(found(&fine.map(|text| format!("//! {text}\n")).concat()), 0);
        assert_eq!(found(&format!("let x = \"{long}\";\n")), 0);
    }
}
