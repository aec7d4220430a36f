//! Runs the compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The target that this test was compiled for. If the test runs under an emulator, `rustc`
/// belongs to the host and would compile for the host by default. `None` means the target of the
/// host.
const TARGET: Option<&str> = if !cfg!(all(target_os = "linux", target_env = "gnu")) {
    None
} else if cfg!(target_arch = "x86_64") {
    Some("x86_64-unknown-linux-gnu")
} else if cfg!(target_arch = "aarch64") {
    Some("aarch64-unknown-linux-gnu")
} else {
    None
};

/// A folder for compiled files. Dropping this value removes the folder and its files.
pub(crate) struct Workshop(PathBuf);

impl Workshop {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = format!("object-{}-{count}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        std::fs::create_dir_all(&path).expect("a folder below target");
        Self(path)
    }

    /// The object file of this crate at an optimization level: `0`, `1`, `2`, `3`, `s` or `z`.
    pub(crate) fn haul_copy(&self, level: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
        let object = self.0.join(format!("haul_copy-{level}.o"));
        self.compile(&source, &["--crate-name=haul_copy"], level, &emit("obj", &object));
        object
    }

    /// The object file of other source text, at optimization level 3.
    pub(crate) fn snippet(&self, name: &str, text: &str) -> PathBuf {
        let source = self.write(name, text);
        let object = self.0.join(format!("{name}.o"));
        self.compile(&source, &["--crate-name=haul_copy"], "3", &emit("obj", &object));
        object
    }

    /// The object file of a crate that calls this one, at optimization level 3.
    pub(crate) fn caller(&self, text: &str) -> PathBuf {
        let object = self.0.join("caller.o");
        let with = format!("--extern=haul_copy={}", self.library().display());
        self.compile(
            &self.write("caller", text),
            &[&with, "--crate-name=caller"],
            "3",
            &emit("obj", &object),
        );
        object
    }

    /// This crate as a library of Rust, at optimization level 3.
    fn library(&self) -> PathBuf {
        let library = self.0.join("libhaul_copy.rlib");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
        self.compile(&source, &["--crate-name=haul_copy"], "3", &emit("link", &library));
        library
    }

    /// A shared library of a program that calls this crate, built with link-time optimization:
    /// `lto` is `thin` or `fat`.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn with_link_time_optimization(&self, lto: &str, text: &str) -> PathBuf {
        let product = self.0.join("libcaller.so");
        let lto = format!("-Clto={lto}");
        let with = format!("--extern=haul_copy={}", self.library().display());
        let flags = [&*with, "--crate-name=caller", &lto, "--crate-type=cdylib"];
        let flags = [&flags[..], &["-Clink-arg=-nostartfiles"]].concat();
        self.run(&self.write("caller", text), &flags, "3", &emit("link", &product));
        product
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let source = self.0.join(format!("{name}.rs"));
        std::fs::write(&source, text).expect("write a source file");
        source
    }

    fn compile(&self, source: &Path, flags: &[&str], level: &str, emit: &str) {
        self.run(source, &[flags, &["--crate-type=lib"]].concat(), level, emit);
    }

    fn run(&self, source: &Path, flags: &[&str], level: &str, emit: &str) {
        // rustup's proxy passes its choice of a toolchain in the environment; without rustup,
        // there is only one rustc.
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(compiler)
            .args(["--edition=2024", "-Ccodegen-units=1", "-Cpanic=abort", "-Awarnings"])
            .args(TARGET.map(|target| format!("--target={target}")))
            .arg(format!("-Copt-level={level}"))
            .arg(format!("--emit={emit}"))
            .arg("--out-dir")
            .arg(&self.0)
            .args(flags)
            .arg(source)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("run rustc");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "rustc {}: {errors}", source.display());
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // A folder that remains below target is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn emit(kind: &str, path: &Path) -> String {
    format!("{kind}={}", path.display())
}
