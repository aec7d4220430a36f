//! Copies and fills like memcpy, memmove and memset, with the best kernel for this processor.

use haul::copy::{Hint, Policy, copy, copy_within, fill};

fn main() {
    // A program calls `init` once, early. It reads this machine's haul.toml if there is one.
    haul::init();
    println!("the policy for this processor is {:?}", Policy::current());

    let source: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[0]).collect();
    let mut target = vec![0; 1 << 20];
    copy(&mut target[..100], &source[..100]); // one call above 64 bytes, else code in the caller
    copy(&mut target, &source);
    assert_eq!(target, source);

    copy_within(&mut target, 0..4096, 100); // the two overlap
    assert_eq!(target[100..4196], source[..4096]);

    fill(&mut target[..4096], 0);
    assert!(target[..4096].iter().all(|byte| *byte == 0));

    // No thread reads the target soon, so the copy need not put it into the caches.
    Hint::Streamed.copy(&mut target, &source);
    assert_eq!(target, source);
    println!("copied and filled");
}
