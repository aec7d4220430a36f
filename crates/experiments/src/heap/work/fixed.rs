//! Lists in memory that does not belong to the tested heap. The memory of a driver must not come
//! from that heap. If it did, the heap could also use it for its next blocks after the driver has
//! freed it.

use std::marker::PhantomData;
use std::mem::needs_drop;
use std::ops::Deref;

use haul_measure::memory::{Pages, Region};

/// A list of fixed length. All pages of the list exist from the start.
pub(super) struct Fixed<T> {
    memory: Region,
    count: usize,
    of: PhantomData<T>,
}

impl<T> Fixed<T> {
    /// A list of this many elements, in order.
    ///
    /// # Errors
    /// There is no memory for the elements, or `make` fails.
    pub(super) fn new(
        count: usize,
        mut element: impl FnMut(usize) -> Result<T, String>,
    ) -> Result<Self, String> {
        const { assert!(!needs_drop::<T>(), "nothing drops the elements") };
        let bytes = count.checked_mul(size_of::<T>()).ok_or("a list too long for any memory")?;
        let memory =
            Region::touched(bytes.max(1), Pages::Base).map_err(|error| error.to_string())?;
        let first = memory.pointer().cast::<T>();
        for index in 0..count {
            let element = element(index)?;
            // SAFETY: the region has room for `count` elements, of which this is one.
            let place = unsafe { first.add(index) };
            // SAFETY: as above, and a region begins at a multiple of a huge page.
            unsafe { place.write(element) };
        }
        Ok(Self { memory, count, of: PhantomData })
    }
}

impl<T> Deref for Fixed<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `new` wrote this many elements there, the region lives as long as this, and
        // nothing else writes to it.
        unsafe { std::slice::from_raw_parts(self.memory.pointer().cast::<T>(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_elements_as_made() {
        let squares = Fixed::new(10_000, |index| Ok(index * index)).unwrap();
        assert!(squares.iter().enumerate().all(|(index, square)| *square == index * index));
        assert_eq!(Fixed::<u64>::new(0, |_| Err("none".into())).unwrap().len(), 0);
        let refused =
            Fixed::<u64>::new(3, |index| if index < 2 { Ok(1) } else { Err("no".into()) });
        assert_eq!(refused.err(), Some("no".into()));
    }
}
