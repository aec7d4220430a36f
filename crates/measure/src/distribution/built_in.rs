//! The size distributions that haul ships, in `bench/definitions/distributions/`.
//!
//! `cargo run -p haul-measure --example make_distributions` creates the files; a test there and the
//! tests here compare them with the figures that they represent.

use super::{Distribution, file};

/// The name, a summary and the file of each distribution.
const SHIPPED: [(&str, &str, &str); 4] = [
    (
        "service",
        "calls of services in a large fleet: mean 135 B, 63.5% at most 16 B, 0.6% carry 66% of the bytes",
        include_str!("../../../../bench/definitions/distributions/service.csv"),
    ),
    (
        "packets",
        "frames of the simple Internet mix: 64, 594 and 1518 B at 7:4:1",
        include_str!("../../../../bench/definitions/distributions/packets.csv"),
    ),
    (
        "messages",
        "messages of brokers and remote calls: every octave from 32 B to 16 KiB equally often",
        include_str!("../../../../bench/definitions/distributions/messages.csv"),
    ),
    (
        "storage",
        "blocks of storage: 512 B to 128 KiB, 4 KiB in six of ten",
        include_str!("../../../../bench/definitions/distributions/storage.csv"),
    ),
];

/// The names of the built-in distributions.
pub fn names() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|&(name, _, _)| name)
}

/// A one-line summary of a built-in distribution; `None` if no distribution has this name.
#[must_use]
pub fn summary(name: &str) -> Option<&'static str> {
    SHIPPED.iter().find(|shipped| shipped.0 == name).map(|&(_, summary, _)| summary)
}

/// The built-in distribution of this name. Parses up to 300 KB of text, which takes about a
/// millisecond.
///
/// # Panics
/// Never: the tests parse all of them.
#[must_use]
pub fn get(name: &str) -> Option<Distribution> {
    let &(name, _, text) = SHIPPED.iter().find(|shipped| shipped.0 == name)?;
    let probabilities = file::parse(text.as_bytes()).expect("shipped distributions parse");
    Some(
        Distribution::from_probabilities(name, &probabilities)
            .expect("shipped distributions sum to 1"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, published: f64, tolerance: f64) {
        assert!((found - published).abs() <= tolerance, "{found} is not the published {published}");
    }

    /// The figures published with google/fleetbench: see `docs/measure.md`.
    #[test]
    fn service_meets_the_published_figures() {
        let service = get("service").unwrap();
        close(service.mean_bytes(), 135.0, 0.5);
        close(service.share_at_most(16), 0.635, 5e-4);
        close(service.share_at_most(64), 0.886, 5e-4);
        close(1.0 - service.share_at_most(2048), 0.006, 1e-4);
        close(service.bytes_share_above(2048), 0.66, 5e-3);
    }

    #[test]
    fn packets_are_the_simple_internet_mix() {
        let packets = get("packets").unwrap();
        let expected = [(64, 7.0 / 12.0), (594, 4.0 / 12.0), (1518, 1.0 / 12.0)];
        assert_eq!(packets.shares().len(), 3);
        for (&(size, p), (size_expected, p_expected)) in packets.shares().iter().zip(expected) {
            assert_eq!(size, size_expected);
            close(p, p_expected, 1e-5);
        }
        close(packets.mean_bytes(), 4342.0 / 12.0, 1e-2);
    }

    #[test]
    fn messages_fill_every_octave() {
        let messages = get("messages").unwrap();
        for octave in 5..14 {
            let share = messages.share_at_most((2 << octave) - 1)
                - messages.share_at_most((1 << octave) - 1);
            close(share, 1.0 / 9.0, 0.002);
        }
    }

    #[test]
    fn storage_is_blocks() {
        let storage = get("storage").unwrap();
        assert!(storage.shares().iter().all(|&(size, _)| size % 512 == 0));
        assert_eq!(storage.size_max_bytes(), 128 << 10);
        close(storage.share_at_most(4096) - storage.share_at_most(4095), 0.6, 1e-9);
    }

    #[test]
    fn names_are_known_and_others_are_not() {
        assert!(names().all(|name| get(name).is_some() && summary(name).is_some()));
        assert!(get("nonsense").is_none());
        let message = Distribution::find("nonsense").unwrap_err().to_string();
        assert!(message.contains("service, packets"), "{message}");
    }
}
