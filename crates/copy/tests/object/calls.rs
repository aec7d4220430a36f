//! No kernel calls the C library's copies: if haul replaces these copies, a kernel would call
//! itself.

use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget};

use crate::build::Workshop;

/// The functions that a compiler calls for loops, moves and comparisons.
const FORBIDDEN: [&str; 6] = ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"];

/// `function: symbol` for each reference of an object file's code to a symbol outside it.
fn references(object: &Path) -> Vec<String> {
    let bytes = std::fs::read(object).expect("read the object file that rustc wrote");
    let file = object::File::parse(&*bytes).expect("an object file");
    let wanted = if cfg!(target_arch = "aarch64") {
        object::Architecture::Aarch64
    } else {
        object::Architecture::X86_64
    };
    assert_eq!(file.architecture(), wanted, "compiled for another machine than the test");
    let mut references = Vec::new();
    // Each function has a separate section, whose name contains the name of the function.
    let sections =
        file.sections().filter(|section| section.name().is_ok_and(|n| n.starts_with(".text")));
    for section in sections {
        for (_, relocation) in section.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let symbol = file.symbol_by_index(index).expect("a symbol of this file");
            if symbol.is_undefined() {
                let function = section.name().unwrap_or("?").trim_start_matches(".text.");
                references.push(format!("{function}: {}", symbol.name().unwrap_or("?")));
            }
        }
    }
    references.sort();
    references.dedup();
    references
}

fn forbidden(references: &[String]) -> Vec<&String> {
    let is_forbidden = |reference: &&String| {
        reference.rsplit_once(": ").is_some_and(|(_, symbol)| FORBIDDEN.contains(&symbol))
    };
    references.iter().filter(is_forbidden).collect()
}

/// Level 0 is not tested: at this level, the compiler calls the C library for every array that it
/// moves, for any source text, so an unoptimized build of haul cannot replace the C library.
#[test]
fn optimized_kernels_do_not_call_the_c_library() {
    let workshop = Workshop::new();
    for level in ["1", "2", "3", "s", "z"] {
        let references = references(&workshop.haul_copy(level));
        assert!(!references.is_empty(), "level {level}: nothing was read");
        // `Thresholds` may compare names, because it does not copy.
        let of_copies: Vec<_> = forbidden(&references)
            .into_iter()
            .filter(|reference| !reference.contains("Thresholds") || level == "3")
            .collect();
        assert!(of_copies.is_empty(), "optimization level {level}: {of_copies:#?}");
    }
}

/// Only functions that do not copy may refer to other symbols, and only to panics.
#[test]
fn release_build_refers_only_to_panics() {
    let workshop = Workshop::new();
    for reference in references(&workshop.haul_copy("3")) {
        let (function, symbol) = reference.rsplit_once(": ").expect("as `references` writes it");
        let is_panic = symbol.contains("panicking") || symbol.contains("Display3fmt");
        // On aarch64, the compiler's own library implements the compare-exchange of thresholds.
        let is_exchange = symbol.starts_with("__aarch64_cas");
        assert!(is_panic || is_exchange, "{reference}: only panics are expected");
        let is_copy = ["4arch", "8dispatch", "5small", "haul_mem"]
            .iter()
            .any(|module| function.contains(module));
        assert!(!is_copy, "{reference}: a copy must not be able to panic");
    }
}

/// Arrays of up to 128 bytes are copied in the caller; larger ones call this crate.
#[test]
fn arrays_are_copied_without_a_call() {
    let of = |sizes: &[usize]| {
        let functions = sizes.iter().map(|size| {
            format!(
                "#[unsafe(no_mangle)]
                pub fn array_{size}(target: &mut [u8; {size}], source: &[u8; {size}]) {{
                    haul_copy::copy_array(target, source);
                }}"
            )
        });
        let text = format!("#![no_std]\n{}", functions.collect::<String>());
        references(&Workshop::new().caller(&text))
    };
    let none: [String; 0] = [];
    assert_eq!(of(&[1, 3, 8, 15, 24, 40, 64, 100, 127, 128]), none);
    assert_ne!(of(&[129]), none);
}

/// Shows that the tests above can fail: a loop and a copy of the standard library become calls.
#[test]
fn forbidden_finds_calls_in_careless_kernel() {
    let text = "#![no_std]
        #[inline(never)]
        pub unsafe fn copy(target: *mut u8, source: *const u8, length: usize) {
            let mut at = 0;
            while at < length {
                *target.add(at) = 7;
                at += 1;
            }
            core::ptr::copy_nonoverlapping(source, target, length);
        }";
    let workshop = Workshop::new();
    let references = references(&workshop.snippet("careless", text));
    let found: Vec<_> = forbidden(&references)
        .into_iter()
        .filter_map(|reference| reference.rsplit(' ').next())
        .collect();
    assert_eq!(found, ["memcpy", "memset"]);
}
