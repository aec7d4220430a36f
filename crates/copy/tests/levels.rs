//! Every entry of the dispatch under the policies of other processors, as far as this processor
//! can run them natively. This test is a separate process, because a policy holds for the whole
//! process. If the processor has no AVX-512VL, the test `avx512` emulates it.
#![cfg(all(target_os = "linux", not(miri)))]

mod support;

use haul_copy::Policy;
use haul_copy::{Small, Strings};

use support::dispatching::check_every_entry;

#[test]
fn every_entry_is_right_under_every_policy() {
    for &isa in Policy::values("isa").collect::<Vec<_>>().iter() {
        for (small, strings) in [
            (Small::Masks, Strings::Any),
            (Small::MasksInCalls, Strings::Alike),
            (Small::Pieces, Strings::Alike),
        ] {
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
