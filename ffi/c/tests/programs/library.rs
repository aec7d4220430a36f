//! The release build of libhaul, shared and static, which is the one that users get.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::toolchain::run;

/// The library that a program is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Shared,
    Static,
}

pub(crate) struct Library {
    /// The folder that cargo builds in.
    target: PathBuf,
    /// The folder that this test builds in.
    folder: PathBuf,
}

impl Library {
    /// Builds the library, once for this test.
    pub(crate) fn get() -> &'static Self {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        LIBRARY.get_or_init(|| {
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("programs");
            let target =
                Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent");
            // A file of an earlier run must not replace one that this run fails to build.
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder).expect("cargo's folder for tests is writable");
            let library = Self { target: target.into(), folder };
            library.build();
            library
        })
    }

    fn build(&self) {
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the whole build, as scripts/install builds it, so that what both
        // need is compiled once.
        let packages = ["-p", "haul-c", "-p", "haul-cli", "-p", "haul-engine-fake"];
        cargo.args(["build", "--release", "--lib"]).args(packages);
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        run(self.cargo_environment(&mut cargo));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("link-shared");
        run(Command::new("bash").arg(script).arg(self.archive()).arg(self.shared()));
        let name = self.folder.join("libhaul.so.0");
        std::os::unix::fs::symlink("libhaul.so", name)
            .expect("cargo's folder for tests is writable");
    }

    /// Makes a cargo inside `command` build in the target folder of this test.
    pub(crate) fn cargo_environment<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("CARGO_TARGET_DIR", &self.target)
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn archive(&self) -> PathBuf {
        self.target.join("release/libhaul.a")
    }

    pub(crate) fn shared(&self) -> PathBuf {
        self.folder.join("libhaul.so")
    }

    /// The library that shows a fake DSA to a program.
    pub(crate) fn fake_device(&self) -> PathBuf {
        self.target.join("release/libhaul_engine_fake.so")
    }

    /// A C source of the tests.
    pub(crate) fn source(&self, name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
    }

    /// Compiles and links a source of the tests; returns the program.
    pub(crate) fn compile(
        &self,
        compiler: &str,
        flags: &[&str],
        source: &str,
        link: Link,
    ) -> PathBuf {
        let name =
            format!("{source}-{compiler}-{link:?}-{}", flags.join("").replace(['=', '/'], ""));
        let program = self.folder.join(name);
        let mut command = Command::new(compiler);
        command
            .args(flags)
            .arg("-I")
            .arg(include())
            .arg("-o")
            .arg(&program)
            .arg(self.source(source));
        match link {
            Link::Shared => command.arg("-L").arg(&self.folder).arg("-lhaul"),
            Link::Static => {
                command.arg(self.archive()).args(["-lgcc_s", "-lpthread", "-ldl", "-lm"])
            }
        };
        run(&mut command);
        program
    }

    /// The assembly of a source of the tests at an optimization level, such as `-O2`.
    pub(crate) fn assembly(&self, compiler: &str, level: &str, source: &str) -> String {
        let mut command = Command::new(compiler);
        command.args(["-std=c99", level, "-S", "-o", "-", "-I"]).arg(include());
        run(command.arg(self.source(source))).stdout
    }

    /// The command that runs a program of [`Self::compile`], without the tuning file of this
    /// machine.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        self.make_loadable(&mut command);
        command
    }

    pub(crate) fn make_loadable(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", &self.folder).env("HAUL_TUNING", "off");
    }
}

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}
