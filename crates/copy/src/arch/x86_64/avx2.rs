//! AVX2: two 32-byte registers per line.

use core::arch::x86_64::{
    __m256i, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_store_si256, _mm256_storeu_si256,
    _mm256_stream_si256,
};

/// 64 bytes in two ymm registers.
#[derive(Clone, Copy)]
pub(crate) struct Ymm([__m256i; 2]);

super::line_of_registers!(
    Ymm,
    __m256i, [0, 1], step: 2, held: 8,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_store_si256,
    _mm256_stream_si256,
    _mm256_set1_epi8
);

crate::arch::kernels! { #[target_feature(enable = "avx2")] Ymm }
