//! The emulator hides no error: an instruction that would kill the process still kills it.

use std::process::{Command, Output};

use haul_copy::Isa;

use crate::has_avx512;
use crate::kernels::copiers;
use crate::support::guarded::Guarded;

/// The environment variable that names the error on which the child must die.
const TASK: &str = "HAUL_TEST_DEATH";

/// Runs `child_of_the_tests_below` in a separate process.
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

/// Does nothing unless the environment variable is set. The tests below run this function in a
/// child process that must die.
#[test]
fn child_of_the_tests_below() {
    let Some(task) = std::env::var_os(TASK) else { return };
    // SAFETY: no obligation. The child must not write a core file.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    assert!(has_avx512());
    let room = Guarded::new(8192);
    let avx512 = copiers().into_iter().find(|copier| copier.name == "avx512").expect("avx512");
    let mut line = [0_u8; 64];
    let (start, end) = (room.start(), room.end());
    // SAFETY: none of these is sound: each must kill this process before it has any other effect.
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
fn bad_address_kills_with_sigsegv() {
    for task in ["read", "write"] {
        let Some(output) = child(task) else { return };
        assert!(died_of(&output, libc::SIGSEGV), "{task}: {output:?}");
    }
}

#[test]
fn misaligned_operand_aborts() {
    let Some(output) = child("unaligned") else { return };
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        died_of(&output, libc::SIGABRT) && message.contains("is not a multiple of 64"),
        "{output:?}"
    );
}

#[test]
fn unknown_instruction_aborts_and_names_itself() {
    let Some(output) = child("unknown") else { return };
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        died_of(&output, libc::SIGABRT) && message.contains("vpaddd zmm1,zmm2,zmm3"),
        "{output:?}"
    );
}
