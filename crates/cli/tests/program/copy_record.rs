//! `haul copy record`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use haul_model::stream::{Call, Function, ReadsBy, Stream};

use crate::heap_record::compiled;
use crate::{haul, run};

/// The folder of this build's libraries, with the recorder.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_BIN_EXE_haul")).parent().unwrap().to_owned();
        let mut cargo = Command::new(env!("CARGO"));
        // With the features of the program, so that what both need is compiled once.
        let both = ["--package", "haul-copy-record", "--package", "haul-cli"];
        cargo.args(["build", "--quiet", "--locked", "--lib"]).args(both);
        cargo.env("CARGO_TARGET_DIR", folder.parent().unwrap());
        run(cargo.current_dir(env!("CARGO_MANIFEST_DIR"))).expect(0);
        assert!(folder.join("libhaul_copy_record.so").exists(), "cargo left no library");
        folder
    })
}

/// `haul copy record` in a folder.
fn record(folder: &Path, arguments: &[&str]) -> Command {
    built();
    let mut command = haul(&["copy", "record"]);
    command.args(arguments).current_dir(folder).env_remove("LD_PRELOAD");
    command
}

fn stream(path: &Path) -> Stream {
    Stream::read(&fs::read(path).unwrap()).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The streams of a folder, with their names.
fn streams(folder: &Path) -> Vec<(String, Stream)> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut streams: Vec<(String, Stream)> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), stream(&entry.path())))
        .collect();
    streams.sort_by(|a, b| a.0.cmp(&b.0));
    streams
}

/// The calls of the program's own code, without those of its libraries.
fn own_calls(stream: &Stream) -> Vec<Call> {
    let is_own = |call: &&Call| stream.sites[usize::from(call.site)].module == "p";
    stream.calls.iter().filter(is_own).copied().collect()
}

/// A C program that includes the usual headers, and gcc's flags for it.
fn program(folder: &Path, body: &str, flags: &[&str]) -> Option<PathBuf> {
    let head = "#define _GNU_SOURCE\n#include <pthread.h>\n#include <signal.h>\n#include <stdio.h>\n\
                #include <stdlib.h>\n#include <string.h>\n#include <strings.h>\n\
                #include <sys/mman.h>\n#include <sys/time.h>\n#include <sys/wait.h>\n\
                #include <unistd.h>\n#include <fcntl.h>\n\
                static char page[4][4096] __attribute__((aligned(4096)));\n";
    compiled(folder, &format!("{head}{body}"), flags)
}

#[test]
fn stream_has_calls_of_program_exactly() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) {\n\
        for (int i = 0; i < 1000; i++) {\n\
          memcpy(page[0] + 16, page[1] + 7, 100 + i);\n\
          memmove(page[0] + 20, page[0] + 16, 9);\n\
          memset(page[2] + 1, 0, 33);\n\
          memset(page[2], 'x', 0);\n\
        }\n\
        if (mempcpy(page[0], page[3], 5) != page[0] + 5) return 1;\n\
        bcopy(page[3], page[1] + 1, 6);\n\
        bzero(page[1], 7);\n\
        explicit_bzero(page[1], 8);\n\
        return 0; }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    let ran = run(&mut record(folder.path(), &["-o", "p.stream", "--about", "a test", "./p"]));
    ran.expect(0).says(&["recorded p.stream (p, thread 0)", "half up to", "p+0x", "not seen"]);
    let stream = stream(&folder.path().join("p.stream"));
    assert_eq!((stream.header.program.as_str(), stream.header.about.as_str()), ("p", "a test"));
    assert_eq!(stream.header.thread_calls, stream.calls.len() as u64);
    let calls = own_calls(&stream);
    assert_eq!(calls.len(), 4004);
    // Offsets within pages, and distances between adjacent ones, are the program's.
    let first = calls[0].target - 16;
    assert_eq!(first % 4096, 0);
    for (round, calls) in calls[..4000].chunks(4).enumerate() {
        let at = |call: &Call| (call.function, call.size, call.target - first, call.source);
        let (zero, fill) = (Function::Memset { zero: true }, Function::Memset { zero: false });
        let size = 100 + round as u32;
        assert_eq!(at(&calls[0]), (Function::Memcpy, size, 16, Some(first + 4096 + 7)));
        assert_eq!(at(&calls[1]), (Function::Memmove, 9, 20, Some(first + 16)));
        assert_eq!(at(&calls[2]), (zero, 33, 2 * 4096 + 1, None));
        assert_eq!(at(&calls[3]), (fill, 0, 2 * 4096, None));
        let sites: Vec<u16> = calls.iter().map(|call| call.site).collect();
        assert!((1..4).all(|index| !sites[..index].contains(&sites[index])), "{sites:?}");
    }
    let last: Vec<(&str, u32)> =
        calls[4000..].iter().map(|call| (call.function.name(), call.size)).collect();
    assert_eq!(last, [("memcpy", 5), ("memmove", 6), ("memset", 7), ("memset", 8)]);
}

/// The quick start of docs/stream.md.
#[test]
fn documented_example_runs_as_shown() {
    let folder = tempfile::tempdir().unwrap();
    let words: String = (0..2000).map(|word| format!("{}\n", word * 7919 % 2003)).collect();
    fs::write(folder.path().join("words"), words).unwrap();
    let arguments = ["-o", "sort.stream", "--", "sort", "words"];
    let ran = run(&mut record(folder.path(), &arguments)).expect(0);
    assert_eq!(ran.out.lines().count(), 2000);
    let head =
        Command::new("head").args(["-n", "1", "sort.stream"]).current_dir(folder.path()).output();
    let line = String::from_utf8(head.unwrap().stdout).unwrap();
    let begin = "{\"schema\":\"haul.stream/1\",\"program\":\"sort\",\"about\":\"\",";
    assert!(line.starts_with(begin), "{line}");
    // Without -o, the program names the stream.
    run(&mut record(folder.path(), &["--", "sort", "words"])).expect(0).says(&["sort-2.stream"]);
}

#[test]
fn options_limit_kept_calls() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) { for (int i = 0; i < 5000; i++) memset(page, 1, i % 4096);\n\
                return 3; }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    let arguments = ["-o", "s", "--skip", "2000", "--calls", "1000", "--sample", "0", "--", "./p"];
    let ran = run(&mut record(folder.path(), &arguments));
    ran.expect(3).says(&["1000 of its 5", "exit code 3"]);
    let short = stream(&folder.path().join("s"));
    assert_eq!((short.calls.len(), short.header.skipped), (1000, 2000));
    let sizes: Vec<u32> = short.calls.iter().map(|call| call.size).collect();
    assert!(sizes.windows(2).all(|pair| pair[1] == (pair[0] + 1) % 4096), "{sizes:?}");
    assert_eq!(short.header.reads_by, ReadsBy::LaterCalls);
    // The file exists now; nothing runs.
    run(&mut record(folder.path(), &arguments)).expect(2).says(&["it exists", "-o"]);
    // Without room for the calls, the rest is counted.
    let arguments = ["-o", "t", "--room", "16KiB", "./p"];
    run(&mut record(folder.path(), &arguments)).expect(3).says(&["no room", "--room"]);
}

#[test]
fn all_keeps_each_thread_and_each_process() {
    let folder = tempfile::tempdir().unwrap();
    let body = "static void *fill(void *size) {\n\
          for (int i = 0; i < 3000; i++) memset(page[2], 1, (size_t)size);\n\
          return 0; }\n\
        int main(void) {\n\
          pthread_t a, b;\n\
          pthread_create(&a, 0, fill, (void *)11); pthread_create(&b, 0, fill, (void *)12);\n\
          pthread_join(a, 0); pthread_join(b, 0);\n\
          if (fork() == 0) {\n\
            for (int i = 0; i < 2000; i++) memset(page[0], 1, 13);\n\
            if (fork() == 0) execlp(\"./p2\", \"./p2\", (char *)0);\n\
            wait(0); _exit(0); }\n\
          wait(0);\n\
          for (int i = 0; i < 1000; i++) memset(page[0], 1, 14);\n\
          return 0; }";
    if program(folder.path(), body, &["-lpthread"]).is_none() {
        return;
    }
    fs::rename(folder.path().join("p"), folder.path().join("p1")).unwrap();
    program(folder.path(), "int main(void) { memset(page, 2, 15); return 0; }", &[]);
    fs::rename(folder.path().join("p"), folder.path().join("p2")).unwrap();
    run(&mut record(folder.path(), &["--all-threads", "streams", "--", "./p1"])).expect(0);
    let streams = streams(&folder.path().join("streams"));
    let with = |size: u32| -> Vec<(&str, usize)> {
        let count = |stream: &Stream| {
            let is = |call: &&Call| call.size == size && !call.function.has_source();
            let of = stream.calls.iter().filter(is);
            of.filter(|call| stream.sites[usize::from(call.site)].module.starts_with('p')).count()
        };
        let counted =
            streams.iter().map(|(_, stream)| (stream.header.program.as_str(), count(stream)));
        counted.filter(|(_, count)| *count > 0).collect()
    };
    for (size, expected) in [
        (11, ("p1", 3000)),
        (12, ("p1", 3000)),
        (13, ("p1", 2000)),
        (14, ("p1", 1000)),
        (15, ("p2", 1)),
    ] {
        assert_eq!(with(size), [expected], "{size} bytes");
    }
    // One file has the busiest thread of the busiest process; the others are counted.
    let ran = run(&mut record(folder.path(), &["-o", "one", "--", "./p1"])).expect(0);
    ran.says(&["2 other threads of the process", "2 other processes", "--all-threads"]);
    assert_eq!(stream(&folder.path().join("one")).header.thread_calls, 3000);
}

#[test]
fn killed_program_leaves_all_its_calls() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) { for (int i = 0; i < 10000; i++) memset(page, 1, 17);\n\
                raise(SIGKILL); }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    run(&mut record(folder.path(), &["-o", "p.stream", "--", "./p"])).expect(128 + 9);
    assert_eq!(own_calls(&stream(&folder.path().join("p.stream"))).len(), 10_000);
}

#[test]
fn signal_handlers_may_copy() {
    let folder = tempfile::tempdir().unwrap();
    let body = "static char other[64]; static volatile int count;\n\
        static void handle(int signal) { (void)signal; memcpy(other, page[1], 64); count++; }\n\
        int main(void) {\n\
          struct itimerval often = {{0, 50}, {0, 50}};\n\
          signal(SIGALRM, handle); setitimer(ITIMER_REAL, &often, 0);\n\
          for (int i = 0; i < 4096; i++) page[1][i] = (char)i;\n\
          long copies = 0;\n\
          while (count < 2000) { memcpy(page[0], page[1], 4096); copies++;\n\
            if (memcmp(page[0], page[1], 4096)) return 1; }\n\
          if (memcmp(other, page[1], 64)) return 2;\n\
          return 0; }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    run(&mut record(folder.path(), &["-o", "p.stream", "--sample", "30", "--", "./p"])).expect(0);
    let stream = stream(&folder.path().join("p.stream"));
    assert!(own_calls(&stream).iter().any(|call| call.size == 64));
}

#[test]
fn breakpoints_show_targets_that_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) {\n\
          volatile char *read = page[0]; volatile int spin;\n\
          for (int i = 0; i < 4000; i++) {\n\
            memcpy(page[0], page[3], 100); (void)*read;\n\
            memcpy(page[1], page[3], 101);\n\
            memcpy(page[2], page[3], 102); page[2][0] = 1; }\n\
          for (spin = 0; spin < 1000; spin++) {}\n\
          return 0; }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    run(&mut record(folder.path(), &["-o", "p.stream", "--sample", "20", "--", "./p"])).expect(0);
    let stream = stream(&folder.path().join("p.stream"));
    if stream.header.reads_by != ReadsBy::Breakpoint {
        eprintln!("SKIPPED: reads of targets: no breakpoints: sysctl kernel.perf_event_paranoid=2");
        return;
    }
    let share = |size: u32| {
        let site = stream.calls.iter().find(|call| call.size == size).unwrap().site;
        let site = &stream.sites[usize::from(site)];
        assert!(site.sampled >= 20, "{size}: {site:?}");
        site.read_share().unwrap()
    };
    assert!(share(100) > 0.5, "read at once: {}", share(100));
    assert!(share(101) < 0.1, "not read: {}", share(101));
    assert!(share(102) < 0.1, "overwritten: {}", share(102));
}

#[test]
fn reads_are_inferred_without_samples() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) { for (int i = 0; i < 1000; i++) {\n\
          memcpy(page[0], page[3], 100); memcpy(page[1], page[0], 50); memset(page[1], 1, 9); }\n\
        return 0; }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    let ran = run(&mut record(folder.path(), &["-o", "p.stream", "--sample", "0", "--", "./p"]));
    ran.expect(0).says(&["inferred from later calls"]);
    let stream = stream(&folder.path().join("p.stream"));
    let share = |size: u32| {
        let site = stream.calls.iter().find(|call| call.size == size).unwrap().site;
        stream.sites[usize::from(site)].read_share().unwrap()
    };
    assert!(share(100) > 0.9, "the second call reads it");
    assert_eq!(share(50), 0.0, "the third call overwrites it");
}

#[test]
fn filter_of_system_calls_does_not_end_program() {
    let folder = tempfile::tempdir().unwrap();
    // The filter allows `write` and `exit_group` alone; anything else ends the program. The strict
    // mode also forbids reading the processor's counter.
    let body = "#include <stddef.h>\n#include <sys/prctl.h>\n#include <sys/syscall.h>\n\
        #include <linux/seccomp.h>\n#include <linux/filter.h>\n\
        int main(int count, char **arguments) {\n\
          for (int i = 0; i < 1000; i++) memset(page, 1, 21);\n\
          struct sock_filter filter[] = {\n\
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),\n\
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),\n\
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 1),\n\
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),\n\
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS) };\n\
          struct sock_fprog all = {5, filter};\n\
          prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);\n\
          switch (arguments[1][0]) {\n\
            case 'f': if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all)) return 7; break;\n\
            case 'c': if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &all)) return 8; break;\n\
            default: if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 9; }\n\
          for (int i = 0; i < 1000; i++) memset(page, 1, 22);\n\
          syscall(arguments[1][0] == 's' ? SYS_exit : SYS_exit_group, 5); }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    for (mode, expected) in [("f", 1000), ("c", 1000), ("s", 0)] {
        let arguments = ["-o", mode, "--sample", "1", "--", "./p", mode];
        run(&mut record(folder.path(), &arguments)).expect(5);
        let calls = own_calls(&stream(&folder.path().join(mode)));
        let with = |size| calls.iter().filter(|call| call.size == size).count();
        assert_eq!((with(21), with(22)), (1000, expected), "{mode}");
    }
}

#[test]
fn program_without_streams_keeps_its_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) {\n\
          for (int i = 0; i < 1000; i++) memset(page, 'a', 4);\n\
          int file = open(\"written\", O_CREAT | O_WRONLY, 0600);\n\
          for (int i = 0; i < 1000; i++) memset(page, 'b', 4);\n\
          return file != 0 || write(file, page, 4) != 4 || open(\"p\", O_RDONLY) != 1; }";
    if program(folder.path(), body, &[]).is_none() {
        return;
    }
    let script = "exec ./p <&- >&- 2>&-";
    let arguments = ["-o", "p.stream", "--sample", "3", "--", "sh", "-c", script];
    run(&mut record(folder.path(), &arguments)).expect(0);
    assert_eq!(fs::read(folder.path().join("written")).unwrap(), b"bbbb");
}

#[test]
fn programs_that_cannot_be_recorded_are_named_with_reason() {
    let folder = tempfile::tempdir().unwrap();
    let body = "int main(void) { memset(page, 1, 5); return 0; }";
    if program(folder.path(), body, &["-static"]).is_none() {
        return;
    }
    let ran = run(&mut record(folder.path(), &["-o", "p.stream", "--", "./p"])).expect(1);
    ran.says(&["recorded nothing of ./p", "linked statically"]);
    assert!(!folder.path().join("p.stream").exists());
    run(&mut record(folder.path(), &["--", "./missing"])).expect(1).says(&["cannot start"]);
    let ran = run(&mut record(folder.path(), &["-o", "x", "--skip", "1000000", "--", "true"]));
    ran.expect(1).says(&["--skip"]);
}

/// What a command prints, and its exit code.
fn outcome(command: &mut Command) -> (String, String, Option<i32>) {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}

#[test]
fn recorded_programs_print_what_they_print_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let python = "import json, re\nprint(len(json.dumps([str(i) * 3 for i in range(20000)])))\n\
                  print(re.sub('a', 'bb', 'banana' * 1000)[:20])";
    let shell = "x=; for i in 1 2 3 4 5 6 7 8 9; do x=$x$(seq $i | sort -r | tr '\\n' ,); done; \
                 echo $x; ls /nowhere; exit 3";
    for (name, arguments) in
        [("a", ["python3", "-c", python]), ("b", ["bash", "-c", shell]), ("c", ["sh", "-c", shell])]
    {
        let plain = outcome(Command::new(arguments[0]).args(&arguments[1..]));
        let mut recorded = record(folder.path(), &["-o", name, "--sample", "10", "--"]);
        let (out, err, code) = outcome(recorded.args(arguments));
        assert_eq!((&out, code), (&plain.0, plain.2), "{name}: {err}");
        let err: String = err.lines().filter(|line| !line.starts_with("haul: ")).collect();
        assert_eq!(err, plain.1.lines().collect::<String>(), "{name}");
    }
}
