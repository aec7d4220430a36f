use std::sync::atomic::Ordering;
use std::time::Duration;

use super::*;

/// A stop flag that is never set.
static GO: AtomicBool = AtomicBool::new(false);

fn ranges(texts: &[&str]) -> Vec<Range> {
    texts.iter().map(|text| text.parse().expect("a range")).collect()
}

#[test]
fn range_parses_lists_and_steps() {
    let values = |text: &str| text.parse::<Range>().map(|range| range.values);
    assert_eq!(values("a=1,2"), Ok(vec!["1".into(), "2".into()]));
    assert_eq!(values("a=80..110:15"), Ok(vec!["80".into(), "95".into(), "110".into()]));
    assert_eq!(values("a=3..4:1"), Ok(vec!["3".into(), "4".into()]));
    for bad in ["a", "a=", "a=3..4", "a=1..x:1", "a=2..1:1", "a=1..2:0", "a=0..99999999:1"] {
        assert!(values(bad).is_err(), "{bad}");
    }
}

#[test]
fn plan_has_all_combinations_with_different_digests() {
    let entries = tasks(
        &Task::default(),
        &ranges(&["core.issue=in-order,out-of-order", "memory.latency_ns=80..110:15"]),
        &Origin::default(),
    )
    .expect("possible machines");
    assert_eq!(entries.len(), 6);
    assert_eq!(entries[4].task.machine.memory.latency_ns, 95);
    let mut digests: Vec<&str> = entries.iter().map(|entry| entry.digest.as_str()).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 6);
    let refusal = |texts: &[&str]| {
        let origin = Origin::default();
        tasks(&Task::default(), &ranges(texts), &origin).expect_err("impossible").to_string()
    };
    assert!(refusal(&["memory.mshrs=0,8"]).contains("memory.mshrs=0"));
    assert!(refusal(&["memory.speed=1"]).contains("no such setting"));
    assert!(refusal(&["packets=1..999999:1", "work=1..999999:1"]).contains("combinations"));
    assert!(refusal(&["memory.mshrs=1,2", "memory.mshrs=3,4"]).contains("varied twice"));
}

/// `li a7, 93; li a0, 0; ecall`: it ends immediately.
const ENDS: [u32; 3] = [0x05d0_0893, 0x0000_0513, 0x0000_0073];

/// `j .` and two instructions that are never reached: it does not end.
const LOOPS: [u32; 3] = [0x0000_006f, 0x0000_0513, 0x0000_0073];

/// A program as an ELF file.
fn program(folder: &Path, code: [u32; 3]) -> PathBuf {
    let start = 0x8000_0000_u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    file.resize(16, 0);
    let mut put = |bytes: &[u8]| file.extend_from_slice(bytes);
    put(&2_u16.to_le_bytes());
    put(&243_u16.to_le_bytes());
    put(&1_u32.to_le_bytes());
    put(&start.to_le_bytes());
    put(&64_u64.to_le_bytes());
    put(&0_u64.to_le_bytes());
    put(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        put(&half.to_le_bytes());
    }
    put(&1_u32.to_le_bytes());
    put(&5_u32.to_le_bytes());
    for word in [120, start, start, 12, 12, 4096] {
        put(&word.to_le_bytes());
    }
    code.iter().for_each(|word| put(&word.to_le_bytes()));
    let path = folder.join("ends.elf");
    std::fs::write(&path, file).expect("it is written");
    path
}

fn plan(folder: &Path) -> PathBuf {
    plan_of(folder, ENDS)
}

fn plan_of(folder: &Path, code: [u32; 3]) -> PathBuf {
    let path = folder.join("plan.jsonl");
    let program = program(folder, code).to_string_lossy().into_owned();
    let base = Task { program, ..Task::default() };
    let count = write(&path, &base, &ranges(&["memory.mshrs=1..4:1"])).expect("a plan");
    assert_eq!(count, 4);
    path
}

#[test]
fn task_is_done_once_and_collected() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = Plan::read(&plan(folder.path())).expect("the plan is whole");
    assert_eq!(plan.run(2, &GO).expect("it runs"), Completion::Now);
    assert_eq!(plan.run(2, &GO).expect("it exists"), Completion::Before, "done twice");
    let (records, missing) = plan.collect();
    assert_eq!(records.len(), METRICS);
    let indices: Vec<usize> = missing.iter().map(|(index, _)| *index).collect();
    assert_eq!(indices, [0, 1, 3]);
    assert!(plan.run(4, &GO).expect_err("there is no such task").to_string().contains("0 to 3"));
}

#[test]
fn killed_or_repeated_task_gives_same_record() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = Plan::read(&plan(folder.path())).expect("the plan is whole");
    plan.run(0, &GO).expect("it runs");
    let path = plan.record_path(&plan.entries[0]);
    let whole = std::fs::read_to_string(&path).expect("it exists");
    // A killed worker leaves at most a temporary file. A worker that wrote the record in place
    // would leave half of it.
    std::fs::write(&path, &whole[..whole.len() / 2]).expect("it is written");
    std::fs::write(path.with_extension("1.tmp"), "half").expect("it is written");
    let (records, missing) = plan.collect();
    assert!(records.is_empty());
    assert!(missing[0].1.contains("damaged"), "{missing:?}");
    assert_eq!(plan.run(0, &GO).expect("it runs again"), Completion::Now);
    assert_eq!(std::fs::read_to_string(&path).expect("it exists"), whole, "the same to the byte");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..4).for_each(|index| assert!(plan.run(index, &GO).is_ok())));
        }
    });
    let (records, missing) = plan.collect();
    assert_eq!((records.len(), missing.len()), (4 * METRICS, 0));
}

#[test]
fn running_task_stops_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = Plan::read(&plan_of(folder.path(), LOOPS)).expect("the plan is whole");
    let stop = AtomicBool::new(false);
    let doing = std::thread::scope(|scope| {
        let task = scope.spawn(|| plan.run(0, &stop).expect("it runs"));
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Relaxed);
        task.join().expect("it does not panic")
    });
    assert_eq!(
        doing,
        Completion::Stopped,
        "its limit is {} instructions",
        Task::default().instructions_max
    );
    assert!(plan.records_of(0).is_empty() && !plan.folder().exists(), "it left something");
}

#[test]
fn read_names_edited_or_incomplete_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = plan(folder.path());
    let text = std::fs::read_to_string(&path).expect("it exists");
    let refusal = |text: &str| {
        std::fs::write(&path, text).expect("it is written");
        Plan::read(&path).expect_err("damaged").to_string()
    };
    assert!(refusal(&text.replace("\"mshrs\":3", "\"mshrs\":30")).contains("line 4 was changed"));
    let label = text.replace("[\"memory.mshrs\",\"3\"]", "[\"memory.mshrs\",\"5\"]");
    assert!(label != text && refusal(&label).contains("line 4 was changed"));
    let origin = text.replacen("\"simulator\":\"", "\"simulator\":\"x", 1);
    assert!(refusal(&origin).contains("line 2 was changed"));
    assert!(refusal(&text[..text.len() - 20]).contains("line 5 is not a task"));
    let three: Vec<&str> = text.lines().take(4).collect();
    assert!(refusal(&three.join("\n")).contains("3 tasks of 4"));
    assert!(refusal("").contains("empty"));
    assert!(refusal("hello\n").contains("line 1"));
    assert!(refusal(&text.replacen("plan/2", "plan/9", 1)).contains("plan/9"));
}

#[test]
fn run_rejects_changed_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = Plan::read(&plan(folder.path())).expect("the plan is whole");
    std::fs::write(folder.path().join("ends.elf"), "another").expect("it is written");
    let message = plan.run(0, &GO).expect_err("another program").to_string();
    assert!(message.contains("digest"), "{message}");
}

#[test]
fn records_of_earlier_program_do_not_count_for_later_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = plan(folder.path());
    let first = Plan::read(&path).expect("the plan is whole");
    assert_eq!(first.run(0, &GO).expect("it runs"), Completion::Now);
    // The program is built again, and the plan is written again by the same command.
    let program = folder.path().join("ends.elf");
    let mut bytes = std::fs::read(&program).expect("it exists");
    bytes.push(0);
    std::fs::write(&program, bytes).expect("it is written");
    let program = program.to_string_lossy().into_owned();
    let base = Task { program, ..Task::default() };
    write(&path, &base, &ranges(&["memory.mshrs=1..4:1"])).expect("a plan");
    let second = Plan::read(&path).expect("the plan is whole");
    assert!(second.collect().0.is_empty(), "old results were taken for new ones");
    assert_eq!(second.run(0, &GO).expect("it runs"), Completion::Now, "it was taken for done");
    assert_ne!(first.entries[0].digest, second.entries[0].digest);
}

#[test]
fn read_rejects_fifo_without_waiting() {
    for path in ["/dev/zero", "/proc"] {
        let refusal = Plan::read(Path::new(path)).expect_err("no plan").to_string();
        assert!(refusal.contains(path), "{refusal}");
        let refusal = Program::read(Path::new(path)).expect_err("no program").to_string();
        assert!(refusal.contains(path), "{refusal}");
    }
}
