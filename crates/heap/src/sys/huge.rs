//! Sizes of huge pages.

/// A size of huge pages for which the kernel can have a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HugeSize {
    /// 2 MiB.
    Mib2,
    /// 1 GiB.
    Gib1,
}

impl HugeSize {
    /// Binary logarithm of the size in bytes.
    pub(crate) const fn log2(self) -> u32 {
        match self {
            Self::Mib2 => 21,
            Self::Gib1 => 30,
        }
    }

    /// Bytes of one page.
    pub(crate) const fn bytes(self) -> usize {
        1 << self.log2()
    }

    /// The folder in `/sys` that describes the pool.
    pub(super) const fn folder(self) -> &'static [u8] {
        match self {
            Self::Mib2 => b"hugepages-2048kB",
            Self::Gib1 => b"hugepages-1048576kB",
        }
    }
}
