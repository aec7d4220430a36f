//! AVX-512: one register of 64 bytes a line.
//!
//! Processors without AVX512-VNNI (Skylake-SP) lower their clock for it; see `Isa::best`.

use core::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_set1_epi8, _mm512_store_si512, _mm512_storeu_si512,
    _mm512_stream_si512,
};

/// 64 bytes in one zmm register.
#[derive(Clone, Copy)]
pub(crate) struct Zmm([__m512i; 1]);

super::line_of_registers!(
    Zmm,
    __m512i, [0], step: 4, held: 8,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_store_si512,
    _mm512_stream_si512,
    _mm512_set1_epi8
);

crate::arch::kernels! { #[target_feature(enable = "avx512f,avx512bw")] Zmm }
