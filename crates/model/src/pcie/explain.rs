//! The causes of a workload's traffic, and the differences between two lists of terms.

use super::transaction::{Direction, Sums, Transaction, Way};

/// A term with its name, as a record stores it.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The name of the term.
    pub what: String,
    /// The direction of the term.
    pub direction: Direction,
    /// The number of transactions a second.
    pub count_per_s: f64,
    /// The data of one transaction, in bytes.
    pub payload_bytes: f64,
    /// The headers of one transaction, in bytes.
    pub header_bytes: f64,
}

/// A term that differs between two lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The name of the term.
    pub what: String,
    /// The direction of the term.
    pub direction: Direction,
    /// The numbers of transactions a second in the first and in the second list; 0 if a list lacks
    /// the term.
    pub count_per_s: (f64, f64),
    /// The data and headers of one transaction in bytes, in the first and in the second list.
    pub bytes_each: (f64, f64),
}

/// The cause of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first list lacks it.
    Added,
    /// The second list lacks it.
    Removed,
    /// The number of transactions differs.
    Count,
    /// The size of a transaction differs.
    Size,
    /// Number and size differ.
    Both,
}

impl From<&Transaction> for Term {
    fn from(term: &Transaction) -> Self {
        Self {
            what: term.what.to_owned(),
            direction: term.direction,
            count_per_s: term.count_per_s,
            payload_bytes: term.payload_bytes,
            header_bytes: term.header_bytes,
        }
    }
}

impl Difference {
    /// Data and headers in bytes a second, in the first and in the second list.
    #[must_use]
    pub fn bytes_per_s(&self) -> (f64, f64) {
        let (count, each) = (self.count_per_s, self.bytes_each);
        (count.0 * each.0, count.1 * each.1)
    }

    /// The second list's bytes per second minus the first list's bytes per second.
    #[must_use]
    pub fn more_bytes_per_s(&self) -> f64 {
        self.bytes_per_s().1 - self.bytes_per_s().0
    }

    /// The cause of the difference.
    #[must_use]
    pub fn cause(&self) -> Cause {
        let differs = |(a, b): (f64, f64)| (a - b).abs() > a.abs().max(b.abs()) * 1e-9;
        match (self.count_per_s, differs(self.count_per_s), differs(self.bytes_each)) {
            ((0.0, _), ..) => Cause::Added,
            ((_, 0.0), ..) => Cause::Removed,
            (_, true, false) => Cause::Count,
            (_, false, _) => Cause::Size,
            _ => Cause::Both,
        }
    }
}

/// The terms that differ between two lists, the largest difference first. A list must not have two
/// terms with the same name and direction.
#[must_use]
pub fn differences(first: &[Term], second: &[Term]) -> Vec<Difference> {
    let find = |terms: &[Term], like: &Term| {
        let same = |term: &&Term| term.what == like.what && term.direction == like.direction;
        terms.iter().find(same).cloned()
    };
    let none = |like: &Term| Term {
        count_per_s: 0.0,
        payload_bytes: 0.0,
        header_bytes: 0.0,
        ..like.clone()
    };
    let each = |term: &Term| term.payload_bytes + term.header_bytes;
    let of_first = first.iter().map(|a| (a.clone(), find(second, a).unwrap_or(none(a))));
    let only_second = second.iter().filter(|b| find(first, b).is_none());
    let pairs = of_first.chain(only_second.map(|b| (none(b), b.clone())));
    let mut all: Vec<Difference> = pairs
        .map(|(a, b)| Difference {
            count_per_s: (a.count_per_s, b.count_per_s),
            bytes_each: (each(&a), each(&b)),
            what: a.what,
            direction: a.direction,
        })
        .collect();
    all.retain(|difference| {
        let (a, b) = difference.bytes_per_s();
        (b - a).abs() > a.max(b) * 1e-9
    });
    all.sort_by(|a, b| b.more_bytes_per_s().abs().total_cmp(&a.more_bytes_per_s().abs()));
    all
}

/// The direction of the link that carries more bytes, and the terms ordered by their bytes in that
/// direction.
#[must_use]
pub fn busiest(terms: &[Transaction]) -> (Way, Vec<&Transaction>) {
    let (way, _) = Sums::of(terms).busier();
    let mut order: Vec<&Transaction> = terms.iter().collect();
    order.sort_by(|a, b| b.bytes_per_s_on(way).total_cmp(&a.bytes_per_s_on(way)));
    (way, order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcie::{Estimate, Mode, Nic, Workload, estimate};

    fn with<T>(nic: &str, mode: &str, batches: &str, of: impl Fn(&Estimate<'_>) -> T) -> T {
        let nic: &Nic = nic.parse().unwrap();
        let link = "gen3x8".parse().unwrap();
        let workload = Workload::forwarding(
            "10M".parse().unwrap(),
            "64".parse().unwrap(),
            batches.parse().unwrap(),
        );
        of(&Estimate {
            nic: *nic,
            version: "dpdk-22.11".parse().unwrap(),
            mode: nic.mode(mode).unwrap(),
            thresholds: nic.thresholds,
            workload: &workload,
            link: &link,
        })
    }

    #[test]
    fn differences_name_term_and_cause() {
        let named = |terms: Vec<Transaction>| terms.iter().map(Term::from).collect::<Vec<_>>();
        let terms =
            |mode, batches| with("ice", mode, batches, |what| named(estimate(what).unwrap()));
        let (four, eight) = (terms("vector", "4:1"), terms("vector", "8:1"));
        assert!(differences(&four, &four).is_empty());
        let found = differences(&four, &eight);
        assert_eq!(found[0].what, "tx doorbell");
        assert_eq!(found[0].cause(), Cause::Count);
        assert!(found[0].more_bytes_per_s() < 0.0);
        let without: Vec<Term> =
            four.iter().filter(|term| term.what != "tx packet").cloned().collect();
        assert_eq!(differences(&four, &without)[0].cause(), Cause::Removed);
        assert_eq!(differences(&without, &four)[0].cause(), Cause::Added);
        let short = with("ice", "vector", "4:1", |what| {
            let nic = what.nic.with("rx-16-byte").unwrap();
            named(estimate(&Estimate { nic, ..what.clone() }).unwrap())
        });
        let found = differences(&four, &short);
        let written = found.iter().find(|d| d.what == "rx write-back").unwrap();
        assert_eq!(written.cause(), Cause::Size);
        assert_eq!(Mode::Vector.name(), "vector");
    }
}
