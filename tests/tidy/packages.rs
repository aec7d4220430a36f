//! The metadata that a registry shows for a published crate, the oldest compiler that works, and
//! the command that CI runs.

use crate::tree::Tree;

/// The most keywords and categories that a registry accepts.
const WORDS_MAX: usize = 5;

/// The only command of continuous integration, on every service.
const CHECK: &str = "scripts/test";

/// Published crates without a README that a doctest compiles, without licences, or without the
/// metadata by which a registry sorts.
pub(crate) fn unready(tree: &Tree) -> Vec<String> {
    let published = tree.files.iter().filter(|file| {
        file.path.ends_with("/Cargo.toml") && file.text.contains("\npublish = true")
    });
    let findings = published.flat_map(|file| {
        let folder = file.path.trim_end_matches("/Cargo.toml");
        let source = tree.get(&format!("{folder}/src/lib.rs")).unwrap_or_default();
        let readme = tree.get(&format!("{folder}/README.md")).unwrap_or_default();
        let metadata = |key: &str, right: bool| (!right).then(|| format!("Cargo.toml: {key}"));
        let words = |key: &str| {
            let count = value(&file.text, key).map_or(0, |list| list.matches('"').count() / 2);
            metadata(key, (1..=WORDS_MAX).contains(&count))
        };
        let missing = [
            metadata("description", value(&file.text, "description").is_some()),
            metadata("readme", value(&file.text, "readme") == Some("\"README.md\"")),
            words("keywords"),
            words("categories"),
            metadata("rust-version", file.text.contains("\nrust-version.workspace = true")),
            (!readme.contains("```rust\n")).then(|| "README.md: an example in Rust".into()),
            (!readme.contains("\n## Licence")).then(|| "README.md: the licence".into()),
            (!source.contains("#[doc = include_str!(\"../README.md\")]"))
                .then(|| "src/lib.rs: a doctest of README.md".into()),
        ];
        missing.into_iter().flatten().map(move |what| format!("{folder}/{what} is missing"))
    });
    findings.collect()
}

/// Whether the pinned toolchain, which every check uses, is the oldest compiler that the crates
/// promise to support.
pub(crate) fn untested_version(tree: &Tree) -> Vec<String> {
    let quoted = |path: &str, key: &str| {
        let text = tree.get(path).unwrap_or_default();
        value(text, key).map(|value| value.trim_matches('"').to_owned()).unwrap_or_default()
    };
    let pinned = quoted("rust-toolchain.toml", "channel");
    let workspaces = ["Cargo.toml", "peers/iceoryx2/Cargo.toml"];
    let promised = workspaces.map(|path| (path, quoted(path, "rust-version")));
    let untested = promised.iter().filter(|(_, version)| pinned != format!("{version}.0"));
    untested
        .map(|(path, version)| {
            format!("{path}: rust-version {version:?} is not the pinned toolchain {pinned:?}")
        })
        .collect()
}

/// Files of continuous integration that do not run exactly [`CHECK`]. A workflow may also install
/// rustup.
pub(crate) fn other_checks(tree: &Tree) -> Vec<String> {
    let script = tree.get(".ci/run").unwrap_or_default().lines();
    let commands = script.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let commands = commands.map(|line| line.trim_matches('"').to_owned()).collect();
    let workflow = tree.get(".github/workflows/ci.yml").unwrap_or_default().lines();
    let steps = workflow.map(|line| line.trim().trim_start_matches("- "));
    let steps = steps.filter_map(|line| line.strip_prefix("run:"));
    let steps = steps.map(|line| line.trim().to_owned());
    let steps = steps.filter(|line| !line.contains("https://sh.rustup.rs")).collect();
    let expected = [
        (".ci/run", commands, format!("exec bash \"$(dirname \"$0\")/../{CHECK}")),
        (".github/workflows/ci.yml", steps, CHECK.into()),
    ];
    let wrong = expected
        .into_iter()
        .filter(|(_, found, one): &(_, Vec<String>, String)| *found != std::slice::from_ref(one));
    wrong.map(|(path, found, one)| format!("{path}: runs {found:?} instead of {one:?}")).collect()
}

/// The value in `key = value`, from the first line of this form.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix("= "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\ndescription = \"a\"\nrust-version.workspace = true\n\
        readme = \"README.md\"\nkeywords = [\"a\"]\ncategories = [\"a\", \"b\"]\npublish = true\n";
    const README: &str = "# a\n```rust\n```\n\n## Licence\n";
    const SOURCE: &str = "#[doc = include_str!(\"../README.md\")]\nstruct Readme;\n";

    fn unready_for(manifest: &str, readme: &str, source: &str) -> usize {
        unready(&Tree::of(&[
            ("crates/a/Cargo.toml", manifest),
            ("crates/a/README.md", readme),
            ("crates/a/src/lib.rs", source),
        ]))
        .len()
    }

    #[test]
    fn unready_finds_each_missing_part() {
        assert_eq!(unready_for(MANIFEST, README, SOURCE), 0);
        assert_eq!(unready_for("[package]\npublish = false\n", "", ""), 0);
        for line in MANIFEST.lines().filter(|line| line.contains('=') && !line.contains("publish"))
        {
            assert_eq!(unready_for(&MANIFEST.replace(line, ""), README, SOURCE), 1, "{line}");
        }
        let six = MANIFEST.replace("[\"a\"]", "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\"]");
        assert_eq!(unready_for(&six, README, SOURCE), 1);
        assert_eq!(unready_for(MANIFEST, "", SOURCE), 2);
        assert_eq!(unready_for(MANIFEST, README, ""), 1);
    }

    #[test]
    fn untested_version_finds_other_toolchain() {
        let findings = |pinned: &str, peer: &str| {
            untested_version(&Tree::of(&[
                ("Cargo.toml", "rust-version = \"1.95\"\n"),
                ("peers/iceoryx2/Cargo.toml", peer),
                ("rust-toolchain.toml", pinned),
            ]))
            .len()
        };
        let peer = "rust-version = \"1.95\"\n";
        assert_eq!(findings("channel = \"1.95.0\"\n", peer), 0);
        assert_eq!(findings("channel = \"1.95.0\"\n", "rust-version = \"1.94\"\n"), 1);
        assert_eq!(findings("channel = \"1.96.0\"\n", peer), 2);
        assert_eq!(findings("channel = \"stable\"\n", peer), 2);
        assert_eq!(findings("", peer), 2);
    }

    #[test]
    fn other_checks_finds_extra_and_missing_step() {
        let findings = |script: &str, workflow: &str| {
            other_checks(&Tree::of(&[(".ci/run", script), (".github/workflows/ci.yml", workflow)]))
                .len()
        };
        let script = "#!/usr/bin/env bash\nexec bash \"$(dirname \"$0\")/../scripts/test\"\n";
        let workflow = "steps:\n  - uses: actions/checkout@v4\n  - run: scripts/test\n";
        let rustup = "  - run: curl https://sh.rustup.rs | sh\n";
        assert_eq!(findings(script, workflow), 0);
        assert_eq!(findings(script, &format!("{workflow}{rustup}")), 0);
        assert_eq!(findings(script, &format!("{workflow}  - run: cargo test\n")), 1);
        assert_eq!(findings(script, &workflow.replace("scripts/test", "scripts/test tidy")), 1);
        assert_eq!(findings(&format!("{script}cargo test\n"), workflow), 1);
        assert_eq!(findings("", ""), 2);
    }
}
