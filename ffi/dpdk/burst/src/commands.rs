//! The commands.
//!
//! | command | parameters | answer |
//! |---|---|---|
//! | `/haul/burst/attach` | `[PORT][,exact or nothing]` | the number of attached queues |
//! | `/haul/burst/detach` | `[PORT]` | the number of detached queues |
//! | `/haul/burst/list` | `[FROM]` | the attached queues |
//! | `/haul/burst/port` | `PORT` | driver and burst modes |
//! | `/haul/burst/histogram` | `PORT,QUEUE[,rx or tx[,MOMENT,FROM]]` | the counters |

use core::ffi::{CStr, c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};

use crate::answer::Answer;
use crate::clock;
use crate::dpdk::{self, BurstMode, DeviceInfo, Functions, Handler, TelData};
use crate::ports::{self, Direction, How};
use crate::slot::{
    BATCH_MAX, BYTES, Counters, FIRST_GAP, GAP_CYCLES, GAPS, LARGER, LARGER_PACKETS, PACKETS_SIZED,
};

/// Name, handler and help. DPDK accepts names below 56 and helps below 64 characters.
pub(crate) const COMMANDS: [(&CStr, Handler, &CStr); 5] = [
    (c"/haul/burst/attach", attach, c"Counts bursts. Parameters: [port][,exact|nothing]"),
    (c"/haul/burst/detach", detach, c"Stops counting bursts. Parameters: [port]"),
    (c"/haul/burst/list", list, c"Queues that are counted. Parameters: [from]"),
    (c"/haul/burst/port", port, c"Driver and burst modes. Parameters: port"),
    (c"/haul/burst/histogram", histogram, c"Parameters: port,queue[,rx|tx[,moment,from]]"),
];

/// The largest number of sizes, with their counts, per answer. Each size takes two entries of the
/// answer.
const PAIRS_MAX: usize = 100;
/// The largest number of names per list.
const NAMES_MAX: usize = 150;
/// The largest number of moments that are kept because their answer has another page.
const MOMENTS_MAX: usize = 16;
/// `ENOTSUP`: DPDK was built without callbacks.
const NOT_SUPPORTED: c_int = libc::ENOTSUP;

/// Runs a command. An error becomes the entry `error` of the answer.
///
/// # Safety
/// `parameters` is null or a C string and `data` a new reply, as DPDK passes them to a handler.
unsafe fn answer(
    parameters: *const c_char,
    data: *mut TelData,
    command: impl FnOnce(&Functions, &[&str], &mut Answer<'_>) -> Result<(), String>,
) -> c_int {
    let Ok(dpdk) = dpdk::functions() else {
        // Without DPDK's functions no answer can be made, and DPDK answers null.
        return -libc::ENOTSUP;
    };
    let text = match parameters.is_null() {
        true => String::new(),
        // SAFETY: the caller's promise.
        false => unsafe { CStr::from_ptr(parameters) }.to_string_lossy().into_owned(),
    };
    let words: Vec<&str> = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    // SAFETY: the caller's promise.
    let mut answer = unsafe { Answer::new(dpdk, data) };
    if let Err(error) = command(dpdk, &words, &mut answer) {
        answer.text(c"error", &error);
    }
    0
}

/// Declares the handlers, each of which calls one function.
macro_rules! handlers {
    ($($handler:ident = $command:path,)*) => {
        $(unsafe extern "C" fn $handler(
            _: *const c_char,
            parameters: *const c_char,
            data: *mut TelData,
        ) -> c_int {
            // SAFETY: DPDK calls this as a handler.
            unsafe { answer(parameters, data, $command) }
        })*
    };
}

handlers! {
    attach = attach_to,
    detach = detach_from,
    list = list_from,
    port = port_of,
    histogram = histogram_of,
}

fn attach_to(dpdk: &Functions, words: &[&str], answer: &mut Answer<'_>) -> Result<(), String> {
    let how = match words.last() {
        Some(&"exact") => How::Exact,
        Some(&"nothing") => How::Nothing,
        _ => How::Samples,
    };
    let words = &words[..words.len() - usize::from(how != How::Samples)];
    let only = optional_port(dpdk, words)?;
    let mut ports = ports::lock(dpdk);
    let done = ports.attach(dpdk, only, how);
    let all = ports.attached.len();
    drop(ports);
    if all == 0 && done.refused == Some(NOT_SUPPORTED) {
        return Err("this DPDK was built without callbacks (RTE_ETHDEV_RXTX_CALLBACKS): build \
                    DPDK with them"
            .to_owned());
    }
    if all == 0 {
        return Err("no port has a queue yet: try again when the ports are configured".to_owned());
    }
    answer.number(c"ports", done.ports);
    answer.number(c"queues", done.queues);
    answer.number(c"attached", all as u64);
    Ok(())
}

fn detach_from(dpdk: &Functions, words: &[&str], answer: &mut Answer<'_>) -> Result<(), String> {
    let only = match words {
        [] => None,
        [port] => Some(number("port", port)?),
        _ => return Err("detach takes at most one parameter: a port".to_owned()),
    };
    let mut ports = ports::lock(dpdk);
    let done = ports.detach(dpdk, only);
    answer.number(c"queues", done.queues);
    answer.number(c"waiting", done.waiting);
    answer.number(c"attached", ports.attached.len() as u64);
    Ok(())
}

fn list_from(dpdk: &Functions, words: &[&str], answer: &mut Answer<'_>) -> Result<(), String> {
    let from = match words {
        [] => 0,
        [from] => usize::from(number("from", from)?),
        _ => return Err("list takes at most one parameter: the first entry to list".to_owned()),
    };
    let ports = ports::lock(dpdk);
    let there: Vec<String> = ports
        .attached
        .iter()
        .filter(|each| each.is_there(dpdk))
        .map(|each| format!("{},{},{}", each.port, each.queue, each.direction.name()))
        .collect();
    answer.number(c"attached", there.len() as u64);
    answer.number(c"gone", (ports.attached.len() - there.len()) as u64);
    let page = there.get(from..).unwrap_or_default();
    if page.len() > NAMES_MAX {
        answer.number(c"next", (from + NAMES_MAX) as u64);
    }
    answer.texts(c"queues", &page[..page.len().min(NAMES_MAX)]);
    Ok(())
}

fn port_of(dpdk: &Functions, words: &[&str], answer: &mut Answer<'_>) -> Result<(), String> {
    let Some(port) = optional_port(dpdk, words)? else {
        return Err("this command needs a port".to_owned());
    };
    answer.number(c"port", u64::from(port));
    answer.text(c"name", &ports::name(dpdk, port).unwrap_or_default());
    let mut info = DeviceInfo::EMPTY;
    // SAFETY: the port existed just now, and DPDK checks it again; DPDK writes fewer bytes than
    // the structure has.
    let found = unsafe { (dpdk.device_info)(port, &raw mut info) };
    if found == 0 && !info.driver.is_null() {
        // SAFETY: DPDK wrote a pointer to its driver's name, a constant.
        let driver = unsafe { CStr::from_ptr(info.driver) };
        answer.text(c"driver", &driver.to_string_lossy());
    }
    for (name, get) in [(c"rx_mode", dpdk.rx_mode), (c"tx_mode", dpdk.tx_mode)] {
        let mut mode = BurstMode::EMPTY;
        // SAFETY: as above; the structure is DPDK's.
        let found = unsafe { get(port, 0, &raw mut mode) };
        if let (0, Ok(text)) = (found, CStr::from_bytes_until_nul(&mode.info)) {
            answer.text(name, &text.to_string_lossy());
        }
    }
    Ok(())
}

fn histogram_of(dpdk: &Functions, words: &[&str], answer: &mut Answer<'_>) -> Result<(), String> {
    let (port, queue, more) = match words {
        [port, queue, more @ ..] => (number("port", port)?, number("queue", queue)?, more),
        _ => return Err("histogram needs a port and a queue".to_owned()),
    };
    let direction = match more.first() {
        None | Some(&"rx") => Direction::Rx,
        Some(&"tx") => Direction::Tx,
        Some(_) => return Err("the direction must be rx or tx".to_owned()),
    };
    let (moment, from) = match more.get(1..).unwrap_or_default() {
        [] => (Arc::new(Moment::now(dpdk, port, queue, direction)?), 0),
        [moment, from] => {
            let moment = moment.parse().map_err(|_| "the moment must be a number".to_owned())?;
            (kept(moment)?, usize::from(number("from", from)?))
        }
        _ => return Err("a moment needs the first entry to list".to_owned()),
    };
    if (moment.port, moment.queue, moment.direction) != (port, queue, direction) {
        return Err("this moment belongs to another queue".to_owned());
    }
    moment.write(dpdk, from, answer);
    Ok(())
}

/// The counters of one queue at one moment.
struct Moment {
    id: u64,
    port: u16,
    queue: u16,
    direction: Direction,
    is_exact: bool,
    /// Cycles since the queue was attached.
    cycles: u64,
    counters: Counters,
    pairs: Vec<(usize, u64)>,
}

/// The number of the next moment, and the last moments whose answer has several pages.
static MOMENTS: Mutex<(u64, Vec<Arc<Moment>>)> = Mutex::new((1, Vec::new()));

fn kept(id: u64) -> Result<Arc<Moment>, String> {
    let moments = MOMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = moments.1.iter().find(|moment| moment.id == id);
    found.cloned().ok_or_else(|| "this moment is forgotten: ask for the histogram again".to_owned())
}

impl Moment {
    fn now(dpdk: &Functions, port: u16, queue: u16, direction: Direction) -> Result<Self, String> {
        let ports = ports::lock(dpdk);
        let found = ports.find(port, queue, direction).filter(|each| each.is_there(dpdk));
        let slot = found.map(|each| Arc::clone(&each.slot));
        drop(ports);
        let slot = slot.ok_or_else(|| {
            "this queue is not attached: send /haul/burst/attach first".to_owned()
        })?;
        let counters = slot.read().ok_or_else(|| {
            "the thread that polls this queue is stopped in a burst: try again".to_owned()
        })?;
        let cycles = clock::cycles().saturating_sub(slot.since);
        let sizes = counters[..=BATCH_MAX].iter().copied().enumerate();
        let pairs = sizes.filter(|(_, count)| *count > 0).collect();
        let is_exact = slot.is_exact();
        Ok(Self { id: 0, port, queue, direction, is_exact, cycles, counters, pairs })
    }

    /// Writes one page of the moment.
    fn write(self: Arc<Self>, dpdk: &Functions, from: usize, answer: &mut Answer<'_>) {
        let page = self.pairs.get(from..).unwrap_or_default();
        let is_last = page.len() <= PAIRS_MAX;
        let page = &page[..page.len().min(PAIRS_MAX)];
        let pairs: Vec<u64> =
            page.iter().flat_map(|(size, count)| [*size as u64, *count]).collect();
        answer.numbers(c"batches", &pairs);
        if !is_last {
            answer.number(c"next", (from + PAIRS_MAX) as u64);
        }
        if from > 0 {
            return;
        }
        if !is_last {
            answer.number(c"moment", Self::keep(&self));
        }
        self.write_head(dpdk, answer);
    }

    fn write_head(&self, dpdk: &Functions, answer: &mut Answer<'_>) {
        let counters = &self.counters;
        let in_sizes: u64 = self.pairs.iter().map(|(size, count)| *size as u64 * count).sum();
        // SAFETY: the call has no conditions once DPDK is initialized, and DPDK answers commands.
        let hz = clock::cycles_per_s(unsafe { (dpdk.tsc_hz)() });
        let exact = u64::from(self.is_exact);
        for (name, value) in [
            (c"port", u64::from(self.port)),
            (c"queue", u64::from(self.queue)),
            (c"polls", counters[..=LARGER].iter().sum()),
            (c"empty", counters[0]),
            (c"packets", in_sizes + counters[LARGER_PACKETS]),
            (c"larger_polls", counters[LARGER]),
            (c"larger_packets", counters[LARGER_PACKETS]),
            (c"exact", exact),
            (c"packets_sized", counters[PACKETS_SIZED]),
            (c"bytes_sized", counters[BYTES]),
            (c"cycles", self.cycles),
            (c"cycles_per_s", hz),
            (c"gaps", counters[FIRST_GAP..FIRST_GAP + GAPS].iter().sum()),
            (c"gap_cycles", counters[GAP_CYCLES]),
        ] {
            answer.number(name, value);
        }
        answer.text(c"direction", self.direction.name());
        let gaps = counters[FIRST_GAP..FIRST_GAP + GAPS].iter().copied().enumerate();
        let gaps = gaps.filter(|(_, count)| *count > 0);
        let gaps: Vec<u64> = gaps.flat_map(|(bits, count)| [bits as u64, count]).collect();
        answer.numbers(c"gap_bits", &gaps);
    }

    /// Keeps a moment for its next page and returns its number.
    fn keep(moment: &Self) -> u64 {
        let mut moments = MOMENTS.lock().unwrap_or_else(PoisonError::into_inner);
        let id = moments.0;
        moments.0 += 1;
        if moments.1.len() == MOMENTS_MAX {
            moments.1.remove(0);
        }
        let (counters, pairs) = (moment.counters.clone(), moment.pairs.clone());
        moments.1.push(Arc::new(Self { id, counters, pairs, ..*moment }));
        id
    }
}

fn number(name: &str, text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("the {name} must be a number of at most 65535"))
}

/// The port in the parameters, if there is one.
fn optional_port(dpdk: &Functions, words: &[&str]) -> Result<Option<u16>, String> {
    match words {
        [] => Ok(None),
        [word] => {
            let port = number("port", word)?;
            match port < ports::PORTS_MAX && ports::is_port(dpdk, port) {
                true => Ok(Some(port)),
                false => Err(format!("there is no port {port}")),
            }
        }
        _ => Err("this command takes at most one port".to_owned()),
    }
}
