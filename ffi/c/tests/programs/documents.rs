//! The C code in README.md and docs/ compiles against `haul.h`, with every installed compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::C_FLAGS;
use crate::toolchain::{compilers, run};

/// The head of the function that encloses a piece without a function.
const HEAD: &str = "void example(void *target, const void *source, size_t n);\n\
                     void example(void *target, const void *source, size_t n)\n{\n\
                     (void)target; (void)source; (void)n;\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every piece of C in the documents that includes `haul.h`, with the name of its document.
fn pieces() -> Vec<(String, String)> {
    let mut pieces = Vec::new();
    let documents = fs::read_dir(root().join("docs")).expect("docs/").flatten();
    let paths = documents.map(|entry| entry.path()).chain([root().join("README.md")]);
    for path in paths.filter(|path| path.extension().is_some_and(|name| name == "md")) {
        let text = fs::read_to_string(&path).expect("a document");
        for piece in text.split("```c\n").skip(1) {
            let piece = piece.split("```").next().unwrap_or_default();
            if piece.contains("haul.h") {
                pieces.push((path.display().to_string(), piece.to_owned()));
            }
        }
    }
    pieces
}

/// Turns a piece into a file that can be compiled. A piece without `main` becomes the body of a
/// function.
fn whole(piece: &str) -> String {
    if piece.contains("main(") {
        return piece.to_owned();
    }
    let (includes, body): (Vec<&str>, Vec<&str>) =
        piece.lines().partition(|line| line.starts_with('#'));
    format!("{}\n#include <stddef.h>\n{HEAD}{}\n}}\n", includes.join("\n"), body.join("\n"))
}

#[test]
fn c_code_of_documents_compiles() {
    let pieces = pieces();
    assert!(!pieces.is_empty(), "docs/copy.md has C code");
    for (number, (document, piece)) in pieces.iter().enumerate() {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("document-{number}.c"));
        fs::write(&source, whole(piece)).expect("written");
        for compiler in compilers("c") {
            eprintln!("{document} with {compiler}");
            let mut command = Command::new(&compiler);
            command.args(C_FLAGS).arg("-fsyntax-only").arg("-I").arg(root().join("ffi/c/include"));
            run(command.arg(&source));
        }
    }
}
