//! The engine `auto` uses its helper thread from the sizes of this machine's `haul.toml` on. It is
//! a separate test, because a process reads `haul.toml` once.

use haul_engine::{BreakEven, Copy, Queue, break_even};
use haul_machine::sys::Sys;
use haul_machine::tuning::{Force, Tuning};

#[test]
fn auto_uses_the_sizes_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("haul.toml");
    let policy = haul_copy::Policy::for_this_processor();
    let mut tuning = Tuning::new(&Sys::new().machine_id(), "w", policy);
    tuning.engine = Some(BreakEven { idle: 300_000, busy: 0 });
    tuning.write(&path).unwrap();
    assert_eq!(break_even(), BreakEven::default());
    // SAFETY: no other thread that could read the environment runs yet in this program.
    unsafe { std::env::set_var("HAUL_TUNING", &path) };
    assert!(matches!(haul_machine::init(), Force::File { .. }));

    assert_eq!(break_even(), BreakEven { idle: 300_000, busy: BreakEven::LEAST }, "it is clamped");
    let queue = Queue::auto().unwrap();
    let settings = queue.settings();
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert_eq!((settings.cpu_below, settings.crowded_min), (300_000, BreakEven::LEAST));
    } else {
        assert_eq!(settings.cpu_below, usize::MAX, "nothing can run beside this processor");
    }
    let (copy, result) = queue.submit(Copy::new(vec![0; 299_999], vec![7; 299_999])).wait();
    assert_eq!((result, copy.target == copy.source), (Ok(()), true));
}
