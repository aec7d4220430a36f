//! The transports that every system has: a pipe and a Unix socket, with their default settings.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::{Transport, meet, path};
use crate::channel::protocol::Side;

/// A pipe in each direction: standard input and standard output, which the run has connected to
/// the other end.
pub(super) struct Pipe {
    input: File,
    output: File,
    capacity_bytes: u64,
}

/// A Unix stream socket.
pub(super) struct Unix {
    stream: UnixStream,
    buffer_bytes: u64,
}

impl Pipe {
    pub(super) fn open() -> Result<Self, String> {
        let duplicate = |file: io::Result<std::os::fd::OwnedFd>| file.map(File::from);
        let input = duplicate(io::stdin().as_fd().try_clone_to_owned());
        let output = duplicate(io::stdout().as_fd().try_clone_to_owned());
        let (input, output) =
            (input.map_err(|e| e.to_string())?, output.map_err(|e| e.to_string())?);
        let capacity = rustix::pipe::fcntl_getpipe_size(&output).map_err(|e| e.to_string())?;
        Ok(Self { input, output, capacity_bytes: capacity as u64 })
    }
}

impl Unix {
    pub(super) fn open(side: Side, folder: &Path) -> Result<Self, String> {
        let path = path(folder, "unix");
        let stream = match side {
            Side::A => meet(|| UnixStream::connect(&path))?,
            Side::B => {
                let listener = UnixListener::bind(&path).map_err(|e| e.to_string())?;
                listener.accept().map_err(|e| e.to_string())?.0
            }
        };
        let buffer_bytes = send_buffer_bytes(&stream);
        Ok(Self { stream, buffer_bytes })
    }
}

impl Transport for Pipe {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        self.output.write_all(message).map_err(|error| error.to_string())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        self.input.read_exact(target).map_err(|error| error.to_string())
    }

    /// The kernel's buffer for the direction in which this end sends.
    fn extra_bytes(&self) -> Option<u64> {
        Some(self.capacity_bytes)
    }
}

impl Transport for Unix {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        self.stream.write_all(message).map_err(|error| error.to_string())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        self.stream.read_exact(target).map_err(|error| error.to_string())
    }

    fn extra_bytes(&self) -> Option<u64> {
        Some(self.buffer_bytes)
    }
}

/// The bytes that the kernel buffers in the socket (socket(7), SO_SNDBUF); 0 if the kernel does
/// not report them.
fn send_buffer_bytes(stream: &UnixStream) -> u64 {
    let mut bytes: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int, the pointers are to an int and to its size, and both outlive
    // the call. The descriptor is the stream's, which is borrowed.
    let status = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw mut bytes).cast(),
            &raw mut length,
        )
    };
    if status == 0 { u64::try_from(bytes).unwrap_or(0) } else { 0 }
}
