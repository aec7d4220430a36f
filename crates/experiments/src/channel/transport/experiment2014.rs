//! The 2014 experiment of memcpy against vmsplice, unchanged: shared memory of the whole size,
//! into which A copies with memcpy before B copies out of it; and vmsplice at both ends of a
//! pipe, one page per call.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, Mode};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags};

use super::{Transport, meet, path};
use crate::channel::protocol::{Side, Task};

/// The bytes that the experiment passed to each call of vmsplice: its PIPE_BUF, 4096 B.
const CALL_BYTES: usize = 4096;

/// The experiment's `int flags = 0x1`.
const FLAGS: SpliceFlags = SpliceFlags::MOVE;

/// Memory that both processes map.
struct Shared {
    base: NonNull<u8>,
    bytes: usize,
}

/// Shared memory as large as the messages. A byte from A to B replaces the experiment's lock: B
/// begins when A has ended.
pub(super) struct Staged {
    side: Side,
    turn: UnixStream,
    file: File,
    shared: Option<Shared>,
    next: usize,
}

/// A sends with vmsplice into a pipe, and B receives with vmsplice out of it. The pages in the
/// pipe belong to A until B has read them. The run does not write to them before B has verified
/// its bytes.
pub(super) struct Vmsplice {
    pipe: File,
}

impl Shared {
    fn map(file: &File, bytes: usize) -> Result<Self, String> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses does not touch any existing
        // mapping.
        let base = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0)
        };
        let base = base.map_err(|error| format!("cannot map {bytes} B to share: {error}"))?;
        let base = NonNull::new(base.cast()).ok_or("mapped at address 0")?;
        Ok(Self { base, bytes })
    }

    /// The bytes from `start` on, for the process that may access them now.
    fn part(&mut self, start: usize, bytes: usize) -> &mut [u8] {
        assert!(start + bytes <= self.bytes, "{start} + {bytes} is beyond {}", self.bytes);
        // SAFETY: the start is within the mapping, by the assertion above.
        let first = unsafe { self.base.add(start) };
        // SAFETY: the range is within the mapping, which is readable, writable and of initialised
        // bytes, and lives as long as `self`, which is borrowed uniquely. The other process is a
        // driver of this program, which does not touch a message before its turn.
        unsafe { std::slice::from_raw_parts_mut(first.as_ptr(), bytes) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the one `map`, and no slice of it is left. If
        // the call fails, the memory stays mapped, and there is no remedy.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

impl Staged {
    pub(super) fn open(side: Side, folder: &Path) -> Result<Self, String> {
        let path = path(folder, "2014:memcpy");
        let as_text = |error: std::io::Error| error.to_string();
        let (turn, file) = match side {
            Side::A => {
                let memory = rustix::fs::memfd_create("haul-2014", MemfdFlags::CLOEXEC);
                let file = File::from(memory.map_err(|error| error.to_string())?);
                let mut turn = meet(|| UnixStream::connect(&path))?;
                let number = std::os::fd::AsRawFd::as_raw_fd(&file);
                let name = format!("{} {number}\n", std::process::id());
                turn.write_all(name.as_bytes()).map_err(as_text)?;
                (turn, file)
            }
            Side::B => {
                let listener = UnixListener::bind(&path).map_err(as_text)?;
                let mut turn = listener.accept().map_err(as_text)?.0;
                let name = line(&mut turn).map_err(as_text)?;
                let (process, number) =
                    name.split_once(' ').ok_or("the line from A names no memory")?;
                let file = format!("/proc/{process}/fd/{number}");
                (turn, File::options().read(true).write(true).open(file).map_err(as_text)?)
            }
        };
        Ok(Self { side, turn, file, shared: None, next: 0 })
    }

    fn part(&mut self, bytes: usize) -> Result<&mut [u8], String> {
        let start = self.next;
        self.next += bytes;
        Ok(self.shared.as_mut().ok_or("no memory is shared")?.part(start, bytes))
    }
}

impl Transport for Staged {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        self.part(message.len())?.copy_from_slice(message);
        self.turn.write_all(&[1]).map_err(|error| error.to_string())
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        self.turn.read_exact(&mut [0]).map_err(|error| error.to_string())?;
        target.copy_from_slice(self.part(target.len())?);
        Ok(())
    }

    /// A creates the shared memory, and B maps it as soon as it exists. The pages of this memory
    /// exist before the timed part, as in the experiment.
    fn before(&mut self, task: &Task, _source: &[u8]) -> Result<(), String> {
        let bytes = task.size * task.count;
        self.next = 0;
        if self.shared.as_ref().is_some_and(|shared| shared.bytes == bytes) {
            return Ok(());
        }
        self.shared = None;
        if self.side == Side::A {
            self.file.set_len(bytes as u64).map_err(|error| error.to_string())?;
            self.turn.write_all(&[1]).map_err(|error| error.to_string())?;
        } else {
            self.turn.read_exact(&mut [0]).map_err(|error| error.to_string())?;
        }
        let mut shared = Shared::map(&self.file, bytes)?;
        if self.side == Side::A {
            shared.part(0, bytes).fill(1);
        }
        self.shared = Some(shared);
        Ok(())
    }

    fn extra_bytes(&self) -> Option<u64> {
        let shared = self.shared.as_ref().filter(|_| self.side == Side::A);
        Some(shared.map_or(0, |shared| shared.bytes as u64))
    }
}

impl Vmsplice {
    pub(super) fn open(side: Side, folder: &Path) -> Result<Self, String> {
        let path = path(folder, "2014:vmsplice");
        let pipe = match side {
            Side::A => meet(|| File::options().write(true).open(&path))?,
            Side::B => {
                let made = rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &path,
                    rustix::fs::FileType::Fifo,
                    Mode::RUSR | Mode::WUSR,
                    0,
                );
                made.map_err(|error| error.to_string())?;
                File::open(&path).map_err(|error| error.to_string())?
            }
        };
        Ok(Self { pipe })
    }
}

impl Transport for Vmsplice {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        message.chunks(CALL_BYTES).try_for_each(|part| splice_into(&self.pipe, part))
    }

    fn receive(&mut self, target: &mut [u8]) -> Result<(), String> {
        target.chunks_mut(CALL_BYTES).try_for_each(|part| splice_out(&self.pipe, part))
    }

    fn extra_bytes(&self) -> Option<u64> {
        // The pipe holds the pages of A, not copies of them.
        Some(0)
    }
}

/// The experiment's replacement for memcpy, `mymemcpy`: a copy within this process through a
/// pipe, [`CALL_BYTES`] at a time. `mymemcpy` does twice the work of a copy and makes two system
/// calls for each piece.
pub(super) fn mymemcpy(target: &mut [u8], source: &[u8]) -> Result<(), String> {
    let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
    let (reader, writer) = pipe.map_err(|error| format!("make a pipe: {error}"))?;
    // The pipe holds at least one page, so that neither vmsplice call waits for the other.
    for (target, source) in target.chunks_mut(CALL_BYTES).zip(source.chunks(CALL_BYTES)) {
        splice_into(&writer, source)?;
        splice_out(&reader, target)?;
    }
    Ok(())
}

/// Moves the pages of the source into a pipe, until the pipe has all of them.
fn splice_into(pipe: impl AsFd, mut source: &[u8]) -> Result<(), String> {
    while !source.is_empty() {
        let part = IoSliceRaw::from_slice(source);
        // SAFETY: the kernel reads the pages in the pipe for the process that takes them out. The
        // run does not write to them before B has verified its bytes.
        let taken = unsafe { rustix::pipe::vmsplice(&pipe, &[part], FLAGS) };
        source = &source[taken.map_err(|error| format!("vmsplice into a pipe: {error}"))?..];
    }
    Ok(())
}

/// Reads bytes from a pipe into the target, until it is full. The kernel copies them.
fn splice_out(pipe: impl AsFd, mut target: &mut [u8]) -> Result<(), String> {
    while !target.is_empty() {
        let part = IoSliceRaw::from_slice_mut(target);
        // SAFETY: this is the read end of a pipe, so the kernel writes into the target, which is
        // borrowed uniquely until the call has returned. The call maps nothing into the target.
        let given = unsafe { rustix::pipe::vmsplice(&pipe, &[part], FLAGS) };
        let given = given.map_err(|error| format!("vmsplice out of a pipe: {error}"))?;
        if given == 0 {
            return Err("the pipe has ended".into());
        }
        target = &mut target[given..];
    }
    Ok(())
}

/// Reads a short line byte by byte, so that it does not read beyond the line.
fn line(stream: &mut UnixStream) -> std::io::Result<String> {
    let (mut text, mut byte) = (String::new(), [0]);
    loop {
        stream.read_exact(&mut byte)?;
        if byte[0] == b'\n' {
            return Ok(text);
        }
        text.push(char::from(byte[0]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mymemcpy_copies_all_bytes() {
        let source: Vec<u8> = (0..300_001_u32).map(|n| (n % 251) as u8).collect();
        let mut target = vec![0; source.len()];
        mymemcpy(&mut target[7..], &source[7..]).unwrap();
        assert!(target[7..] == source[7..] && target[..7] == [0; 7]);
        mymemcpy(&mut [], &[]).unwrap();
    }
}
