//! Copies and adds blocks with AVX2: four vectors of four lanes.

use std::arch::x86_64::{
    __m256i, _mm_sfence, _mm256_add_epi64, _mm256_loadu_si256, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_stream_si256,
};

use super::{BLOCK_BYTES, LANES, LaneSums};

/// Number of lanes per vector.
const WIDTH: usize = 4;
const VECTORS: usize = LANES / WIDTH;
const VECTOR_BYTES: usize = BLOCK_BYTES / VECTORS;

/// # Safety
/// The obligations of `blocks_of`, and the processor has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn blocks(
    target: Option<*mut u8>,
    source: *const u8,
    blocks: usize,
    is_streamed: bool,
) -> LaneSums {
    let zero = _mm256_setzero_si256();
    let (mut plain, mut falling) = ([zero; VECTORS], [zero; VECTORS]);
    for block in 0..blocks {
        let mut vectors = [zero; VECTORS];
        for (index, vector) in vectors.iter_mut().enumerate() {
            // SAFETY: inside, as the caller promises.
            let from = unsafe { source.add(block * BLOCK_BYTES + index * VECTOR_BYTES) };
            // SAFETY: likewise; no alignment is asked for.
            *vector = unsafe { _mm256_loadu_si256(from.cast()) };
        }
        if let Some(target) = target {
            // SAFETY: inside, as the caller promises.
            let to = unsafe { target.add(block * BLOCK_BYTES) };
            // SAFETY: a block can be written there, aligned if it is streamed.
            unsafe { store(to, vectors, is_streamed) };
        }
        for index in 0..VECTORS {
            plain[index] = _mm256_add_epi64(plain[index], vectors[index]);
            falling[index] = _mm256_add_epi64(falling[index], plain[index]);
        }
    }
    if is_streamed {
        // Streamed stores become visible before any word that is published from here on.
        _mm_sfence();
    }
    LaneSums { plain: words(plain), falling: words(falling) }
}

/// # Safety
/// A block can be written at the target, which is aligned to 32 B if the stores are streamed.
#[target_feature(enable = "avx2")]
unsafe fn store(target: *mut u8, vectors: [__m256i; VECTORS], is_streamed: bool) {
    for (index, vector) in vectors.into_iter().enumerate() {
        // SAFETY: inside the block.
        let to = unsafe { target.add(index * VECTOR_BYTES) }.cast();
        if is_streamed {
            // SAFETY: likewise, and aligned.
            unsafe { _mm256_stream_si256(to, vector) };
        } else {
            // SAFETY: likewise; no alignment is asked for.
            unsafe { _mm256_storeu_si256(to, vector) };
        }
    }
}

#[target_feature(enable = "avx2")]
fn words(vectors: [__m256i; VECTORS]) -> [u64; LANES] {
    let mut words = [0; LANES];
    for (target, vector) in words.chunks_exact_mut(WIDTH).zip(vectors) {
        // SAFETY: four words, written as one vector; no alignment is asked for.
        unsafe { _mm256_storeu_si256(target.as_mut_ptr().cast(), vector) };
    }
    words
}
