//! The dispatch as it goes on processors that have less than this one: every entry, natively. A process
//! of its own, because what is chosen holds for all of it.
#![cfg(all(target_os = "linux", not(miri)))]

mod support;

use haul_copy::Isa;

use support::dispatching::{check_every_entry, choose};

/// AVX2 and NEON are what others are tried with; AVX-512VL is in `avx512`.
const LEVELS: &[Isa] =
    if cfg!(target_arch = "x86_64") { &[Isa::Sse2, Isa::Scalar] } else { &[Isa::Scalar] };

#[test]
fn every_entry_copies_and_fills_at_every_lower_level() {
    for &isa in LEVELS {
        assert!(isa.is_available(), "{isa:?} is part of the architecture");
        choose(isa);
        check_every_entry();
        assert_eq!(Isa::best(), isa, "something else was chosen meanwhile");
    }
}
