//! Names and folders to which no trace can be written. The program runs as it does without the
//! recorder, and one line is printed.

use std::process::Output;

use crate::recording::{Recording, library, succeed};

/// Runs `ls /` under the recorder with these variables.
fn ls(recording: &Recording, variables: &[(&str, &str)]) -> (Output, String) {
    let mut command = recording.command("ls");
    command.arg("/").envs(variables.iter().copied());
    let output = succeed(&mut command);
    assert!(!output.stdout.is_empty());
    let printed = String::from_utf8(output.stderr.clone()).expect("ls prints text");
    (output, printed)
}

#[test]
fn unset_variable_records_and_prints_nothing() {
    let recording = Recording::new();
    let mut command = recording.command("ls");
    let output = succeed(command.arg("/").env_remove("HAUL_RECORD"));
    assert!(output.stderr.is_empty() && recording.traces().is_empty());
}

#[test]
fn unwritable_name_is_reported_once() {
    let recording = Recording::new();
    let long = "x".repeat(5000);
    for (name, why) in [
        ("", "must name a file"),
        ("folder/", "must name a file"),
        (long.as_str(), "must name a file"),
        ("/nowhere/at/all", "errno 2"),
        ("/proc/trace", "errno"),
    ] {
        let (_, printed) = ls(&recording, &[("HAUL_RECORD", name)]);
        assert_eq!(printed.lines().count(), 1, "{name}: {printed}");
        assert!(printed.starts_with("haul_record: ") && printed.contains(why), "{name}: {printed}");
    }
    // There is one line even if no process can create a file for the next process.
    let mut command = recording.command("sh");
    let output = succeed(command.args(["-c", "ls /; ls /; ls /"]).env("HAUL_RECORD", "/nowhere/t"));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(printed.matches("haul_record: ").count(), 1, "{printed}");
    let (_, printed) = ls(&recording, &[("HAUL_RECORD_LIMIT", "much")]);
    assert!(printed.contains("not a number of bytes"), "{printed}");
}

#[test]
fn limit_ends_trace_but_not_program() {
    let recording = Recording::new();
    let (_, printed) = ls(&recording, &[("HAUL_RECORD_LIMIT", "1000")]);
    assert!(printed.contains("HAUL_RECORD_LIMIT"), "{printed}");
    // If a program writes beyond this limit, the kernel ends it with SIGXFSZ.
    let recording = Recording::new();
    let script = "ulimit -f 1 && exec ls /";
    let output = succeed(
        recording
            .command("sh")
            .env_remove("LD_PRELOAD")
            .args(["-c", &format!("export LD_PRELOAD={}; {script}", library().display())]),
    );
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("file size limit"), "{printed}");
}

#[test]
fn existing_file_is_never_written() {
    let recording = Recording::new();
    let folder = recording.folder.path();
    let precious = folder.join("precious");
    std::fs::write(&precious, "precious").expect("the folder is ours");
    // A name that contains only %p can be predicted; here a symbolic link with that name exists.
    let name = folder.join("link");
    std::os::unix::fs::symlink(&precious, &name).expect("the folder is ours");
    let script = format!("HAUL_RECORD={} exec ls /", folder.join("t.%p").display());
    let link = format!("ln -s {} {}/t.$$; {script}", precious.display(), folder.display());
    succeed(recording.command("sh").env_remove("HAUL_RECORD").args(["-c", &link]));
    assert_eq!(std::fs::read(&precious).expect("it is ours"), b"precious");
}

#[test]
fn replaced_file_is_not_written() {
    let recording = Recording::new();
    const SOURCE: &str = r#"
#include <stdlib.h>
#include <stdio.h>
int main(int count, char **arguments) {
    char name[5000];
    free(malloc(10));
    snprintf(name, sizeof name, "mv %s.[0-9]* %s.moved && : > %s.%d", arguments[1], arguments[1], arguments[1], (int)getpid());
    unsetenv("LD_PRELOAD");
    if (system(name)) return 1;
    for (int i = 0; i < 100000; i++) free(malloc(10));
    return 0;
}
"#;
    let source = format!("#include <unistd.h>\n{SOURCE}");
    let Some(program) = recording.compile(&source, &[]) else { return };
    let output = succeed(recording.command(program).arg(recording.folder.path().join("t")));
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(printed.contains("another file has"), "{printed}");
    let mut sizes: Vec<(String, u64)> = std::fs::read_dir(recording.folder.path())
        .expect("the folder is ours")
        .map(|entry| entry.expect("ours"))
        .map(|entry| {
            let size = entry.metadata().expect("ours").len();
            (entry.file_name().to_string_lossy().into_owned(), size)
        })
        .filter(|(name, _)| name.starts_with("t.") && name != "t.moved")
        .collect();
    assert_eq!(sizes.pop().map(|(_, size)| size), Some(0));
}

#[test]
fn descriptors_that_program_reopens_stay_its_own() {
    let recording = Recording::new();
    const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **arguments) {
    for (int i = 3; i < 1024; i++) close(i);
    int file = open(arguments[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file != 3) return 1;
    for (int i = 0; i < 100000; i++) free(malloc(10));
    return lseek(file, 0, SEEK_END) != 0;
}
"#;
    let Some(program) = recording.compile(SOURCE, &[]) else { return };
    succeed(recording.command(program).arg(recording.folder.path().join("own")));
    assert!(recording.trace().history.operations.len() >= 200_000);
}
