//! Documents: links must resolve, a reader must be able to find the documents, and no text may
//! name a machine.

use std::collections::BTreeSet;

use crate::reach::normal;
use crate::tree::Tree;

/// The hosts that our text may link to. Any other host is a mistake, or must be added here.
const HOSTS: [&str; 16] = [
    "choosealicense.com",
    "crates.io",
    "doc.rust-lang.org",
    "docs.rs",
    "example.com",
    "git.kernel.org",
    "github.com",
    "index.crates.io",
    "json-schema.org",
    "keepachangelog.com",
    "semver.org",
    "sh.rustup.rs",
    "spdx.org",
    "www.rfc-editor.org",
    "www.apache.org",
    "www.w3.org",
];

/// The documents that a reader opens first.
const ENTRIES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

/// Largest file of `bench/record/`, in bytes: twice the size of the largest compact record at
/// present.
const RECORD_BYTES_MAX: u64 = 400_000;

/// Largest file of `docs/`, in bytes.
const DOCUMENT_BYTES_MAX: u64 = 200_000;

/// The headings of a page, in their order.
const PARTS: [&str; 5] = ["Quick start", "Guarantees", "Interface", "Figures", "Limits"];

/// Pages about parts that programs use. These pages must have all headings in [`PARTS`].
const COMPONENTS: [&str; 10] = [
    "docs/burst.md",
    "docs/channel.md",
    "docs/copy-preload.md",
    "docs/copy.md",
    "docs/forward-pvp.md",
    "docs/forward.md",
    "docs/heap-trace.md",
    "docs/heap.md",
    "docs/rte-malloc.md",
    "docs/stream.md",
];

/// A link in a document.
struct Link<'a> {
    line: usize,
    target: &'a str,
}

/// Links to missing files or headings.
pub(crate) fn broken_links(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        for link in links(&file.text) {
            if is_outside(link.target) {
                continue;
            }
            let (path, heading) = link.target.split_once('#').unwrap_or((link.target, ""));
            let path = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let in_folder = format!("{path}/");
            let is_there =
                tree.paths.iter().any(|each| *each == path || each.starts_with(&in_folder));
            let has_heading = heading.is_empty()
                || tree
                    .get(&path)
                    .is_some_and(|text| anchors(text).iter().any(|each| each == heading));
            if !is_there || !has_heading {
                findings
                    .push(format!("{}:{}: {} leads nowhere", file.path, link.line, link.target));
            }
        }
    }
    findings
}

/// Faults of the entry page: pages in `docs/` to which it has no link, numbers in its picture
/// that have no row in its table, and rows with a number that is not in the picture.
pub(crate) fn entry_page(tree: &Tree) -> Vec<String> {
    const ENTRY: &str = "docs/README.md";
    let text = tree.get(ENTRY).unwrap_or_default();
    let linked: BTreeSet<String> =
        links(text).iter().map(|link| resolve(ENTRY, link.target)).collect();
    let pages = tree
        .paths
        .iter()
        .filter(|path| path.starts_with("docs/") && path.ends_with(".md") && *path != ENTRY);
    let missing = pages
        .filter(|path| !linked.contains(*path))
        .map(|path| format!("{ENTRY}: has no link to {path}"));
    let picture = text.split("```text\n").nth(1).and_then(|rest| rest.split("```").next());
    let numbers = |pieces: Vec<&str>, end: char| -> BTreeSet<u32> {
        pieces.iter().filter_map(|piece| piece.split_once(end)?.0.trim().parse().ok()).collect()
    };
    let drawn = numbers(picture.unwrap_or_default().split('(').skip(1).collect(), ')');
    let rows = numbers(text.lines().filter_map(|line| line.strip_prefix("| ")).collect(), '|');
    let unmatched = drawn
        .symmetric_difference(&rows)
        .map(|number| format!("{ENTRY}: {number} is not in both the picture and the table"));
    let empty = drawn.is_empty().then(|| format!("{ENTRY}: has no picture"));
    missing.chain(unmatched).chain(empty).collect()
}

/// Pages in `docs/` whose headings are not in the order of [`PARTS`] or are incomplete. A page
/// begins with its quick start and ends with its limits, and its other headings are between the
/// interface and the figures. A page with a title that begins with "How" is an explanation and
/// may have any order.
pub(crate) fn out_of_order(tree: &Tree) -> Vec<String> {
    let pages = tree.files.iter().filter(|file| {
        let name = file.path.strip_prefix("docs/").and_then(|name| name.strip_suffix(".md"));
        name.is_some_and(|name| name != "README") && !file.text.starts_with("# How ")
    });
    pages.flat_map(|page| order_findings(&page.path, &page.text)).collect()
}

fn order_findings(path: &str, text: &str) -> Vec<String> {
    let headings: Vec<&str> = prose_lines(text)
        .filter_map(|line| line.strip_prefix("## "))
        .map(|heading| heading.split_once(':').map_or(heading, |(part, _)| part))
        .collect();
    let parts: Vec<&str> =
        headings.iter().filter(|heading| PARTS.contains(heading)).copied().collect();
    let mut findings = Vec::new();
    let is_component = PARTS.iter().all(|part| parts.contains(part));
    if !is_component && COMPONENTS.contains(&path) {
        findings.push(format!("{path}: lacks one of the headings {}", PARTS.join(", ")));
    }
    if headings.first() != Some(&PARTS[0]) {
        findings.push(format!("{path}: its first heading is not {:?}", PARTS[0]));
    }
    let expected: Vec<&str> = PARTS.into_iter().filter(|part| parts.contains(part)).collect();
    if parts != expected {
        findings.push(format!(
            "{path}: {} are not in the order {}",
            parts.join(", "),
            PARTS.join(", ")
        ));
    }
    let at = |part: &str| headings.iter().position(|heading| *heading == part);
    let from = ["Interface", "Guarantees", PARTS[0]].into_iter().find_map(at).unwrap_or(0);
    let to = ["Figures", "Limits"].into_iter().find_map(at).unwrap_or(headings.len());
    let strays = headings
        .iter()
        .enumerate()
        .filter(|(index, heading)| !PARTS.contains(heading) && !(from..to).contains(index));
    findings.extend(strays.map(|(_, heading)| {
        format!("{path}: {heading:?} is not between the interface and the figures")
    }));
    findings
}

/// Promises in SECURITY.md that have no test. Each promise must name its test, which is a
/// function in the linked file.
pub(crate) fn promises_without_a_test(tree: &Tree) -> Vec<String> {
    const PAGE: &str = "SECURITY.md";
    let text = tree.get(PAGE).unwrap_or_default();
    let mut findings = Vec::new();
    for (line, text) in text.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        let parts: Vec<&str> = text.split("[`").skip(1).collect();
        for part in &parts {
            let named = part.split_once("`](").and_then(|(name, rest)| {
                let (path, _) = rest.split_once(')')?;
                Some((name, path))
            });
            let has_test = named.is_some_and(|(name, path)| {
                let is_it = |text: &str| text.contains(&format!("fn {name}("));
                path.ends_with(".rs") && tree.get(path).is_some_and(is_it)
            });
            if !has_test {
                findings.push(format!("{PAGE}:{line}: no test is at [`{part}"));
            }
        }
        let is_row = text.starts_with("| ") && !text.starts_with("| promise ");
        if is_row && parts.is_empty() {
            findings.push(format!("{PAGE}:{line}: a promise names no test"));
        }
    }
    findings
}

/// Files under `docs/` that no chain of links from [`ENTRIES`] reaches, and scripts that neither a
/// document nor another script names.
pub(crate) fn unmentioned(tree: &Tree) -> Vec<String> {
    let mut open: Vec<String> = ENTRIES.iter().map(ToString::to_string).collect();
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(path) = open.pop() {
        let Some(text) = tree.get(&path).filter(|_| path.ends_with(".md")) else {
            continue;
        };
        for link in links(text).into_iter().filter(|link| !is_outside(link.target)) {
            let target = resolve(&path, link.target.split('#').next().unwrap_or_default());
            if seen.insert(target.clone()) {
                open.push(target);
            }
        }
    }
    let documents =
        tree.paths.iter().filter(|path| path.starts_with("docs/") && !seen.contains(*path));
    let scripts =
        tree.paths.iter().filter(|path| path.starts_with("scripts/") && !is_named(tree, path));
    documents
        .map(|path| format!("{path}: no link leads here from {}", ENTRIES.join(", ")))
        .chain(scripts.map(|path| format!("{path}: no document and no other script names it")))
        .collect()
}

fn is_named(tree: &Tree, script: &str) -> bool {
    let others = tree.files.iter().filter(|file| file.path != script);
    others
        .filter(|file| file.path.ends_with(".md") || file.path.starts_with("scripts/"))
        .any(|file| file.text.contains(script))
}

/// Records and files in `docs/` that are larger than their limit. The limit exists because a
/// clone of the repository contains every record that was ever committed. `haul report --compact`
/// makes records small.
pub(crate) fn heavy(tree: &Tree) -> Vec<String> {
    let limit_of = |path: &str| match path {
        _ if path.starts_with("bench/record/") => Some(RECORD_BYTES_MAX),
        _ if path.starts_with("docs/") => Some(DOCUMENT_BYTES_MAX),
        _ => None,
    };
    let all = tree.sizes.iter().filter_map(|(path, bytes)| Some((path, *bytes, limit_of(path)?)));
    all.filter(|(_, bytes, limit)| bytes > limit)
        .map(|(path, bytes, limit)| format!("{path}: {bytes} B, of {limit} at most"))
        .collect()
}

/// Text that is true of one machine only: home folders, and hosts that are not public.
pub(crate) fn machine_names(path: &str, text: &str) -> Vec<String> {
    // Spelled in two halves, so that this file does not find itself.
    let folders = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Use", "rs/"),
        concat!("/wo", "rk/"),
    ];
    let mut findings = Vec::new();
    for (line, text) in text.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        for folder in folders.iter().filter(|folder| text.contains(**folder)) {
            findings.push(format!("{path}:{line}: {folder} is a folder of one machine"));
        }
        for scheme in ["http://", "https://"] {
            for rest in text.split(scheme).skip(1) {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || ".-".contains(c)));
                let host = rest[..end.unwrap_or(rest.len())].trim_end_matches('.');
                if !host.is_empty() && !HOSTS.contains(&host) {
                    findings.push(format!("{path}:{line}: {host} is not in HOSTS of tests/tidy"));
                }
            }
        }
    }
    findings
}

fn is_outside(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

fn resolve(from: &str, target: &str) -> String {
    let folder = from.rsplit_once('/').map_or("", |(folder, _)| folder);
    normal(&format!("{folder}/{target}"))
}

/// The lines outside of code blocks.
fn prose_lines(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n```").step_by(2).flat_map(str::lines)
}

/// Inline links, pictures and reference definitions outside of code.
fn links(text: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (line, text) in text.lines().enumerate().map(|(index, text)| (index + 1, text)) {
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let inline = text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        links.extend(inline.map(|target| Link { line, target }));
        let source = text.split("src=\"").chain(text.split("srcset=\"").skip(1)).skip(1);
        links.extend(
            source.filter_map(|rest| rest.split('"').next()).map(|target| Link { line, target }),
        );
        if let Some((_, target)) = text.split_once("]: ").filter(|_| text.starts_with('[')) {
            links.push(Link { line, target: target.trim() });
        }
    }
    links
}

/// The anchors of a document's headings: in lower case, with hyphens for spaces, and without
/// other signs.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_links_finds_missing_target() {
        let findings = |text: &str| {
            broken_links(&Tree::of(&[
                ("README.md", text),
                ("docs/a.md", "# One, two\n"),
                ("docs/b.png", ""),
            ]))
        };
        for clean in [
            "[a](docs/a.md) ![b](docs/b.png) [c](docs)",
            "[a](docs/a.md#one-two) [h](#here)\n# Here",
            "[x](https://docs.rs/gone)",
            "```\n[x](gone.md)\n```",
            "<img src=\"docs/b.png\">",
        ] {
            assert_eq!(findings(clean), [""; 0], "{clean}");
        }
        for dirty in [
            "[a](docs/gone.md)",
            "![a](gone.png)",
            "[a](docs/a.md#three)",
            "[h](#gone)",
            "[x]: gone.md",
            "<img src=\"gone.png\">",
        ] {
            assert_eq!(findings(dirty).len(), 1, "{dirty}");
        }
    }

    #[test]
    fn promises_without_a_test_finds_missing_test() {
        let findings = |row: &str| {
            let page = format!("| promise | shown by |\n|---|---|\n{row}\n");
            let test = ("src/a.rs", "#[test]\nfn it_holds() {}\n");
            promises_without_a_test(&Tree::of(&[("SECURITY.md", &page), test])).len()
        };
        assert_eq!(findings("| a | [`it_holds`](src/a.rs) |"), 0);
        assert_eq!(findings("| a | nothing |"), 1);
        assert_eq!(findings("| a | [`it_hold`](src/a.rs), [`it_holds`](src/a.rs) |"), 1);
        assert_eq!(findings("| a | [`it_holds`](src/b.rs) |"), 1);
    }

    #[test]
    fn entry_page_links_all_pages_and_explains_its_picture() {
        let found = |text: &str| {
            entry_page(&Tree::of(&[("docs/README.md", text), ("docs/a.md", "")])).len()
        };
        let picture = "```text\nx --(1)--> y (2)\n```\n";
        assert_eq!(found(&format!("{picture}| 1 | [a](a.md) |\n| 2 | x |\n")), 0);
        assert_eq!(found(&format!("{picture}| 1 | a |\n| 2 | x |\n")), 1);
        assert_eq!(found(&format!("{picture}| 1 | [a](a.md) |\n| 3 | x |\n")), 2);
        assert_eq!(found("[a](a.md)"), 1);
    }

    #[test]
    fn page_keeps_the_order_of_its_parts() {
        let found = |path: &str, headings: &[&str]| {
            let text: String = headings.iter().map(|heading| format!("## {heading}\n")).collect();
            out_of_order(&Tree::of(&[(path, &format!("# A\n\n```sh\n## x\n```\n{text}"))])).len()
        };
        let all = ["Quick start", "Guarantees", "Interface: x", "More", "Figures", "Limits"];
        assert_eq!(found("docs/heap.md", &all), 0);
        assert_eq!(found("docs/README.md", &["Limits", "Quick start"]), 0);
        assert_eq!(found("docs/a.md", &["Quick start", "Other", "Limits"]), 0);
        assert_eq!(found("docs/a.md", &["Other", "Limits"]), 1);
        assert_eq!(found("docs/heap.md", &["Quick start", "Guarantees", "Figures", "Limits"]), 1);
        assert_eq!(found("docs/a.md", &["Quick start", "Figures", "Guarantees"]), 1);
        assert_eq!(found("docs/a.md", &["Quick start", "Limits", "More"]), 1);
        assert_eq!(found("docs/a.md", &["Quick start", "More", "Interface", "Limits"]), 1);
        let how = ("docs/a.md", "# How it works\n## Limits\n## Other\n");
        assert_eq!(out_of_order(&Tree::of(&[how])), [""; 0]);
    }

    #[test]
    fn heavy_finds_large_record() {
        let mut tree = Tree::of(&[("bench/record/a.gz", ""), ("docs/a.png", ""), ("src/a.rs", "")]);
        tree.sizes.insert("src/a.rs".into(), 1 << 30);
        assert_eq!(heavy(&tree), [""; 0]);
        tree.sizes.insert("bench/record/a.gz".into(), RECORD_BYTES_MAX + 1);
        tree.sizes.insert("docs/a.png".into(), DOCUMENT_BYTES_MAX + 1);
        assert_eq!(heavy(&tree).len(), 2);
    }

    #[test]
    fn unmentioned_finds_unlinked_file() {
        let tree = Tree::of(&[
            ("README.md", "[a](docs/a.md), scripts/one"),
            ("docs/a.md", "[b](b.md)"),
            ("docs/b.md", ""),
            ("docs/lost.md", "[self](lost.md)"),
            ("scripts/one", "source scripts/two"),
            ("scripts/two", ""),
            ("scripts/lost", "scripts/lost"),
        ]);
        let paths: Vec<_> =
            unmentioned(&tree).iter().map(|f| f.split(':').next().unwrap().to_owned()).collect();
        assert_eq!(paths, ["docs/lost.md", "scripts/lost"]);
    }

    #[test]
    fn machine_names_finds_folder_and_host() {
        for clean in ["$HOME/x", "see https://docs.rs/x.", "let s = \"https://\";"] {
            assert_eq!(machine_names("a", clean), [""; 0], "{clean}");
        }
        for dirty in [
            concat!("/ho", "me/me/x"),
            concat!("/ro", "ot/x"),
            concat!("http", "s://registry.internal:8080/x"),
        ] {
            assert_eq!(machine_names("a", dirty).len(), 1, "{dirty}");
        }
    }
}
