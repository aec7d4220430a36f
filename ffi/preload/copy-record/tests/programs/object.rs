//! The symbols of the library.

use std::process::Command;

use crate::setup::{is_here, library, skip, succeed};

fn output_of(program: &str, arguments: &[&str]) -> Option<String> {
    if !is_here(program) {
        let why = format!("no {program} on PATH");
        skip("the symbols of libhaul_copy_record", &why, "apt-get install binutils");
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
        "prctl",
        "syscall",
    ];
    assert_eq!(names, expected);
    // An IFUNC would run before the library is relocated.
    assert!(!symbols.contains(" i "), "{symbols}");
}

#[test]
fn library_looks_up_no_symbol() {
    let Some(symbols) = output_of("nm", &["-D", "--undefined-only"]) else { return };
    let mut names = symbols.lines().filter_map(|line| line.trim().rsplit(' ').next());
    let banned = ["dlsym", "dlvsym", "dlopen", "pthread_mutex_lock", "pthread_once"];
    let found = names.find(|name| {
        let name = name.split('@').next().unwrap_or_default();
        name.starts_with("mem") && name != "memcmp" || banned.contains(&name)
    });
    assert_eq!(found, None);
}

/// A library that is opened later gets thread-local storage from a small reserve.
#[test]
fn library_needs_little_thread_local_storage() {
    /// The recorder's eight bytes, and those of Rust's standard library, which is linked.
    const BYTES_MAX: u64 = 96;
    let Some(headers) = output_of("readelf", &["-lW"]) else { return };
    let tls = headers.lines().find(|line| line.trim_start().starts_with("TLS"));
    let size = tls.and_then(|line| line.split_whitespace().nth(5)).expect("it has a word");
    let size = u64::from_str_radix(size.trim_start_matches("0x"), 16).expect("it is a number");
    assert!(size <= BYTES_MAX, "{size} bytes");
}
