//! The options of a port: the text after its colon.

use std::path::PathBuf;

use haul::forward::Replay;
use haul_experiments::forward::is_ceiling;
use haul_model::pcie::{Offered, Packets, PcieError, Rate};

use super::{Sizes, Spec};
use crate::arguments::sizes::without_step;
use crate::arguments::time::time;
use crate::command::forward::modelled::Modelled;

/// The longest pause of a capture that can be kept, in seconds.
const YEAR_S: u64 = 366 * 86_400;

/// The options that are still to be taken; each can be given at most once.
pub(super) struct Options<'a> {
    kind: &'a str,
    left: Vec<(&'a str, Option<&'a str>)>,
}

impl<'a> Options<'a> {
    /// The options of a port of this kind.
    pub(super) fn of(kind: &'a str, options: &'a str) -> Self {
        let words = options.split(',').filter(|word| !word.is_empty());
        let left = words
            .map(|word| match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            })
            .collect();
        Self { kind, left }
    }

    /// The value of this option, if it is given.
    pub(super) fn take<T>(
        &mut self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(place) = self.left.iter().position(|(other, _)| *other == name) else {
            return Ok(None);
        };
        let (_, value) = self.left.remove(place);
        let value =
            value.ok_or_else(|| format!("{}:{name} needs a value: {name}=...", self.kind))?;
        parse(value).map(Some).ok_or_else(|| impossible(self.kind, name, value))
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<bool, String> {
        let Some(place) = self.left.iter().position(|(other, _)| *other == name) else {
            return Ok(false);
        };
        match self.left.remove(place) {
            (_, None) => Ok(true),
            (_, Some(value)) => {
                Err(format!("{}:{name} has no value; leave out {value:?}", self.kind))
            }
        }
    }

    /// The sizes of a generator's packets.
    pub(super) fn sizes(&mut self) -> Result<Sizes, String> {
        let text = self.take("size", |text| Some(text.to_owned()))?;
        let Some(text) = text else { return Ok(Sizes::Fixed(64)) };
        if text.contains("..") && !text.contains(':') {
            return Err(format!("{}:size={}", self.kind, without_step(&text)));
        }
        sizes(&text).ok_or_else(|| impossible(self.kind, "size", &text))
    }

    /// Packets per second, in the form of every command: `1M`, or bits per second of the line, if
    /// packets have these sizes.
    pub(super) fn rate(
        &mut self,
        packets: &Result<Packets, PcieError>,
    ) -> Result<Option<f64>, String> {
        let offered = self.take("rate", |text| text.parse::<Offered>().ok())?;
        let Some(offered) = offered else { return Ok(None) };
        let wrong = |error: PcieError| format!("{}:rate: {error}", self.kind);
        let rate = match (offered, packets) {
            (Offered::Packets(rate), _) => rate,
            (_, Ok(packets)) => offered.rate(packets).map_err(wrong)?,
            (_, Err(error)) => return Err(wrong(error.clone())),
        };
        Ok(Some(rate.packets_per_s()))
    }

    /// A NIC, by the options of `haul pcie estimate`.
    pub(super) fn modelled(&mut self) -> Result<Modelled, String> {
        let mut modelled = Modelled::default();
        for (name, place) in modelled.words() {
            *place = self.take(name, |text| Some(text.to_owned()))?;
        }
        while let Some(option) = self.take("option", |text| Some(text.to_owned()))? {
            modelled.options.push(option);
        }
        modelled.setup()?;
        Ok(modelled)
    }

    /// Captures to read, to write, or both.
    pub(super) fn pcap(&mut self) -> Result<Spec, String> {
        let (input, output) = (self.take("in", file)?, self.take("out", file)?);
        if input.is_none() && output.is_none() {
            return Err("pcap needs a file: name pcap:in=FILE, pcap:out=FILE or both".to_owned());
        }
        let rate = self.take("rate", |text| text.parse::<Rate>().ok())?;
        let replay = match (rate, self.flag("timed")?) {
            (Some(_), true) => {
                return Err("pcap has both rate and timed; name one of them".to_owned());
            }
            (Some(rate), false) => Replay::Rate(rate.packets_per_s()),
            (None, true) => Replay::Recorded,
            (None, false) => Replay::Free,
        };
        let pause_max = self.take("pause", |text| time::<0, YEAR_S>(text).ok())?;
        if pause_max.is_some() && replay != Replay::Recorded {
            return Err("pcap:pause is for packets that are sent as they were captured; add timed"
                .to_owned());
        }
        let passes = match self.left.contains(&("loop", None)) {
            true => self.flag("loop").map(|_| None)?,
            false => Some(self.take("loop", whole)?.unwrap_or(1)),
        };
        if input.is_none() && (passes != Some(1) || replay != Replay::Free) {
            return Err(
                "pcap:loop, rate and timed are for a file that is read; add in=FILE".to_owned()
            );
        }
        Ok(Spec::Pcap { input, output, passes, replay, pause_max })
    }

    pub(super) fn interface(&mut self) -> Result<String, String> {
        let kind = self.kind;
        let name = self.take("interface", |text| (!text.is_empty()).then(|| text.to_owned()))?;
        name.ok_or_else(|| format!("{kind} needs an interface: name {kind}:interface=NAME"))
    }

    /// The copy function. A ceiling copies nothing; it bounds the rate of a flow whose guest
    /// belongs to the same run. Any other guest would read other packets' data, so this function
    /// refuses a ceiling.
    pub(super) fn copy(&mut self) -> Result<String, String> {
        let name = self.take("copy", |text| Some(text.to_owned()))?;
        let name = name.unwrap_or_else(|| "haul".to_owned());
        match name.as_str() {
            ceiling if is_ceiling(ceiling) => Err(format!(
                "{}:copy={name} copies nothing, so the guest would receive the data of earlier packets \
                 in the buffers, those of other guests included; name copy=haul or libc, or \
                 measure that ceiling with haul forward pvp --copy {name}",
                self.kind
            )),
            _ => Ok(name),
        }
    }

    pub(super) fn queues(&mut self) -> Result<u16, String> {
        Ok(self.take("queues", |text| text.parse().ok())?.unwrap_or(1))
    }

    pub(super) fn path(&mut self) -> Result<PathBuf, String> {
        let path = self.take("path", file)?;
        path.ok_or_else(|| format!("{} needs a socket: name {}:path=SOCKET", self.kind, self.kind))
    }

    /// # Errors
    ///
    /// An option is left.
    pub(super) fn end(self) -> Result<(), String> {
        match self.left.first() {
            None => Ok(()),
            Some((name, _)) => Err(format!(
                "a port {} has no option {name:?}, or has it only once; see haul forward --help",
                self.kind
            )),
        }
    }
}

fn file(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

pub(super) fn on_or_off(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn sizes(text: &str) -> Option<Sizes> {
    if text == "imix" {
        return Some(Sizes::Imix);
    }
    match text.split_once("..") {
        Some((first, rest)) => {
            let (last, step) = rest.split_once(':')?;
            let [from, to, step] = [first, last, step].map(|part| part.parse().ok());
            Some(Sizes::Each { from: from?, to: to?, step: step? })
        }
        None => text.parse().ok().map(Sizes::Fixed),
    }
}

fn impossible(kind: &str, name: &str, value: &str) -> String {
    format!("{kind}:{name}={value} is not possible: see haul forward --help")
}

pub(super) fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}
