//! The burst probe in a DPDK program (`libhaul_dpdk_burst.so`), through its telemetry.
//!
//! Answers come from another process. Each answer is checked, and an invalid one is an error.
//!
//! From the bottom up:
//!
//! - `bursts`: the counters of a queue.

mod bursts;

use std::collections::BTreeMap;

use haul::telemetry;
use serde_json::Value;

use super::source::ethdev::{Program, ask};
use crate::error::Error;
use bursts::BATCH_MAX;

pub use bursts::Bursts;

/// A larger number of queues than any program has, in both directions together.
const QUEUES_MAX: usize = 1 << 16;
/// Pages of one answer: 513 sizes, 100 on each.
const PAGES_MAX: usize = 16;

/// A queue in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// The port's number.
    pub port: u16,
    /// The queue's number.
    pub queue: u16,
    /// Whether it receives. Otherwise it sends.
    pub receives: bool,
}

impl Queue {
    /// `rx` or `tx`.
    #[must_use]
    pub fn direction(&self) -> &'static str {
        if self.receives { "rx" } else { "tx" }
    }
}

/// By port and number; a queue that receives comes before a queue that sends.
impl Ord for Queue {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let place = |queue: &Self| (queue.port, queue.queue, !queue.receives);
        place(self).cmp(&place(other))
    }
}

impl PartialOrd for Queue {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The properties of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// `0000:01:00.0`, `net_null0`.
    pub name: String,
    /// `net_ice`.
    pub driver: String,
    /// The driver's name for its receive function: `Vector AVX2`; empty if the driver does not
    /// report it.
    pub rx_mode: String,
    /// The properties of haul's modelled NIC, by the option names of `haul pcie watch`: `nic`,
    /// `link` and so on; empty for any other port.
    pub modelled: BTreeMap<String, String>,
}

/// Attaches the probe to every queue to which it is not attached yet. Returns the number of
/// attached queues.
///
/// # Errors
/// [`Error::NoProbe`] if the program was started without the probe, [`Error::Probe`] if the probe
/// cannot attach, and errors of telemetry.
pub fn attach(program: &Program) -> Result<u64, Error> {
    match ask(program, "/haul/burst/attach") {
        Ok(answer) => number(&checked(answer)?, "attached"),
        Err(telemetry::Error::Refused { .. }) => Err(Error::NoProbe),
        Err(error) => Err(error.into()),
    }
}

/// Detaches the probe from every queue.
///
/// # Errors
/// Errors of telemetry.
pub fn detach(program: &Program) -> Result<(), Error> {
    checked(ask(program, "/haul/burst/detach")?).map(drop)
}

/// The attached queues, in order.
///
/// # Errors
/// [`Error::Probe`] if the answer is invalid, and errors of telemetry.
pub fn queues(program: &Program) -> Result<Vec<Queue>, Error> {
    let (mut queues, mut command) = (Vec::new(), "/haul/burst/list".to_owned());
    loop {
        let answer = checked(ask(program, &command)?)?;
        let names = answer.get("queues").and_then(Value::as_array).ok_or_else(|| not_one("queues"));
        let before = queues.len();
        for name in names? {
            let queue = name.as_str().and_then(queue_of).ok_or_else(|| not_one("queues"))?;
            queues.push(queue);
        }
        match answer.get("next").and_then(Value::as_u64) {
            Some(next) if queues.len() > before && queues.len() < QUEUES_MAX => {
                command = format!("/haul/burst/list,{next}");
            }
            Some(_) => return Err(not_one("queues")),
            None => break,
        }
    }
    queues.sort_unstable();
    queues.dedup();
    Ok(queues)
}

/// The queue named by `0,1,rx`.
fn queue_of(text: &str) -> Option<Queue> {
    let mut words = text.split(',');
    let (port, queue) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let receives = match words.next()? {
        "rx" => true,
        "tx" => false,
        _ => return None,
    };
    words.next().is_none().then_some(Queue { port, queue, receives })
}

/// The counters of a queue, all read at one moment; `None` if the probe is not attached to the
/// queue any more.
///
/// # Errors
/// [`Error::Probe`] if the answer is invalid, and errors of telemetry.
pub fn bursts(program: &Program, queue: Queue) -> Result<Option<Bursts>, Error> {
    let Queue { port, queue: number_of, .. } = queue;
    let command = format!("/haul/burst/histogram,{port},{number_of},{}", queue.direction());
    let answer = ask(program, &command)?;
    let error = answer.get("error").and_then(Value::as_str);
    if error.is_some_and(|text| text.contains("not attached")) {
        return Ok(None);
    }
    let answer = checked(answer)?;
    let pair = |first, second| Ok::<_, Error>((number(&answer, first)?, number(&answer, second)?));
    let mut bursts = Bursts {
        batches: BTreeMap::new(),
        larger: pair("larger_polls", "larger_packets")?,
        sized: pair("packets_sized", "bytes_sized")?,
        gaps: pair("gaps", "gap_cycles")?,
        cycles: number(&answer, "cycles")?,
        cycles_per_s: number(&answer, "cycles_per_s")?,
    };
    read_batches(&answer, &mut bursts.batches)?;
    let mut page = answer.clone();
    for _ in 0..PAGES_MAX {
        let Some(next) = page.get("next").and_then(Value::as_u64) else { break };
        let moment = number(&answer, "moment")?;
        page = checked(ask(program, &format!("{command},{moment},{next}"))?)?;
        read_batches(&page, &mut bursts.batches)?;
    }
    let agree = bursts.polls() == number(&answer, "polls")?
        && bursts.packets() == number(&answer, "packets")?;
    if agree { Ok(Some(bursts)) } else { Err(not_one("sums that agree")) }
}

fn read_batches(page: &Value, batches: &mut BTreeMap<u32, u64>) -> Result<(), Error> {
    let wrong = || not_one("batches");
    let numbers = page.get("batches").and_then(Value::as_array).ok_or_else(wrong)?;
    let numbers: Option<Vec<u64>> = numbers.iter().map(Value::as_u64).collect();
    let numbers = numbers.filter(|numbers| numbers.len() % 2 == 0).ok_or_else(wrong)?;
    for pair in numbers.chunks(2) {
        let size = u32::try_from(pair[0]).ok().filter(|size| u64::from(*size) <= BATCH_MAX);
        // A queue needs ten years to count 2^48 bursts of one size, and sums of such counts stay
        // exact.
        if pair[1] > 1 << 48 || batches.insert(size.ok_or_else(wrong)?, pair[1]).is_some() {
            return Err(wrong());
        }
    }
    Ok(())
}

/// The properties of a port.
///
/// # Errors
/// [`Error::Probe`] if the answer is invalid, and errors of telemetry.
pub fn port(program: &Program, port: u16) -> Result<Port, Error> {
    let answer = checked(ask(program, &format!("/haul/burst/port,{port}"))?)?;
    let text = |name: &str| {
        let text = answer.get(name).and_then(Value::as_str).unwrap_or_default();
        text.chars().filter(|c| !c.is_control()).take(128).collect()
    };
    Ok(Port {
        name: text("name"),
        driver: text("driver"),
        rx_mode: text("rx_mode"),
        modelled: modelled_of(&answer),
    })
}

/// The texts and numbers of a modelled port's properties, as text.
fn modelled_of(answer: &Value) -> BTreeMap<String, String> {
    const ENTRIES_MAX: usize = 32;
    let entries = answer.get("modelled").and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| match value {
        Value::String(text) => text.chars().filter(|c| !c.is_control()).take(128).collect(),
        other => other.to_string(),
    };
    entries.take(ENTRIES_MAX).map(|(name, value)| (name.clone(), text(value))).collect()
}

fn number(answer: &Value, name: &'static str) -> Result<u64, Error> {
    answer.get(name).and_then(Value::as_u64).ok_or_else(|| not_one(name))
}

fn not_one(what: &'static str) -> Error {
    let remedy = "use the probe and haul of one release, or name another program's socket";
    Error::Probe { answer: format!("an answer without {what}; {remedy}") }
}

/// The answer, unless it is an error of the probe.
fn checked(answer: Value) -> Result<Value, Error> {
    match answer.get("error") {
        None => Ok(answer),
        Some(error) => {
            let answer = error.as_str().unwrap_or("an error without a text");
            Err(Error::Probe { answer: answer.chars().filter(|c| !c.is_control()).collect() })
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::json;

    use super::*;
    use crate::pcie::source::ethdev::Ask;

    /// A program that gives the recorded answers to each command, in their order.
    pub(crate) struct Recorded(pub(crate) Vec<(&'static str, Value)>);

    impl Ask for Recorded {
        fn ask(&mut self, command: &str) -> Result<Value, telemetry::Error> {
            let refused = || telemetry::Error::Refused {
                path: "recorded".into(),
                command: command.to_owned(),
            };
            let place = self.0.iter().position(|(name, _)| *name == command);
            // The last answer to a command is given again.
            let place = place.ok_or_else(refused)?;
            let more = self.0.iter().filter(|(name, _)| *name == command).count() > 1;
            Ok(if more { self.0.remove(place).1 } else { self.0[place].1.clone() })
        }
    }

    pub(crate) fn program(answers: Vec<(&'static str, Value)>) -> Program {
        Arc::new(Mutex::new(Box::new(Recorded(answers))))
    }

    /// The answer of a queue with these batches.
    pub(crate) fn histogram(batches: &[(u64, u64)]) -> Value {
        let flat: Vec<u64> = batches.iter().flat_map(|(size, count)| [*size, *count]).collect();
        let polls: u64 = batches.iter().map(|(_, count)| count).sum();
        let packets: u64 = batches.iter().map(|(size, count)| size * count).sum();
        json!({
            "batches": flat, "polls": polls, "packets": packets, "larger_polls": 0,
            "larger_packets": 0, "packets_sized": packets / 8, "bytes_sized": packets * 8,
            "gaps": 10, "gap_cycles": 2000, "cycles": 1_000_000, "cycles_per_s": 2_000_000_000_u64,
        })
    }

    const QUEUE: Queue = Queue { port: 0, queue: 0, receives: true };
    const COMMAND: &str = "/haul/burst/histogram,0,0,rx";

    #[test]
    fn bursts_reads_pages_of_one_moment() {
        let mut first = histogram(&[(0, 5), (4, 10)]);
        (first["next"], first["moment"]) = (json!(100), json!(7));
        (first["polls"], first["packets"]) = (json!(16), json!(72));
        let second = json!({ "batches": [32, 1] });
        let program =
            program(vec![(COMMAND, first), ("/haul/burst/histogram,0,0,rx,7,100", second)]);
        let read = bursts(&program, QUEUE).unwrap().unwrap();
        assert_eq!((read.polls(), read.empty(), read.packets()), (16, 5, 72));
        assert_eq!((read.text().as_str(), read.mean_bytes()), ("0:5,4:10,32:1", Some(64.0)));
        assert_eq!(read.gap_ns(), Some(100.0));
    }

    #[test]
    fn bursts_rejects_invalid_answers() {
        for change in [
            json!({ "polls": 99 }),
            json!({ "packets": 1 }),
            json!({ "batches": [4] }),
            json!({ "batches": [4, -1] }),
            json!({ "batches": [70_000, 1] }),
            json!({ "batches": [4, 5, 4, 5] }),
            json!({ "batches": "4:5" }),
            json!({ "gaps": null }),
            json!({ "next": 100 }),
            json!({ "error": "cannot" }),
        ] {
            let mut answer = histogram(&[(4, 10)]);
            for (name, value) in change.as_object().unwrap() {
                answer[name] = value.clone();
            }
            let read = bursts(&program(vec![(COMMAND, answer)]), QUEUE);
            assert!(matches!(read, Err(Error::Probe { .. })), "{change}: {read:?}");
        }
        let gone = json!({ "error": "this queue is not attached: send /haul/burst/attach first" });
        assert_eq!(bursts(&program(vec![(COMMAND, gone)]), QUEUE).unwrap(), None);
    }

    #[test]
    fn queues_reads_all_pages_and_ends() {
        let listed = program(vec![
            ("/haul/burst/list", json!({ "queues": ["1,0,tx"], "next": 1 })),
            ("/haul/burst/list,1", json!({ "queues": ["0,3,rx", "1,0,tx"] })),
        ]);
        let queue = |port, queue, receives| Queue { port, queue, receives };
        assert_eq!(queues(&listed).unwrap(), [queue(0, 3, true), queue(1, 0, false)]);
        for bad in [
            json!({ "queues": [], "next": 1 }),
            json!({ "queues": ["0,0"] }),
            json!({ "queues": ["0,0,up"] }),
            json!({}),
        ] {
            assert!(queues(&program(vec![("/haul/burst/list", bad)])).is_err());
        }
    }

    #[test]
    fn attach_reports_program_without_probe() {
        let message = attach(&program(Vec::new())).unwrap_err().to_string();
        assert!(message.contains("-d") && message.contains("libhaul_dpdk_burst.so"), "{message}");
        let refused = json!({ "error": "this DPDK was built without callbacks" });
        let message = attach(&program(vec![("/haul/burst/attach", refused)])).unwrap_err();
        assert!(message.to_string().contains("without callbacks"), "{message}");
    }
}
