//! `haul completions`, `haul man`, and the results of `scripts/install` and `scripts/deb`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::{haul, run};

fn is_here(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok()
}

/// Bash's proposals for the last of these words.
fn offered(script: &Path, words: &[&str]) -> BTreeSet<String> {
    let last = words.len() - 1;
    let text = format!(
        "source {} && COMP_WORDS=({}) && COMP_CWORD={last} && _haul haul '{}' '{}' && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script.display(),
        words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
        words[last],
        words[last - 1],
    );
    let ran = run(Command::new("bash").args(["--norc", "-c", &text])).expect(0);
    ran.out.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("haul");
    let ran = run(&mut haul(&["completions", "bash"])).expect(0);
    fs::write(&script, &ran.out).unwrap();
    let commands = offered(&script, &["haul", ""]);
    for name in ["survey", "copy", "channel", "compare"] {
        assert!(commands.contains(name), "{name}: {commands:?}");
    }
    assert!(offered(&script, &["haul", "copy", "b"]).contains("bench"));
    let options = offered(&script, &["haul", "copy", "bench", "--s"]);
    assert!(options.contains("--sizes") && !options.contains("--json"), "{options:?}");
    let hidden = offered(&script, &["haul", "channel", ""]);
    assert!(hidden.contains("send") && !hidden.contains("drive"), "{hidden:?}");
}

#[test]
fn every_shell_has_a_script() {
    for (shell, part) in
        [("bash", "complete -F _haul"), ("zsh", "#compdef haul"), ("fish", "-c haul")]
    {
        let ran = run(&mut haul(&["completions", shell])).expect(0);
        assert!(ran.out.contains(part), "{shell}: {}", ran.out);
        let offers_drive = ran.out.replace("driver", "").contains("drive");
        assert!(!offers_drive, "{shell} offers a command that only haul starts");
    }
    run(&mut haul(&["completions", "dosshell"])).expect(2).says(&["bash", "fish", "zsh"]);
    run(&mut haul(&["completions"])).expect(2);
}

#[test]
fn every_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    run(&mut haul(&["man", "--out", out.to_str().unwrap()])).expect(0);
    let names: BTreeSet<String> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in ["haul.1", "haul-copy.1", "haul-copy-bench.1", "haul-channel-send.1", "haul-man.1"]
    {
        assert!(names.contains(name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("drive")), "{names:?}");
    let page = fs::read_to_string(out.join("haul-copy-bench.1")).unwrap();
    for part in [".TH haul-copy-bench", "\\-\\-sizes", "haul copy bench \\-\\-size\\-class"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let printed = run(&mut haul(&["man"])).expect(0).out;
    assert_eq!(printed.trim_end(), fs::read_to_string(out.join("haul.1")).unwrap().trim_end());
    // A folder that cannot be made.
    let taken = folder.path().join("taken");
    fs::write(&taken, "").unwrap();
    let below = taken.join("man1");
    run(&mut haul(&["man", "--out", below.to_str().unwrap()])).expect(1).says(&["cannot write"]);
    if !is_here("man") {
        eprintln!("SKIPPED: pages as man shows them: no man on PATH: apt-get install man-db");
        return;
    }
    let mut man = Command::new("man");
    man.args(["--warnings", "-E", "UTF-8", "-l", "-Z"]).arg(out.join("haul-copy-bench.1"));
    let ran = run(&mut man).expect(0);
    assert_eq!(ran.err, "", "man reports an error");
}

/// A script that builds in the target folder of this test.
fn script(name: &str) -> Command {
    let mut command = Command::new("bash");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name));
    command.env("CARGO_TARGET_DIR", target()).env("CARGO_NET_OFFLINE", "true");
    command
}

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target/tmp has a parent")
}

/// What scripts/install installs, built and installed once. The build is the release build, which
/// users get and other tests need, too. It has no time limit: a first one takes minutes.
fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        // A file of an earlier run must not replace one that this run fails to install.
        let _ = fs::remove_dir_all(&prefix);
        let output = script("install").arg("--prefix").arg(&prefix).output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && out.contains("is installed under"), "{output:?}");
        prefix
    })
}

#[test]
fn installation_is_complete_and_stripped() {
    let prefix = installed();
    for file in [
        "bin/haul",
        "lib/libhaul_record.so",
        "lib/libhaul_copy_record.so",
        "lib/libhaul_rte_malloc.so",
        "lib/libhaul.so",
        "include/haul.h",
        "share/man/man1/haul.1",
        "share/man/man1/haul-heap-bench.1",
        "share/bash-completion/completions/haul",
        "share/zsh/site-functions/_haul",
        "share/fish/vendor_completions.d/haul.fish",
    ] {
        assert!(fs::metadata(prefix.join(file)).is_ok_and(|found| found.len() > 0), "{file}");
    }
    // One path with $LIB serves the programs of either class.
    let copies = ["lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"];
    assert!(copies.iter().any(|lib| prefix.join(lib).join("libhaul_copy.so").is_file()));
    let installed = prefix.join("bin/haul");
    let version = run(Command::new(&installed).arg("--version")).expect(0).out;
    assert_eq!(version, run(&mut haul(&["--version"])).out);
    if !is_here("strip") {
        eprintln!("SKIPPED: stripped programs: no strip on PATH: apt-get install binutils");
        return;
    }
    let bytes = |path: &Path| fs::metadata(path).unwrap().len();
    let built = target().join("release/haul");
    assert!(bytes(&installed) * 2 < bytes(&built), "{} B", bytes(&installed));
    // Symbols that are looked up by name still exist.
    let symbols = run(Command::new("nm").arg("-D").arg(prefix.join("lib/libhaul_record.so")));
    assert!(symbols.out.contains(" T malloc"), "{symbols:#?}");
}

/// Unpacked into an empty folder.
#[test]
fn debian_package_is_complete_and_runs() {
    for (program, remedy) in [
        ("cargo-deb", "cargo install --locked --debug --no-default-features cargo-deb"),
        ("dpkg-deb", "apt-get install dpkg"),
    ] {
        if !is_here(program) {
            eprintln!("SKIPPED: the Debian package: no {program} on PATH: {remedy}");
            return;
        }
    }
    // The build of the package is the same.
    installed();
    let folder = tempfile::tempdir().unwrap();
    run(script("deb").args(["--fast", "--out"]).arg(folder.path())).expect(0);
    let packages: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap()).collect();
    let [package] = packages.as_slice() else { panic!("{packages:?}") };
    let fields = run(Command::new("dpkg-deb").arg("--field").arg(package.path())).expect(0).out;
    for field in ["Package: haul\n", "Depends: libc6", "Maintainer: "] {
        assert!(fields.contains(field), "{field}: {fields}");
    }
    let mut shlibs = Command::new("dpkg-deb");
    let shlibs = run(shlibs.arg("--info").arg(package.path()).arg("shlibs")).expect(0).out;
    assert!(shlibs.starts_with("libhaul 0 haul (>= "), "{shlibs}");
    let unpacked = folder.path().join("unpacked");
    let mut unpack = Command::new("dpkg-deb");
    run(unpack.arg("--extract").arg(package.path()).arg(&unpacked)).expect(0);
    for file in [
        "lib/haul/libhaul_record.so",
        "lib/haul/libhaul_copy_record.so",
        "lib/haul/libhaul_rte_malloc.so",
        "lib/haul/libhaul_dpdk_burst.so",
        "lib/libhaul.so",
        "lib/libhaul.so.0",
        "lib/pkgconfig/haul.pc",
        "include/haul.h",
        "share/man/man1/haul.1.gz",
        "share/man/man1/haul-heap-bench.1.gz",
        "share/bash-completion/completions/haul",
        "share/zsh/vendor-completions/_haul",
        "share/fish/vendor_completions.d/haul.fish",
        "share/doc/haul/copyright",
    ] {
        let found = fs::metadata(unpacked.join("usr").join(file));
        assert!(found.is_ok_and(|found| found.len() > 0), "{file}");
    }
    let copyright = unpacked.join("usr/share/doc/haul/copyright");
    assert!(fs::read_to_string(copyright).unwrap().contains("/common-licenses/Apache-2.0"));
    let mut installed = Command::new(unpacked.join("usr/bin/haul"));
    let version = run(installed.arg("--version")).expect(0).out;
    assert_eq!(version, run(&mut haul(&["--version"])).out);
}
