//! Receives messages of any size into blocks of a heap. The sender has them in blocks of its own.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::{env, process};

use haul::channel::{self, Channel, Listener, Settings};
use haul::heap::{Heap, Node, Request};

const SIZES: [usize; 4] = [64, 4096, 1 << 20, 8 << 20];

fn main() -> Result<(), Box<dyn Error>> {
    let heap = Heap::builder().build()?; // each process has a heap of its own
    match env::args_os().nth(1) {
        Some(socket) => send(&heap, Path::new(&socket)),
        None => receive(&heap),
    }
}

/// A zeroed block of this size.
fn block(heap: &Heap, size: usize) -> Result<NonNull<[u8]>, Box<dyn Error>> {
    let block = heap.zalloc(Request::new(size).aligned(64))?;
    Ok(NonNull::slice_from_raw_parts(block, size))
}

fn send(heap: &Heap, socket: &Path) -> Result<(), Box<dyn Error>> {
    let mut channel = Channel::connect(socket, &Settings::default())?;
    for (size, byte) in SIZES.into_iter().zip(1..) {
        let mut message = block(heap, size)?;
        // SAFETY: initialised bytes of a block, to which no other reference exists.
        let bytes = unsafe { message.as_mut() };
        bytes.fill(byte);
        channel.send(bytes)?; // after the call the bytes are this process's again
        // SAFETY: allocated above, and not used again.
        unsafe { heap.free(message.cast()) }?;
    }
    Ok(())
}

fn receive(heap: &Heap) -> Result<(), Box<dyn Error>> {
    let folder = env::var_os("XDG_RUNTIME_DIR").map_or_else(env::temp_dir, PathBuf::from);
    let socket = folder.join(format!("haul-example-{}.socket", process::id()));
    let listener = Listener::bind(&socket)?;
    let mut sender = process::Command::new(env::current_exe()?).arg(&socket).spawn()?;

    let mut channel = listener.accept(&Settings::default())?;
    let mut messages = Vec::new();
    loop {
        let size = match channel.wait_length() {
            Ok(size) => size,
            Err(channel::Error::Closed) => break, // the sender has closed its end
            Err(error) => return Err(error.into()),
        };
        let mut message = block(heap, size)?;
        // SAFETY: initialised bytes of a block, to which no other reference exists.
        channel.recv_into(unsafe { message.as_mut() })?;
        messages.push(message);
    }
    let blocks = heap.stats(Node::ANY).live.blocks;
    println!("received {} messages into {blocks} blocks of the heap", messages.len());
    assert_eq!(messages.len(), SIZES.len());
    for ((message, size), byte) in messages.into_iter().zip(SIZES).zip(1..) {
        // SAFETY: as above.
        let bytes = unsafe { message.as_ref() };
        assert!(bytes.len() == size && bytes.iter().all(|it| *it == byte));
        // SAFETY: allocated above, and not used again.
        unsafe { heap.free(message.cast()) }?;
    }
    if sender.wait()?.success() { Ok(()) } else { Err("the sender failed".into()) }
}
