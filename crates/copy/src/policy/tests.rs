use super::*;
use crate::cpu::Vendor;
use crate::thresholds::NEVER;

fn facts(vendor: Vendor, last_cache_bytes: usize) -> Facts {
    Facts {
        vendor,
        family: 6,
        model: 0,
        widest: Isa::Avx2,
        has_masks: false,
        lowers_clock: false,
        enhanced_string: true,
        fast_short_string: true,
        last_cache_bytes,
    }
}

fn with_avx512(facts: Facts) -> Facts {
    Facts { widest: Isa::Avx512, has_masks: true, ..facts }
}

fn thresholds_of(facts: Facts) -> Thresholds {
    Policy::for_processor(facts).thresholds
}

#[test]
fn implausible_cache_size_gives_default_thresholds() {
    let implausible = thresholds_of(facts(Vendor::Intel, 1 << 40));
    let none = thresholds_of(facts(Vendor::Intel, 0));
    assert_eq!(implausible, none);
    if cfg!(target_arch = "x86_64") {
        assert!(implausible.stream_copy_min < 64 << 20);
    }
}

/// A larger cache never lowers the threshold, up to sizes that no processor has.
#[test]
#[cfg(target_arch = "x86_64")]
fn stream_threshold_is_capped_for_large_caches() {
    let stream_from = |mebibytes: usize| {
        let intel = facts(Vendor::Intel, mebibytes << 20);
        thresholds_of(intel).stream_copy_min
    };
    for mebibytes in [1, 32, 64, 96] {
        assert_eq!(stream_from(mebibytes), mebibytes << 19, "{mebibytes} MiB");
    }
    for mebibytes in [105, 320, 504, 1024] {
        assert_eq!(stream_from(mebibytes), 48 << 20, "{mebibytes} MiB");
    }
    let smallest = thresholds_of(facts(Vendor::Intel, 1));
    assert_eq!(smallest.stream_copy_min, 256 << 10);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn intel_string_thresholds_follow_announced_features() {
    let of = |enhanced_string, fast_short_string| {
        let intel = facts(Vendor::Intel, 32 << 20);
        let chosen = thresholds_of(Facts { enhanced_string, fast_short_string, ..intel });
        (chosen.rep_movsb_min, chosen.rep_stosb_min)
    };
    assert_eq!(of(true, true), (32 << 10, 32 << 10));
    assert_eq!(of(true, false), (8 << 10, 4 << 10));
    assert_eq!(of(false, false), (NEVER, NEVER));
}

#[test]
fn zen_4_policy_follows_row_despite_announced_features() {
    let zen_4 = Facts { family: 25, model: 17, ..with_avx512(facts(Vendor::Amd, 32 << 20)) };
    let policy = Policy::for_processor(zen_4);
    assert_eq!((policy.small, policy.isa), (Small::MasksInCalls, Isa::Avx2));
    assert_eq!((policy.strings, policy.thresholds.rep_movsb_min), (Strings::Alike, NEVER));
    assert_eq!(policy.thresholds.rep_stosb_min, NEVER);
    assert!(Policy::row(zen_4).unwrap().1.starts_with("bench/record/"));
}

/// An unknown processor gets the widest instruction set that does not lower its clock.
#[test]
fn policy_without_row_follows_features() {
    let unknown = Facts { family: 77, ..with_avx512(facts(Vendor::Amd, 32 << 20)) };
    assert_eq!(Policy::row(unknown), None);
    let policy = Policy::for_processor(unknown);
    assert_eq!((policy.small, policy.isa), (Small::Masks, Isa::Avx512vl));
    // Only x86-64 has string instructions.
    let strings_from = if cfg!(target_arch = "x86_64") { 4096 } else { NEVER };
    assert_eq!((policy.strings, policy.thresholds.rep_movsb_min), (Strings::Any, strings_from));
    let intel = Policy::for_processor(Facts { vendor: Vendor::Intel, ..unknown });
    assert_eq!((intel.small, intel.isa), (Small::Masks, Isa::Avx512));
    let hot = Policy::for_processor(Facts { lowers_clock: true, ..unknown });
    assert_eq!((hot.small, hot.isa), (Small::Pieces, Isa::Avx2));
    let old = Facts { enhanced_string: false, fast_short_string: false, ..unknown };
    let old = Policy::for_processor(Facts { widest: Isa::Sse2, has_masks: false, ..old });
    assert_eq!((old.small, old.isa, old.strings), (Small::Pieces, Isa::Sse2, Strings::Alike));
}

/// The next best choice replaces a feature that a hypervisor hides, also on a processor that has a
/// row.
#[test]
fn policy_uses_next_best_for_hidden_features() {
    let sapphire = Facts { model: 0x8f, ..with_avx512(facts(Vendor::Intel, 32 << 20)) };
    assert_eq!(Policy::for_processor(sapphire).small, Small::Masks);
    let hidden = Facts { has_masks: false, widest: Isa::Avx2, enhanced_string: false, ..sapphire };
    let policy = Policy::for_processor(Facts { fast_short_string: false, ..hidden });
    assert_eq!((policy.small, policy.isa), (Small::Pieces, Isa::Avx2));
    assert_eq!(policy.thresholds.rep_movsb_min, NEVER);
}

/// A virtual machine can offer AVX-512 F and BW without VL. If the default used VL there, a copy
/// would execute an illegal instruction, because the default also replaces a choice that the
/// processor lacks.
#[test]
fn within_skips_instruction_sets_hidden_below_widest() {
    let unknown = Policy::for_processor(with_avx512(facts(Vendor::Other, 32 << 20)));
    assert_eq!(unknown.isa, Isa::Avx512vl);
    let hidden = |isa: Isa| !matches!(isa, Isa::Avx512vl | Isa::Neon);
    assert_eq!(unknown.within(hidden).isa, Isa::Avx2);
    assert_eq!(unknown.within(|isa| isa < Isa::Avx2).isa, Isa::Sse2);
    assert_eq!(unknown.within(|_| true), unknown);
    assert!(Policy::for_this_processor().isa.is_available());
}

#[test]
fn choose_and_choice_round_trip_every_value() {
    for &name in Policy::CHOICES {
        let mut values = 0;
        for value in Policy::values(name) {
            let mut policy = Policy::for_this_processor();
            assert!(policy.choose(name, value), "{name} {value}");
            assert_eq!(policy.choice(name), Some(value));
            values += 1;
        }
        assert!(values >= 2, "{name}");
        let mut policy = Policy::for_this_processor();
        for bad in ["", "Masks", "avx1024", "any\0"] {
            assert!(!policy.choose(name, bad));
        }
        assert_eq!(policy, Policy::for_this_processor());
    }
    assert!(!Policy::for_this_processor().choose("rep_movsb_min", "any"));
    assert_eq!(Policy::values("").count(), 0);
    assert_eq!(Policy::for_this_processor().choice(""), None);
}

#[test]
fn lacking_choices_are_reported_and_replaced() {
    let mut policy = Policy::for_this_processor();
    assert!(policy.lacking().is_nothing());
    policy.isa = if cfg!(target_arch = "aarch64") { Isa::Avx2 } else { Isa::Neon };
    let lacking = policy.lacking();
    assert_eq!((lacking.isa, lacking.small), (Some(policy.isa), None));
    assert_eq!(policy.clamped().isa, Policy::for_this_processor().isa);
    policy.small = Small::Masks;
    assert_eq!(policy.lacking().small.is_none(), cpu::has_masks());
    assert!(policy.clamped().lacking().is_nothing());
}

#[test]
fn at_most_one_row_matches_processor() {
    for vendor in [Vendor::Amd, Vendor::Intel] {
        for (family, model) in (0..40).flat_map(|family| (0..256).map(move |model| (family, model)))
        {
            let facts = Facts { family, model, ..facts(vendor, 0) };
            assert!(rows::claims(&facts) <= 1, "{facts:?}");
        }
    }
}
