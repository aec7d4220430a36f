//! How far a copy or a fill of one size is from the memory limit.

use haul_model::Record;
use haul_model::experiment::{key, name};

/// The rate at which a `copy.size` record moved bytes, over all of its threads, in GB/s (10^9).
/// `None` if the record has no size or no time.
#[must_use]
pub fn throughput(record: &Record) -> Option<f64> {
    let size_bytes = record.number(key::SIZE_BYTES)?;
    let is_time = record.metric == "time" && record.unit == "ns";
    let ns = record.median().filter(|ns| is_time && *ns > 0.0)?;
    // Bytes per nanosecond are GB/s.
    Some(size_bytes * threads(record) / ns)
}

/// The memory limit of `record`'s function with the same number of threads, in GB/s: the best
/// `memory.bandwidth` among `records` of the same run and machine, by copying, or by writing for
/// memset. Other runs do not count: they may have had another machine of that name, or other
/// conditions.
///
/// A copy inside the caches exceeds this limit, which is that of memory, not of caches.
///
/// ```
/// use haul_model::Record;
/// use haul_report::limit;
/// let mut memory = Record::new("run", "memory.bandwidth", "avx2", "throughput", "GB/s")
///     .with("operation", "copy")
///     .with("threads", 2);
/// memory.samples = vec![40.0];
/// let mut copy = Record::new("run", "copy.size", "haul", "time", "ns")
///     .with("function", "memcpy")
///     .with("size_bytes", 1000)
///     .with("threads", 2);
/// copy.samples = vec![100.0];
/// assert_eq!(limit::throughput(&copy), Some(20.0));
/// assert_eq!(limit::memory_limit([&memory], &copy), Some(40.0));
/// ```
#[must_use]
pub fn memory_limit<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    record: &Record,
) -> Option<f64> {
    let is_fill = record.text(key::FUNCTION) == Some("memset");
    let operation = if is_fill { "write" } else { "copy" };
    records
        .into_iter()
        .filter(|limit| limit.experiment == name::MEMORY_BANDWIDTH && limit.unit == "GB/s")
        .filter(|limit| limit.run == record.run && limit.machine == record.machine)
        .filter(|limit| threads(limit) == threads(record))
        .filter(|limit| limit.text(key::OPERATION) == Some(operation))
        .filter_map(Record::median)
        .filter(|rate| *rate > 0.0)
        .max_by(f64::total_cmp)
}

fn threads(record: &Record) -> f64 {
    record.number(key::THREADS).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(operation: &str, threads: u64, rate: f64) -> Record {
        let mut record = Record::new("run", "memory.bandwidth", "any", "throughput", "GB/s")
            .with("operation", operation)
            .with("threads", threads);
        record.samples = vec![rate];
        record
    }

    #[test]
    fn limit_has_same_operation_threads_and_machine() {
        let mut foreign = memory("copy", 1, 99.0);
        foreign.machine = "another".into();
        let mut earlier = memory("copy", 1, 98.0);
        earlier.run = "another".into();
        let records = [
            memory("copy", 1, 10.0),
            memory("copy", 1, 12.0),
            memory("copy", 2, 20.0),
            memory("write", 1, 30.0),
            memory("read", 1, 40.0),
            foreign,
            earlier,
        ];
        let of = |function: &str, threads: u64| {
            let record = Record::new("run", "copy.size", "haul", "time", "ns")
                .with("function", function)
                .with("threads", threads);
            memory_limit(&records, &record)
        };
        assert_eq!(of("memcpy", 1), Some(12.0));
        assert_eq!(of("memmove", 2), Some(20.0));
        assert_eq!(of("memset", 1), Some(30.0));
        assert_eq!(of("memset", 2), None);
    }

    #[test]
    fn record_without_size_or_time_has_no_throughput() {
        let record = Record::new("run", "copy.size", "haul", "time", "ns");
        assert_eq!(throughput(&record), None);
        assert_eq!(throughput(&record.with("size_bytes", 64)), None);
    }
}
