//! What a workload's bytes go to, and which terms two lists differ in.

use super::transaction::{Direction, Sums, Transaction, Way};

/// A term by its name, as a saved record has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// Which.
    pub what: String,
    /// Its direction.
    pub direction: Direction,
    /// How many a second.
    pub count_per_s: f64,
    /// Data of one, in bytes.
    pub payload_bytes: f64,
    /// Headers of one, in bytes.
    pub header_bytes: f64,
}

/// A term that two lists of terms differ in.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Which.
    pub what: String,
    /// Its direction.
    pub direction: Direction,
    /// How many a second in the first, and in the second; 0 where a list lacks it.
    pub count_per_s: (f64, f64),
    /// Data and headers of one in bytes, likewise.
    pub bytes_each: (f64, f64),
}

/// Why a term differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first list lacks it.
    Added,
    /// The second list lacks it.
    Removed,
    /// There are more or fewer of them.
    Count,
    /// Each is larger or smaller.
    Size,
    /// Both.
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
    /// Data and headers in bytes a second, in the first and in the second.
    #[must_use]
    pub fn bytes_per_s(&self) -> (f64, f64) {
        let (count, each) = (self.count_per_s, self.bytes_each);
        (count.0 * each.0, count.1 * each.1)
    }

    /// How many bytes a second the second has more.
    #[must_use]
    pub fn more_bytes_per_s(&self) -> f64 {
        self.bytes_per_s().1 - self.bytes_per_s().0
    }

    /// Why.
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

/// Terms that two lists differ in, the largest difference first. Each list has a term of one name
/// and direction once.
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

/// The way that carries more, and the terms in order of the bytes that they have on it.
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
    fn a_difference_names_its_term_and_cause() {
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
