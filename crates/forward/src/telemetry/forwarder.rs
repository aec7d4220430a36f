//! The answers of a forwarder: its ports' bursts, in the format of the burst probe in a DPDK
//! program (`libhaul_dpdk_burst.so`), and its ports' counters in DPDK's format. A client of the
//! probe or of DPDK thus works with a forwarder too.
//!
//! | command | answer |
//! |---|---|
//! | `/haul/burst/attach`, `detach` | how many queues are counted: all, always |
//! | `/haul/burst/list` | the queues |
//! | `/haul/burst/port,PORT` | what a port is; for a modelled NIC, also what it models |
//! | `/haul/burst/histogram,PORT,QUEUE[,rx or tx]` | a queue's bursts since the forwarder started |
//! | `/haul/nic/counts,PORT` | what crossed a modelled NIC's link, in bytes of data |
//! | `/ethdev/list`, `/ethdev/stats,PORT` | the ports, and their packets, bytes and losses |

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use serde_json::{Value, json};

use super::error::{Error, io_of};
use super::find::{own_place, sockets};
use super::server::Server;
use crate::{Counters, Direction, DropReason, Snapshot};
use haul_peer::socket;
use haul_peer::users::Users;

/// The largest number of pairs per answer, two entries each: more than the number of possible
/// burst sizes.
const PAIRS_MAX: usize = 512;

/// The description of a port for clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortAbout {
    /// The port's name in the snapshots.
    pub name: String,
    /// `haul_vhost`.
    pub driver: String,
    /// For a modelled NIC, an object with its parameters: `nic`, `release`, `mode`, `link` and the
    /// other options of `haul pcie watch`.
    pub modelled: Option<Value>,
}

/// Serves a forwarder's counters at `path`, or at the default path, to this user and root.
/// `snapshot` returns the present counters of all workers, and `ports` describes the ports, which
/// are numbered in this order.
///
/// # Errors
/// [`Error::Serve`]. If there is neither `path` nor a default path, its kind is
/// [`io::ErrorKind::Unsupported`].
pub fn serve(
    path: Option<&Path>,
    snapshot: impl FnMut() -> Snapshot + Send + 'static,
    ports: Vec<PortAbout>,
) -> Result<Server, Error> {
    serve_for(path, &Users::Own, snapshot, ports)
}

/// Like [`serve`], but for these users. If `users` includes users other than this one and root,
/// every user that can reach the path may connect, and the server disconnects users that are not
/// allowed.
///
/// # Errors
/// See [`serve`].
pub fn serve_for(
    path: Option<&Path>,
    users: &Users,
    snapshot: impl FnMut() -> Snapshot + Send + 'static,
    ports: Vec<PortAbout>,
) -> Result<Server, Error> {
    let mut answers = Answers { snapshot: Box::new(snapshot), ports };
    let answer = Box::new(move |name: &str, words: &[&str]| answers.answer(name, words));
    let version = concat!("haul ", env!("CARGO_PKG_VERSION"));
    if let Some(path) = path {
        return Server::start(path, users, version, answer);
    }
    let nowhere = "neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR names a folder";
    let index = own_place().ok_or_else(|| Error::Serve {
        path: "/run/user".into(),
        reason: io::Error::new(io::ErrorKind::Unsupported, nowhere),
    })?;
    let folder = index.parent().unwrap_or(Path::new("/"));
    let failed = |reason| Error::Serve { path: index.clone(), reason };
    if let Some(all) = folder.parent() {
        own_folder(all).map_err(failed)?;
        remove_abandoned(all);
    }
    own_folder(folder).map_err(failed)?;
    Server::start_in(folder, &index, users, version, answer)
}

/// Creates a folder for this user alone, unless it exists. Refuses a folder of another user, or one
/// that others may write to, because they could replace the socket in it.
fn own_folder(path: &Path) -> io::Result<()> {
    let mut made = fs::DirBuilder::new();
    made.recursive(true).mode(0o700).create(path)?;
    let facts = fs::symlink_metadata(path)?;
    let (owner, mode) = (facts.uid(), facts.mode() & 0o7777);
    if facts.is_dir() && owner == rustix::process::geteuid().as_raw() && mode & 0o022 == 0 {
        return Ok(());
    }
    let what = if facts.is_dir() { "folder" } else { "link" };
    let path = path.display();
    Err(io::Error::other(format!("{path} is a {what} of user {owner} with mode {mode:o}")))
}

/// Removes the sockets of killed processes: those on which no process listens, and whose process
/// does not exist.
fn remove_abandoned(folder: &Path) {
    for found in sockets(&[folder.to_path_buf()]) {
        let process = found.prefix.strip_prefix("forward-").and_then(|text| text.parse().ok());
        let is_gone =
            process.is_some_and(|process: u32| !Path::new(&format!("/proc/{process}")).exists());
        let Some(own) = found.path.parent().filter(|_| is_gone) else { continue };
        let connected = socket::connect(&found.path).map_err(io_of);
        if connected.is_err_and(|reason| reason.kind() == io::ErrorKind::ConnectionRefused) {
            // Another process may remove them at the same time.
            let _ = fs::remove_file(&found.path);
            let _ = fs::remove_dir(own);
        }
    }
}

struct Answers {
    snapshot: Box<dyn FnMut() -> Snapshot + Send>,
    ports: Vec<PortAbout>,
}

impl Answers {
    fn answer(&mut self, name: &str, words: &[&str]) -> Option<Value> {
        let numbers: Vec<Option<usize>> = words.iter().map(|word| word.parse().ok()).collect();
        let number = |index: usize| numbers.get(index).copied().flatten();
        let port = number(0).and_then(|number| self.ports.get(number)).cloned();
        Some(match (name, words.len()) {
            ("/", 0) => json!(COMMANDS),
            ("/ethdev/list", 0) => json!((0..self.ports.len()).collect::<Vec<_>>()),
            ("/haul/burst/attach" | "/haul/burst/detach", _) => {
                json!({ "ports": 0, "queues": 0, "waiting": 0, "attached": self.queues().len() })
            }
            ("/haul/burst/list", 0 | 1) => {
                let queues = self.queues();
                let some = queues.get(number(0).unwrap_or(0)..).unwrap_or_default();
                json!({ "attached": queues.len(), "gone": 0, "queues": some })
            }
            ("/haul/burst/port", 1) => about(number(0)?, &port?),
            ("/haul/burst/histogram", 2 | 3) => {
                let is_rx = match words.get(2) {
                    None | Some(&"rx") => true,
                    Some(&"tx") => false,
                    Some(_) => return Some(error("a direction is rx or tx")),
                };
                self.histogram(&port.unwrap_or_default(), number(1)?, is_rx)
            }
            ("/haul/nic/counts", 1) => self.crossed(&port?)?,
            ("/ethdev/stats", 1) => self.stats(&port?),
            _ => return None,
        })
    }

    /// The queues as `PORT,QUEUE,rx` and `PORT,QUEUE,tx`.
    fn queues(&mut self) -> Vec<String> {
        let snapshot = (self.snapshot)();
        let number = |name: &str| self.ports.iter().position(|port| port.name == name);
        let numbered = snapshot.ports.iter().filter_map(|(name, queue, _)| {
            let port = number(name)?;
            Some(["rx", "tx"].map(|direction| format!("{port},{queue},{direction}")))
        });
        numbered.flatten().collect()
    }

    fn histogram(&mut self, port: &PortAbout, queue: usize, is_rx: bool) -> Value {
        let snapshot = (self.snapshot)();
        let is_it =
            |(name, own, _): &&(String, u16, _)| *name == port.name && usize::from(*own) == queue;
        match snapshot.ports.iter().find(is_it) {
            Some((.., counters)) => {
                let direction = if is_rx { &counters.rx } else { &counters.tx };
                bursts(direction, snapshot.time_ns)
            }
            None => error("this queue is not attached: see /haul/burst/list"),
        }
    }

    /// The data that crossed a modelled link, in all queues; `None` if the port has no such link.
    fn crossed(&mut self, port: &PortAbout) -> Option<Value> {
        let snapshot = (self.snapshot)();
        let own = || snapshot.crossed.iter().filter(|(name, _)| *name == port.name);
        own().next()?;
        let mut sums = serde_json::Map::new();
        for direction in haul_model::pcie::Direction::ALL {
            let counts = own().flat_map(|(_, counts)| counts.iter());
            let of = counts.filter(|count| count.direction == direction);
            let bytes: u64 = of.map(|count| count.payload_bytes).sum();
            sums.insert(direction.name().to_owned(), bytes.into());
        }
        Some(Value::Object(sums))
    }

    /// The sums over all queues.
    fn stats(&mut self, port: &PortAbout) -> Value {
        let snapshot = (self.snapshot)();
        let own = snapshot.ports.iter().filter(|(name, ..)| *name == port.name);
        let mut sums = [0; STATS.len()];
        for (.., counters) in own {
            sums.iter_mut().zip(stats(counters)).for_each(|(sum, more)| *sum += more);
        }
        json!(STATS.iter().copied().zip(sums).collect::<BTreeMap<_, _>>())
    }
}

fn about(number: usize, port: &PortAbout) -> Value {
    let mut answer = json!({ "port": number, "name": port.name, "driver": port.driver });
    if let Some(modelled) = &port.modelled {
        answer["modelled"] = modelled.clone();
    }
    answer
}

const COMMANDS: [&str; 8] = [
    "/ethdev/list",
    "/ethdev/stats",
    "/haul/burst/attach",
    "/haul/burst/detach",
    "/haul/burst/histogram",
    "/haul/burst/list",
    "/haul/burst/port",
    "/haul/nic/counts",
];

fn error(text: &str) -> Value {
    json!({ "error": text })
}

/// A direction's bursts. The size of every packet is counted, but not the time between bursts.
fn bursts(direction: &Direction, time_ns: u64) -> Value {
    let sizes = direction.batches.iter().enumerate().filter(|(_, count)| **count > 0);
    let pairs: Vec<u64> =
        sizes.take(PAIRS_MAX).flat_map(|(size, count)| [size as u64, *count]).collect();
    json!({
        "batches": pairs,
        "polls": direction.calls(),
        "empty": direction.batches[0],
        "packets": direction.packets,
        "larger_polls": 0,
        "larger_packets": 0,
        "packets_sized": direction.packets,
        "bytes_sized": direction.bytes,
        "gaps": 0,
        "gap_cycles": 0,
        "cycles": time_ns,
        "cycles_per_s": 1_000_000_000_u64,
    })
}

/// The counters of a port, in DPDK's names.
const STATS: [&str; 8] =
    ["ipackets", "opackets", "ibytes", "obytes", "imissed", "rx_nombuf", "ierrors", "oerrors"];

/// The counters of one queue, in the order of [`STATS`].
fn stats(counters: &Counters) -> [u64; STATS.len()] {
    let Counters { rx, tx, .. } = counters;
    let (missed, no_buffer) = (rx.drops_for(DropReason::Full), rx.drops_for(DropReason::NoBuffer));
    let errors = rx.drops_sum() - missed - no_buffer;
    [rx.packets, tx.packets, rx.bytes, tx.bytes, missed, no_buffer, errors, tx.drops_sum()]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use haul_model::pcie::Setup;

    use super::*;
    use crate::telemetry::Telemetry;
    use crate::{Nic, NicSettings, Null, Pool, Port, Running, Settings};

    const DEADLINE: Duration = Duration::from_secs(30);

    /// A worker between a modelled NIC, from which `packets` packets arrive, and a null port.
    fn forward(packets: u64) -> Running {
        let nic: &haul_model::pcie::Nic = "ice".parse().unwrap();
        let setup = Setup::of(*nic, "gen3x8".parse().unwrap());
        let settings = NicSettings { packets: Some(packets), ..NicSettings::new(setup) };
        let nic = Nic::open("nic0", settings).unwrap();
        let ports: Vec<Box<dyn Port>> = vec![Box::new(nic), Box::new(Null::new("null0"))];
        let pool = Pool::new(4096).unwrap();
        Running::start("t", ports, pool, Settings { yields: true, ..Settings::default() }).unwrap()
    }

    #[test]
    fn forwarder_answers_like_the_probe() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let running = forward(100_000);
        // The worker may get its first processor time late.
        while running.snapshot().ports.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let modelled = Some(json!({ "nic": "ice" }));
        let about = |name: &str, driver: &str, modelled| PortAbout {
            name: name.into(),
            driver: driver.into(),
            modelled,
        };
        let ports = vec![about("nic0", "haul_nic", modelled), about("null0", "haul_null", None)];
        let observer = running.observer();
        let server = serve(Some(&path), move || observer.now(), ports).unwrap();
        let mut client = Telemetry::connect(server.path(), DEADLINE).unwrap();
        let mut ask = |command: &str| client.ask(command).unwrap();
        assert_eq!(ask("/haul/burst/attach")["attached"], 4);
        let queues = json!(["0,0,rx", "0,0,tx", "1,0,rx", "1,0,tx"]);
        assert_eq!(ask("/haul/burst/list")["queues"], queues);
        assert_eq!(ask("/haul/burst/list,4")["queues"], json!([]));
        let port = ask("/haul/burst/port,0");
        assert_eq!((&port["name"], &port["driver"]), (&json!("nic0"), &json!("haul_nic")));
        assert_eq!(port["modelled"]["nic"], "ice");
        assert_eq!(ask("/ethdev/list"), json!([0, 1]));
        assert!(ask("/haul/burst/histogram,0,1")["error"].is_string());
        assert!(ask("/haul/burst/histogram,0,0,up")["error"].is_string());
        for none in ["/haul/burst/port,2", "/haul/nic/counts,1", "/ethdev/stats,x", "/eal/x"] {
            assert!(matches!(client.ask(none), Err(Error::Refused { .. })), "{none}");
        }
        // Repeated answers grow until all packets have arrived, and each answer is consistent.
        let (mut before, mut packets) = (0, 0);
        while packets < 100_000 {
            let answer = client.ask("/haul/burst/histogram,0,0,rx").unwrap();
            let pairs: Vec<u64> = serde_json::from_value(answer["batches"].clone()).unwrap();
            let sum: u64 = pairs.chunks(2).map(|pair| pair[0] * pair[1]).sum();
            packets = answer["packets"].as_u64().unwrap();
            assert_eq!(sum, packets, "{answer}");
            assert!(packets >= before && answer["bytes_sized"] == packets * 64);
            before = packets;
        }
        let stats = client.ask("/ethdev/stats,1").unwrap();
        assert!(stats["opackets"].as_u64().unwrap() <= 100_000, "{stats}");
        let snapshot = running.stop().unwrap();
        // The worker has ended, but its last counts are still served.
        let counts = client.ask("/haul/nic/counts,0").unwrap();
        let (_, crossed) = &snapshot.crossed[0];
        assert_eq!(counts["inbound_write"].as_u64(), {
            let of = |what| crossed.get(what).map(|count| count.payload_bytes);
            of("rx packet").zip(of("rx write-back")).map(|(a, b)| a + b)
        });
        assert_eq!(client.ask("/ethdev/stats,1").unwrap()["opackets"], 100_000);
    }

    #[test]
    fn folder_open_to_others_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let (own, link) = (folder.path().join("run/haul"), folder.path().join("link"));
        own_folder(&own).unwrap();
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        own_folder(&own).unwrap();
        symlink(&own, &link).unwrap();
        assert!(own_folder(&link).unwrap_err().to_string().contains("is a link of user"));
        for mode in [0o777, 0o1777, 0o770] {
            fs::set_permissions(&own, fs::Permissions::from_mode(mode)).unwrap();
            let said = own_folder(&own).unwrap_err().to_string();
            assert!(said.contains(&format!("with mode {mode:o}")), "{said}");
        }
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        own_folder(&own).unwrap();
        if std::os::unix::fs::chown(&own, Some(54_321), None).is_ok() {
            let said = own_folder(&own).unwrap_err().to_string();
            assert!(said.contains("is a folder of user 54321"), "{said}");
        }
    }

    #[test]
    fn sockets_of_killed_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        // No process has this number: the kernel's limit is 2^22.
        let (gone, own) = ("forward-99999999", format!("forward-{}", std::process::id()));
        for name in [gone, own.as_str(), "rte"] {
            let index = folder.path().join(name);
            fs::create_dir(&index).unwrap();
            drop(std::os::unix::net::UnixListener::bind(index.join("dpdk_telemetry.v2")).unwrap());
        }
        remove_abandoned(folder.path());
        assert!(!folder.path().join(gone).exists());
        assert!(folder.path().join(own).exists() && folder.path().join("rte").exists());
    }
}
