//! The AVX-512 kernels and the dispatch that uses them, also on processors without AVX-512.
//!
//! On such a processor, each AVX-512 instruction of the kernels traps, and a handler emulates the
//! instruction, see `emulator`. All other instructions, including AVX2 and `vzeroupper`, run on
//! the processor. If an emulated instruction makes a bad access, the handler makes the same
//! access, which kills the process too.
#![cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::multiple_unsafe_ops_per_block,
    reason = "a test's buffers are sized right above the calls that use them"
)]

#[path = "../support/mod.rs"]
mod support;

mod deaths;
mod dispatch;
mod emulator;
mod frame;
mod kernels;

use haul_copy::Isa;

/// Whether AVX-512 can run here. Installs the emulator if the processor has no AVX-512. Prints
/// whether the processor or the emulator runs the instructions.
fn has_avx512() -> bool {
    if Isa::Avx512.is_available() && Isa::Avx512vl.is_available() {
        eprintln!("AVX-512 runs natively");
        return true;
    }
    if !Isa::Avx2.is_available() {
        eprintln!(
            "SKIPPED: AVX-512 emulated: no CPU feature avx2: run it on a processor that has it"
        );
        return false;
    }
    emulator::install();
    eprintln!("AVX-512 is emulated: this processor has none");
    true
}
