//! Paths of ports: empty paths, and paths at which another user left a file.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use haul_forward::{
    Pcap, PcapSettings, Replay, Role, Vhost, VhostSettings, Virtio, VirtioSettings,
};

use crate::support::LONG;

/// The ID of a user that runs no test.
const OTHER_USER: u32 = 54_321;

fn capture(input: Option<&Path>, output: Option<&Path>) -> Result<Pcap, haul_forward::Error> {
    let (input, output) = (input.map(Path::to_path_buf), output.map(Path::to_path_buf));
    let replay = Replay::Free;
    let settings = PcapSettings { input, output, passes: Some(1), replay, pause_max: None };
    Pcap::open("pcap", &settings)
}

#[test]
fn every_port_and_socket_refuses_empty_path() {
    let empty = Path::new("");
    let mut refused: Vec<(&str, String)> = Vec::new();
    for role in [Role::Server, Role::Client] {
        let settings = VhostSettings { role, ..VhostSettings::new(empty) };
        refused.push(("vhost", Vhost::open("v", &settings).map(drop).unwrap_err().to_string()));
        let settings = VirtioSettings { role, ..VirtioSettings::new(empty) };
        refused.push(("virtio", Virtio::open("v", &settings).map(drop).unwrap_err().to_string()));
    }
    for (input, output) in [(Some(empty), None), (None, Some(empty))] {
        let error = capture(input, output).map(drop).unwrap_err();
        refused.push(("pcap", error.to_string()));
    }
    let error = haul_forward::telemetry::serve(Some(empty), Default::default, Vec::new()).map(drop);
    refused.push(("telemetry", error.unwrap_err().to_string()));
    let error =
        haul_forward::telemetry::Telemetry::connect(empty, std::time::Duration::ZERO).map(drop);
    refused.push(("telemetry", error.unwrap_err().to_string()));
    let error = haul_channel::Listener::bind(empty).map(drop).unwrap_err();
    refused.push(("channel", error.to_string()));
    let error = haul_heap::Heap::builder().shared_named("").map(drop).unwrap_err();
    refused.push(("heap", error.to_string()));
    assert_eq!(refused.len(), 10);
    for (what, message) in refused {
        assert!(message.starts_with("cannot") || message.contains("name"), "{what}: {message}");
    }
}

#[test]
fn file_in_the_way_of_socket_is_named_with_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "precious").unwrap();
    symlink(&file, &link).unwrap();
    let is_root = lchown(&link, Some(OTHER_USER), None).is_ok();
    let vhost = |path: &Path| {
        let message =
            Vhost::open("v", &VhostSettings::new(path)).map(drop).unwrap_err().to_string();
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        message
    };
    let message = vhost(&file);
    assert!(
        message.contains("a file that is not a socket is there, which is this user's own"),
        "{message}"
    );
    let message = vhost(&link);
    assert!(
        message.contains("a symbolic link to") && message.contains("remove") | !is_root,
        "{message}"
    );
    assert!(!is_root || message.contains(&format!("user {OTHER_USER}'s")), "{message}");
    let telemetry =
        haul_forward::telemetry::serve(Some(&link), Default::default, Vec::new()).map(drop);
    let message = telemetry.unwrap_err().to_string();
    assert!(
        message.contains("a symbolic link to") && message.contains("--no-telemetry"),
        "{message}"
    );
    let message = haul_channel::Listener::bind(&link).map(drop).unwrap_err().to_string();
    assert!(message.contains("a symbolic link to"), "{message}");
    // One process holds the socket, and another one has locked the folder of an abandoned socket.
    let socket = folder.path().join("socket");
    let held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(vhost(&socket).contains("another process has it"));
    drop(held);
    // Until its program runs, a process that another test starts has a copy of the socket.
    let start = Instant::now();
    while std::os::unix::net::UnixStream::connect(&socket).is_ok() {
        assert!(start.elapsed() < LONG, "another process listens");
        std::thread::sleep(Duration::from_millis(1));
    }
    let lock = fs::File::open(folder.path()).unwrap();
    lock.lock().unwrap();
    let message = vhost(&socket);
    let own = format!("process {} of user", std::process::id());
    let is_named = message.contains(&own) || message.contains("another process has locked");
    assert!(is_named && message.contains("end that process"), "{message}");
    lock.unlock().unwrap();
    drop(Vhost::open("v", &VhostSettings::new(&socket)).unwrap());
}

#[test]
fn output_is_private_and_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    drop(capture(None, Some(&at("new.pcap"))).unwrap());
    let mode = fs::metadata(at("new.pcap")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777 & !0o600, 0, "{mode:o}");
    fs::write(at("victim"), "precious").unwrap();
    for (name, target) in [("tofile", "victim"), ("dangling", "nowhere")] {
        symlink(at(target), at(name)).unwrap();
        let message = capture(None, Some(&at(name))).map(drop).unwrap_err().to_string();
        assert!(
            message.contains("a symbolic link of user") && message.contains(target),
            "{message}"
        );
    }
    assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
    assert!(!at("nowhere").exists());
    // A file of this user keeps its mode.
    fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o640)).unwrap();
    drop(capture(None, Some(&at("victim"))).unwrap());
    let mode = fs::metadata(at("victim")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // Another user that created the file in this folder could read it.
    fs::write(at("theirs"), "").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    if chown(at("theirs"), Some(OTHER_USER), None).is_err() {
        eprintln!("SKIPPED: another user's file: not running as root: run the tests as root");
        return;
    }
    let message = capture(None, Some(&at("theirs"))).map(drop).unwrap_err().to_string();
    assert!(message.contains(&format!("a regular file of user {OTHER_USER}")), "{message}");
    assert_eq!(fs::read(at("theirs")).unwrap(), b"");
    // If the folder belongs to the other user as well, the caller has chosen that user's file.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(folder.path(), Some(OTHER_USER), None).unwrap();
    drop(capture(None, Some(&at("theirs"))).unwrap());
}
