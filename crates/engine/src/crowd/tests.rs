use super::*;

/// Calls `act` in a thread of its own, whose processors may be changed.
fn apart(act: impl FnOnce(CpuSet) + Send + 'static) {
    let thread = std::thread::spawn(|| act(sched_getaffinity(None).unwrap()));
    thread.join().unwrap();
}

/// Puts this thread on one processor, which it may leave.
fn stay_on_one(all: &CpuSet) -> usize {
    let cpu = sys::cpu();
    sched_setaffinity(None, &sys::only(cpu)).unwrap();
    sched_setaffinity(None, all).unwrap();
    sys::cpu()
}

#[test]
fn thread_leaves_its_wakers_processor() {
    apart(|all| {
        let (mut own, crowd) = (Whereabouts::new(), Crowd::new());
        assert!(own.keep_off_waker(&crowd), "no thread has woken it");
        if all.count() < 2 {
            crowd.note_waker();
            assert!(!own.keep_off_waker(&crowd) && crowd.skips_one(1));
            return;
        }
        for _ in 0..3 {
            own.moved = None;
            crowd.note_waker();
            let waker = crowd.woken_from.load(Relaxed);
            assert!(own.keep_off_waker(&crowd));
            assert_ne!(sys::cpu(), waker);
        }
        // Also if the waker is elsewhere.
        own.moved = None;
        let cpu = sys::cpu();
        let elsewhere = (0..CpuSet::MAX_CPU).find(|it| *it != cpu && all.is_set(*it)).unwrap();
        crowd.woken_from.store(elsewhere, Relaxed);
        assert!(own.keep_off_waker(&crowd) && !crowd.skips_one(1));
        assert!(!sched_getaffinity(None).unwrap().is_set(elsewhere));
    });
}

/// How many operations the CPU does.
fn skipped(crowd: &Crowd, bytes: usize) -> usize {
    (0..).take_while(|_| crowd.skips_one(bytes)).count()
}

#[test]
fn long_operations_count_by_their_bytes() {
    let skipped = |bytes| {
        let crowd = Crowd::new();
        crowd.note_absence(bytes);
        let other = if bytes < LONG { LONG } else { 1 };
        assert!(!crowd.skips_one(other), "the other kind was not absent");
        skipped(&crowd, bytes)
    };
    let sizes = [1, LONG - 1, LONG, 1 << 20, (10 << 20) + 1, usize::MAX];
    assert_eq!(sizes.map(skipped), [64, 64, 64, 16, 2, 1]);
}

#[test]
fn thread_avoids_one_processor_until_it_loses_another() {
    apart(|all| {
        let (mut own, crowd) = (Whereabouts::new(), Crowd::new());
        if all.count() < 2 {
            return;
        }
        let cpu = stay_on_one(&all);
        assert!(own.leave(cpu));
        let mut others = all;
        others.unset(cpu);
        assert_eq!(sched_getaffinity(None).unwrap(), others, "only this one is left out");
        own.moved = Some(Instant::now() + Duration::from_secs(60));
        assert!(!own.leave(sys::cpu()), "not twice in a moment");
        assert_eq!(sched_getaffinity(None).unwrap(), others);
        std::thread::sleep(2 * LOSS_MIN);
        own.note_long(Duration::ZERO, true, &crowd);
        assert_eq!(sched_getaffinity(None).unwrap(), all);
    });
}

#[test]
fn processors_that_another_process_chose_stay() {
    apart(|all| {
        let mut own = Whereabouts::new();
        let cpu = sys::cpu();
        if !own.leave(cpu) {
            return;
        }
        let one = sys::only(cpu);
        sched_setaffinity(None, &one).unwrap();
        own.moved = None;
        assert!(!own.leave(cpu), "it may run on this one alone");
        assert_eq!(sched_getaffinity(None).unwrap(), one);
        assert!(all.count() > 1);
    });
}

/// As if another thread had run meanwhile.
fn lose() {
    std::thread::sleep(2 * LOSS_MIN);
}

#[test]
fn repeated_loss_lets_the_cpu_do_more() {
    let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
    let mut skips = || {
        lose();
        own.note_long(Duration::ZERO, true, &crowd);
        skipped(&crowd, 1 << 20)
    };
    assert_eq!([skips(), skips(), skips()], [64, 128, 256]);
    (0..20).for_each(|_| _ = skips());
    assert_eq!(skips(), KIB_MAX as usize >> 10);
    // A test machine is busy, but not each time.
    let unharmed = (0..1000).find(|_| {
        own.note_long(Duration::ZERO, true, &crowd);
        skipped(&crowd, 1 << 20) == 0
    });
    assert!(unharmed.is_some(), "no loss, and yet the CPU should do more");
}

#[test]
fn loss_below_the_credit_leaves_long_operations_to_the_helper_thread() {
    let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
    own.credit = Duration::MAX / 2;
    lose();
    own.note_long(Duration::ZERO, false, &crowd);
    assert_eq!(skipped(&crowd, 1 << 20), 0);
    own.credit = LOSS_MIN;
    lose();
    own.note_long(Duration::ZERO, false, &crowd);
    assert_eq!((skipped(&crowd, 1 << 20), own.credit), (64, Duration::ZERO));
}

#[test]
fn work_that_delays_no_operation_is_credited_up_to_a_limit() {
    let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
    // On a busy machine, this thread loses its processor.
    let mut credit = |is_last| {
        (0..1000).any(|_| {
            own.credit = Duration::ZERO;
            own.note_long(LOSS_MIN, is_last, &crowd);
            own.credit == ACCEPTED_LOSS * LOSS_MIN
        })
    };
    assert!(credit(true) && !credit(false));
    own.note_long(Duration::MAX / 4, true, &crowd);
    assert!(own.credit <= CREDIT_MAX);
}

#[test]
fn short_operations_are_left_to_the_cpu_for_a_while_after_a_loss() {
    let (crowd, mut own) = (Crowd::new(), Whereabouts::new());
    lose();
    // A short time is no reason to ask for the loss.
    own.note_short(LOSS_MIN / 2, Instant::now(), &crowd);
    assert_eq!(skipped(&crowd, 64 << 10), 0);
    // The processor time at the start of the loss is needed, also if this thread was slow.
    own.seen = now();
    lose();
    let begun = Instant::now();
    own.note_short(2 * LOSS_MIN, Instant::now(), &crowd);
    assert!(skipped(&crowd, 64 << 10) > 0);
    assert!(begun.elapsed() >= 2 * LOSSES * LOSS_MIN);
    assert_eq!(skipped(&crowd, LONG), 0, "long operations have lost nothing");
    // As if the whole machine had stopped.
    own.note_loss(Duration::MAX, &crowd);
    let limit = (sys::clock() + LOSSES * LOSS_MAX).as_micros() as u64 + 1;
    assert!(crowd.short_until.load(Relaxed) <= limit);
}
