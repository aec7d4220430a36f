//! The dispatch as it goes on other processors, as far as this one has what they have: every entry, natively.
//! A process of its own, because what is chosen holds for all of it. Where there is no AVX-512VL, `avx512`
//! has it emulated.
#![cfg(all(target_os = "linux", not(miri)))]

mod support;

use haul_copy::Isa;

use support::dispatching::{check_every_entry, choose};

#[test]
fn every_entry_copies_and_fills_at_every_other_level() {
    let best = Isa::best();
    // No dispatch chooses AVX-512 at 64 bytes.
    let others = Isa::available().filter(|&isa| isa != best && isa != Isa::Avx512);
    for isa in others.collect::<Vec<_>>() {
        choose(isa);
        check_every_entry();
        assert_eq!(Isa::best(), isa, "something else was chosen meanwhile");
    }
}
