//! Real programs at work under the library, and tools that look into a program with it: each does
//! what it does otherwise.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::setup::{Setup, is_here, library, skip, succeed};

/// Skips a test if a program is missing.
fn has(program: &str, package: &str) -> bool {
    let is_here = is_here(program);
    if !is_here {
        let why = format!("no {program} on PATH");
        skip("a program under libhaul_copy", &why, &format!("apt-get install {package}"));
    }
    is_here
}

fn text(output: &Output) -> String {
    let both = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    both.join("")
}

#[test]
fn git_packs_a_repository_that_is_whole() {
    if !has("git", "git") {
        return;
    }
    let setup = Setup::new();
    let at = setup.folder.path();
    let git = |mut command: Command, arguments: &[&str]| {
        let name = ["-c", "user.name=n", "-c", "user.email=e", "-C"];
        let command = command.args(name).arg(at).args(arguments);
        // The machine's own configuration must not matter.
        succeed(command.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", at))
    };
    git(Command::new("git"), &["init", "--quiet"]);
    for version in 0..3_u32 {
        for file in 0..40_u32 {
            let lines = (0..200).map(|line| format!("{} {line} {version}\n", file * line % 17));
            fs::write(at.join(format!("f{file}")), lines.collect::<String>()).expect("it is ours");
        }
        git(setup.plain("git"), &["add", "."]);
        git(setup.plain("git"), &["commit", "--quiet", "-m", "m"]);
    }
    git(setup.command("git"), &["gc", "--quiet", "--aggressive", "--prune=now"]);
    let checked = git(Command::new("git"), &["fsck", "--strict", "--full"]);
    assert!(!text(&checked).contains("error"), "{checked:?}");
    assert!(setup.profile().bytes() > 0, "git copies");
}

#[test]
fn python_passes_its_own_tests_of_bytes() {
    /// Debian has Python's tests in a package of their own.
    const REMEDY: &str = "apt-get install libpython3-testsuite";
    if !has("python3", "python3") {
        return;
    }
    let import = Command::new("python3").args(["-c", "import test.test_array"]).output();
    if !import.expect("it is here").status.success() {
        skip("python3 -m test under libhaul_copy", "no Python package test", REMEDY);
        return;
    }
    let setup = Setup::new();
    let mut python = setup.command("python3");
    python.args(["-m", "test", "test_array", "test_memoryview", "test_bufio"]);
    let output = succeed(python.current_dir(setup.folder.path()));
    assert!(text(&output).contains("SUCCESS"), "{output:?}");
}

/// The browser has a sandbox, several processes, and an allocator and a compiler of its own. It
/// writes the page as its script left it.
#[test]
fn browser_shows_a_page() {
    let names = ["chromium", "chromium-headless-shell"];
    let Some(program) = names.into_iter().find(|name| is_here(name)) else {
        let why = "no chromium on PATH";
        skip("a browser under libhaul_copy", why, "apt-get install chromium");
        return;
    };
    let setup = Setup::new();
    let page = setup.folder.path().join("page.html");
    let script = "let s = 'ab'; while (s.length < 1e6) s += s; \
                  document.body.textContent = 'has ' + s.slice(0, 900000).length;";
    let html = format!("<body><script>{script}</script></body>");
    fs::write(&page, html).expect("it is ours");
    let mut browser = setup.command(program);
    browser.args(["--headless", "--disable-gpu", "--no-first-run", "--dump-dom"]);
    if rustix::process::geteuid().is_root() {
        // The browser refuses to run as root in its sandbox.
        browser.arg("--no-sandbox");
    }
    let own = format!("--user-data-dir={}", setup.folder.path().join("own").display());
    browser.arg(own).arg(format!("file://{}", page.display()));
    let output = succeed(browser.env("HOME", setup.folder.path()));
    assert!(text(&output).contains("has 900000"), "{output:?}");
    assert!(setup.profile().processes.len() > 1, "its children are profiled");
}

/// A server of PostgreSQL in a folder; ended when dropped.
struct Server {
    programs: PathBuf,
    data: PathBuf,
    setup: Setup,
}

impl Server {
    /// Starts a server under the library; `None`, with the reason, if there is none.
    fn start() -> Option<Self> {
        let of = |folder: fs::DirEntry| Some(folder.path().join("bin")).filter(|it| it.is_dir());
        let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let Some(programs) = installed.filter_map(of).next() else {
            let why = "no file /usr/lib/postgresql";
            skip("psql and its server under libhaul_copy", why, "apt-get install postgresql");
            return None;
        };
        if rustix::process::geteuid().is_root() && !has("setpriv", "util-linux") {
            return None;
        }
        let setup = Setup::new();
        let data = setup.folder.path().join("data");
        if rustix::process::geteuid().is_root() {
            let path = setup.folder.path();
            std::os::unix::fs::chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED))
                .expect("root may");
        }
        let server = Self { programs, data, setup };
        let options = ["--auth=trust", "--no-sync", "--username=p", "--no-instructions", "-D"];
        succeed(server.command("initdb").args(options).arg(&server.data));
        let at = server.setup.folder.path().display();
        let options = format!("-c listen_addresses= -c fsync=off -k {at}");
        let log = server.setup.folder.path().join("log");
        let mut start = server.command("pg_ctl");
        start.args(["start", "-w", "-s", "-o", &options, "-l"]).arg(log).arg("-D");
        succeed(start.arg(&server.data));
        Some(server)
    }

    /// A program of PostgreSQL under the library. The server refuses to run as root.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        if !rustix::process::geteuid().is_root() {
            return self.setup.command(program);
        }
        let mut command = self.setup.command("setpriv");
        let user = format!("--reuid={UNPRIVILEGED}");
        command.args([user, format!("--regid={UNPRIVILEGED}"), "--clear-groups".into()]);
        command.arg(program);
        command
    }
}

/// The user and group without rights (Debian's base-passwd).
const UNPRIVILEGED: u32 = 65534;

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = self.command("pg_ctl");
        let _ = stop.args(["stop", "-s", "-m", "immediate", "-D"]).arg(&self.data).output();
    }
}

#[test]
fn database_keeps_what_psql_copies_into_it() {
    if !has("psql", "postgresql-client") {
        return;
    }
    let Some(server) = Server::start() else { return };
    let psql = |command: &str| {
        let mut psql = server.setup.command("psql");
        psql.args(["-X", "-q", "-A", "-t", "-U", "p", "-d", "postgres", "-v", "ON_ERROR_STOP=1"]);
        text(&succeed(psql.arg("-h").arg(server.setup.folder.path()).args(["-c", command])))
    };
    let rows: String = (0..2000_usize).map(|row| format!("{row}\t{}\n", "x".repeat(row))).collect();
    let file = server.setup.folder.path().join("rows");
    fs::write(&file, rows).expect("it is ours");
    psql("create table t (id int, body text)");
    psql(&format!("\\copy t from '{}'", file.display()));
    let summed = psql("select count(*), sum(length(body)), md5(string_agg(body, '')) from t");
    let (count, sum) = (2000, 2000 * 1999 / 2);
    let wanted = format!("{count}|{sum}|");
    assert!(summed.starts_with(&wanted), "{summed}");
    let back = server.setup.folder.path().join("back");
    psql(&format!("\\copy (select * from t order by id) to '{}'", back.display()));
    assert_eq!(fs::read(file).expect("it is ours"), fs::read(back).expect("psql wrote it"));
}

/// A program that calls a copy from a function with a name.
const CALLS: &str = r#"
#include <string.h>
#include <stdlib.h>
char a[5000], b[5000];
__attribute__((noinline)) void caller(int n) { memcpy(a, b, n); }
int main(void) { for (int i = 0; i < 100; i++) caller(i * 49); return a[0]; }"#;

#[test]
fn debugger_finds_the_caller_and_goes_on() {
    if !has("gdb", "gdb") {
        return;
    }
    let setup = Setup::new();
    let Some(program) = setup.compile("p", CALLS, &["-O0", "-g", "-fno-builtin"]) else { return };
    let mut gdb = Command::new("gdb");
    gdb.args(["-batch", "-nx", "-iex", "set debuginfod enabled off"]);
    gdb.arg("-ex").arg(format!("set environment LD_PRELOAD {}", library().display()));
    gdb.arg("-ex").arg(format!("set environment HAUL_COPY_PROFILE {}", setup.file().display()));
    for command in [
        "set environment HAUL_TUNING off",
        "break caller",
        "run",
        "break memcpy",
        "continue",
        "backtrace",
        "stepi",
        "stepi",
        "stepi",
        "backtrace",
        "delete",
        "continue",
    ] {
        gdb.args(["-ex", command]);
    }
    let output = succeed(gdb.arg(&program));
    let said = text(&output);
    let callers = said.matches(" in caller (").count() + said.matches(" caller (").count();
    assert!(callers >= 2, "each backtrace has the caller: {said}");
    assert!(said.contains("libhaul_copy.so"), "the copy is ours: {said}");
    assert!(said.contains("exited normally"), "{said}");
    // The debugger itself, with Python in it.
    let plain = succeed(setup.plain("gdb").args(["-batch", "-nx", "-ex", "print 6 * 7"]));
    assert_eq!(String::from_utf8_lossy(&plain.stdout), "$1 = 42\n");
}

/// Copies 200 bytes into a block of the size that its argument says.
const OVERFLOW: &str = r#"
#include <string.h>
#include <stdlib.h>
int main(int count, char **arguments) {
    volatile int n = 200;
    char *small = malloc(atoi(arguments[1])), *big = calloc(1, n);
    memcpy(small, big, n);
    int result = small[9];
    free(small); free(big);
    return result;
}"#;

/// AddressSanitizer's own memcpy reports errors. If it comes before this library's, it still does;
/// if it comes after, it does not see the copy, and a program without errors runs.
#[test]
fn address_sanitizer_reports_what_it_sees() {
    let setup = Setup::new();
    let flags = ["-O0", "-fno-builtin", "-fsanitize=address"];
    let own = [&flags[..], &["-static-libasan"]].concat();
    let Some(within) = setup.compile("within", OVERFLOW, &own) else { return };
    let shared = setup.compile("shared", OVERFLOW, &flags).expect("gcc is here");
    let run = |program: &Path, preload: &str, size: &str| {
        let mut command = setup.plain(program);
        command.env("LD_PRELOAD", preload).arg(size);
        let output = command.env("ASAN_OPTIONS", "verify_asan_link_order=0").output();
        output.expect("it was built")
    };
    let ours = library().display().to_string();
    let sanitizer = succeed(Command::new("gcc").arg("-print-file-name=libasan.so"));
    let sanitizer = String::from_utf8_lossy(&sanitizer.stdout).trim().to_owned();
    for (program, preload) in [(&within, ours.clone()), (&shared, format!("{sanitizer}:{ours}"))] {
        let found = run(program, &preload, "100");
        assert!(text(&found).contains("heap-buffer-overflow"), "{preload}: {found:?}");
        let clean = run(program, &preload, "200");
        assert!(clean.status.success() && clean.stderr.is_empty(), "{preload}: {clean:?}");
    }
    let clean = run(&shared, &ours, "200");
    assert!(clean.status.success() && clean.stderr.is_empty(), "{clean:?}");
}
