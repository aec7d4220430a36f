//! aarch64: NEON, which every aarch64 processor that runs Linux has.

pub(crate) mod neon;
