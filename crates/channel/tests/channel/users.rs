//! Peers of other users, and sockets that they, or the dead, left where one's own should be.

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

/// From here on this process is nobody's.
fn become_unprivileged() {
    // SAFETY: takes numbers alone.
    let group = unsafe { libc::setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) };
    // SAFETY: likewise.
    let user = unsafe { libc::setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED) };
    assert_eq!((group, user), (0, 0));
}

/// A folder that everybody may make sockets in.
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

/// What a peer does that is nobody's and listens where another process was to.
pub(crate) fn listen_as_other_user(path: &Path) {
    become_unprivileged();
    let listener = Listener::bind_for(path, &Users::Any).unwrap();
    let refused = listener.accept(&allowing(Users::Any)).map(drop).unwrap_err();
    assert!(matches!(refused, Error::PeerGone { .. }), "{refused}");
    for _ in 0..2 {
        let mut channel = listener.accept(&allowing(Users::Any)).unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"meant for nobody");
    }
}

#[test]
fn whoever_has_the_path_first_gets_nothing_of_another_users() {
    if !is_root("a listener of another user") {
        return;
    }
    let folder = shared_folder();
    let path = folder.path().join("socket");
    let peer = start("listen-as-nobody", Mechanism::Ring, &path);
    wait_for(&path);
    let connect = |users| {
        let settings = allowing(users);
        // The path is there before somebody listens.
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
        channel.send(b"meant for nobody").unwrap();
    }
    peer.ended_well();
}

/// What a peer does that is nobody's and connects to a process that is not.
pub(crate) fn connect_as_other_user(path: &Path) {
    become_unprivileged();
    let refused = Channel::connect(path, &allowing(Users::Own)).map(drop).unwrap_err();
    assert!(refused.to_string().contains("may not allow this user"), "{refused}");
    let mut channel = Channel::connect(path, &allowing(Users::Own)).unwrap();
    assert_eq!(channel.peer().user, 0, "root is always allowed");
    channel.send(b"from nobody").unwrap();
}

#[test]
fn whoever_connects_is_of_a_user_that_may() {
    if !is_root("a sender of another user") {
        return;
    }
    let folder = shared_folder();
    let path = folder.path().join("socket");
    let listener = Listener::bind_for(&path, &Users::OwnAnd(vec![UNPRIVILEGED])).unwrap();
    let peer = start("connect-as-nobody", Mechanism::Ring, &path);
    let error = listener.accept(&allowing(Users::Own)).map(drop).unwrap_err();
    assert!(matches!(error, Error::OtherUser { user: UNPRIVILEGED, .. }), "{error}");
    assert!(error.to_string().contains("--allow-user 65534"), "{error}");
    let mut channel = listener.accept(&allowing(Users::OwnAnd(vec![UNPRIVILEGED]))).unwrap();
    assert_eq!(channel.peer().process, Some(peer.process()));
    assert_eq!(channel.recv().unwrap()[..], *b"from nobody");
    peer.ended_well();
    drop(listener);
    let closed = Listener::bind_for(&path, &Users::OwnAnd(Vec::new())).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "for nobody else");
    drop(closed);
}

/// What a peer does that has no number in its user namespace.
pub(crate) fn connect_without_a_number(path: &Path) {
    assert_eq!(rustix::process::geteuid().as_raw(), UNPRIVILEGED);
    let refused = Channel::connect(path, &allowing(Users::Own)).map(drop).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("user namespace") && said.contains("--allow-user any"), "{said}");
    let mut channel = Channel::connect(path, &allowing(Users::Any)).unwrap();
    channel.send(b"from a namespace").unwrap();
}

#[test]
fn a_user_without_a_number_is_told_so_and_can_be_let_in() {
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
        // SAFETY: takes a number alone, in a process of one thread.
        unsafe { libc::unshare(libc::CLONE_NEWUSER) }
    {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: what runs between fork and exec is one system call.
    let peer = Started(unsafe { command.pre_exec(enter) }.spawn().unwrap());
    let refused = listener.accept(&allowing(Users::Own)).map(drop).unwrap_err();
    assert!(matches!(refused, Error::PeerGone { .. }), "{refused}");
    // From outside it is whoever it was.
    let mut channel = listener.accept(&allowing(Users::Own)).unwrap();
    assert_eq!(channel.peer().user, rustix::process::geteuid().as_raw());
    assert_eq!(channel.recv().unwrap()[..], *b"from a namespace");
    peer.ended_well();
}

/// What a peer does that is killed while it listens.
pub(crate) fn listen_until_killed(path: &Path) {
    let _listener = Listener::bind(path).unwrap();
    thread::sleep(Duration::from_secs(600));
}

#[test]
fn a_socket_that_a_dead_process_left_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let peer = start("listen-until-killed", Mechanism::Ring, &path);
    wait_for(&path);
    let error = Listener::bind(&path).map(drop).unwrap_err();
    assert!(error.to_string().contains("another process has it"), "{error}");
    drop(peer);
    assert!(path.exists(), "whoever is killed leaves it");
    let listener = Listener::bind(&path).unwrap();
    thread::scope(|scope| {
        let path = &path;
        scope.spawn(move || {
            Channel::connect(path, &by(Mechanism::Ring)).unwrap().send(b"anew").unwrap();
        });
        let mut channel = listener.accept(&by(Mechanism::Ring)).unwrap();
        assert_eq!(channel.recv().unwrap()[..], *b"anew");
    });
    // Whoever is not the one that is there any more takes nothing away.
    std::fs::remove_file(&path).unwrap();
    let second = Listener::bind(&path).unwrap();
    drop(listener);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}
