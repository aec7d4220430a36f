//! The effort of a test: full grids in release mode, fewer if every call is slow.

/// The number of combinations that a test tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Effort {
    /// A few of each. Used under Miri.
    Tiny,
    /// Every size around a boundary, a stride elsewhere, ten alignments. Used in debug mode, on
    /// an emulated processor, or with `HAUL_TEST_THIN=1`.
    Thin,
    /// Every size to [`EVERY_SIZE_MAX`] and a stride to [`GRID_SIZE_MAX`], at every alignment mod
    /// 64. Used in release mode on a real processor.
    Full,
}

/// The largest size of the grids, in bytes.
pub(crate) const GRID_SIZE_MAX: usize = 4096;

/// The largest size in bytes below which a full grid has every size. Above, the loops repeat: they
/// take at most 512 bytes in one turn.
const EVERY_SIZE_MAX: usize = 1088;

/// Sizes in bytes at which some code path changes; `Thin` and `Tiny` stay close to these.
const BOUNDARIES: [usize; 14] =
    [8, 16, 32, 64, 96, 128, 192, 256, 320, 512, 1024, 2048, 3072, 4096];

impl Effort {
    /// The effort for this build on this processor.
    pub(crate) fn here() -> Self {
        if cfg!(miri) {
            Self::Tiny
        } else if cfg!(debug_assertions) || asked_to_be_thin() || processor_is_emulated() {
            Self::Thin
        } else {
            Self::Full
        }
    }

    /// Ascending sizes in bytes of `0..=GRID_SIZE_MAX`, both ends included.
    pub(crate) fn grid_sizes(self) -> Vec<usize> {
        let is_wanted_in_full = |size: &usize| {
            *size <= EVERY_SIZE_MAX || size.is_multiple_of(13) || is_near_boundary(*size, 8)
        };
        let is_wanted =
            |size: &usize| *size <= 272 || size.is_multiple_of(61) || is_near_boundary(*size, 3);
        match self {
            Self::Full => (0..=GRID_SIZE_MAX).filter(is_wanted_in_full).collect(),
            Self::Thin => (0..=GRID_SIZE_MAX).filter(is_wanted).collect(),
            Self::Tiny => vec![0, 1, 2, 3, 4, 8, 9, 16, 17, 33, 65, 129, 257, 513],
        }
    }

    /// Offsets from a multiple of 64.
    pub(crate) fn offsets(self) -> Vec<usize> {
        match self {
            Self::Full => (0..64).collect(),
            Self::Thin => vec![0, 1, 7, 8, 15, 16, 31, 32, 33, 63],
            Self::Tiny => vec![5],
        }
    }

    /// Ascending sizes in bytes above the grid, around the groups of pages of a streamed copy.
    pub(crate) fn sizes_above_grid(self) -> Vec<usize> {
        let groups: &[usize] = match self {
            Self::Full => &[8 << 10, 16 << 10, 32 << 10, 48 << 10, 64 << 10, 256 << 10, 1 << 20],
            Self::Thin => &[16 << 10, 32 << 10, 64 << 10],
            Self::Tiny => return vec![2049, 16 * 1024 + 129],
        };
        let around = [-65, -64, -1, 0, 1, 63, 64, 65, 127, 129, 4000];
        let sizes = groups.iter().flat_map(|group| around.map(|by| group.wrapping_add_signed(by)));
        sizes.collect()
    }
}

fn is_near_boundary(size: usize, within: usize) -> bool {
    BOUNDARIES.iter().any(|boundary| boundary.abs_diff(size) <= within)
}

fn asked_to_be_thin() -> bool {
    std::env::var_os("HAUL_TEST_THIN").is_some_and(|value| value != "0")
}

/// Whether qemu-user runs this program. qemu-user emulates most of /proc/self, but not the name
/// of the process.
fn processor_is_emulated() -> bool {
    std::fs::read_to_string("/proc/self/comm").is_ok_and(|name| name.starts_with("qemu-"))
}
