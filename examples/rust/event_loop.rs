//! Messages in an event loop: no call waits, and a descriptor becomes readable when there is work.

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::{env, io};

use haul::channel::{self, Channel, Settings};
use rustix::event::{PollFd, PollFlags, poll};

const MESSAGES: usize = 20;
const BYTES: usize = 4 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    if env::args().len() > 1 { receive() } else { send() }
}

fn send() -> Result<(), Box<dyn Error>> {
    let (ours, theirs) = channel::pair()?;
    // The other process gets its end of the channel as standard input.
    let mut command = Command::new(env::current_exe()?);
    let mut receiver = command.arg("receive").stdin(Stdio::from(theirs)).spawn()?;

    let mut channel = Channel::connect_over(ours, &Settings::default())?;
    let bytes = vec![7; BYTES];
    let mut turns = 0;
    for _ in 0..MESSAGES {
        let mut sending = channel.start_send(&bytes)?;
        while !sending.advance()? {
            wait(sending.as_fd())?;
            turns += 1;
        }
        sending.finish()?;
    }
    println!("sent {MESSAGES} messages in {turns} turns of the loop");
    if receiver.wait()?.success() { Ok(()) } else { Err("the receiver failed".into()) }
}

fn receive() -> Result<(), Box<dyn Error>> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let mut channel = Channel::accept_over(socket, &Settings::default())?;
    let mut received = 0;
    while received < MESSAGES {
        match channel.try_recv()? {
            Some(message) => {
                assert!(message.len() == BYTES && message[BYTES - 1] == 7);
                received += 1;
            }
            None => wait(channel.as_fd())?,
        }
    }
    println!("received {received} messages");
    Ok(())
}

/// Waits, in one turn of the loop, until the descriptor is readable. A real program would poll
/// all its descriptors here.
fn wait(channel: BorrowedFd<'_>) -> Result<(), Box<dyn Error>> {
    poll(&mut [PollFd::new(&channel, PollFlags::IN)], None)?;
    Ok(())
}
