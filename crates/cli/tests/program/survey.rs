//! `haul survey`: impossible folders, full disks, and Ctrl-C.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    LIMIT, Ran, away, finish, haul, public_folder, records_of, run, unprivileged, wait_until,
};

/// Waits until the file has this number of lines.
pub(crate) fn wait_for_lines(path: &Path, lines: usize) {
    wait_until(&format!("{} has {lines} lines", path.display()), || {
        fs::read_to_string(path).map_or(0, |text| text.lines().count()) >= lines
    });
}

#[test]
fn survey_refuses_impossible_folder_before_measuring() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    for out in [file.clone(), file.join("below")] {
        let start = Instant::now();
        let ran = run(&mut haul(&["survey", "--out", out.to_str().unwrap()]));
        ran.expect(1).says(&["that is a file", "--out"]);
        // A survey takes some minutes.
        assert!(start.elapsed() < LIMIT / 4, "it measured first");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn survey_refuses_unwritable_folder() {
    let (folder, program) = public_folder();
    let out = folder.path().join("locked");
    fs::create_dir(&out).unwrap();
    fs::set_permissions(&out, fs::Permissions::from_mode(0o555)).unwrap();
    for out in [out.clone(), out.join("below")] {
        let arguments = ["survey", "--quick", "--out", out.to_str().unwrap()];
        let ran = run(&mut unprivileged(&program, &arguments));
        ran.expect(1).says(&["locked", "may write to"]);
    }
}

/// Output of `--plan`: each step with its seconds for rounds and its other seconds, and the sum.
fn plan(arguments: &[&str]) -> (Vec<(String, f64)>, f64) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("none");
    let all = [&["survey", "--plan", "--out", out.to_str().unwrap()], arguments].concat();
    let ran = run(&mut haul(&all)).expect(0);
    assert!(!out.exists(), "a plan opens nothing");
    let (mut steps, mut total) = (Vec::new(), None);
    for line in ran.out.lines().skip(1).filter(|line| !line.trim().is_empty()) {
        let mut words = line.split_whitespace().rev();
        let mut number = || words.next().unwrap().parse::<f64>();
        if line.starts_with("all of it") {
            total = Some(number().unwrap());
        } else if let (Ok(beside), Ok(rounds)) = (number(), number()) {
            steps.push((line.to_owned(), rounds + beside));
        }
    }
    let (sum, _) = steps.pop().expect("a line with the sums");
    assert!(sum.starts_with(&format!("{} steps", steps.len())), "{ran:#?}");
    (steps, total.unwrap_or_else(|| panic!("{ran:#?}")))
}

#[test]
fn plan_fits_the_promised_time() {
    // The promises are 30 s and 4 minutes. The remainder is for a machine that is slower than
    // planned.
    for (arguments, most) in [(&["--quick"][..], 25.0), (&[], 220.0)] {
        let (steps, total) = plan(arguments);
        let sum: f64 = steps.iter().map(|(_, seconds)| seconds).sum();
        assert!((sum - total).abs() < 0.1 + 0.01 * steps.len() as f64, "{sum} and {total}");
        assert!(total <= most, "{arguments:?} plans {total} s of {most}: {steps:#?}");
        let has = |what: &str| steps.iter().any(|(step, _)| step.starts_with(what));
        for what in ["memory copy", "page faults", "heap growth", "tuning", "memcpy, 16 KiB"] {
            assert!(has(what), "{what} is not in {steps:#?}");
        }
        let longest = steps.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        assert!(longest < total / 3.0, "one step of {longest} s starves the others: {steps:#?}");
    }
}

#[test]
fn ctrl_c_keeps_records() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("new/deeper");
    let mut command = haul(&["survey", "--out", out.to_str().unwrap()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // The machine and the records of one step.
    wait_for_lines(&out.join("survey.jsonl"), 3);
    let interrupted = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ran = finish(child).expect(130).says(&["interrupted", "kept ", "records in"]);
    // The whole survey would take longer.
    assert!(interrupted.elapsed() < LIMIT / 2, "{ran:#?}");
    let text = fs::read_to_string(out.join("survey.jsonl")).unwrap();
    assert!(!records_of(haul_model::parse(&text).unwrap()).is_empty());
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.trim_end().ends_with("</html>"));
    assert!(ran.out.lines().count() <= 10, "{ran:#?}");
    assert!(ran.out.contains("report.html"), "{ran:#?}");
}

#[test]
fn survey_renames_earlier_records() {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("survey.jsonl");
    fs::write(&records, "earlier\n").unwrap();
    let mut command = haul(&["survey", "--quick", "--out", folder.path().to_str().unwrap()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    wait_for_lines(&folder.path().join("survey.jsonl.old"), 1);
    // The machine and a record: a run without a record renames the earlier records back.
    wait_for_lines(&records, 2);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    finish(child);
    let old = fs::read_to_string(folder.path().join("survey.jsonl.old")).unwrap();
    assert_eq!(old, "earlier\n");
}

/// Runs a script with a small disk at `$DISK`. `None` if this user may not mount one.
pub(crate) fn on_a_small_disk(
    kib: usize,
    script: &str,
) -> Option<(Ran, PathBuf, tempfile::TempDir)> {
    let probe = Command::new("unshare").args(["-rm", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("SKIPPED: a full disk: no user namespaces: allow unprivileged unshare");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let (disk, kept) = (folder.path().join("disk"), folder.path().join("kept"));
    fs::create_dir_all(&disk).unwrap();
    fs::create_dir_all(&kept).unwrap();
    let mut command = Command::new("unshare");
    let mount = format!("mount -t tmpfs -o size={kib}k none $DISK && {script}");
    command.args(["-rm", "sh", "-c", &mount]);
    command.env("HAUL", env!("CARGO_BIN_EXE_haul")).env("DISK", &disk).env("KEPT", &kept);
    away(&mut command);
    Some((run(&mut command), kept, folder))
}

#[test]
fn survey_refuses_full_disk_before_measuring() {
    let script = "exec $HAUL survey --quick --out $DISK/out";
    let Some((ran, ..)) = on_a_small_disk(256, script) else { return };
    ran.expect(1).says(&["disk/out", "make room"]);
}

#[test]
fn disk_that_fills_up_loses_no_written_record() {
    // The disk first has the required room; then another file fills it, and the survey continues.
    // The survey is a full one, because a quick one on a busy machine may be out of time before
    // it has filled the last page of its file.
    let script = "$HAUL survey --out $DISK/out & survey=$!; \
        while ! [ -s $DISK/out/survey.jsonl ]; do sleep 0.1; done; \
        cat /dev/zero > $DISK/other 2>/dev/null; \
        wait $survey; code=$?; cp $DISK/out/survey.jsonl $KEPT/; exit $code";
    let Some((ran, kept, _folder)) = on_a_small_disk(12 << 10, script) else { return };
    ran.expect(1).says(&["cannot write a record", "are kept", "make room"]);
    let text = fs::read_to_string(kept.join("survey.jsonl")).unwrap();
    let (lines, broken) = haul_model::parse_what_can_be(&text);
    assert!(!lines.is_empty());
    // The failed write may have left a partial line; the lines before it are unchanged.
    assert!(broken.len() <= 1 && broken.iter().all(|e| e.line == lines.len() + 1), "{broken:?}");
}
