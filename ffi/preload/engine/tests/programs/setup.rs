//! The library, a fake's folder, and compiled programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use haul_engine::dsa::fake::{Settings, tree};
use tempfile::TempDir;

/// What every program here begins with: a queue, by `mmap` or `write`, and a copy that is polled.
const HEADER: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct descriptor {
    uint32_t first, flags;
    uint64_t record, source, target;
    uint32_t size;
    uint8_t rest[28];
} __attribute__((aligned(64)));
struct record {
    volatile uint8_t status, result, info, reserved;
    volatile uint32_t completed;
    volatile uint64_t address, rest[2];
} __attribute__((aligned(32)));

#define CHECK(x) do { if (!(x)) { \
    fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)

static struct descriptor copy_of(void *to, const void *from, uint32_t size, struct record *r) {
    struct descriptor d = {0};
    memset((void *)r, 0, sizeof *r);
    d.flags = 3u << 24 | 0xc;
    d.record = (uint64_t)r, d.source = (uint64_t)from, d.target = (uint64_t)to, d.size = size;
    return d;
}

static int wait_for(struct record *r) {
    for (long i = 0; i < 100000000 && r->status == 0; i++)
        if (i % 1000 == 999) usleep(10);
    return r->status;
}

static int movdir64b(void *portal, const struct descriptor *d) {
    __asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x02" : : "a"(portal), "d"(d) : "memory");
    return 0;
}

static int enqcmd(void *portal, const struct descriptor *d) {
    uint8_t retry;
    __asm__ volatile(".byte 0xf2, 0x0f, 0x38, 0xf8, 0x02; setz %0"
                     : "=r"(retry) : "a"(portal), "d"(d) : "memory", "cc");
    return retry;
}
"#;

/// A fake's folder.
pub(crate) struct Setup {
    folder: TempDir,
}

impl Setup {
    pub(crate) fn new(settings: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let settings: Settings = settings.parse().expect("the tests write good settings");
        let fake = folder.path().join("fake");
        fs::create_dir(&fake).expect("the folder is ours");
        tree::write(&fake, &settings).expect("the folder is ours");
        Self { folder }
    }

    pub(crate) fn fake(&self) -> PathBuf {
        self.folder.path().join("fake")
    }

    /// Compiles `main`'s body, and returns a command that runs it under the library. `None` without
    /// a compiler.
    pub(crate) fn program(&self, body: &str) -> Option<Command> {
        if Command::new("gcc").arg("--version").output().is_err() {
            let what = "C programs under libhaul_engine_fake";
            eprintln!("SKIPPED: {what}: no gcc on PATH: apt-get install gcc");
            return None;
        }
        let source = self.folder.path().join("program.c");
        let built = self.folder.path().join("program");
        fs::write(&source, format!("{HEADER}\n{body}")).expect("the folder is ours");
        succeed(Command::new("gcc").args(["-w", "-O1", "-o"]).arg(&built).arg(&source));
        Some(self.command(&built))
    }

    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", library()).env(tree::VARIABLE, self.fake());
        command
    }

    /// Compiles a program, which must succeed.
    pub(crate) fn run(&self, body: &str) {
        if let Some(mut program) = self.program(body) {
            succeed(&mut program);
        }
    }
}

/// The library. Cargo builds it for this test too, but leaves that one without its name.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().expect("Linux knows it");
        let folder = test.parent().and_then(Path::parent).expect("cargo's layout").to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["--package", "haul-engine-fake", "--package", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--lib"]).args(both);
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.env("CARGO_TARGET_DIR", folder.parent().expect("cargo's layout"));
        succeed(cargo.current_dir(env!("CARGO_MANIFEST_DIR")));
        folder.join("libhaul_engine_fake.so")
    })
}

/// Runs a command, which must succeed.
pub(crate) fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}
