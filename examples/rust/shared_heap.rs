//! A heap that two processes share: one process writes to a block, and the other reads the block
//! in place.

use std::error::Error;
use std::ptr::NonNull;
use std::{env, process, slice};

use haul::heap::{Heap, Offset, Request};

const TEXT: &[u8] = b"from one process to the other, without a copy";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().collect();
    match arguments.as_slice() {
        [_, name, offset] => read(name, offset.parse()?),
        _ => write(),
    }
}

fn write() -> Result<(), Box<dyn Error>> {
    let name = format!("example-{}", process::id());
    let heap = Heap::builder().limit(1 << 30).shared_named(&name)?;
    let block = heap.alloc(Request::new(TEXT.len()))?;
    // SAFETY: the block has at least that length, and no other thread knows it yet.
    unsafe { slice::from_raw_parts_mut(block.as_ptr(), TEXT.len()) }.copy_from_slice(TEXT);

    // Each process maps the heap at another address, so processes exchange offsets.
    let offset = heap.offset(block).ok_or("the block is not in this heap")?;
    let status = process::Command::new(env::current_exe()?)
        .args([&name, &offset.bytes().to_string()])
        .status()?;
    // SAFETY: the block was allocated above, and the other process has ended.
    unsafe { heap.free(block) }?;
    Heap::remove_name(&name)?;
    if status.success() { Ok(()) } else { Err("the other process failed".into()) }
}

fn read(name: &str, offset: u64) -> Result<(), Box<dyn Error>> {
    let heap = Heap::builder().attach_named(name)?;
    let block: NonNull<u8> =
        heap.pointer(Offset::new(offset)).ok_or("the offset is outside the heap")?;
    // SAFETY: the other process does not change the block until this process has ended.
    let text = unsafe { slice::from_raw_parts(block.as_ptr(), TEXT.len()) };
    assert_eq!(text, TEXT);
    println!("process {} reads: {}", process::id(), String::from_utf8_lossy(text));
    Ok(())
}
