//! Peers of other users, and sockets that other users or dead processes left at a path.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use haul_channel::{Channel, Error, Listener, Mechanism, Settings, Users};

use crate::death::{Started, command, start};
use crate::support::by;

const UNPRIVILEGED: u32 = 65_534;

fn allowing(users: Users) -> Settings {
    Settings { users, ..by(Mechanism::Ring) }
}

fn is_root(what: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("SKIPPED: {what}: not running as root: run the tests as root");
    }
    is_root
}

/// Makes this process belong to user 65534.
fn become_unprivileged() {
    // SAFETY: all arguments are numbers, not pointers.
    let group = unsafe { libc::setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) };
    // SAFETY: likewise.
    let user = unsafe { libc::setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) };
    assert_eq!((group, user), (0, 0));
}

/// A folder in which every user may make sockets.
fn shared_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

fn wait_for(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(60), "no socket");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The role of another user's peer that listens at a path where this user's process is expected.
pub(crate) fn listen_as_other_user(path: &Path) {
    become_unprivileged();
    let listener = Listener::bind_for(path, &Users::Any).unwrap();
    let refused = listener.accept(&allowing(Users::Any)).map(drop).unwrap_err();
    assert!(matches!(refused, Error::PeerGone { .. }), "{refused}");
    for _ in 0..2 {
        let mut channel = listener.accept(&allowing(Users::Any)).unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"meant for another user");
    }
}

#[test]
fn connect_refuses_listener_of_other_user_unless_allowed() {
    if !is_root("a listener of another user") {
        return;
    }
    let folder = shared_folder();
    let path = folder.path().join("socket");
    let peer = start("listen-as-other-user", Mechanism::Ring, &path);
    wait_for(&path);
    let connect = |users| {
        let settings = allowing(users);
        // The path exists before the process listens.
        loop {
            match Channel::connect(&path, &settings) {
                Err(Error::Socket { .. }) => thread::sleep(Duration::from_millis(5)),
                result => return result,
            }
        }
    };
    let error = connect(Users::Own).map(drop).unwrap_err();
    let expected = Some(peer.process());
    assert!(
        matches!(&error, Error::OtherUser { process, user: UNPRIVILEGED, .. } if *process == expected),
        "{error}"
    );
    for users in [Users::OwnAnd(vec![UNPRIVILEGED]), Users::Any] {
        let mut channel = connect(users).unwrap();
        let identity = channel.peer();
        assert_eq!((identity.process, identity.user), (expected, UNPRIVILEGED));
        channel.send(b"meant for another user").unwrap();
    }
    peer.ended_well();
}

/// The role of another user's peer that connects to this user's process.
pub(crate) fn connect_as_other_user(path: &Path) {
    become_unprivileged();
    let refused = Channel::connect(path, &allowing(Users::Own)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("may not allow this user"), "{refused}");
    let mut channel = Channel::connect(path, &allowing(Users::Own)).unwrap();
    assert_eq!(channel.peer().user, 0, "root is always allowed");
    channel.send(b"from another user").unwrap();
}

#[test]
fn accept_refuses_peer_of_other_user_unless_allowed() {
    if !is_root("a sender of another user") {
        return;
    }
    let folder = shared_folder();
    let path = folder.path().join("socket");
    let listener = Listener::bind_for(&path, &Users::OwnAnd(vec![UNPRIVILEGED])).unwrap();
    let peer = start("connect-as-other-user", Mechanism::Ring, &path);
    let error = listener.accept(&allowing(Users::Own)).map(drop).unwrap_err();
    assert!(matches!(error, Error::OtherUser { user: UNPRIVILEGED, .. }), "{error}");
    assert!(error.to_string().contains("--allow-user 65534"), "{error}");
    let mut channel = listener.accept(&allowing(Users::OwnAnd(vec![UNPRIVILEGED]))).unwrap();
    assert_eq!(channel.peer().process, Some(peer.process()));
    assert_eq!(channel.recv().unwrap()[..], *b"from another user");
    peer.ended_well();
    drop(listener);
    let closed = Listener::bind_for(&path, &Users::OwnAnd(Vec::new())).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the socket is open to other users");
    drop(closed);
}

/// The role of a peer whose user has no number in its user namespace.
pub(crate) fn connect_without_a_number(path: &Path) {
    assert_eq!(rustix::process::geteuid().as_raw(), UNPRIVILEGED);
    let refused = Channel::connect(path, &allowing(Users::Own)).map(drop).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("user namespace") && said.contains("--allow-user any"), "{said}");
    let mut channel = Channel::connect(path, &allowing(Users::Any)).unwrap();
    channel.send(b"from a namespace").unwrap();
}

#[test]
fn user_without_number_is_named_in_error_and_can_be_allowed() {
    let can = Command::new("unshare").args(["-rm", "true"]).output();
    if !can.is_ok_and(|ran| ran.status.success()) {
        eprintln!("SKIPPED: a user without a number: no user namespaces: allow them");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = Listener::bind(&path).unwrap();
    let mut command = command("connect-without-a-number", Mechanism::Ring, &path);
    let enter = || match
        // SAFETY: the argument is a number, and the process has one thread.
        unsafe { libc::unshare(libc::CLONE_NEWUSER) }
    {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: only one system call runs between fork and exec.
    let peer = Started(unsafe { command.pre_exec(enter) }.spawn().unwrap());
    let refused = listener.accept(&allowing(Users::Own)).map(drop).unwrap_err();
    assert!(matches!(refused, Error::PeerGone { .. }), "{refused}");
    // Outside of the namespace, the peer's user is the same as before.
    let mut channel = listener.accept(&allowing(Users::Own)).unwrap();
    assert_eq!(channel.peer().user, rustix::process::geteuid().as_raw());
    assert_eq!(channel.recv().unwrap()[..], *b"from a namespace");
    peer.ended_well();
}

/// The role of a peer that is killed while it listens.
pub(crate) fn listen_until_killed(path: &Path) {
    let _listener = Listener::bind(path).unwrap();
    thread::sleep(Duration::from_secs(600));
}

#[test]
fn bind_replaces_socket_of_dead_process_and_not_of_live_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let peer = start("listen-until-killed", Mechanism::Ring, &path);
    wait_for(&path);
    let error = Listener::bind(&path).map(drop).unwrap_err();
    assert!(error.to_string().contains("another process has it"), "{error}");
    drop(peer);
    assert!(path.exists(), "the killed process leaves its socket");
    let listener = Listener::bind(&path).unwrap();
    thread::scope(|scope| {
        let path = &path;
        scope.spawn(move || {
            Channel::connect(path, &by(Mechanism::Ring)).unwrap().send(b"anew").unwrap();
        });
        let mut channel = listener.accept(&by(Mechanism::Ring)).unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"anew");
    });
    // A listener whose socket was replaced does not remove the new one.
    std::fs::remove_file(&path).unwrap();
    let second = Listener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}
