//! The symbols of the library.

use std::process::Command;

use crate::setup::{is_here, library, skip, succeed};

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    if !is_here(program) {
        let why = format!("no {program} on PATH");
        skip("the symbols of libhaul_copy", &why, "apt-get install binutils");
        return None;
    }
    let output = succeed(Command::new(program).args(arguments).arg(library()));
    Some(String::from_utf8(output.stdout).expect("it prints text"))
}

#[test]
fn library_exports_copies_alone() {
    let Some(symbols) = output_of("nm", &["-D", "--defined-only"]) else { return };
    let mut names: Vec<&str> = symbols.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    names.sort_unstable();
    let expected = [
        "__bzero",
        "__explicit_bzero_chk",
        "__memcpy_chk",
        "__memmove_chk",
        "__mempcpy",
        "__mempcpy_chk",
        "__memset_chk",
        "bcopy",
        "bzero",
        "explicit_bzero",
        "memcpy",
        "memmove",
        "mempcpy",
        "memset",
    ];
    assert_eq!(names, expected);
    // An IFUNC would run before the library is relocated.
    assert!(!symbols.contains(" i "), "{symbols}");
}

/// No dlsym, no lock, no allocation, no output: nothing but these.
#[test]
fn library_imports_these_functions_alone() {
    let Some(symbols) = output_of("nm", &["-D", "--undefined-only"]) else { return };
    let names = symbols.lines().filter_map(|line| line.trim().rsplit(' ').next());
    let mut names: Vec<&str> = names.filter_map(|name| name.split('@').next()).collect();
    // What the linker and gcc's start files add to every library.
    names.retain(|name| !name.starts_with("_ITM") && !name.starts_with("__gmon"));
    names.retain(|name| !matches!(*name, "__cxa_finalize" | "__environ"));
    names.sort_unstable();
    let expected = ["__chk_fail", "_dl_find_object", "environ", "getauxval", "memcmp", "strlen"];
    assert_eq!(names, expected);
}

/// A call of its own memcpy would be a recursion, or reach another library's.
#[test]
fn library_refers_to_no_copy_function() {
    let Some(relocations) = output_of("readelf", &["-rW"]) else { return };
    let copies = ["memcpy", "memmove", "memset", "mempcpy", "bcopy", "bzero"];
    let is_copy = |line: &&str| copies.iter().any(|name| line.contains(name));
    assert_eq!(relocations.lines().find(is_copy), None);
}

#[test]
fn library_needs_little_thread_local_storage() {
    const BYTES_MAX: u64 = 64;
    let Some(headers) = output_of("readelf", &["-lW"]) else { return };
    let tls = headers.lines().find(|line| line.trim_start().starts_with("TLS"));
    let size = tls.and_then(|line| line.split_whitespace().nth(5)).expect("it has words");
    let size = u64::from_str_radix(size.trim_start_matches("0x"), 16).expect("it is a number");
    assert!(size <= BYTES_MAX, "{size} bytes");
}
