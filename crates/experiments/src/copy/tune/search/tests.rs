use haul_copy::Thresholds;

use super::*;

const SIZES: [usize; 8] = [2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144];

/// A policy with strings anywhere and no way but registers.
fn registers() -> Policy {
    let mut policy = Policy::for_this_processor();
    policy.strings = Strings::Any;
    policy.thresholds = Thresholds::REGISTERS_ONLY;
    policy
}

/// Trained data in which each way costs what the function says.
fn trained(ratio: impl Fn(Way, usize) -> f64) -> Vec<Trained> {
    let one = |&size: &usize| Trained {
        size,
        ratios: Way::of(Function::Memcpy).iter().map(|&way| (way, ratio(way, size))).collect(),
    };
    SIZES.iter().map(one).collect()
}

#[test]
fn forced_ways_are_taken_at_every_size() {
    for function in Function::ALL {
        for &forced in Way::of(function) {
            for size in SIZES {
                assert_eq!(way(function, &forced.forced(registers()), size), forced);
            }
        }
    }
}

#[test]
fn crossovers_are_found() {
    let data = trained(|way, size| match way {
        Way::Registers => 1.0,
        Way::String if (8192..65_536).contains(&size) => 0.8,
        Way::Stream if size >= 131_072 => 0.7,
        Way::Paged if size >= 262_144 => 0.6,
        _ => 1.5,
    });
    let found = best(Function::Memcpy, &data, registers());
    let values: Vec<usize> =
        names(Function::Memcpy).iter().map(|name| found.thresholds.get(name).unwrap()).collect();
    assert_eq!(values, [8192, 65_536, 131_072, 262_144]);
    assert_eq!(found.thresholds.stream_fill_min, NEVER, "fills are left alone");
}

#[test]
fn doubt_counts_as_no_difference() {
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
fn nothing_better_changes_nothing() {
    let data = trained(|_, _| 1.0);
    assert_eq!(best(Function::Memcpy, &data, registers()), registers());
}

/// A way that gains at one size and makes no difference at others is taken at that size only.
#[test]
fn no_more_sizes_change_than_need_to() {
    let data = trained(|way, size| if way == Way::String && size == 65_536 { 0.9 } else { 1.0 });
    let found = best(Function::Memcpy, &data, registers());
    assert_eq!((found.thresholds.rep_movsb_min, found.thresholds.rep_movsb_max), (65_536, 131_072));
    assert_eq!(found.thresholds.stream_copy_min, NEVER);
}

#[test]
fn a_bad_default_is_mended_and_a_good_one_stays() {
    let mut defaults = registers();
    assert!(defaults.thresholds.set("stream_copy_min", 16_384));
    // Under these defaults streaming is the baseline from 16 KiB on, and loses up to 64 KiB.
    let data = trained(|way, size| match way {
        Way::Registers if (16_384..65_536).contains(&size) => 0.5,
        Way::Registers if size < 16_384 => 1.0,
        Way::Stream if size >= 16_384 => 1.0,
        _ => 1.5,
    });
    let found = best(Function::Memcpy, &data, defaults);
    assert_eq!(found.thresholds.stream_copy_min, 65_536);
    assert_eq!(found.thresholds.rep_movsb_min, NEVER);
    assert_eq!(best(Function::Memcpy, &data, found).thresholds.stream_copy_min, 65_536);
}

#[test]
fn beyond_what_was_trained_the_defaults_stay() {
    let mut defaults = registers();
    assert!(
        defaults.thresholds.set("stream_copy_min", 16_384)
            && defaults.thresholds.set("paged_copy_min", 1 << 30)
    );
    let data = trained(|way, _| if way == Way::Registers { 0.5 } else { 1.5 });
    let found = best(Function::Memcpy, &data, defaults);
    assert_eq!(
        (found.thresholds.stream_copy_min, found.thresholds.paged_copy_min),
        (2 * 262_144, 1 << 30)
    );
}

/// Strings that gain at the largest size are not taken beyond, where the defaults stream: on one
/// processor with 504 MiB of last cache they gained 4% at 128 MiB, and took twice the time of
/// streaming at 1 GiB.
#[test]
fn strings_end_where_the_training_did() {
    let data = trained(|way, size| match way {
        Way::String if size >= 65_536 => 0.9,
        Way::Registers => 1.0,
        _ => 1.5,
    });
    for stream_min in [1 << 20, NEVER] {
        let mut defaults = registers();
        assert!(defaults.thresholds.set("stream_copy_min", stream_min));
        let found = best(Function::Memcpy, &data, defaults);
        assert_eq!(way(Function::Memcpy, &found, 262_144), Way::String);
        for size in [2 * 262_144, 1 << 20, 1 << 30] {
            let (found, before) =
                [&found, &defaults].map(|it| way(Function::Memcpy, it, size)).into();
            assert_eq!(found, before, "{size}");
        }
    }
}

/// Nor is what the defaults do by strings beyond given up, whether they have an end or not, and
/// whether strings gain at the largest size or registers do.
#[test]
fn strings_of_the_defaults_go_on_beyond() {
    for string_max in [393_216, NEVER] {
        let mut defaults = registers();
        for (name, value) in
            [("rep_movsb_min", 8192), ("rep_movsb_max", string_max), ("stream_copy_min", 393_216)]
        {
            assert!(defaults.thresholds.set(name, value));
        }
        for registers_win_below in [0, 65_536, NEVER] {
            let data = trained(|way, size| match way {
                Way::Registers if (8192..registers_win_below).contains(&size) => 0.5,
                Way::String if size >= 8192 => 1.0,
                Way::Registers if size < 8192 => 1.0,
                _ => 1.5,
            });
            let found = best(Function::Memcpy, &data, defaults);
            let largest = if registers_win_below == NEVER { 2 * 262_144 } else { 262_145 };
            for size in [largest, 393_216, 600_000, 1 << 30].into_iter().filter(|&it| it >= largest)
            {
                let [found, before] = [&found, &defaults].map(|it| way(Function::Memcpy, it, size));
                assert_eq!(found, before, "{size}, {string_max}, {registers_win_below}");
            }
        }
    }
}

/// What streams at the largest size, and better than by pages, does so beyond.
#[test]
fn pages_that_lose_to_streaming_are_not_taken_beyond() {
    let mut defaults = registers();
    assert!(
        defaults.thresholds.set("stream_copy_min", 16_384)
            && defaults.thresholds.set("paged_copy_min", 16_384)
    );
    let data = trained(|way, _| if way == Way::Stream { 0.9 } else { 1.0 });
    let found = best(Function::Memcpy, &data, defaults).thresholds;
    assert_eq!(found.paged_copy_min, NEVER);
}

/// Strings that gain where lines are alike alone are taken there alone, and anywhere where they
/// gain.
#[test]
fn strings_are_taken_where_they_gain() {
    for (anywhere, expected) in [(1.4, Strings::Alike), (0.8, Strings::Any)] {
        let mut base = registers();
        base.strings = Strings::Alike;
        let data = trained(|way, size| match way {
            Way::String if size >= 32_768 => anywhere,
            Way::AlikeString if size >= 32_768 => 0.95,
            Way::Registers => 1.0,
            _ => 1.5,
        });
        let found = best(Function::Memcpy, &data, base);
        assert_eq!(found.strings, expected, "{found:?}");
        assert_eq!(found.thresholds.rep_movsb_min, 32_768);
        let fills = best(Function::Memset, &data, base);
        assert_eq!(fills.strings, Strings::Alike, "no fill has a source");
    }
}

/// A cliff forbids strings anywhere; a bad offset that comes now and then is counted as often.
#[test]
fn a_bad_offset_counts() {
    let of = |over_registers| {
        let mut data = trained(|way, _| if way == Way::String { 0.9 } else { 1.0 });
        data.iter_mut().for_each(|trained| trained.add_worst(over_registers));
        best(Function::Memcpy, &data, registers()).thresholds.rep_movsb_min
    };
    assert_eq!(of(1.8), 2048);
    assert_eq!(of(20.0), NEVER);
    let mut one = trained(|way, _| if way == Way::String { 0.99 } else { 1.0 });
    one[0].add_worst(1.8);
    let (_, ratio) = one[0].ratios[1];
    assert!((ratio - (0.99 * (1.0 - BAD_OFFSET_SHARE) + 1.8 * BAD_OFFSET_SHARE)).abs() < 1e-12);
    assert!(ratio > 1.0, "a gain of 1% is less than a loss of 80% now and then");
}
