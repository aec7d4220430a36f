use super::*;

#[test]
fn every_name_is_a_threshold_of_its_own() {
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
fn hostile_values_are_clamped() {
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
    [&in_force.copy_lookup, &in_force.fill_lookup].map(|place| place.load(Ordering::Relaxed))
}

/// One thread's first copy asks the processor; another installs a file's thresholds meanwhile.
#[test]
fn defaults_that_come_late_replace_nothing() {
    let in_force = InForce::new();
    let got = in_force.get_or(|| {
        in_force.install(all(5000));
        all(7000)
    });
    assert_eq!((got, lookups(&in_force)), (all(5000), [5000; 2]));
}

/// Half of what another thread installs is there: what is read has no unset threshold in it.
#[test]
fn defaults_stand_in_for_what_is_not_installed_yet() {
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
fn what_is_installed_outlives_every_first_copy() {
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
