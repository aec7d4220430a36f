//! Skips: `scripts/skip-probes` can check each reason that a test may print. Without this rule,
//! an unknown reason would be detected only on a machine on which the test skips.

use std::process::Command;

use crate::tree::Tree;

/// The start of a skip's line, in two halves, so that the rule does not find this file.
const MARK: &str = concat!("SKIPPED", ": ");

/// Reasons in the sources that `scripts/skip-probes` cannot check.
pub(crate) fn unknown_reasons(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|f| f.path.ends_with(".rs") && !f.path.contains("tidy")) {
        for line in skip_lines(&file.text) {
            let reason = line.split(": ").nth(2).unwrap_or_default();
            // A reason that code composes at run time is checked when it is printed.
            if reason.starts_with('{') {
                continue;
            }
            let verdict = probe(&with_samples(&line));
            if verdict.contains("knows no way") {
                findings.push(format!("{}: {verdict}", file.path));
            }
        }
    }
    findings
}

/// The string literals that start with the mark. Continued lines are joined.
fn skip_lines(text: &str) -> Vec<String> {
    let start = format!("\"{MARK}");
    let literals = text.split(&start).skip(1);
    let ends = literals.filter_map(|rest| rest.split('"').next());
    let joined = ends.map(|literal| {
        let pieces: Vec<&str> = literal.split("\\\n").map(str::trim_start).collect();
        format!("{MARK}{}", pieces.concat())
    });
    joined.collect()
}

/// The line with a number in place of each value that the test inserts.
fn with_samples(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('{') {
        out += before;
        out += "7";
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    out + rest
}

/// The output of `scripts/skip-probes` for a line; empty if the skip was necessary.
fn probe(line: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = "source scripts/skip-probes && probe_skip \"$1\"";
    let output = Command::new("bash")
        .args(["-c", script, "bash", line])
        .current_dir(root)
        .output()
        .expect("bash runs, as scripts/test does");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_without_probe_is_found() {
        let findings = |reason: &str| {
            let text = format!("fn f() {{ eprintln!(\"{MARK}x: {reason}: y\"); }}");
            unknown_reasons(&Tree::of(&[("crates/x/src/lib.rs", &text)])).len()
        };
        assert_eq!(findings("no CPU feature {feature}"), 0);
        assert_eq!(findings("less than {MIB} MiB of \\\n    free memory"), 0);
        assert_eq!(findings("{why}"), 0);
        assert_eq!(findings("it did not feel right"), 1);
    }

    #[test]
    fn probe_checks_reason_on_machine() {
        let stands = |reason: &str| probe(&format!("{MARK}x: {reason}: y")).is_empty();
        assert!(stands("no haul-no-such-program on PATH"));
        assert!(!stands("no bash on PATH"));
        assert!(stands("no file /no/such/file"));
        assert!(!stands("no file /"));
        assert!(stands("no CPU feature haul_no_such_feature"));
        assert!(stands("less than 999999999 MiB of free memory"));
        assert!(!stands("less than 1 MiB of free memory"));
        assert!(stands("running as root") != stands("not running as root"));
    }
}
