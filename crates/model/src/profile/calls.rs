//! The calls of a program by function and size, without their sites: what a cost or a policy is
//! computed from.

use super::Site;
use super::layout::{CLASSES, class_of};
use crate::Record;
use crate::experiment::{key, name};

/// The calls of a program, or of one of its call sites.
///
/// ```
/// use haul_model::Record;
/// use haul_model::profile::{Calls, CallsOfSize};
/// let site = CallsOfSize { size_bytes: 100, first_bytes: 64, last_bytes: 127, calls: 5.0 };
/// let calls = Calls { copies: vec![site], fills: vec![] };
/// let record = calls.on(Record::new("r", "copy.profile", "sort", "bytes", "B"));
/// assert_eq!(Calls::of(&record), Some(calls));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// memcpy and memmove, by ascending size.
    pub copies: Vec<CallsOfSize>,
    /// memset, by ascending size.
    pub fills: Vec<CallsOfSize>,
}

/// The calls of one function in one [class](super::layout::CLASSES) of sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallsOfSize {
    /// The mean size in bytes.
    pub size_bytes: u64,
    /// The smallest size of the class, in bytes.
    pub first_bytes: u64,
    /// The largest size of the class, in bytes.
    pub last_bytes: u64,
    /// The estimated number of calls.
    pub calls: f64,
}

impl CallsOfSize {
    /// `None` if there are no calls. The mean is limited to the class, because estimates of calls
    /// and bytes are rounded separately.
    fn new(class: usize, calls: f64, bytes: f64) -> Option<Self> {
        let (first_bytes, last_bytes) = match class {
            0 => (0, 0),
            _ => (1_u64 << (class - 1), (1_u64 << class) - 1),
        };
        let is_possible = calls > 0.0 && calls.is_finite() && bytes.is_finite();
        let size_bytes = ((bytes / calls).round() as u64).clamp(first_bytes, last_bytes);
        is_possible.then_some(Self { size_bytes, first_bytes, last_bytes, calls })
    }

    /// A rough time of the calls with bytes in a cache, in nanoseconds: 4 ns for each, and 20 bytes
    /// per nanosecond. It shows which sizes matter, and is no figure to report.
    #[must_use]
    pub fn estimated_ns(&self) -> f64 {
        self.calls * (4.0 + self.size_bytes as f64 / 20.0)
    }

    /// The widest range of sizes of the class that has the same mean. A program whose calls all
    /// have the smallest size of a class, such as a page, has a range of one size.
    ///
    /// ```
    /// use haul_model::profile::CallsOfSize;
    /// let mut it = CallsOfSize { size_bytes: 70, first_bytes: 64, last_bytes: 127, calls: 1.0 };
    /// assert_eq!(it.range_bytes(), (64, 76));
    /// it.size_bytes = 64;
    /// assert_eq!(it.range_bytes(), (64, 64));
    /// ```
    #[must_use]
    pub fn range_bytes(&self) -> (u64, u64) {
        let below = self.size_bytes.saturating_sub(self.first_bytes);
        let half = below.min(self.last_bytes.saturating_sub(self.size_bytes));
        (self.size_bytes - half, self.size_bytes + half)
    }
}

impl Calls {
    /// The calls of these sites. A site is an instruction that calls one function, so that its
    /// sizes are those of copies or those of fills; the sizes of a site that stands for several are
    /// divided in the proportion of its calls.
    #[must_use]
    pub fn of_sites<'a>(sites: impl IntoIterator<Item = &'a Site>) -> Self {
        let mut sums = Sums::default();
        for site in sites {
            let copies = site.kinds[0] + site.kinds[1];
            let fills = site.kinds[2] + site.kinds[3];
            let share = copies / (copies + fills).max(f64::MIN_POSITIVE);
            for (class, &(calls, bytes)) in site.classes.iter().enumerate().take(CLASSES) {
                sums.copies.add(class, share * calls, share * bytes as f64);
                sums.fills.add(class, (1.0 - share) * calls, (1.0 - share) * bytes as f64);
            }
        }
        sums.calls()
    }

    /// The calls that a record of a profile has as parameters; `None` if it has none, as a record
    /// of another experiment or of an earlier haul.
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        let list = |key: &str| -> Option<Vec<f64>> {
            let all = record.parameters.get(key)?.as_array()?;
            all.iter().take(CLASSES).map(serde_json::Value::as_f64).collect()
        };
        if record.experiment != name::COPY_PROFILE {
            return None;
        }
        let mut sums = Sums::default();
        for (sum, [calls, bytes]) in [
            (&mut sums.copies, [key::COPY_CALLS_BY_CLASS, key::COPY_BYTES_BY_CLASS]),
            (&mut sums.fills, [key::FILL_CALLS_BY_CLASS, key::FILL_BYTES_BY_CLASS]),
        ] {
            for (class, (calls, bytes)) in list(calls)?.into_iter().zip(list(bytes)?).enumerate() {
                sum.add(class, calls, bytes);
            }
        }
        Some(sums.calls())
    }

    /// The calls of several programs or sites together.
    #[must_use]
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sums = Sums::default();
        for one in all {
            sums.copies.add_all(&one.copies);
            sums.fills.add_all(&one.fills);
        }
        sums.calls()
    }

    /// The record with these calls as parameters: calls and bytes by class.
    #[must_use]
    pub fn on(&self, record: Record) -> Record {
        let list = |all: &[CallsOfSize], value: &dyn Fn(&CallsOfSize) -> f64| -> Vec<u64> {
            let length = all.last().map_or(0, |last| class_of(last.size_bytes) + 1);
            let mut list = vec![0; length];
            for one in all {
                list[class_of(one.size_bytes)] = value(one).round() as u64;
            }
            list
        };
        let calls = |one: &CallsOfSize| one.calls;
        let bytes = |one: &CallsOfSize| one.calls * one.size_bytes as f64;
        record
            .with(key::COPY_CALLS_BY_CLASS, list(&self.copies, &calls))
            .with(key::COPY_BYTES_BY_CLASS, list(&self.copies, &bytes))
            .with(key::FILL_CALLS_BY_CLASS, list(&self.fills, &calls))
            .with(key::FILL_BYTES_BY_CLASS, list(&self.fills, &bytes))
    }

    /// Whether there are no calls.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty() && self.fills.is_empty()
    }
}

/// Calls and bytes by class.
#[derive(Default)]
struct Sums {
    copies: Sum,
    fills: Sum,
}

#[derive(Clone)]
struct Sum([(f64, f64); CLASSES]);

impl Default for Sum {
    fn default() -> Self {
        Self([(0.0, 0.0); CLASSES])
    }
}

impl Sum {
    fn add(&mut self, class: usize, calls: f64, bytes: f64) {
        self.0[class].0 += calls;
        self.0[class].1 += bytes;
    }

    fn add_all(&mut self, all: &[CallsOfSize]) {
        for one in all {
            self.add(class_of(one.size_bytes), one.calls, one.calls * one.size_bytes as f64);
        }
    }

    fn list(&self) -> Vec<CallsOfSize> {
        let each = self.0.iter().enumerate();
        each.filter_map(|(class, &(calls, bytes))| CallsOfSize::new(class, calls, bytes)).collect()
    }
}

impl Sums {
    fn calls(&self) -> Calls {
        Calls { copies: self.copies.list(), fills: self.fills.list() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(kinds: [f64; 4], class: usize, calls: f64, bytes: u64) -> Site {
        let mut classes = vec![(0.0, 0); CLASSES];
        classes[class] = (calls, bytes);
        Site { kinds, classes, calls, bytes, ..Site::default() }
    }

    #[test]
    fn calls_are_divided_by_function_and_size() {
        let sites = [
            site([2.0, 1.0, 0.0, 0.0], 13, 3.0, 3 * 4096),
            site([0.0, 0.0, 1.0, 0.0], 0, 1.0, 0),
            site([1.0, 0.0, 0.0, 3.0], 7, 4.0, 400),
        ];
        let calls = Calls::of_sites(&sites);
        let of = |all: &[CallsOfSize]| -> Vec<(u64, f64)> {
            all.iter().map(|it| (it.size_bytes, it.calls)).collect()
        };
        assert_eq!(of(&calls.copies), [(100, 1.0), (4096, 3.0)]);
        assert_eq!(of(&calls.fills), [(0, 1.0), (100, 3.0)]);
        assert_eq!(calls.copies[1].range_bytes(), (4096, 4096));
        let twice = Calls::sum([&calls, &calls]);
        assert_eq!(of(&twice.copies), [(100, 2.0), (4096, 6.0)]);
    }

    #[test]
    fn parameters_of_a_record_are_read_back_and_wrong_ones_are_refused() {
        let calls = Calls::of_sites(&[site([2.0, 0.0, 0.0, 0.0], 13, 2.0, 9000)]);
        let record = calls.on(Record::new("r", name::COPY_PROFILE, "p", "bytes", "B"));
        assert_eq!(Calls::of(&record), Some(calls));
        assert_eq!(
            Calls::of(&Record { experiment: name::COPY_SIZE.into(), ..record.clone() }),
            None
        );
        assert_eq!(Calls::of(&record.clone().with(key::COPY_CALLS_BY_CLASS, "many")), None);
        assert_eq!(Calls::of(&record.clone().with(key::COPY_CALLS_BY_CLASS, vec!["1"])), None);
        let endless = vec![1e308; 99];
        let hostile = record
            .with(key::COPY_CALLS_BY_CLASS, endless.clone())
            .with(key::COPY_BYTES_BY_CLASS, endless);
        let read = Calls::of(&hostile).unwrap();
        assert!(read.copies.iter().all(|it| it.size_bytes <= it.last_bytes), "{read:?}");
    }
}
