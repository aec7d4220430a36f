//! The emulator hides nothing: what would have killed still kills.

use std::process::{Command, Output};

use haul_copy::Isa;

use crate::has_avx512;
use crate::kernels::copiers;
use crate::support::guarded::Guarded;

/// What the child is to die of.
const TASK: &str = "HAUL_TEST_DEATH";

/// Runs `child_of_the_tests_below` in a process of its own.
fn child(task: &str) -> Option<Output> {
    if Isa::Avx512.is_available() || !has_avx512() {
        return None;
    }
    let program = std::env::current_exe().expect("this program");
    let name = "deaths::child_of_the_tests_below";
    let child =
        Command::new(program).args([name, "--exact", "--nocapture"]).env(TASK, task).output();
    Some(child.expect("run this program again"))
}

fn died_of(output: &Output, signal: libc::c_int) -> bool {
    use std::os::unix::process::ExitStatusExt as _;
    output.status.signal() == Some(signal)
}

/// Alone it does nothing; the tests below run it to see it die.
#[test]
fn child_of_the_tests_below() {
    let Some(task) = std::env::var_os(TASK) else { return };
    // SAFETY: no obligation. No core file is wanted.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    assert!(has_avx512());
    let room = Guarded::new(8192);
    let avx512 = copiers().into_iter().find(|copier| copier.name == "avx512").expect("avx512");
    let mut line = [0_u8; 64];
    let (start, end) = (room.start(), room.end());
    // SAFETY: not safe at all: each of these is to kill this process, and to do nothing else.
    unsafe {
        match task.to_str() {
            Some("read") => drop((avx512.call)(line.as_mut_ptr(), end.sub(65), 66)),
            Some("write") => drop((avx512.call)(end.sub(300), start, 301)),
            Some("unaligned") => {
                core::arch::asm!("vmovaps zmm0, [{0}]", in(reg) start.add(1), out("xmm0") _);
            }
            Some("unknown") => {
                core::arch::asm!("vpaddd zmm1, zmm2, zmm3", out("xmm1") _);
            }
            _ => panic!("no such task"),
        }
    }
}

#[test]
fn a_bad_address_kills() {
    for task in ["read", "write"] {
        let Some(output) = child(task) else { return };
        assert!(died_of(&output, libc::SIGSEGV), "{task}: {output:?}");
    }
}

#[test]
fn a_misaligned_operand_kills() {
    let Some(output) = child("unaligned") else { return };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(died_of(&output, libc::SIGABRT) && told.contains("is no multiple of 64"), "{output:?}");
}

#[test]
fn an_unknown_instruction_kills_with_its_text() {
    let Some(output) = child("unknown") else { return };
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        died_of(&output, libc::SIGABRT) && told.contains("vpaddd zmm1,zmm2,zmm3"),
        "{output:?}"
    );
}
