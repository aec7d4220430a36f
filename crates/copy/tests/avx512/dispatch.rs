//! The dispatch under the policies of a processor with AVX-512VL, see `support::dispatching`.

use haul_copy::Isa;
use haul_copy::Small;

use crate::emulator::emulated;
use crate::has_avx512;
use crate::support::dispatching::{check_every_entry, choose};

#[test]
fn every_entry_is_right_with_avx512() {
    if !has_avx512() {
        return;
    }
    let before = emulated();
    for (isa, small) in [
        (Isa::Avx512vl, Small::Pieces),
        (Isa::Avx512, Small::Masks),
        (Isa::Avx2, Small::MasksInCalls),
    ] {
        choose(isa, small);
        check_every_entry();
    }
    let count = emulated() - before;
    assert!(Isa::Avx512.is_available() || count > 1000, "only {count} instructions were emulated");
}
