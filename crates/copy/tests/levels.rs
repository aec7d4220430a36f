//! The dispatch as it goes on other processors, as far as this one has what they have: every entry,
//! natively. A process of its own, because what is chosen holds for all of it. Where there is no
//! AVX-512VL, `avx512` has it emulated.
#![cfg(all(target_os = "linux", not(miri)))]

mod support;

use haul_copy::Policy;
use haul_copy::policy::{Small, Strings};

use support::dispatching::check_every_entry;

#[test]
fn every_entry_copies_and_fills_under_every_policy() {
    for &isa in Policy::values("isa").collect::<Vec<_>>().iter() {
        for (small, strings) in [(Small::Masks, Strings::Any), (Small::Pieces, Strings::Alike)] {
            let mut policy = Policy::for_this_processor();
            assert!(policy.choose("isa", isa));
            (policy.small, policy.strings) = (small, strings);
            if !policy.lacking().is_nothing() {
                continue;
            }
            assert!(policy.install().is_nothing());
            check_every_entry();
            let current = Policy::current();
            assert_eq!((current.isa, current.small), (policy.isa, small), "changed meanwhile");
        }
    }
}
