//! Copies and fills: as memcpy, memmove and memset, by what suits this processor.

use haul::copy::{Hint, Policy, copy, copy_within, fill};

fn main() {
    // Once, early: reads this machine's haul.toml where there is one.
    haul::init();
    println!("small copies and loops go by {:?}", Policy::current());

    let source: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0]).collect();
    let mut target = vec![0; 1 << 20];
    copy(&mut target[..100], &source[..100]); // code in the caller up to 64 bytes, then one call
    copy(&mut target, &source);
    assert_eq!(target, source);

    copy_within(&mut target, 0..4096, 100); // the two overlap
    assert_eq!(target[100..4196], source[..4096]);

    fill(&mut target[..4096], 0);
    assert!(target[..4096].iter().all(|byte| *byte == 0));

    // Nobody reads the target soon: it need not come into the caches.
    Hint::Streamed.copy(&mut target, &source);
    assert_eq!(target, source);
    println!("copied and filled");
}
