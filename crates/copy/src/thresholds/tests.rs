use super::*;

#[test]
fn set_changes_only_named_threshold() {
    for (index, name) in Thresholds::NAMES.iter().enumerate() {
        let mut thresholds = Thresholds::REGISTERS_ONLY;
        assert!(thresholds.set(name, 5000 + index));
        assert_eq!(thresholds.get(name), Some(5000 + index));
        let others = Thresholds::NAMES.iter().filter(|other| *other != name);
        for other in others {
            assert_eq!(thresholds.get(other), Some(NEVER), "{name} changed {other}");
        }
    }
    assert_eq!(Thresholds::REGISTERS_ONLY.get(""), None);
}

#[test]
fn clamped_raises_small_thresholds_to_minimum() {
    for value in [0, 1, LOOKUP_MIN - 1, LOOKUP_MIN, 1 << 63, usize::MAX] {
        let mut thresholds = Thresholds::REGISTERS_ONLY;
        for name in Thresholds::NAMES {
            assert!(thresholds.set(name, value));
        }
        for clamped in thresholds.clamped().to_array() {
            assert_eq!(clamped, value.max(LOOKUP_MIN));
        }
    }
}

fn all(bytes: usize) -> Thresholds {
    Thresholds::from_array([bytes; Thresholds::NAMES.len()])
}

fn lookups(in_force: &InForce) -> [usize; 2] {
    [&in_force.copy_lookup, &in_force.fill_lookup].map(|atomic| atomic.load(Ordering::Relaxed))
}

/// While the first copy of one thread determines the defaults, another thread installs thresholds.
#[test]
fn late_defaults_keep_installed_thresholds() {
    let in_force = InForce::new();
    let got = in_force.get_or(|| {
        in_force.install(all(5000));
        all(7000)
    });
    assert_eq!((got, lookups(&in_force)), (all(5000), [5000; 2]));
}

/// Another thread has installed only some of its thresholds. No thread may read an unset
/// threshold.
#[test]
fn get_or_fills_unset_thresholds_with_defaults() {
    let in_force = InForce::new();
    in_force.values[0].store(5000, Ordering::Relaxed);
    let mut expected = all(7000);
    expected.rep_movsb_min = 5000;
    assert_eq!(in_force.get_or(|| all(7000)), expected);
    in_force.install(all(5000));
    assert_eq!(in_force.get_or(|| panic!("all are set")), all(5000));
    assert_eq!(lookups(&in_force), [5000; 2]);
}

#[test]
fn installed_thresholds_survive_concurrent_first_copies() {
    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
        let in_force = InForce::new();
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                in_force.get_or(|| all(7000));
            });
            barrier.wait();
            in_force.install(all(5000));
        });
        assert_eq!((in_force.get_or(|| all(9000)), lookups(&in_force)), (all(5000), [5000; 2]));
    }
}
