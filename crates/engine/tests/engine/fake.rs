//! The suite over a fake DSA, under everything that can go wrong in it.

use std::sync::Arc;
use std::time::Duration;

use haul_engine::dsa::fake::{self, Fake};
use haul_engine::dsa::{Dsa, Options};
use haul_engine::{Copy, Error, Queue, Settings};

use crate::conformance::suite;

/// A queue of a fake with these settings.
fn open(text: &str, options: Options) -> Queue {
    let settings: fake::Settings = text.parse().expect("the tests write good settings");
    let fake = Arc::new(Fake::new(settings).expect("this process may access itself"));
    let failed = |reason| Error::System { attempt: "open the fake", reason };
    Queue::open(Settings::default(), |slots| {
        Ok(Box::new(Dsa::of_fake(&fake, 0, options, slots).map_err(failed)?))
    })
    .expect("the fake has a queue")
}

fn conforms(text: &str) {
    suite(&|| open(text, Options { patience: Duration::from_millis(50), ..Options::default() }));
}

#[test]
fn fake_conforms_by_every_mechanism() {
    for mode in ["shared", "dedicated"] {
        for only_write in [false, true] {
            let text = format!("queue mode={mode} size=8");
            suite(&|| open(&text, Options { only_write, ..Options::default() }));
        }
    }
    conforms("device batches=no portal=no engines=3");
}

#[test]
fn fake_conforms_under_page_faults() {
    conforms("inject every=1 fault=0 access=write");
    conforms("inject every=2 fault=1 access=read");
    conforms("inject every=3 fault=4097 access=write");
    conforms("device strict=yes");
}

#[test]
fn fake_conforms_under_statuses() {
    conforms("inject every=1 status=0x10");
    conforms("inject every=2 status=0x20");
    conforms("inject every=3 status=0x83");
    conforms("inject every=2 status=0x7e");
}

/// The CPU finishes what a device refused, so the result is good; the queue tells of it.
#[test]
fn troubles_that_the_cpu_has_mended_are_named() {
    let queue = open("inject at=2 status=0x20", Options::default());
    for number in 0..3 {
        let (copy, result) = queue.submit(Copy::new(vec![0; 9], vec![1; 9])).wait();
        assert_eq!((copy.target, result), (vec![1; 9], Ok(())));
        assert_eq!(queue.troubles().len(), usize::from(number > 0));
    }
    let trouble = &queue.troubles()[0];
    assert_eq!((trouble.status, trouble.count), (0x20, 1));
    assert!(trouble.to_string().contains("dsa:wq0.0 reported 1 times status 0x20: "), "{trouble}");
}

#[test]
fn fake_conforms_while_its_queue_is_full() {
    conforms("queue size=1\ninject every=2 full");
    conforms("inject every=1 full");
}

#[test]
fn fake_conforms_when_it_is_slow_or_ends() {
    conforms("inject every=5 delay_us=300");
    conforms("inject at=3 remove");
    conforms("inject at=3 halt");
}
