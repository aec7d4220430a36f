//! Sends 64 MiB to another process, which gets a private copy of the whole message, or no
//! message.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, process};

use haul::channel::{Channel, Listener, Settings};

const BYTES: usize = 64 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    haul::init();
    match env::args_os().nth(1) {
        Some(socket) => send(Path::new(&socket)),
        None => receive(),
    }
}

fn receive() -> Result<(), Box<dyn Error>> {
    let folder = env::var_os("XDG_RUNTIME_DIR").map_or_else(env::temp_dir, PathBuf::from);
    let socket = folder.join(format!("haul-example-{}.socket", process::id()));
    let listener = Listener::bind(&socket)?;
    let mut sender = process::Command::new(env::current_exe()?).arg(&socket).spawn()?;

    let mut channel = listener.accept(&Settings::default())?;
    let message = channel.recv()?; // a private, writable Buffer
    assert!(message.len() == BYTES && message.iter().all(|byte| *byte == 7));
    println!("received {} B from process {:?}", message.len(), channel.peer().process);
    channel.send(b"thank you")?;
    if sender.wait()?.success() { Ok(()) } else { Err("the sender failed".into()) }
}

fn send(socket: &Path) -> Result<(), Box<dyn Error>> {
    let mut channel = Channel::connect(socket, &Settings::default())?;
    // After the call, this process may change the bytes.
    let account = channel.send(&vec![7; BYTES])?;
    println!("sent {BYTES} B by {}", account.mechanism);
    let mut answer = [0; 9];
    channel.recv_into(&mut answer)?;
    assert_eq!(&answer, b"thank you");
    Ok(())
}
