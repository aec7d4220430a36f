//! The thread that connects to front ends. It listens or connects, handles one conversation, and
//! starts again when the conversation ends.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::device::Device;
use crate::error::Error;
use crate::messages::{Conversation, close};
use crate::user_socket::{Endpoint, RETRY_NS, Role, Wake};
use haul_peer::closer;
use haul_peer::fork::Thread;
use haul_peer::users::Users;

/// The control thread. Dropping this ends the thread.
#[derive(Debug)]
pub(super) struct Control {
    device: Arc<Device>,
    wake: Wake,
    thread: Thread,
}

impl Control {
    /// Starts the thread. A server's socket exists when this returns.
    pub(super) fn start(
        device: Arc<Device>,
        path: &Path,
        role: Role,
        users: &Users,
    ) -> Result<Self, Error> {
        let wake = Wake::new()?;
        let endpoint = Endpoint::new(path, role, users)?;
        let (its_device, its_wake) = (device.clone(), wake.clone());
        let started = thread::Builder::new()
            .name("haul-vhost".into())
            .spawn(move || run(&its_device, &endpoint, &its_wake));
        let thread = started.map_err(|reason| Error::System {
            attempt: "start a thread for vhost-user's messages",
            reason,
            remedy: "raise the limit of processes (ulimit -u)",
        })?;
        Ok(Self { device, wake, thread: Thread::new(thread) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A child of fork has only copies of the descriptors: the conversation is its parent's.
        if !self.thread.is_here() {
            return;
        }
        self.device.stop();
        self.wake.wake();
        // The thread returns no error: a failure ends a conversation and is counted.
        let _ = self.thread.join();
    }
}

fn run(device: &Arc<Device>, endpoint: &Endpoint, wake: &Wake) {
    while !device.is_stopped() {
        if closer::check().is_err() {
            // Too many earlier connections are not closed yet.
            wake.pause(RETRY_NS);
            continue;
        }
        let socket = match endpoint.wait(wake) {
            Ok(Some(socket)) => socket,
            Ok(None) => continue,
            Err(why) => {
                device.record_rejected(why);
                continue;
            }
        };
        let Ok(other) = socket.try_clone() else {
            // The process has no descriptors left. The front end will reconnect.
            close(socket);
            wake.pause(RETRY_NS);
            continue;
        };
        if device.begin(other) {
            let wrong = serve(device, socket);
            device.end(wrong);
        } else {
            close(socket);
        }
    }
}

/// Handles one conversation. Returns the fault of the front end that ended it, if there was one.
fn serve(device: &Arc<Device>, socket: UnixStream) -> Option<String> {
    let mut conversation = Conversation::new(socket, device.clone()).ok()?;
    loop {
        match conversation.next() {
            // The reason was recorded with the refusal.
            Ok(true) if device.is_refused() => {
                return Some("it sent an invalid request".to_owned());
            }
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => return (!device.is_stopped()).then_some(why),
        }
    }
}
