//! How to measure anything fairly: clocks, interleaved runs, statistics.
