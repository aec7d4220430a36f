//! A copy beside the program's own work: a helper thread copies, and the program computes.

use std::error::Error;

use haul::engine::{Copy, Queue, crc32c};

const BYTES: usize = 16 << 20;
const NUMBERS: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let queue = Queue::auto()?;
    let (source, mut target) = (vec![7; BYTES], vec![0; BYTES]);
    // The scope returns when the copy has ended. Until then, the compiler refuses every use of the
    // target.
    let count = queue.scope(|scope| {
        scope.submit(Copy::new(&mut target[..], &source[..]));
        primes(NUMBERS)
    })?;
    let sum = crc32c(0, &target);
    println!("copied {BYTES} B while the program computed {count} primes; CRC-32C {sum:08x}");
    if target == source { Ok(()) } else { Err("the copy is wrong".into()) }
}

/// The work of the program: the number of primes below `n`.
fn primes(n: usize) -> usize {
    let mut is_composite = vec![false; n];
    (2..n)
        .filter(|&number| {
            let is_prime = !is_composite[number];
            if is_prime {
                (2 * number..n).step_by(number).for_each(|multiple| is_composite[multiple] = true);
            }
            is_prime
        })
        .count()
}
