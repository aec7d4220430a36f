//! SSE2: four 16-byte registers per line. Every x86-64 processor has SSE2.

use core::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm_set1_epi8, _mm_store_si128, _mm_storeu_si128, _mm_stream_si128,
};

/// 64 bytes in four xmm registers.
#[derive(Clone, Copy)]
pub(crate) struct Xmm([__m128i; 4]);

super::line_of_registers!(
    Xmm,
    __m128i, [0, 1, 2, 3], step: 1, held: 4,
    _mm_loadu_si128,
    _mm_storeu_si128,
    _mm_store_si128,
    _mm_stream_si128,
    _mm_set1_epi8
);

crate::arch::kernels! { #[target_feature(enable = "sse2")] Xmm }
