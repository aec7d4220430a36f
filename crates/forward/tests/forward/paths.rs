//! Paths that ports are given: empty ones, and what another user, or anybody, left there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;

use haul_forward::{
    Pcap, PcapSettings, Replay, Role, Vhost, VhostSettings, Virtio, VirtioSettings,
};

/// Of nobody who runs this.
const SOMEBODY: u32 = 54_321;

fn capture(input: Option<&Path>, output: Option<&Path>) -> Result<Pcap, haul_forward::Error> {
    let (input, output) = (input.map(Path::to_path_buf), output.map(Path::to_path_buf));
    let replay = Replay::Free;
    let settings = PcapSettings { input, output, passes: Some(1), replay, pause_max: None };
    Pcap::open("pcap", &settings)
}

#[test]
fn an_empty_path_is_refused_by_every_port_and_socket() {
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
    for (what, said) in refused {
        assert!(said.starts_with("cannot") || said.contains("name"), "{what}: {said}");
    }
}

#[test]
fn what_is_in_the_way_of_a_socket_is_named_with_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "precious").unwrap();
    symlink(&file, &link).unwrap();
    let is_root = lchown(&link, Some(SOMEBODY), None).is_ok();
    let vhost = |path: &Path| {
        let said = Vhost::open("v", &VhostSettings::new(path)).map(drop).unwrap_err().to_string();
        assert_eq!(fs::read(&file).unwrap(), b"precious");
        said
    };
    let said = vhost(&file);
    assert!(
        said.contains("a file that is not a socket is there, which is this user's own"),
        "{said}"
    );
    let said = vhost(&link);
    assert!(said.contains("a symbolic link to") && said.contains("remove") | !is_root, "{said}");
    assert!(!is_root || said.contains(&format!("user {SOMEBODY}'s")), "{said}");
    let telemetry =
        haul_forward::telemetry::serve(Some(&link), Default::default, Vec::new()).map(drop);
    let said = telemetry.unwrap_err().to_string();
    assert!(said.contains("a symbolic link to") && said.contains("--no-telemetry"), "{said}");
    let said = haul_channel::Listener::bind(&link).map(drop).unwrap_err().to_string();
    assert!(said.contains("a symbolic link to"), "{said}");
    // A process that has the socket, and one that has locked the folder of an abandoned one.
    let socket = folder.path().join("socket");
    let held = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(vhost(&socket).contains("another process has it"));
    drop(held);
    let lock = fs::File::open(folder.path()).unwrap();
    lock.lock().unwrap();
    let said = vhost(&socket);
    let own = format!("process {} of user", std::process::id());
    let is_named = said.contains(&own) || said.contains("another process has locked");
    assert!(is_named && said.contains("end that process"), "{said}");
    drop(lock);
    drop(Vhost::open("v", &VhostSettings::new(&socket)).unwrap());
}

#[test]
fn a_capture_is_written_for_its_user_alone_and_through_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    drop(capture(None, Some(&at("new.pcap"))).unwrap());
    let mode = fs::metadata(at("new.pcap")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777 & !0o600, 0, "{mode:o}");
    fs::write(at("victim"), "precious").unwrap();
    for (name, target) in [("tofile", "victim"), ("dangling", "nowhere")] {
        symlink(at(target), at(name)).unwrap();
        let said = capture(None, Some(&at(name))).map(drop).unwrap_err().to_string();
        assert!(said.contains("a symbolic link of user") && said.contains(target), "{said}");
    }
    assert_eq!(fs::read(at("victim")).unwrap(), b"precious");
    assert!(!at("nowhere").exists());
    // A file of one's own keeps its mode.
    fs::set_permissions(at("victim"), fs::Permissions::from_mode(0o640)).unwrap();
    drop(capture(None, Some(&at("victim"))).unwrap());
    let mode = fs::metadata(at("victim")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // One that somebody put there would be theirs to read.
    fs::write(at("theirs"), "").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    if chown(at("theirs"), Some(SOMEBODY), None).is_err() {
        eprintln!("SKIPPED: somebody else's file: not running as root: run the tests as root");
        return;
    }
    let said = capture(None, Some(&at("theirs"))).map(drop).unwrap_err().to_string();
    assert!(said.contains(&format!("a regular file of user {SOMEBODY}")), "{said}");
    assert_eq!(fs::read(at("theirs")).unwrap(), b"");
    // In a folder of somebody's own it is asked for.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(folder.path(), Some(SOMEBODY), None).unwrap();
    drop(capture(None, Some(&at("theirs"))).unwrap());
}
