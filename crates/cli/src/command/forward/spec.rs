//! A port as a person names it: `gen:size=64,rate=1M`.

use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Spec {
    /// Makes packets, and looks at those that come back.
    Gen { sizes: Sizes, rate: Option<f64>, count: Option<u64>, flows: u32 },
    /// Looks at packets.
    Sink,
    /// Takes packets; gives those of this size, or none.
    Null { size_bytes: usize },
    /// A virtual machine's card, from the hypervisor's side.
    Vhost { path: PathBuf, is_server: bool, copy: String },
    /// The same card, from the machine's side.
    Virtio { path: PathBuf, is_server: bool, is_packed: bool },
}

/// The sizes of a generator's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    Fixed(usize),
    Imix,
    /// One size after the other.
    Each(usize, usize),
}

/// An option behind the colon, which is asked for once.
struct Options<'a> {
    kind: &'a str,
    left: Vec<(&'a str, Option<&'a str>)>,
}

impl Spec {
    /// # Errors
    /// Why there is no such port.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        let words = options.split(',').filter(|word| !word.is_empty());
        let left = words
            .map(|word| match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            })
            .collect();
        let mut options = Options { kind, left };
        let spec = match kind {
            "gen" => Self::Gen {
                sizes: options.take("size", sizes)?.unwrap_or(Sizes::Fixed(64)),
                rate: options.take("rate", rate)?,
                count: options.take("count", whole)?,
                flows: options.take("flows", |text| whole(text)?.try_into().ok())?.unwrap_or(1),
            },
            "sink" => Self::Sink,
            "null" => Self::Null {
                size_bytes: options.take("size", |text| text.parse().ok())?.unwrap_or(0),
            },
            "vhost" => Self::Vhost {
                path: options.path()?,
                is_server: options.flag("server")?,
                copy: options
                    .take("copy", |text| Some(text.to_owned()))?
                    .unwrap_or_else(|| "haul".to_owned()),
            },
            "virtio" => Self::Virtio {
                path: options.path()?,
                is_server: options.flag("server")?,
                is_packed: options.flag("packed")?,
            },
            _ => {
                return Err(format!(
                    "no port is {kind:?}; the ports are gen, sink, null, vhost and virtio"
                ));
            }
        };
        options.end().map(|()| spec)
    }

    /// What its kind is called.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Gen { .. } => "gen",
            Self::Sink => "sink",
            Self::Null { .. } => "null",
            Self::Vhost { .. } => "vhost",
            Self::Virtio { .. } => "virtio",
        }
    }
}

impl Options<'_> {
    /// The value of this option, where it is given.
    fn take<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(place) = self.left.iter().position(|(other, _)| *other == name) else {
            return Ok(None);
        };
        let (_, value) = self.left.remove(place);
        let value =
            value.ok_or_else(|| format!("{}:{name} wants a value: {name}=...", self.kind))?;
        let wrong = || format!("{}:{name}={value} is not possible", self.kind);
        parse(value).map(Some).ok_or_else(wrong)
    }

    fn flag(&mut self, name: &str) -> Result<bool, String> {
        let Some(place) = self.left.iter().position(|(other, _)| *other == name) else {
            return Ok(false);
        };
        match self.left.remove(place) {
            (_, None) => Ok(true),
            (_, Some(value)) => Err(format!("{}:{name} takes no value, not {value:?}", self.kind)),
        }
    }

    fn path(&mut self) -> Result<PathBuf, String> {
        let path = self.take("path", |text| (!text.is_empty()).then(|| PathBuf::from(text)))?;
        path.ok_or_else(|| format!("{} wants a socket: {}:path=SOCKET", self.kind, self.kind))
    }

    fn end(self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!(
                "a port {} has no option {name:?}, or has it once; see haul forward --help",
                self.kind
            )),
        }
    }
}

fn sizes(text: &str) -> Option<Sizes> {
    if text == "imix" {
        return Some(Sizes::Imix);
    }
    match text.split_once("..") {
        Some((first, last)) => Some(Sizes::Each(first.parse().ok()?, last.parse().ok()?)),
        None => text.parse().ok().map(Sizes::Fixed),
    }
}

/// `1M` is a million.
fn rate(text: &str) -> Option<f64> {
    let units = [("k", 1e3), ("K", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)];
    let number = units.into_iter().find_map(|(unit, factor)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor)
    })?;
    (number.is_finite() && number > 0.0).then_some(number)
}

fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read() {
        let generator = |sizes, rate, count, flows| Spec::Gen { sizes, rate, count, flows };
        for (text, spec) in [
            ("gen", generator(Sizes::Fixed(64), None, None, 1)),
            ("gen:size=imix,rate=1.5M", generator(Sizes::Imix, Some(1.5e6), None, 1)),
            (
                "gen:count=9,flows=4,size=60..1514",
                generator(Sizes::Each(60, 1514), None, Some(9), 4),
            ),
            ("sink", Spec::Sink),
            ("null", Spec::Null { size_bytes: 0 }),
            ("null:size=1500", Spec::Null { size_bytes: 1500 }),
            (
                "vhost:path=/run/vm.sock,server,copy=libc",
                Spec::Vhost { path: "/run/vm.sock".into(), is_server: true, copy: "libc".into() },
            ),
            (
                "virtio:path=a b",
                Spec::Virtio { path: "a b".into(), is_server: false, is_packed: false },
            ),
            (
                "virtio:path=a,packed",
                Spec::Virtio { path: "a".into(), is_server: false, is_packed: true },
            ),
        ] {
            assert_eq!(Spec::parse(text), Ok(spec), "{text}");
        }
    }

    #[test]
    fn what_is_no_port_is_said() {
        for (text, holds) in [
            ("", "no port is \"\""),
            ("eth0", "the ports are gen"),
            ("sink:size=64", "no option \"size\""),
            ("gen:rate=0", "gen:rate=0 is not possible"),
            ("gen:rate=NaN", "not possible"),
            ("gen:rate", "wants a value"),
            ("gen:size=64,size=65", "or has it once"),
            ("gen:count=0", "not possible"),
            ("gen:flows=99999999999", "not possible"),
            ("vhost", "vhost wants a socket"),
            ("vhost:path=", "not possible"),
            ("vhost:path=s,server=yes", "takes no value"),
            ("virtio:path=s,servers", "no option \"servers\""),
        ] {
            let message = Spec::parse(text).unwrap_err();
            assert!(message.contains(holds), "{text}: {message}");
        }
    }
}
