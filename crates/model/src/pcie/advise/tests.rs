use super::*;
use crate::pcie::{NICS, Nic};

/// An estimate's parameters. The default is packets of 64 B on gen3x8.
struct Case {
    nic: &'static str,
    mode: &'static str,
    link: &'static str,
    settings: Settings,
    rate: &'static str,
    size: &'static str,
    batches: &'static str,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            nic: "ice",
            mode: "vector",
            link: "gen3x8",
            settings: Settings::default(),
            rate: "10M",
            size: "64",
            batches: "0:5,4:10",
        }
    }
}

impl Case {
    fn of<T>(&self, of: impl Fn(&Estimate<'_>) -> T) -> T {
        let nic: &Nic = self.nic.parse().unwrap();
        let link = Link::new(self.link, self.settings).unwrap();
        let workload = Workload::forwarding(
            self.rate.parse().unwrap(),
            self.size.parse().unwrap(),
            self.batches.parse().unwrap(),
        );
        of(&Estimate {
            nic: *nic,
            version: "dpdk-22.11".parse().unwrap(),
            mode: nic.mode(self.mode).unwrap(),
            thresholds: nic.thresholds,
            workload: &workload,
            link: &link,
        })
    }

    fn advice(&self) -> Vec<Advice> {
        self.of(|what| advise(what).unwrap())
    }

    fn changes(&self) -> Vec<String> {
        self.advice().into_iter().map(|advice| advice.change).collect()
    }

    fn full(&self) -> Limit {
        self.of(|what| limit(what).unwrap().unwrap())
    }
}

/// An estimate with the advised change has its link full at the rate of the advice.
#[test]
fn advice_matches_estimate_with_change() {
    let case = Case::default();
    let (advice, now) = (case.advice(), case.full());
    let of = |change: &str| advice.iter().find(|a| a.change == change).unwrap();
    let settings = Settings { rcb: 128, ..Settings::default() };
    for (change, then) in [
        ("link gen3x8 -> gen3x16", Case { link: "gen3x16", ..Case::default() }),
        ("link gen3x8 -> gen4x8", Case { link: "gen4x8", ..Case::default() }),
    ] {
        assert_eq!(of(change).limit, then.full(), "{change}");
        assert!(of(change).term.is_none(), "{change}");
    }
    let short = of("option rx-16-byte");
    let then = case.of(|what| {
        let nic = what.nic.with("rx-16-byte").unwrap();
        limit(&Estimate { nic, ..what.clone() }).unwrap().unwrap()
    });
    assert_eq!((short.limit, short.term), (then, Some("rx write-back")));
    assert_eq!(short.ratio, then.packets_per_s / now.packets_per_s);
    // With large packets, the completions of sent packets fill the link.
    let large = Case { size: "1500", ..Case::default() };
    let advice = large.advice();
    assert_eq!(large.full().way, Way::ToDevice);
    let boundary = advice.iter().find(|a| a.change == "RCB 64 -> 128 B").unwrap();
    let then = Case { settings, size: "1500", ..Case::default() };
    assert_eq!(boundary.limit, then.full());
}

#[test]
fn advice_raises_rate_and_is_ranked_by_it() {
    for nic in &NICS {
        for (mode, _, _) in nic.modes {
            for (batches, size) in [("1:1", "64"), ("4:3,8:1", "300"), ("32:1", "1500")] {
                let mode = mode.name();
                let case = Case { nic: nic.name, mode, batches, size, ..Case::default() };
                let (advice, now) = (case.advice(), case.full().packets_per_s);
                assert!(advice.len() >= 2, "{}: {advice:#?}", nic.name);
                assert!(advice.windows(2).all(|pair| pair[0].ratio >= pair[1].ratio));
                for a in advice {
                    assert!(a.limit.packets_per_s > now && !a.how.is_empty(), "{a:?}");
                }
            }
        }
    }
}

/// Doorbells go to the device. If the link is full to the host, fewer doorbells do not raise the
/// rate.
#[test]
fn changes_without_gain_are_not_advised() {
    let to_host = Case::default();
    assert_eq!(to_host.full().way, Way::ToHost);
    let changes = to_host.changes();
    for absent in ["batch", "rx free", "driver", "MRRS", "MPS", "RCB", "segments", "buffers"] {
        assert!(!changes.iter().any(|c| c.starts_with(absent)), "{absent}: {changes:?}");
    }
    // One pushed entry for each packet fills the link to the device, and batches save doorbells
    // there.
    let ena = Case { nic: "ena", mode: "scalar", batches: "1:1", ..Case::default() };
    assert_eq!(ena.full().way, Way::ToDevice);
    assert!(ena.changes().iter().any(|c| c.starts_with("batch 1 -> 16")), "{:?}", ena.changes());
    // At 1500 B, larger payloads need fewer headers but costlier acknowledgements, so either effect
    // may win.
    for mps in [128, 256, 512] {
        let of = |mps| Case {
            settings: Settings { mps, ..Settings::default() },
            size: "1500",
            ..Case::default()
        };
        let best = [256, 512].into_iter().filter(|other| *other > mps);
        let rate = |mps| of(mps).full().packets_per_s;
        let gains = best.clone().any(|other| rate(other) > rate(mps) * (1.0 + GAIN_LEAST));
        let is_advised = of(mps).changes().iter().any(|c| c.starts_with("MPS"));
        assert_eq!(is_advised, gains, "{mps}");
    }
}

#[test]
fn advice_names_smallest_sufficient_link() {
    let links = |rate, link| {
        let changes = Case { rate, link, ..Case::default() }.changes();
        changes.into_iter().filter(|c| c.starts_with("link")).collect::<Vec<_>>()
    };
    // The link carries the rate, so only one step in width and one in speed are advised.
    assert_eq!(links("10M", "gen3x8"), ["link gen3x8 -> gen4x8", "link gen3x8 -> gen3x16"]);
    let larger = links("100M", "gen3x8");
    assert_eq!(larger.len(), 3, "{larger:?}");
    let link: &'static str = larger[0].rsplit(' ').next().unwrap().to_owned().leak();
    assert!(Case { link, ..Case::default() }.full().packets_per_s >= 1e8, "{larger:?}");
    // No link carries the rate, and there is no larger link.
    assert_eq!(links("1T", "gen3x8").len(), 2);
    assert!(links("1T", "gen5x16").is_empty());
    assert_eq!(links("10M", "gen5x8"), ["link gen5x8 -> gen5x16"]);
}
