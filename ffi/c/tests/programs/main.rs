//! C programs with libhaul, compiled as a user does: with every installed compiler, the shared and
//! the static library, natively and under valgrind, from the build tree and after installation.
//!
//! - [`toolchain`]: compilers and tools, and the skips of missing ones;
//! - [`library`]: the release build of libhaul, shared and static;
//! - [`documents`]: the C code in README.md and docs/.

mod documents;
mod library;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::Command;

use haul_rust::engine::dsa::fake::{Settings, tree};
use library::{Library, Link};
use toolchain::{compilers, is_here, run, skip};

/// The differential program's rounds: natively, and under valgrind, which is 50 times slower.
const ROUNDS: &str = "50000";
const ROUNDS_VALGRIND: &str = "2000";

const C_FLAGS: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Compiles `source` with every C compiler, links it with each library, and passes each program to
/// `check`.
fn for_each_build(source: &str, flags: &[&str], check: impl Fn(&Library, Link, Command)) {
    let library = Library::get();
    for compiler in compilers("c") {
        for link in [Link::Shared, Link::Static] {
            let flags: Vec<&str> = C_FLAGS.iter().chain(flags).copied().collect();
            let program = library.compile(&compiler, &flags, source, link);
            check(library, link, library.command(&program));
        }
    }
}

#[test]
fn copies_match_libc() {
    for flags in [&["-O2"][..], &["-O0"], &["-O2", "-DHAUL_NO_INLINE"]] {
        for_each_build("differential.c", flags, |_, _, mut program| {
            run(program.args(["1", ROUNDS]));
        });
    }
}

#[test]
fn interface_passes_c_test() {
    for_each_build("interface.c", &["-O2"], |_, _, mut program| {
        run(&mut program);
    });
}

#[test]
fn heap_passes_c_test() {
    for_each_build("heap.c", &["-O2"], |_, _, mut program| {
        run(&mut program);
    });
}

#[test]
fn channel_passes_c_test() {
    for_each_build("channel.c", &["-O2"], |_, _, mut program| {
        run(&mut program);
    });
}

#[test]
fn engine_passes_c_test() {
    for_each_build("engine.c", &["-O2"], |_, _, mut program| {
        run(&mut program);
    });
}

/// A DSA that refuses every CRC-32C, executes nothing from the first fill on, and removes itself at
/// the first comparison.
const FAULTS: &str = "inject every=1 opcode=16 status=32 bytes=0\n\
                      inject every=1 opcode=4 wedge\n\
                      inject every=1 opcode=5 remove\n";

#[test]
fn c_program_gets_faults_of_device() {
    let settings: Settings = FAULTS.parse().expect("the settings are valid");
    // Not the flags of the other test, which may run the program of these flags now.
    for_each_build("engine.c", &["-O1"], |library, _, mut program| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        tree::write(folder.path(), &settings).expect("the folder is writable");
        program.env("LD_PRELOAD", library.fake_device()).env(tree::VARIABLE, folder.path());
        run(program.arg("faults"));
    });
}

/// One test for each program, so that they run in parallel.
fn check_under_valgrind(source: &str, arguments: &[&str]) {
    if !is_here("valgrind") {
        skip("C programs under valgrind", "no valgrind on PATH", "apt-get install valgrind");
        return;
    }
    for_each_build(source, &["-O2", "-g"], |library, _, program| {
        let mut valgrind = Command::new("valgrind");
        library.make_loadable(&mut valgrind);
        valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full"]);
        run(valgrind.arg(program.get_program()).args(arguments));
    });
}

#[test]
fn copies_match_libc_under_valgrind() {
    check_under_valgrind("differential.c", &["3", ROUNDS_VALGRIND]);
}

#[test]
fn interface_passes_c_test_under_valgrind() {
    check_under_valgrind("interface.c", &[]);
}

#[test]
fn heap_passes_c_test_under_valgrind() {
    check_under_valgrind("heap.c", &[]);
}

#[test]
fn channel_passes_c_test_under_valgrind() {
    check_under_valgrind("channel.c", &[]);
}

#[test]
fn engine_passes_c_test_under_valgrind() {
    check_under_valgrind("engine.c", &["no-fork"]);
}

#[test]
fn header_compiles_as_cpp() {
    let library = Library::get();
    for compiler in compilers("c++") {
        for inline in [&[][..], &["-DHAUL_NO_INLINE"]] {
            let mut flags = vec!["-std=c++11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"];
            flags.extend(inline);
            let program = library.compile(&compiler, &flags, "include.cpp", Link::Shared);
            run(&mut library.command(&program));
        }
    }
}

/// The test covers every optimizing level. Without optimization the call for more than 64 bytes
/// remains in the code, although it is never reached.
#[test]
fn small_copy_makes_no_call() {
    let library = Library::get();
    for compiler in compilers("c") {
        for level in ["-O1", "-O2", "-O3", "-Os"] {
            let listing = library.assembly(&compiler, level, "inlined.c");
            for function in ["copy_small:", "move_small:", "set_small:", "move_known:"] {
                assert!(listing.contains(function), "{compiler} {level}: no {function}\n{listing}");
            }
            // If masks move small sizes, a copy of unknown size is one call of the whole function.
            let is_other_call = |line: &&str| {
                let whole = ["haul_memcpy", "haul_memmove", "haul_memset"];
                let is_whole = |name: &str| whole.contains(&name.trim_end_matches("@PLT"));
                is_call(line) && !line.split_whitespace().nth(1).is_some_and(is_whole)
            };
            let call = listing.lines().map(str::trim).find(is_other_call);
            assert_eq!(call, None, "{compiler} {level}:\n{listing}");
            for function in ["copy_known:", "move_known:", "set_known:"] {
                let code = listing.lines().skip_while(|line| !line.starts_with(function)).skip(1);
                let mut code = code.take_while(|line| !line.contains(".size")).map(str::trim);
                let call = code.find(|line| is_call(line) || line.contains("haul_small"));
                assert_eq!(call, None, "{compiler} {level}: {function}\n{listing}");
            }
        }
    }
}

/// Whether a line of x86-64 or aarch64 assembly is a call, or a jump into haul.
fn is_call(line: &str) -> bool {
    let mnemonic = line.split_whitespace().next().unwrap_or("");
    let jumps = line.starts_with('j') || line.starts_with("b\t");
    ["call", "callq", "bl", "blr"].contains(&mnemonic) || jumps && line.contains("haul_")
}

#[test]
fn library_reports_bad_tuning_file_at_load() {
    let bad = Library::get().folder().join("bad.toml");
    std::fs::write(&bad, "this is no tuning file [").expect("the test's folder is writable");
    for_each_build("start.c", &["-O2"], |_, link, mut program| {
        let output = run(program.env("HAUL_TUNING", &bad));
        let is_reported = output.stderr.contains("haul: warning: tuning file ignored");
        assert_eq!(is_reported, link == Link::Shared, "{link:?} at load: {:?}", output.stderr);

        let output = run(program.arg("init"));
        let lines = output.stderr.matches("haul: warning").count();
        assert_eq!(lines, 1, "{link:?} with haul_init(): {:?}", output.stderr);
        assert!(output.stdout.contains("\n3 haul.toml was ignored"), "{:?}", output.stdout);
    });
}

#[test]
fn shared_library_exports_only_haul() {
    let library = Library::get();
    let symbols =
        run(Command::new("nm").args(["-D", "--defined-only"]).arg(library.shared())).stdout;
    let mut names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    names.sort_unstable();
    let map = include_str!("../../libhaul.map");
    let listed = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let mut expected: Vec<String> = listed
        .filter(|name| name.starts_with("haul_"))
        .map(|name| format!("{name}@@HAUL_0.1"))
        .collect();
    expected.push("HAUL_0.1".into());
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn shared_library_has_soname_and_constructor() {
    let library = Library::get();
    let dynamic = run(Command::new("readelf").arg("-dW").arg(library.shared())).stdout;
    assert!(dynamic.contains("Library soname: [libhaul.so.0]"), "{dynamic}");
    assert!(dynamic.contains("BIND_NOW") || dynamic.contains("NOW"), "{dynamic}");
    assert!(dynamic.contains("(INIT_ARRAY)"), "{dynamic}");
}

/// A plugin, which is a shared library, may contain libhaul.a.
#[test]
fn static_library_links_into_shared_library() {
    let flags = ["-shared", "-fPIC", "-std=c11"];
    for source in ["channel.c", "engine.c", "heap.c"] {
        let plugin = Library::get().compile("cc", &flags, source, Link::Static);
        assert!(plugin.exists());
    }
}

/// A program that links libhaul.a must keep its own memcpy.
#[test]
fn static_library_defines_no_libc_symbol() {
    let library = Library::get();
    let symbols =
        run(Command::new("nm").args(["-g", "--defined-only"]).arg(library.archive())).stdout;
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    assert!(names.contains(&"haul_memcpy"), "nm lists no symbol");
    for name in ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen", "malloc", "free"] {
        assert!(!names.contains(&name), "libhaul.a defines {name}");
    }
}

/// Runs `make check` of `examples/c` with the installed library, like a user.
fn check_examples(library: &Library, prefix: &Path) {
    if !is_here("make") {
        skip("the examples in C", "no make on PATH", "apt-get install make");
        return;
    }
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/c");
    let at = |name: &str, folder: PathBuf| format!("{name}={}", folder.display());
    let printed = run(Command::new("make")
        .args(["-C", examples, "check", "CFLAGS=-O2 -std=c11 -Wall -Wextra -Werror"])
        .arg(at("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")))
        .arg(at("LD_LIBRARY_PATH", prefix.join("lib")))
        .arg(at("OUT", library.folder().join("examples")))
        .env("HAUL_TUNING", "off"))
    .stdout;
    for part in [
        "copied and filled by haul",
        "reads: from one process to the other, without a copy",
        "received 67108864 B",
        "received 20 messages",
        "sent 20 messages",
        "received 4 messages into 4 blocks of the heap",
        "copied 16777216 B while the program computed 82025 primes",
    ] {
        assert!(printed.contains(part), "the examples do not print {part:?}: {printed}");
    }
}

#[test]
fn pkg_config_finds_installed_library() {
    let library = Library::get();
    let prefix = library.folder().join("prefix");
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install");
    run(library
        .cargo_environment(Command::new("bash").arg(install).arg("--libraries"))
        .arg("--prefix")
        .arg(&prefix));
    for file in [
        "include/haul.h",
        "lib/libhaul.a",
        "lib/libhaul.so",
        "lib/libhaul.so.0",
        "lib/pkgconfig/haul.pc",
    ] {
        assert!(prefix.join(file).exists(), "{file} was not installed");
    }
    if !is_here("pkg-config") {
        skip("haul.pc", "no pkg-config on PATH", "apt-get install pkg-config");
        return;
    }
    // haul.pc finds its prefix from its own path, so the prefix may be moved.
    let moved = library.folder().join("moved");
    let _ = std::fs::remove_dir_all(&moved);
    std::fs::rename(&prefix, &moved).expect("the test's folder is writable");
    let mut pkg_config = Command::new("pkg-config");
    pkg_config.env("PKG_CONFIG_PATH", moved.join("lib/pkgconfig"));
    let flags = run(pkg_config.args(["--cflags", "--libs", "haul"])).stdout;
    check_examples(library, &moved);
    for compiler in compilers("c") {
        let program = library.folder().join(format!("installed-{compiler}"));
        let mut compile = Command::new(&compiler);
        compile.args(["-O2", "-o"]).arg(&program).arg(library.source("interface.c"));
        run(compile.args(flags.split_whitespace()));
        run(Command::new(&program)
            .env("LD_LIBRARY_PATH", moved.join("lib"))
            .env("HAUL_TUNING", "off"));
    }
}
