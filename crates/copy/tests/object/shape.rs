//! The shape of critical code: the jumps that it makes, the calls that it must not make, and the
//! exact instructions of the code that most calls execute.
//!
//! `tests/object/golden/` holds these instructions as the pinned compiler generates them. After an
//! intended change, `UPDATE_GOLDEN=1 cargo test -p haul-copy --test object` writes them again; read
//! the difference before you commit it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::build::Workshop;
use crate::listing::{Function, Instruction, functions, has_objdump};

const DISPATCH: &str = "haul_copy::dispatch::above_64::x86_64::";
const BY_MASKS: &str = "haul_copy::dispatch::by_masks::";

/// A C program's view of this crate, as `ffi/c` exports it.
const CALLER: &str = "
        #![no_std]
        use core::ffi::{c_int, c_void};
        #[unsafe(no_mangle)]
        pub unsafe extern \"C\" fn caller_memcpy(t: *mut c_void, s: *const c_void, n: usize) -> *mut c_void {
            unsafe { haul_copy::c::memcpy(t, s, n) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern \"C\" fn caller_memset(t: *mut c_void, b: c_int, n: usize) -> *mut c_void {
            unsafe { haul_copy::c::memset(t, b, n) }
        }
        #[unsafe(no_mangle)]
        pub extern \"C\" fn caller_kernels(index: usize) -> haul_copy::kernel::CopyFn {
            haul_copy::kernel::copies()[index].function().unwrap()
        }
        #[unsafe(no_mangle)]
        pub extern \"C\" fn caller_fills(index: usize) -> haul_copy::kernel::FillFn {
            haul_copy::kernel::fills()[index].function().unwrap()
        }
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
            loop {}
        }";

fn release() -> Option<&'static [Function]> {
    static RELEASE: OnceLock<Vec<Function>> = OnceLock::new();
    let compile = || functions(&Workshop::new().haul_copy("3"));
    has_objdump().then(|| &**RELEASE.get_or_init(compile))
}

fn find<'a>(functions: &'a [Function], name: &str) -> &'a Function {
    let found = functions.iter().find(|function| function.name == name);
    found.unwrap_or_else(|| panic!("the object file has no function {name}"))
}

/// The instructions from `first` up to the first return or unconditional jump.
fn straight(function: &Function, first: usize) -> &[Instruction] {
    let rest = &function.code[first..];
    let last = rest.iter().position(|instruction| ["ret", "jmp"].contains(&&*instruction.mnemonic));
    &rest[..=last.expect("a function that ends")]
}

/// The path from the entry to the return on which no conditional jump is taken.
fn fall_through(function: &Function) -> &[Instruction] {
    straight(function, 0)
}

/// Every innermost loop: the instructions from the target of a backward jump to the jump.
fn loops(function: &Function) -> Vec<&[Instruction]> {
    let index = |address| function.code.iter().position(|one| one.address == address);
    let ends = function.code.iter().enumerate();
    ends.filter_map(|(end, jump)| {
        let start = index(jump.target()?)?;
        (start <= end).then(|| &function.code[start..=end])
    })
    .collect()
}

/// The instructions as text, without the parts that depend on their address: targets of jumps,
/// padding.
fn normalised(code: &[Instruction]) -> String {
    let mut text = String::new();
    for instruction in code.iter().filter(|instruction| !instruction.mnemonic.contains("nop")) {
        let operands = match (&instruction.refers_to, instruction.is_jump()) {
            (_, true) => "",
            (Some(_), _) => "(constant)",
            _ => &*instruction.operands,
        };
        text += format!("{} {operands}", instruction.mnemonic).trim_end();
        text.push('\n');
    }
    text
}

/// Compares the instructions with the committed text, or writes that text.
fn assert_golden(name: &str, code: &[Instruction]) {
    let path = golden(name);
    let found = normalised(code);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden("")).expect("tests/object/golden");
        std::fs::write(&path, found).expect("write a golden file");
        return;
    }
    let wanted = std::fs::read_to_string(&path).expect("a golden file");
    assert!(
        found == wanted,
        "{name} has changed. Found:\n{found}\nWanted:\n{wanted}\nUPDATE_GOLDEN=1 accepts it."
    );
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/object/golden").join(name)
}

/// Whether rustc is the pinned version. The golden text is valid for that version alone.
fn is_pinned_compiler() -> bool {
    let pinned = include_str!("../../../../rust-toolchain.toml");
    let pinned = pinned.lines().find_map(|line| line.strip_prefix("channel = "));
    let pinned = pinned.map_or("", |version| version.trim_matches('"'));
    let output = std::process::Command::new("rustc").arg("--version").output().expect("rustc");
    let is_pinned =
        String::from_utf8_lossy(&output.stdout).starts_with(&format!("rustc {pinned} "));
    if !is_pinned {
        eprintln!("SKIPPED: golden machine code: no pinned toolchain: rustup toolchain install");
    }
    is_pinned
}

#[test]
fn critical_code_matches_golden_text() {
    let Some(functions) = is_pinned_compiler().then(release).flatten() else { return };
    let avx2 = find(functions, &format!("{DISPATCH}copy_avx2"));
    assert_golden("avx2_65_to_256.txt", fall_through(avx2));
    assert_golden("avx2_forward.txt", forward_loop(avx2));
    assert_golden(
        "memcpy_to_64.txt",
        &find(functions, "haul_copy::dispatch::by_masks::copy_without_masks").code,
    );
    assert_golden("masked_copy.txt", &find(functions, &format!("{BY_MASKS}copy")).code);
    assert_golden("masked_fill.txt", &find(functions, &format!("{BY_MASKS}fill")).code);
}

/// Blocks of the masked code: the instruction that begins each, and the largest number of
/// conditional jumps before it. Of these, two are on the policy or the page.
const MASKED_COPY: [(&str, &str, usize); 4] = [
    ("vmovdqu8", "xmm16", 6),
    ("vmovdqu64", "xmm16", 4),
    ("vmovdqu64", "ymm16", 3),
    ("vmovdqu64", "zmm16", 3),
];
const MASKED_FILL: [(&str, &str, usize); 2] = [("vmovdqu8", "ymm16", 3), ("vmovdqu64", "zmm16", 4)];

/// A copy or fill of up to 128 bytes has one branch for each of its blocks, on the size, on the
/// policy and on the pages of its ends, and no others. A block has no jump, and no load after a
/// store. From 64 bytes on, a copy takes no jump before its block.
#[test]
fn masked_code_branches_once_for_each_block() {
    let Some(functions) = release() else { return };
    let blocks = [("copy", &MASKED_COPY[..]), ("fill", &MASKED_FILL[..])];
    for (name, (mnemonic, register, branches)) in
        blocks.into_iter().flat_map(|(name, blocks)| blocks.iter().map(move |block| (name, *block)))
    {
        let function = find(functions, &format!("{BY_MASKS}{name}"));
        let code = &function.code;
        let begins = |one: &Instruction| {
            one.mnemonic == mnemonic && one.operands.contains(&format!("%{register}"))
        };
        let first = code.iter().position(begins).expect("a block");
        let found = branches_to(function, first);
        assert!(found <= branches, "{name}: {found} branches to {register}:\n{}", normalised(code));
        assert_is_straight(name, &code[first..]);
    }
    let first = fall_through(find(functions, &format!("{BY_MASKS}copy")));
    let stores = first.iter().filter(|one| one.operands.starts_with("%zmm")).count();
    assert_eq!(stores, 2, "{}", normalised(first));
}

/// The fewest conditional jumps, taken or not, on a path from the entry to this instruction.
fn branches_to(function: &Function, goal: usize) -> usize {
    let index = |address| function.code.iter().position(|one| one.address == address);
    let mut fewest = vec![usize::MAX; function.code.len()];
    let mut next = vec![(0, 0)];
    while let Some((at, branches)) = next.pop() {
        let Some(one) = function.code.get(at).filter(|_| branches < fewest[at]) else { continue };
        fewest[at] = branches;
        let is_conditional = one.is_jump() && one.mnemonic != "jmp";
        let after = branches + usize::from(is_conditional);
        next.extend(one.target().and_then(index).map(|to| (to, after)));
        if !["ret", "jmp"].contains(&&*one.mnemonic) {
            next.push((at + 1, after));
        }
    }
    fewest[goal]
}

/// Asserts that the code up to its return has no jump, and no load after a store.
fn assert_is_straight(name: &str, code: &[Instruction]) {
    let block: Vec<_> = code.iter().take_while(|one| one.mnemonic != "ret").cloned().collect();
    assert!(block.iter().all(|one| !one.is_jump()), "{name}:\n{}", normalised(&block));
    let vzeroupper = block.iter().any(|one| one.mnemonic == "vzeroupper");
    assert!(!vzeroupper, "{name}: zmm16 and up need none");
    let first_store = block.iter().position(|one| one.operands.contains("mm16,"));
    let late = block[first_store.expect("a store")..].iter().find(|one| one.loads());
    assert_eq!(late, None, "{name}: a load after a store");
}

/// The loop that copies forward, which is the loop whose counter grows.
fn forward_loop(function: &Function) -> &[Instruction] {
    let loops = loops(function);
    assert_eq!(loops.len(), 2, "{}: one loop up, one down", function.name);
    let is_upward = |code: &&&[Instruction]| {
        code.iter().any(|one| one.mnemonic == "sub" && one.operands.starts_with("$0xffffffff"))
            || code.iter().any(|one| one.mnemonic == "add" && !one.operands.contains("$0xffffffff"))
    };
    loops.iter().find(is_upward).expect("a loop that steps up")
}

/// The size in bytes of the vector register among these operands; 0 without one.
fn register_bytes(operands: &str) -> usize {
    let sizes = [("%xmm", 16), ("%ymm", 32), ("%zmm", 64)];
    sizes.into_iter().find(|(name, _)| operands.contains(name)).map_or(0, |(_, bytes)| bytes)
}

/// The runs of instructions without a jump that end in a return or a jump to another function.
fn runs_to_exits(function: &Function) -> Vec<&[Instruction]> {
    let code = &function.code;
    let is_end = |one: &Instruction| one.is_jump() || one.mnemonic == "ret";
    let starts = code.iter().enumerate().filter(|(_, one)| is_end(one)).map(|(at, _)| at + 1);
    let begins = std::iter::once(0).chain(starts);
    let runs = begins.filter(|&start| code[start..].iter().any(is_end)).map(|start| {
        let length = code[start..].iter().position(is_end).expect("a function that ends");
        &code[start..=start + length]
    });
    runs.filter(|run| ["ret", "jmp"].contains(&&*run[run.len() - 1].mnemonic)).collect()
}

/// Overlap is safe if no load follows a store within a block, so the compiler must not reorder
/// them. The blocks are two lines for up to 128 bytes, and four for up to 256.
#[test]
fn blocks_load_everything_before_they_store() {
    let Some(functions) = release() else { return };
    for name in ["copy_avx2", "copy_sse2", "copy_avx512vl"] {
        let name = format!("{DISPATCH}{name}");
        let Some(function) = functions.iter().find(|function| function.name == name) else {
            // The compiler may inline SSE2's function into the dispatch.
            assert!(name.ends_with("sse2"), "the object file has no function {name}");
            continue;
        };
        let runs = runs_to_exits(function);
        for lines in [2, 4] {
            // The compiler may join two registers to one, and load lines before the branch.
            let is_block = |run: &&&[Instruction]| {
                let stores = run.iter().filter(|one| one.stores());
                stores.map(|one| register_bytes(&one.operands)).sum::<usize>() == lines * 64
            };
            let block = runs.iter().find(is_block);
            let block = block.unwrap_or_else(|| panic!("{name} has no block of {lines} lines"));
            let first_store = block.iter().position(Instruction::stores).expect("a store");
            let late = block[first_store..].iter().find(|one| one.loads());
            assert_eq!(late, None, "{name}: a load after a store:\n{}", normalised(block));
        }
    }
}

#[test]
fn avx2_loop_uses_only_ymm_registers() {
    let Some(functions) = release() else { return };
    let avx2 = find(functions, &format!("{DISPATCH}copy_avx2"));
    let code = forward_loop(avx2);
    let count = |action: fn(&Instruction) -> bool| code.iter().filter(|one| action(one)).count();
    let (loads, stores) = (count(Instruction::loads), count(Instruction::stores));
    assert_eq!((loads, stores), (4, 4), "{}", normalised(code));
    assert!(code.iter().all(|one| !one.operands.contains("xmm")), "{}", normalised(code));
    assert_eq!(code.iter().filter(|one| one.is_jump()).count(), 1, "{}", normalised(code));
}

/// Streaming stores are not ordered with later stores. A thread that sees a later store must also
/// see the streaming stores, so every path from a streaming store to an exit of the function has
/// a fence.
#[test]
fn streaming_functions_fence_before_leaving() {
    let Some(functions) = release() else { return };
    let streaming: Vec<_> = functions.iter().filter(|one| streams(one).next().is_some()).collect();
    // Only kernels are looked up by name, because functions that only the dispatch uses may be
    // inlined.
    for level in ["sse2", "avx2", "avx512"] {
        for kernel in ["stream_copy", "paged_copy", "stream_fill"] {
            let name = format!("haul_copy::arch::x86_64::{level}::{kernel}");
            assert!(streaming.iter().any(|one| one.name == name), "{name} does not stream");
        }
    }
    for function in streaming {
        let exit = streams(function).find_map(|store| exit_without_fence(function, store));
        assert_eq!(exit, None, "{}: streamed, and left without sfence", function.name);
    }
}

/// The indices of non-temporal stores.
fn streams(function: &Function) -> impl Iterator<Item = usize> {
    let is_stream = |one: &Instruction| one.mnemonic.contains("movnt");
    function.code.iter().enumerate().filter(move |(_, one)| is_stream(one)).map(|(at, _)| at)
}

/// A return, or a jump to another function, that can be reached from `start` without an `sfence`.
fn exit_without_fence(function: &Function, start: usize) -> Option<&Instruction> {
    let index = |address| function.code.iter().position(|one| one.address == address);
    let is_here = |jump: &Instruction| {
        let to = jump.refers_to.as_deref().and_then(|to| to.strip_prefix(&*function.name));
        to.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
    };
    let mut seen = vec![false; function.code.len()];
    let mut next = vec![start];
    while let Some(at) = next.pop() {
        let one = function.code.get(at).expect("code that does not run past its end");
        if std::mem::replace(&mut seen[at], true) || one.mnemonic == "sfence" {
            continue;
        }
        let leaves = one.mnemonic.contains("ret") || one.is_jump() && !is_here(one);
        if leaves {
            return Some(one);
        }
        next.extend(one.target().map(|to| index(to).expect("a jump to an instruction")));
        if one.mnemonic != "jmp" {
            next.push(at + 1);
        }
    }
    None
}

/// A caller makes one direct call; after this call, a copy only jumps.
#[test]
fn copies_make_no_calls() {
    let Some(functions) = release() else { return };
    let is_copy = |function: &&Function| {
        let name = &function.name;
        name.starts_with(DISPATCH)
            || name.starts_with("haul_copy::arch::")
            || name.starts_with("haul_mem")
            || name.ends_with("copy_above_64")
            || name.ends_with("fill_above_64")
    };
    let copies: Vec<_> = functions.iter().filter(is_copy).collect();
    assert!(copies.len() > 25, "only {} copies and fills were found", copies.len());
    for function in copies {
        let call = function.code.iter().find(|one| one.is_call());
        assert_eq!(call, None, "{} calls", function.name);
    }
}

#[test]
fn dispatch_jumps_directly_to_chosen_kernel() {
    let Some(functions) = release() else { return };
    for (entry, chosen) in [
        // The C functions jump here first if the policy does not use masks.
        ("haul_copy::dispatch::by_masks::copy_without_masks", "copy_avx2"),
        ("haul_copy::dispatch::by_masks::fill_without_masks", "fill_avx2"),
        // The functions with C's names are the same code, which the compiler keeps once.
        ("haul_copy::dispatch::copy_above_64", "copy_avx2"),
        ("haul_copy::dispatch::fill_above_64", "fill_avx2"),
    ] {
        let entry = find(functions, entry);
        // A relocation has the mangled name, in which the length of each part precedes the part.
        let mangled = format!("8above_646x86_64{}{chosen}", chosen.len());
        let leads_there =
            |one: &&Instruction| one.refers_to.as_deref().is_some_and(|to| to.contains(&mangled));
        let jump = entry.code.iter().find(leads_there);
        let jump = jump.unwrap_or_else(|| panic!("{} never mentions {chosen}", entry.name));
        assert!(jump.is_jump(), "{jump:?}");
        assert!(!jump.operands.contains('*'), "an indirect jump: {jump:?}");
        let indirect = entry.code.iter().find(|one| one.is_jump() && one.operands.contains('*'));
        assert_eq!(indirect, None, "{}: a jump through a table or a pointer", entry.name);
        let call = entry.code.iter().find(|one| one.is_call());
        assert_eq!(call, None, "{} calls", entry.name);
    }
}

/// objdump names symbols that are bound at load time `memcpy@plt` or `memcpy@GLIBC_2.14`.
fn is_of_the_c_library(symbol: &str) -> bool {
    symbol.starts_with("mem") || symbol.starts_with("bcmp")
}

/// Link-time optimization processes the crate again without its attributes, and must not add calls.
#[test]
fn link_time_optimization_adds_no_calls() {
    if !has_objdump() {
        return;
    }
    for lto in ["thin", "fat"] {
        let workshop = Workshop::new();
        let functions = functions(&workshop.with_link_time_optimization(lto, CALLER));
        let copies = functions.iter().filter(|function| {
            function.name.starts_with(DISPATCH) || function.name.starts_with("haul_copy::arch::")
        });
        let mut seen = 0;
        for function in copies {
            seen += 1;
            let bad = function.code.iter().find(|one| {
                one.is_call() || one.refers_to.as_deref().is_some_and(is_of_the_c_library)
            });
            assert_eq!(bad, None, "lto {lto}: {}", function.name);
        }
        assert!(seen > 20, "lto {lto}: only {seen} copies and fills were found");
    }
}
