//! One end of a transfer by iceoryx2: `haul-peer-iceoryx2 SOCKET A|B`, started by `haul channel
//! bench`.
//!
//! iceoryx2 shares memory: the publisher can still write to a message while the subscriber reads
//! it. For private memory at both ends, A copies its message into a loaned sample and B copies it
//! out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use haul_experiments::channel::driver;
use haul_experiments::channel::protocol::{Side, Task};
use haul_experiments::channel::transport::Transport;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::port::update_connections::UpdateConnections;
use iceoryx2::prelude::*;

/// How long an end waits for the other end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of samples between the two ends: as many as fit into 1 MiB, within these bounds.
const BUFFERED_BYTES: usize = 1 << 20;
const BUFFERED_MIN: usize = 2;
const BUFFERED_MAX: usize = 256;

const LOCK: &str = include_str!("../Cargo.lock");

type Service = ipc::Service;

/// The ports of both directions.
struct Ports {
    publisher: Publisher<Service, [u8], ()>,
    subscriber: Subscriber<Service, [u8], ()>,
}

struct Iceoryx2 {
    side: Side,
    /// The name of the run, so that two runs have different services.
    name: String,
    /// Created for the messages of the first task, because all messages of a run have one size.
    ports: Option<Ports>,
}

fn main() -> ExitCode {
    set_log_level(LogLevel::Error);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [control, side] = &arguments[..] else {
        eprintln!("usage: haul-peer-iceoryx2 SOCKET A|B; haul channel bench starts it");
        return ExitCode::from(2);
    };
    let served = side.parse().and_then(|side| {
        driver::serve(side, &PathBuf::from(control), version(), &open).map_err(|e| e.to_string())
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

/// The version of iceoryx2 in the lock file.
fn version() -> &'static str {
    let own = LOCK.split("[[package]]").find(|text| text.contains("name = \"iceoryx2\"\n"));
    let version = own.and_then(|text| text.split("version = \"").nth(1)?.split('"').next());
    version.unwrap_or("unknown")
}

fn open(_name: &str, side: Side, folder: &Path) -> Result<Box<dyn Transport>, String> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Box::new(Iceoryx2 { side, name, ports: None }))
}

impl Iceoryx2 {
    fn ports(&mut self) -> Result<&mut Ports, String> {
        self.ports.as_mut().ok_or_else(|| "no task was prepared".to_owned())
    }

    /// Creates or opens the services of both directions, and waits until each has both ends.
    fn connect(&self, size: usize) -> Result<Ports, String> {
        let node = NodeBuilder::new().create::<Service>().map_err(text_of)?;
        let service = |direction: &str| {
            let name = format!("{}/{direction}", self.name);
            let name = ServiceName::new(&name).map_err(text_of)?;
            node.service_builder(&name)
                .publish_subscribe::<[u8]>()
                .max_publishers(1)
                .max_subscribers(1)
                .history_size(0)
                .enable_safe_overflow(false)
                .subscriber_max_borrowed_samples(1)
                .subscriber_max_buffer_size(
                    (BUFFERED_BYTES / size).clamp(BUFFERED_MIN, BUFFERED_MAX),
                )
                .open_or_create()
                .map_err(text_of)
        };
        let (there, back) = (service("there")?, service("back")?);
        let (out, into) = if self.side == Side::A { (&there, &back) } else { (&back, &there) };
        let publisher = out
            .publisher_builder()
            .initial_max_slice_len(size)
            .max_loaned_samples(1)
            .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
            .create()
            .map_err(text_of)?;
        let subscriber = into.subscriber_builder().create().map_err(text_of)?;
        let started = Instant::now();
        while out.dynamic_config().number_of_subscribers() == 0
            || into.dynamic_config().number_of_publishers() == 0
        {
            if started.elapsed() > PATIENCE {
                return Err("the other end did not start in time".to_owned());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        publisher.update_connections().map_err(text_of)?;
        Ok(Ports { publisher, subscriber })
    }
}

impl Transport for Iceoryx2 {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        let ports = self.ports()?;
        let sample = ports.publisher.loan_slice_uninit(message.len()).map_err(text_of)?;
        match sample.write_from_slice(message).send().map_err(text_of)? {
            1 => Ok(()),
            count => Err(format!("{count} subscribers got the message instead of 1")),
        }
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        let ports = self.ports()?;
        loop {
            // Polled, as in iceoryx2's own benchmarks.
            let Some(sample) = ports.subscriber.receive().map_err(text_of)? else {
                std::hint::spin_loop();
                continue;
            };
            let payload = sample.payload();
            if payload.len() != target.len() {
                return Err(format!("received {} B instead of {}", payload.len(), target.len()));
            }
            target.copy_from_slice(payload);
            return Ok(());
        }
    }

    fn before(&mut self, task: &Task, _source: &[u8]) -> Result<(), String> {
        if self.ports.is_none() {
            self.ports = Some(self.connect(task.size)?);
        }
        Ok(())
    }
}

fn text_of(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}
