//! The numbers of a profile, and its file in bad conditions.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use haul_model::profile::layout::{self, FILE_BYTES, head};
use haul_model::profile::{Profile, Site};

use crate::setup::{Setup, library, skip, succeed, succeed_silently};

const FLAGS: [&str; 3] = ["-O0", "-fno-builtin", "-pthread"];

impl Setup {
    /// Creates the file, with a mean work between two samples.
    fn sample_every(&self, work: u64) {
        let mut file = vec![0; FILE_BYTES];
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &layout::MAGIC);
        put(head::VERSION_AT, &layout::VERSION.to_ne_bytes());
        put(head::WORK_PER_SAMPLE, &work.to_ne_bytes());
        fs::write(self.file(), file).expect("the folder is ours");
    }
}

/// The sites of the program's own code.
fn own(profile: &Profile) -> Vec<&Site> {
    profile.sites.iter().filter(|site| site.module.ends_with("/p")).collect()
}

#[test]
fn exact_profile_has_every_call() {
    let setup = Setup::new();
    let source = "#define _GNU_SOURCE\n#include <string.h>\n#include <strings.h>\nchar a[9000], b[9000];\n\
        int main(void) {\n\
          for (int i = 0; i < 1000; i++) memcpy(a + 1, b, 100);\n\
          for (int i = 0; i < 10; i++) memmove(a + 64, a + 128, 5000);\n\
          for (int i = 0; i < 7; i++) bzero(a, 64);\n\
          for (int i = 0; i < 3; i++) memset(a, 'x', 0);\n\
          mempcpy(a, b, 4); return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    setup.sample_every(1);
    succeed_silently(&mut setup.command(&program));
    let profile = setup.profile();
    let calls: Vec<(f64, u64)> = own(&profile).iter().map(|it| (it.calls, it.bytes)).collect();
    assert_eq!(calls, [(1000.0, 100_000), (10.0, 50_000), (7.0, 448), (1.0, 4), (3.0, 0)]);
    let [copy, moved, zero, ..] = own(&profile)[..] else { panic!("five sites") };
    assert_eq!((copy.kinds, moved.kinds[1], zero.kinds[2]), ([1000.0, 0.0, 0.0, 0.0], 10.0, 7.0));
    assert_eq!((copy.classes[7], moved.classes[13]), ((1000.0, 100_000), (10.0, 50_000)));
    assert_eq!((copy.overlaps, moved.overlaps, moved.distances[1]), (0.0, 10.0, 10.0));
    assert_eq!(copy.targets[0], 1000.0, "the target is odd");
    assert_eq!(profile.processes[0].program, "p");
}

/// Estimates of a sampled profile are near the truth: within a tenth, where the standard deviation
/// of 8,000 samples is about a hundredth.
#[test]
fn sampled_profile_estimates_calls_and_bytes() {
    let setup = Setup::new();
    let source = "#include <string.h>\nstatic char a[1 << 20], b[1 << 20];\n\
        int main(void) {\n\
          for (int i = 0; i < 4000000; i++) { memcpy(a, b, 24); if (i % 100 == 0) memcpy(a, b, 4000);\n\
            if (i % 40000 == 0) memcpy(a, b, 1 << 20); }\n\
          return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    setup.sample_every(512 << 10);
    succeed_silently(&mut setup.command(&program));
    let profile = setup.profile();
    let mut sites = own(&profile);
    sites.sort_by_key(|site| site.offset);
    assert_eq!(sites.len(), 3);
    // The calls of a site contain a random number of sampling points: some 2,000, 325 and 200, with
    // standard deviations of 1, 5 and 2%. The limits are six of these and more.
    let expected = [(4_000_000.0, 24.0, 0.1), (40_000.0, 4000.0, 0.35), (100.0, 1048576.0, 0.15)];
    for (site, (calls, size, limit)) in sites.iter().zip(expected) {
        let ratios = [site.calls / calls, site.bytes as f64 / (calls * size)];
        let is_near = ratios.iter().all(|ratio| (ratio - 1.0).abs() < limit);
        assert!(is_near, "{size} B: {ratios:?}");
    }
    assert!(sites[0].samples < 40_000, "one call in a hundred at most is sampled");
}

#[test]
fn threads_forked_children_and_handlers_are_counted() {
    let setup = Setup::new();
    let source = "#include <pthread.h>\n#include <signal.h>\n#include <string.h>\n#include <sys/wait.h>\n\
        #include <unistd.h>\n#include <sys/time.h>\nstatic char b[64]; volatile int ticks;\n\
        static void copies(int n) { char a[64]; while (n--) memcpy(a, b, 33); }\n\
        static void *run(void *n) { copies((long)n); return 0; }\n\
        static void tick(int s) { char a[64]; memcpy(a, b, 50); ticks++; }\n\
        int main(void) {\n\
          signal(SIGALRM, tick); struct itimerval every = {{0, 200}, {0, 200}};\n\
          setitimer(ITIMER_REAL, &every, 0);\n\
          pthread_t t[4]; for (long i = 0; i < 4; i++) pthread_create(&t[i], 0, run, (void *)(1000 + i));\n\
          for (int i = 0; i < 4; i++) pthread_join(t[i], 0);\n\
          while (ticks < 20) copies(1000);\n\
          struct itimerval never = {{0, 0}, {0, 0}}; setitimer(ITIMER_REAL, &never, 0);\n\
          if (fork() == 0) { copies(500); if (fork() == 0) { copies(200); _exit(0); } wait(0); _exit(0); }\n\
          int s; while (wait(&s) < 0); return s; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    setup.sample_every(1);
    succeed_silently(&mut setup.command(&program));
    let profile = setup.profile();
    let parents: Vec<_> = profile.processes.iter().map(|process| process.parent).collect();
    assert_eq!(parents, [None, Some(0), Some(1)], "{:?}", profile.processes);
    let calls = |process| {
        let of = profile.threads.iter().filter(move |thread| thread.process == Some(process));
        of.map(|thread| thread.calls).collect::<Vec<f64>>()
    };
    for wanted in [1000.0, 1001.0, 1002.0, 1003.0] {
        // A handler may have interrupted the thread.
        let near = |calls: &f64| (wanted..wanted + 60.0).contains(calls);
        assert!(calls(0).iter().any(near), "{wanted}: {:?}", calls(0));
    }
    assert_eq!((calls(1), calls(2)), (vec![500.0], vec![200.0]));
    // A handler that interrupts a sample changes the weight of its call a little.
    let is_handler = |site: &&Site| (site.bytes as f64 - 50.0 * site.calls).abs() <= 1.0;
    let handler = own(&profile).into_iter().find(is_handler);
    assert!(
        handler.is_some_and(|site| site.calls >= 20.0),
        "the handler's calls: {:?}",
        own(&profile)
    );
}

#[test]
fn killed_program_keeps_its_profile_and_runs_merge() {
    let setup = Setup::new();
    let source = "#include <string.h>\n#include <signal.h>\nchar a[99], b[99];\n\
        int main(int c, char **v) { for (int i = 0; i < 50; i++) memcpy(a, b, 99);\n\
        if (c > 1) raise(SIGKILL); return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    setup.sample_every(1);
    let killed = setup.command(&program).arg("x").output().expect("it can be started");
    assert_eq!(killed.status.signal(), Some(9));
    assert_eq!(own(&setup.profile())[0].calls, 50.0);
    succeed_silently(&mut setup.command(&program));
    let profile = setup.profile();
    assert_eq!((own(&profile)[0].calls, profile.processes.len()), (100.0, 2));
}

/// The library creates the file for a daemon, and leaves no other.
#[test]
fn first_process_creates_the_file() {
    let setup = Setup::new();
    let source = "#include <string.h>\nstatic char a[1 << 24], b[1 << 24];\n\
        int main(void) { memcpy(a, b, sizeof a); return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    let mut all: Vec<_> =
        (0..8).map(|_| setup.command(&program).spawn().expect("it can be started")).collect();
    assert!(all.iter_mut().all(|child| child.wait().expect("it ends").success()));
    assert_eq!(setup.profile().processes.len(), 8);
    // A file that the library creates is sampled: a call has 4 points, give or take 0.6, so that
    // the estimate of 8 calls is off by 0.4 as a rule.
    let calls = own(&setup.profile())[0].calls;
    assert!((5.0..11.0).contains(&calls), "{calls} calls");
    assert_eq!(fs::metadata(setup.file()).expect("it is here").permissions().mode() & 0o777, 0o600);
    let names: Vec<_> = fs::read_dir(setup.folder.path()).expect("it is ours").flatten().collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn unusable_file_is_left_alone_in_silence() {
    let setup = Setup::new();
    let source = "#include <string.h>\nchar a[500], b[500];\n\
        int main(void) { for (int i = 0; i < 9; i++) memcpy(a, b, 500); return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    let folder = setup.folder.path();
    let (short, other, link) = (folder.join("short"), folder.join("other"), folder.join("link"));
    fs::write(&short, "haulcpp\n").expect("the folder is ours");
    fs::write(&other, vec![7; FILE_BYTES]).expect("the folder is ours");
    std::os::unix::fs::symlink(&other, &link).expect("the folder is ours");
    let long = "x".repeat(5000);
    let names = [
        "/nowhere/at/all",
        "/proc/x",
        "",
        "/dev/zero",
        &long,
        short.to_str().expect("text"),
        other.to_str().expect("text"),
        link.to_str().expect("text"),
        folder.to_str().expect("text"),
    ];
    for name in names {
        succeed_silently(setup.command(&program).env("HAUL_COPY_PROFILE", name));
    }
    assert_eq!(fs::read(&other).expect("it is ours"), vec![7; FILE_BYTES]);
    // A limit on the size of files stands for a full disk. The kernel would end a process that
    // exceeds it.
    let script = "ulimit -f 100; LD_PRELOAD=$1 HAUL_COPY_PROFILE=$2 exec \"$0\"";
    let mut limited = Command::new("bash");
    limited.arg("-c").arg(script).arg(&program).arg(library()).arg(setup.file());
    succeed_silently(&mut limited);
    assert!(!setup.file().exists());
}

/// More threads and call sites than the file has room for are summed.
#[test]
fn full_tables_are_summed_as_other() {
    let setup = Setup::new();
    let source = "#include <pthread.h>\n#include <string.h>\n#include <sys/mman.h>\nstatic char a[8], b[8];\n\
        static void *one(void *x) { memcpy(a, b, 7); return 0; }\n\
        int main(void) {\n\
          for (int i = 0; i < 17000; i++) { pthread_t t; if (pthread_create(&t, 0, one, 0)) return 1; pthread_join(t, 0); }\n\
          return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    setup.sample_every(1);
    succeed_silently(&mut setup.command(&program));
    let profile = setup.profile();
    let site = own(&profile).into_iter().find(|site| site.bytes == 7 * 17_000);
    assert!(site.is_some_and(|site| site.calls == 17_000.0), "{:?}", own(&profile));
    let calls: f64 = profile.threads.iter().map(|thread| thread.calls).sum();
    assert_eq!(calls, profile.calls(), "threads without an entry are summed");
    let other = profile.threads.iter().find(|thread| thread.process.is_none());
    assert!(other.is_some_and(|other| other.calls > 500.0), "{other:?}");
}

/// A copy that returns to any of 1,000,000 places, each of which is a call site, and from there
/// to the loop: a jump of two bytes each.
#[cfg(target_arch = "x86_64")]
const SITES: &str = r#"
#include <string.h>
char a[8], b[8];
void copy_to(char *site);
__asm__(".text\nplaces: .rept 1000000\njmp *%rbx\n.endr\n"
        "copy_to: push %rbx\nlea 1f(%rip), %rbx\npush %rdi\n"
        "lea a(%rip), %rdi\nlea b(%rip), %rsi\nmov $3, %edx\njmp memcpy@PLT\n"
        "1: pop %rbx\nret\n");
extern char places[];
int main(void) { for (int i = 0; i < 1000000; i++) copy_to(places + 2 * i); return 0; }"#;

/// More call sites than the file has room for are summed, and none is lost.
#[test]
#[cfg(target_arch = "x86_64")]
fn million_call_sites_are_counted() {
    let setup = Setup::new();
    let Some(program) = setup.compile("p", SITES, &FLAGS) else { return };
    setup.sample_every(1);
    succeed_silently(&mut setup.command(&program));
    let profile = setup.profile();
    let other = profile.sites.iter().find(|site| site.module.is_empty()).expect("no room for all");
    let own = own(&profile);
    assert!(own.len() > 8000 && own.iter().all(|site| site.calls == 1.0), "{} sites", own.len());
    // The others are also libc's few calls while the program begins.
    let calls = own.len() as f64 + other.calls;
    assert!((1e6..1e6 + 1000.0).contains(&calls), "{calls} calls");
}

/// The file system has less room than the file needs. The program runs on, and no part of the
/// file is left in the little room.
#[test]
fn full_disk_has_no_profile_and_harms_no_program() {
    let setup = Setup::new();
    let source = "#include <string.h>\nstatic char a[1 << 20], b[1 << 20];\n\
        int main(void) { for (int i = 0; i < 99; i++) memcpy(a, b, sizeof a); return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    let script = "mount -t tmpfs -o size=1m haul \"$2\" || exit 9; \
        LD_PRELOAD=$1 HAUL_TUNING=off HAUL_COPY_PROFILE=$2/profile \"$0\" || exit 1; ls -A \"$2\"";
    let disk = setup.folder.path().join("disk");
    fs::create_dir(&disk).expect("the folder is ours");
    let mut alone = Command::new("unshare");
    alone.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
    alone.arg(&program).arg(library()).arg(&disk);
    match alone.output() {
        Ok(output) if output.status.success() => {
            assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
        }
        Ok(output) if output.status.code() == Some(1) && output.stderr.is_empty() => {
            panic!("the program failed on a full disk");
        }
        _ => skip("a full disk", "no mount in a namespace", "allow user namespaces"),
    }
}

#[test]
fn program_without_descriptors_is_profiled() {
    let setup = Setup::new();
    let source = "#define _GNU_SOURCE\n#include <string.h>\n#include <unistd.h>\nchar a[77], b[77];\n\
        int main(void) { for (int i = 0; i < 1000; i++) close(i); memcpy(a, b, 77); return 0; }";
    let Some(program) = setup.compile("p", source, &FLAGS) else { return };
    setup.sample_every(1);
    let mut closed = setup.command("bash");
    succeed(closed.arg("-c").arg("exec \"$0\" <&- >&- 2>&-").arg(&program));
    assert_eq!(own(&setup.profile())[0].bytes, 77);
}
