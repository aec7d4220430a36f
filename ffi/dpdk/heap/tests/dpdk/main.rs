//! The drop-in under Debian's DPDK programs, compared with the same programs without it.
//!
//! - `forwarding`: testpmd forwards packets;
//! - [`machine`]: huge pages, and the skips if they are missing;
//! - [`program`]: programs, with the library preloaded and without.

mod forwarding;
mod machine;
mod program;

use std::process::Command;
use std::time::Duration;

use machine::{Machine, is_here, skip};
use program::{Cost, Dialogue, Outcome, Preload, command, compile, run};

/// The line that the drop-in prints with `HAUL_RTE_MALLOC=tell` when it serves.
const SERVES: &str = "haul: rte_malloc: serves socket";

/// Runs one of DPDK's own tests. Returns whether it passed, and its output.
fn autotest(machine: &Machine, name: &str, preload: Preload) -> (bool, String) {
    let mut dpdk_test = command("dpdk-test", preload);
    dpdk_test.args(machine.options("0-1")).env("DPDK_TEST", name);
    let outcome = run(&mut dpdk_test, "");
    (outcome.text.contains("Test OK") && outcome.is_success, outcome.text)
}

fn assert_same_verdict(name: &str) {
    let Some(machine) = Machine::take(name) else {
        return;
    };
    if !is_here("dpdk-test") {
        skip(name, "no dpdk-test on PATH", "apt-get install dpdk-dev");
        return;
    }
    let (without, _) = autotest(&machine, name, Preload::No);
    let (with, text) = autotest(&machine, name, Preload::Yes);
    assert!(text.contains(SERVES), "{name}: the drop-in does not serve:\n{text}");
    assert_eq!(with, without, "{name} with the drop-in and without:\n{text}");
    // Without huge pages, memzone_autotest fails because it asks for page sizes that do not exist.
    assert!(with || machine.huge_folder.is_none(), "{name} fails either way:\n{text}");
}

#[test]
fn malloc_autotest() {
    assert_same_verdict("malloc_autotest");
}

#[test]
fn memzone_autotest() {
    assert_same_verdict("memzone_autotest");
}

#[test]
fn mempool_autotest() {
    assert_same_verdict("mempool_autotest");
}

#[test]
fn func_reentrancy_autotest() {
    assert_same_verdict("func_reentrancy_autotest");
}

/// Whether this kernel cannot exempt metadata from a lock of all memory. Linux 6.15 introduced
/// guard pages of files.
fn is_kernel_old() -> bool {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = text.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)] < [6_u32, 15]
}

/// testpmd locks all its memory (mlockall) by default.
#[test]
fn program_with_locked_memory_needs_as_much_as_without_drop_in() {
    let what = "testpmd's memory and start";
    if is_kernel_old() {
        skip(what, "no Linux 6.15", "run on that kernel or a newer one");
        return;
    }
    let Some(machine) = Machine::take(what) else {
        return;
    };
    let measure = |preload| {
        let mut testpmd = command("dpdk-testpmd", preload);
        testpmd.args(machine.options("0-1")).args(["--vdev=net_null0", "--vdev=net_null1"]);
        Cost::of(testpmd.args(["--", "-i", "--total-num-mbufs=8192"]), "quit\n")
    };
    // The two variants are interleaved, and the best run of each counts, because other work of
    // the machine can only make a variant slower.
    let rounds: Vec<_> = (0..5).map(|_| [Preload::No, Preload::Yes].map(measure)).collect();
    let least = |side: usize, of: fn(&Cost) -> f64| {
        rounds.iter().map(|round| of(&round[side])).fold(f64::INFINITY, f64::min)
    };
    for of in [Cost::memory as fn(&Cost) -> f64, Cost::time] {
        let (without, with) = (least(0, of), least(1, of));
        assert!(with <= 1.3 * without, "{with} beside {without}: {rounds:?}");
    }
}

/// The number of files of huge pages in the folder.
fn files_in(folder: &std::path::Path) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

#[test]
fn clean_exit_leaves_no_file_of_huge_pages() {
    let what = "the pool after a clean exit";
    let Some(machine) = Machine::take_huge(what) else {
        return;
    };
    if !is_here("dpdk-test") {
        skip(what, "no dpdk-test on PATH", "apt-get install dpdk-dev");
        return;
    }
    let Some(folder) = machine.huge_folder.clone() else {
        return;
    };
    for more in [&[][..], &["-m512"]] {
        let left = [Preload::No, Preload::Yes].map(|preload| {
            let mut dpdk_test = command("dpdk-test", preload);
            let outcome = run(dpdk_test.args(machine.options("0-1")).args(more), "quit\n");
            assert!(outcome.is_success, "{preload:?}:\n{}", outcome.text);
            assert_eq!(outcome.text.contains(SERVES), preload == Preload::Yes);
            files_in(&folder)
        });
        assert_eq!(left, [0, 0], "files without and with the drop-in, {more:?}");
    }
}

#[test]
fn calls_behave_as_without_drop_in() {
    let what = "calls of rte_malloc's family";
    let Some(machine) = Machine::take(what) else {
        return;
    };
    let Some(program) = compile(what, "calls") else {
        return;
    };
    // Memory is allocated on demand, or all at the start. In the second case blocks begin
    // anywhere in a page.
    let options = || machine.options("0-1");
    let runs = [
        (Preload::No, options(), ""),
        (Preload::Yes, options(), "misuse"),
        (Preload::Yes, machine.options_ahead("0-1"), "misuse"),
        (Preload::Yes, machine.plain_options("0-1"), "misuse"),
    ];
    for (preload, options, more) in runs {
        let mut calls = command(&program, preload);
        calls.args(options).args(["--", more]);
        let outcome = run(&mut calls, "");
        let is_passed = outcome.text.lines().any(|line| line == "passed");
        assert!(outcome.is_success && is_passed, "{preload:?}:\n{}", outcome.text);
        assert_eq!(outcome.text.contains(SERVES), preload == Preload::Yes);
        if preload == Preload::Yes {
            for fault in ["double", "interior"] {
                assert!(
                    outcome.text.contains(fault),
                    "no {fault} free reported:\n{}",
                    outcome.text
                );
            }
        }
    }
}

#[test]
fn drop_in_serves_without_shared_files() {
    let what = "rte_malloc with --in-memory";
    let Some(machine) = Machine::take_huge(what) else {
        return;
    };
    let Some(program) = compile(what, "calls") else {
        return;
    };
    let mut calls = command(&program, Preload::Yes);
    calls.args(["-l0", "--no-pci", "--iova-mode=va", "--in-memory", "--"]);
    let outcome = run(&mut calls, "");
    assert!(outcome.is_success && outcome.text.contains(SERVES), "{}", outcome.text);
    drop(machine);
}

#[test]
fn variable_off_leaves_everything_to_dpdk() {
    let what = "HAUL_RTE_MALLOC=off";
    let Some(machine) = Machine::take(what) else {
        return;
    };
    let Some(program) = compile(what, "calls") else {
        return;
    };
    let mut calls = command(&program, Preload::Yes);
    calls.args(machine.options("0-1")).env("HAUL_RTE_MALLOC", "off");
    let outcome = run(&mut calls, "");
    assert!(outcome.is_success && !outcome.text.contains("haul:"), "{}", outcome.text);
}

#[test]
fn unknown_value_of_variable_is_reported() {
    let what = "HAUL_RTE_MALLOC=OFF";
    let Some(machine) = Machine::take(what) else {
        return;
    };
    let Some(program) = compile(what, "growth") else {
        return;
    };
    let mut growth = command(&program, Preload::Yes);
    growth.args(machine.options("0")).env("HAUL_RTE_MALLOC", "OFF");
    growth.args(["--", "64", "64", "1", "10"]);
    let outcome = run(&mut growth, "");
    assert!(
        outcome.is_success && outcome.text.contains("haul: rte_malloc: HAUL_RTE_MALLOC=OFF"),
        "{}",
        outcome.text
    );
}

/// The figure after `name` at the start of a line of the output.
fn figure(text: &str, name: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no {name} in:\n{text}"))
}

#[test]
fn allocation_time_does_not_grow() {
    let what = "the growth test";
    let Some(machine) = Machine::take(what) else {
        return;
    };
    let Some(program) = compile(what, "growth") else {
        return;
    };
    for size in ["64", "512", "4096", "8192"] {
        // A pause of the program prolongs a single round, but not the last one at every try.
        let mut tries = Vec::new();
        let is_constant = (0..5).any(|_| {
            let mut growth = command(&program, Preload::Yes);
            // All memory is allocated at the start, because the kernel's time for a page says
            // nothing about the heap.
            growth.args(machine.options_ahead("0")).args(["--", size, size, "5", "2000"]);
            let Outcome { is_success, text } = run(&mut growth, "");
            assert!(is_success && text.contains(SERVES), "{size}:\n{text}");
            let (first, last) = (figure(&text, "round 0"), figure(&text, "round 4"));
            tries.push((first, last));
            // Without the drop-in, an allocation takes 10,500 ns in the first round and 260,000 in
            // the last round (4096@4096). With the drop-in, an allocation takes 50, and more on a
            // busy machine.
            last < 20_000.0_f64.max(10.0 * first)
        });
        assert!(is_constant, "{size}: nanoseconds in the first round and the last: {tries:?}");
    }
}

/// The number of pages in the pool that another program leaves free.
const LEFT_PAGES: u64 = 128;

#[test]
fn drop_in_works_with_rest_of_pool() {
    let what = "a pool that others hold a part of";
    let Some(machine) = Machine::take_huge(what) else {
        return;
    };
    let Some(program) = compile(what, "growth") else {
        return;
    };
    let others = machine::available().unwrap_or(0).saturating_sub(LEFT_PAGES);
    let (protection, bytes) = (libc::PROT_READ, (others as usize) << 21);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
    // SAFETY: a new mapping at an address of the kernel's choice. The pages of the mapping are
    // reserved but not present.
    let held = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(held, libc::MAP_FAILED);
    let mut growth = command(&program, Preload::Yes);
    growth.args(machine.options_ahead("0")).args(["--", "64", "64", "5", "2000"]);
    let Outcome { is_success, text } = run(&mut growth, "");
    // SAFETY: mapped above, and nothing refers to it.
    unsafe { libc::munmap(held, bytes) };
    assert!(is_success && text.contains(SERVES), "{text}");
}

#[test]
fn full_heap_refuses_quickly() {
    let what = "the end of memory";
    let Some(_machine) = Machine::take(what) else {
        return;
    };
    let Some(program) = compile(what, "full") else {
        return;
    };
    let mut full = command(&program, Preload::Yes);
    let prefix = format!("--file-prefix=haul{}", std::process::id());
    full.args(["-l0", "--no-pci", "--no-huge", "-m100", &prefix]);
    let Outcome { is_success, text } = run(&mut full, "");
    assert!(is_success && text.contains(SERVES), "{text}");
    let (blocks, again) = (figure(&text, "blocks"), figure(&text, "again"));
    assert!(blocks > 500_000.0 && again > 0.9 * blocks, "{text}");
    // The usual time is 0.8 s. When a full heap searched all of its slots at each request, the
    // time was 30 s or more.
    assert!(figure(&text, "used") < 10.0, "{text}");
}

/// Starts a primary process and waits until it is ready.
fn primary(machine: &Machine, program: &std::path::Path) -> Dialogue {
    let mut first = command(program, Preload::Yes);
    first.args(machine.options("0"));
    let mut first = Dialogue::start(first);
    assert_eq!(first.line(), "ready");
    first
}

fn secondary(machine: &Machine, program: &std::path::Path, role: &str) -> Command {
    let mut second = command(program, Preload::Yes);
    second.args(machine.options("1")).args(["--proc-type=secondary", "--", role]);
    second
}

#[test]
fn processes_free_blocks_of_each_other() {
    let what = "blocks across processes";
    let Some(machine) = Machine::take_huge(what) else {
        return;
    };
    let Some(program) = compile(what, "peers") else {
        return;
    };
    let mut first = primary(&machine, &program);
    let before = live_blocks(&first.ask("work"));
    // The primary process's memory grows and shrinks while secondary processes leave.
    for _ in 0..10 {
        let given = first.ask("give");
        assert!(given.starts_with("done"), "{given}");
        let outcome = run(&mut secondary(&machine, &program, "exchange"), "");
        assert!(outcome.is_success && outcome.text.contains(SERVES), "{}", outcome.text);
        let after = live_blocks(&first.ask("take"));
        assert!(after.abs_diff(before) <= OWN_BLOCKS, "{before} blocks became {after}");
    }
}

/// The largest number of blocks that DPDK itself allocates or frees when its processes start and
/// end. The 2000 exchanged blocks exceed this number.
const OWN_BLOCKS: u32 = 8;

/// The number in "done 517".
fn live_blocks(answer: &str) -> u32 {
    let number = answer.strip_prefix("done ").and_then(|number| number.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn killed_process_does_not_stop_others() {
    let what = "kill -9 of a secondary process";
    let Some(machine) = Machine::take_huge(what) else {
        return;
    };
    let Some(program) = compile(what, "peers") else {
        return;
    };
    let mut first = primary(&machine, &program);
    for kill in 0..20 {
        let mut second = Dialogue::start(secondary(&machine, &program, "loop"));
        assert_eq!(second.line(), "looping");
        // The primary process allocates meanwhile, so that the two compete.
        first.say("work");
        std::thread::sleep(Duration::from_millis(20 + 7 * kill));
        second.child.kill().expect("a child can be killed");
        drop(second);
        let answer = first.line();
        assert!(answer.starts_with("done"), "after kill {kill}: {answer}");
        let answer = first.ask("work");
        assert!(answer.starts_with("done"), "after kill {kill}, alone: {answer}");
    }
}
