//! The thread that meets front ends: it listens, or connects, has the conversation, and begins
//! again when it is over.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use super::super::error::Error;
use super::super::messages::{Conversation, leave};
use super::super::user_socket::{Meeting, RETRY_NS, Role, Wake};
use super::device::Device;
use haul_peer::closer;
use haul_peer::fork::Thread;
use haul_peer::users::Users;

/// The thread, ended when this goes.
#[derive(Debug)]
pub(super) struct Control {
    device: Arc<Device>,
    wake: Wake,
    thread: Thread,
}

impl Control {
    /// Starts it. A server's socket is there when this returns.
    pub(super) fn start(
        device: Arc<Device>,
        path: &Path,
        role: Role,
        users: &Users,
    ) -> Result<Self, Error> {
        let wake = Wake::new()?;
        let meeting = Meeting::new(path, role, users)?;
        let (its_device, its_wake) = (device.clone(), wake.clone());
        let started = thread::Builder::new()
            .name("haul-vhost".into())
            .spawn(move || converse(&its_device, &meeting, &its_wake));
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
        // A child of fork has copies of the descriptors alone: the conversation is its parent's.
        if !self.thread.is_here() {
            return;
        }
        self.device.stop();
        self.wake.wake();
        // It has nothing to say: what goes wrong ends a conversation, and is counted.
        let _ = self.thread.join();
    }
}

fn converse(device: &Arc<Device>, meeting: &Meeting, wake: &Wake) {
    while !device.is_stopped() {
        if closer::check().is_err() {
            // Too much of those before is not closed yet.
            wake.pause(RETRY_NS);
            continue;
        }
        let socket = match meeting.wait(wake) {
            Ok(Some(socket)) => socket,
            Ok(None) => continue,
            Err(why) => {
                device.turned_away(why);
                continue;
            }
        };
        let Ok(other) = socket.try_clone() else {
            // The process may open no more files, and the front end connects again.
            leave(socket);
            wake.pause(RETRY_NS);
            continue;
        };
        if device.begin(other) {
            let wrong = talk(device, socket);
            device.end(wrong);
        } else {
            leave(socket);
        }
    }
}

/// Has one conversation, and says what the front end ended it by, if that was something wrong.
fn talk(device: &Arc<Device>, socket: UnixStream) -> Option<String> {
    let mut conversation = Conversation::new(socket, device.clone()).ok()?;
    loop {
        match conversation.next() {
            // Why was noted when it was refused.
            Ok(true) if device.is_refused() => return Some("it said what cannot be".to_owned()),
            Ok(true) => {}
            Ok(false) => return None,
            Err(why) => return (!device.is_stopped()).then_some(why),
        }
    }
}
