use haul_copy::Thresholds;

use super::*;

const SIZES: [usize; 8] = [2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];

/// A policy that allows string instructions at any alignment, but whose thresholds use only
/// registers.
fn registers() -> Policy {
    let mut policy = Policy::for_this_processor();
    policy.strings = Strings::Any;
    policy.thresholds = Thresholds::REGISTERS_ONLY;
    policy
}

/// Training results in which the function returns the cost of each method.
fn trained(ratio: impl Fn(Method, usize) -> f64) -> Vec<Trained> {
    let one = |&size: &usize| Trained {
        size,
        weight: 1.0,
        ratios: Method::of(Function::Memcpy)
            .iter()
            .map(|&method| (method, ratio(method, size)))
            .collect(),
    };
    SIZES.iter().map(one).collect()
}

#[test]
fn forced_method_is_used_at_every_size() {
    for function in Function::ALL {
        for &forced in Method::of(function) {
            for size in SIZES {
                assert_eq!(method(function, &forced.forced(registers()), size), forced);
            }
        }
    }
}

#[test]
fn best_finds_crossovers() {
    let data = trained(|method, size| match method {
        Method::Registers => 1.0,
        Method::String if (8192..65_536).contains(&size) => 0.8,
        Method::Stream if size >= 131_072 => 0.7,
        Method::Paged if size >= 262_144 => 0.6,
        _ => 1.5,
    });
    let found = best(Function::Memcpy, &data, registers());
    let values: Vec<usize> =
        names(Function::Memcpy).iter().map(|name| found.thresholds.get(name).unwrap()).collect();
    assert_eq!(values, [8192, 65_536, 131_072, 262_144]);
    assert_eq!(found.thresholds.stream_fill_min, NEVER, "fills are left alone");
}

#[test]
fn doubtful_comparison_counts_as_no_difference() {
    let comparison = |ratio_low, ratio, ratio_high, floor| Comparison {
        baseline: "default".into(),
        ratio,
        ratio_low,
        ratio_high,
        floor,
    };
    assert_eq!(counted(&comparison(0.95, 0.96, 0.97, 0.01)), 0.96);
    assert_eq!(counted(&comparison(0.95, 0.96, 0.97, 0.05)), 1.0, "within the floor");
    assert_eq!(counted(&comparison(0.90, 0.96, 1.01, 0.01)), 1.0, "the interval holds 1");
    assert_eq!(counted(&comparison(0.988, 0.99, 0.992, 0.001)), 1.0, "not worth a change");
    assert_eq!(counted(&comparison(1.008, 1.01, 1.012, 0.001)), 1.01, "but worth to avoid");
}

#[test]
fn best_keeps_base_if_nothing_is_cheaper() {
    let data = trained(|_, _| 1.0);
    assert_eq!(best(Function::Memcpy, &data, registers()), registers());
}

/// A method that wins at one size and makes no difference at other sizes is used only at that
/// size.
#[test]
fn best_changes_only_sizes_that_win() {
    let data =
        trained(|method, size| if method == Method::String && size == 65_536 { 0.9 } else { 1.0 });
    let found = best(Function::Memcpy, &data, registers());
    assert_eq!((found.thresholds.rep_movsb_min, found.thresholds.rep_movsb_max), (65_536, 131_072));
    assert_eq!(found.thresholds.stream_copy_min, NEVER);
}

#[test]
fn best_replaces_slow_default_and_keeps_fast_one() {
    let mut defaults = registers();
    assert!(defaults.thresholds.set("stream_copy_min", 16_384));
    // Under these defaults, streaming is the baseline from 16 KiB on, and loses up to 64 KiB.
    let data = trained(|method, size| match method {
        Method::Registers if (16_384..65_536).contains(&size) => 0.5,
        Method::Registers if size < 16_384 => 1.0,
        Method::Stream if size >= 16_384 => 1.0,
        _ => 1.5,
    });
    let found = best(Function::Memcpy, &data, defaults);
    assert_eq!(found.thresholds.stream_copy_min, 65_536);
    assert_eq!(found.thresholds.rep_movsb_min, NEVER);
    assert_eq!(best(Function::Memcpy, &data, found).thresholds.stream_copy_min, 65_536);
}

#[test]
fn best_keeps_defaults_above_trained_sizes() {
    let mut defaults = registers();
    assert!(
        defaults.thresholds.set("stream_copy_min", 16_384)
            && defaults.thresholds.set("paged_copy_min", 1 << 30)
    );
    let data = trained(|method, _| if method == Method::Registers { 0.5 } else { 1.5 });
    let found = best(Function::Memcpy, &data, defaults);
    assert_eq!(
        (found.thresholds.stream_copy_min, found.thresholds.paged_copy_min),
        (2 * 262_144, 1 << 30)
    );
}

/// String instructions that win at the largest size are not used at larger sizes, where the
/// defaults stream. On one processor with 504 MiB of last-level cache, such string instructions
/// saved 4% at 128 MiB, but needed twice the time of streaming at 1 GiB.
#[test]
fn strings_end_at_largest_trained_size() {
    let data = trained(|method, size| match method {
        Method::String if size >= 65_536 => 0.9,
        Method::Registers => 1.0,
        _ => 1.5,
    });
    for stream_min in [1 << 20, NEVER] {
        let mut defaults = registers();
        assert!(defaults.thresholds.set("stream_copy_min", stream_min));
        let found = best(Function::Memcpy, &data, defaults);
        assert_eq!(method(Function::Memcpy, &found, 262_144), Method::String);
        for size in [2 * 262_144, 1 << 20, 1 << 30] {
            let (found, before) =
                [&found, &defaults].map(|it| method(Function::Memcpy, it, size)).into();
            assert_eq!(found, before, "{size}");
        }
    }
}

/// String instructions that the defaults use above the trained sizes are still used there,
/// whether their range has an end or not, and whether string instructions or registers win at the
/// largest size.
#[test]
fn default_strings_stay_above_trained_sizes() {
    for string_max in [393_216, NEVER] {
        let mut defaults = registers();
        for (name, value) in
            [("rep_movsb_min", 8192), ("rep_movsb_max", string_max), ("stream_copy_min", 393_216)]
        {
            assert!(defaults.thresholds.set(name, value));
        }
        for registers_win_below in [0, 65_536, NEVER] {
            let data = trained(|method, size| match method {
                Method::Registers if (8192..registers_win_below).contains(&size) => 0.5,
                Method::String if size >= 8192 => 1.0,
                Method::Registers if size < 8192 => 1.0,
                _ => 1.5,
            });
            let found = best(Function::Memcpy, &data, defaults);
            let largest = if registers_win_below == NEVER { 2 * 262_144 } else { 262_145 };
            for size in [largest, 393_216, 600_000, 1 << 30].into_iter().filter(|&it| it >= largest)
            {
                let [found, before] =
                    [&found, &defaults].map(|it| method(Function::Memcpy, it, size));
                assert_eq!(found, before, "{size}, {string_max}, {registers_win_below}");
            }
        }
    }
}

/// If streaming without interleaved pages wins at the largest size, it is used at larger sizes as
/// well.
#[test]
fn streaming_that_beats_pages_stays_above_trained_sizes() {
    let mut defaults = registers();
    assert!(
        defaults.thresholds.set("stream_copy_min", 16_384)
            && defaults.thresholds.set("paged_copy_min", 16_384)
    );
    let data = trained(|method, _| if method == Method::Stream { 0.9 } else { 1.0 });
    let found = best(Function::Memcpy, &data, defaults).thresholds;
    assert_eq!(found.paged_copy_min, NEVER);
}

/// Strings that win only if target and source are aligned alike are used only for such copies.
/// Strings that win at any alignment are used at any alignment.
#[test]
fn strings_are_used_only_at_alignments_that_win() {
    for (anywhere, expected) in [(1.4, Strings::Alike), (0.8, Strings::Any)] {
        let mut base = registers();
        base.strings = Strings::Alike;
        let data = trained(|method, size| match method {
            Method::String if size >= 32_768 => anywhere,
            Method::AlikeString if size >= 32_768 => 0.95,
            Method::Registers => 1.0,
            _ => 1.5,
        });
        let found = best(Function::Memcpy, &data, base);
        assert_eq!(found.strings, expected, "{found:?}");
        assert_eq!(found.thresholds.rep_movsb_min, 32_768);
        let fills = best(Function::Memset, &data, base);
        assert_eq!(fills.strings, Strings::Alike, "no fill has a source");
    }
}

/// A very slow offset forbids string instructions at any alignment. A bad offset counts in
/// proportion to its share of calls.
#[test]
fn bad_offset_adds_to_cost_of_strings() {
    let of = |over_registers| {
        let mut data = trained(|method, _| if method == Method::String { 0.9 } else { 1.0 });
        data.iter_mut().for_each(|trained| trained.add_worst(over_registers));
        best(Function::Memcpy, &data, registers()).thresholds.rep_movsb_min
    };
    assert_eq!(of(1.8), 2048);
    assert_eq!(of(20.0), NEVER);
    let mut one = trained(|method, _| if method == Method::String { 0.99 } else { 1.0 });
    one[0].add_worst(1.8);
    let (_, ratio) = one[0].ratios[1];
    assert!((ratio - (0.99 * (1.0 - BAD_OFFSET_SHARE) + 1.8 * BAD_OFFSET_SHARE)).abs() < 1e-12);
    assert!(ratio > 1.0, "a gain of 1% is less than a loss of 80% now and then");
}
