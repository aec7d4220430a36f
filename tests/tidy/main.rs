//! House style as a test: the rules that the compiler and clippy do not check.
//!
//! Each rule is a function from text to findings, with unit tests that show its findings. The tests
//! in this file apply the rules to the whole tree. This is a test of `haul-model` only because
//! that crate builds fastest. The test uses nothing from the crate.
//!
//! A line that must break a rule carries the reason, on the line itself or in the comment right
//! above it: `// tidy: allow(RULE): the reason`.
//!
//! - [`tree`]: the files in the repository;
//! - [`source`]: Rust text with blank comments and strings, and where its test code is;
//! - [`manifest`]: the parts of a Cargo.toml that the rules need;
//! - [`layers`]: which crate may import which;
//! - [`modules`]: which module of a crate may import which;
//! - [`style`]: lengths, banned words and calls, required attributes;
//! - [`names`]: names of experiments and parameters, which the model defines;
//! - [`reach`]: source files that no `mod` reaches;
//! - [`skips`]: the reasons for skipping a test, which `scripts/test` must be able to check;
//! - [`documents`]: links that resolve, documents that are linked, text that names a machine;
//! - [`packages`]: metadata of published crates, their oldest compiler, and the command that CI
//!   runs;
//! - [`words`]: words that a stranger would have to guess.

mod documents;
mod layers;
mod manifest;
mod modules;
mod names;
mod packages;
mod reach;
mod skips;
mod source;
mod style;
mod tree;
mod words;

use source::Source;
use tree::Tree;

/// Fails with a message that contains every finding, one per line.
fn assert_clean(findings: Vec<String>) {
    assert!(findings.is_empty(), "{} findings:\n{}\n", findings.len(), findings.join("\n"));
}

/// The findings of `rule` in every Rust file.
fn in_rust_files(rule: impl Fn(&str, &Source) -> Vec<String>) -> Vec<String> {
    let tree = Tree::load();
    let for_tests = reach::test_files(&tree);
    let rust = tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    rust.flat_map(|file| {
        let mut source = Source::new(&file.text);
        if for_tests.contains(&file.path) {
            source.is_test.fill(true);
        }
        rule(&file.path, &source)
    })
    .collect()
}

#[test]
fn crates_import_only_lower_crates() {
    assert_clean(layers::crate_findings(&Tree::load()));
}

#[test]
fn modules_import_only_lower_modules() {
    assert_clean(modules::findings(&Tree::load()));
}

#[test]
fn paths_climb_one_module_at_most() {
    assert_clean(in_rust_files(style::long_climbs));
}

#[test]
fn files_are_short() {
    let tree = Tree::load();
    for warning in style::long_files(&tree, style::FILE_LINES_AIM) {
        eprintln!("aim: {warning}");
    }
    assert_clean(style::long_files(&tree, style::FILE_LINES_MAX));
}

#[test]
fn comments_are_not_wide() {
    assert_clean(in_rust_files(style::long_comments));
}

#[test]
fn functions_are_short() {
    assert_clean(in_rust_files(style::long_functions));
}

#[test]
fn guards_are_created_lazily() {
    assert_clean(in_rust_files(style::eager_guards));
}

#[test]
fn code_has_no_mark_of_unfinished_work() {
    let tree = Tree::load();
    assert_clean(tree.files.iter().flat_map(|f| style::left_for_later(&f.path, &f.text)).collect());
}

#[test]
fn libraries_make_no_banned_call() {
    assert_clean(in_rust_files(style::banned_calls));
}

#[test]
fn experiments_and_parameters_are_named_in_the_model() {
    let tree = Tree::load();
    assert_clean(in_rust_files(|path, source| names::spelled_out(&tree, path, source)));
}

#[test]
fn crates_carry_their_attributes_and_lints() {
    assert_clean(style::missing_attributes(&Tree::load()));
}

#[test]
fn every_source_file_is_reached() {
    assert_clean(reach::dead_files(&Tree::load()));
}

#[test]
fn every_skip_can_be_checked() {
    assert_clean(skips::unknown_reasons(&Tree::load()));
}

#[test]
fn links_in_documents_resolve() {
    assert_clean(documents::broken_links(&Tree::load()));
}

#[test]
fn pages_keep_the_order_of_their_parts() {
    assert_clean(documents::out_of_order(&Tree::load()));
}

#[test]
fn entry_page_leads_to_every_page() {
    assert_clean(documents::entry_page(&Tree::load()));
}

#[test]
fn promises_name_their_tests() {
    assert_clean(documents::promises_without_a_test(&Tree::load()));
}

#[test]
fn records_and_pictures_are_light() {
    assert_clean(documents::heavy(&Tree::load()));
}

#[test]
fn every_document_and_script_is_mentioned() {
    assert_clean(documents::unmentioned(&Tree::load()));
}

#[test]
fn wording_has_no_private_words() {
    assert_clean(words::private(&Tree::load()));
}

#[test]
fn published_crates_carry_readme_and_metadata() {
    assert_clean(packages::unready(&Tree::load()));
}

#[test]
fn pinned_toolchain_is_oldest_supported() {
    assert_clean(packages::untested_version(&Tree::load()));
}

#[test]
fn continuous_integration_runs_only_scripts_test() {
    assert_clean(packages::other_checks(&Tree::load()));
}

#[test]
fn no_file_names_a_machine() {
    let tree = Tree::load();
    assert_clean(
        tree.files.iter().flat_map(|f| documents::machine_names(&f.path, &f.text)).collect(),
    );
}
