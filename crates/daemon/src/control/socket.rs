//! A path -> a listening Unix socket and its file.
//!
//! The file of a killed gateway must not block the next gateway. The file of a running gateway must not be removed.

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::test_kill_process;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// A listening socket and its file. Dropping this value removes the file.
#[derive(Debug)]
pub struct Socket {
    pub(super) listener: UnixListener,
    pub(super) file: OwnFile,
}

/// A file that is removed on drop, unless another file has replaced it.
#[derive(Debug)]
pub(super) struct OwnFile {
    pub(super) path: PathBuf,
    identity: Identity,
}

/// Device and inode of a file, which identify it.
pub(crate) type Identity = (u64, u64);

impl Socket {
    /// Creates a socket at this path, for its owner and group. Replaces the socket of a gateway that has ended.
    ///
    /// # Errors
    /// Another process answers at the path (the error names it), another kind of file is there, or the kernel
    /// refuses.
    pub fn bind(path: &Path) -> io::Result<Socket> {
        clear(path)?;
        // The bound file has the mode of the socket, so no other user has access in between.
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        fchmod(&socket, Mode::from_raw_mode(FILE_MODE))?;
        let refused = |error: io::Error, advice: &str| {
            io::Error::new(error.kind(), cannot_listen(path, &format!("{error}; {advice}")))
        };
        let address = SocketAddrUnix::new(path).map_err(|error| refused(error.into(), "give a shorter path"))?;
        bind(&socket, &address).map_err(|error| {
            refused(error.into(), "check that its directory exists and is writable, or give another path")
        })?;
        let it = fs::symlink_metadata(path)
            .map_err(|error| refused(error, "the socket was removed meanwhile; try again"))?;
        let file = OwnFile { path: path.to_owned(), identity: (it.dev(), it.ino()) };
        fs::set_permissions(path, Permissions::from_mode(FILE_MODE))
            .map_err(|error| refused(error, "cannot give its group access"))?;
        listen(&socket, BACKLOG)?;
        Ok(Socket { listener: socket.into(), file })
    }

    /// Adopts the listening socket of the predecessor program. If `identity` is `None`, any socket file at the path
    /// counts as that of the adopted socket.
    pub(crate) fn adopt(path: PathBuf, listener: UnixListener, identity: Option<Identity>) -> Socket {
        let there = || fs::symlink_metadata(&path).ok().filter(|it| it.file_type().is_socket());
        let identity = identity.or_else(|| there().map(|it| (it.dev(), it.ino()))).unwrap_or_default();
        Socket { listener, file: OwnFile { path, identity } }
    }

    /// Returns the path of the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Returns the identity of the socket's file.
    pub(crate) fn identity(&self) -> Identity {
        self.file.identity
    }

    /// Returns the listening socket.
    pub(crate) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

/// Whether a control socket may be created at this path: the path is free, or there is a socket.
///
/// # Errors
/// Another kind of file is at the path, or the path cannot be checked.
pub fn may_lie_at(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io::Error::new(error.kind(), cannot_listen(path, &error.to_string()))),
        Ok(it) => it.file_type(),
    };
    let what = match kind {
        _ if kind.is_socket() => return Ok(()),
        _ if kind.is_dir() => "a directory is there",
        _ if kind.is_symlink() => "a symbolic link is there",
        _ if kind.is_fifo() => "a FIFO is there",
        _ if kind.is_file() => "a regular file is there",
        _ => "a device is there",
    };
    let said = cannot_listen(path, &format!("{what}; give another path"));
    Err(io::Error::new(io::ErrorKind::AlreadyExists, said))
}

/// Removes a socket at which no process answers. Waits for the worker process of a killed supervisor, which still
/// has the socket until it ends.
fn clear(path: &Path) -> io::Result<()> {
    may_lie_at(path)?;
    let began = Instant::now();
    let mut answer = UnixStream::connect(path);
    while began.elapsed() < ORPHAN_TIMEOUT && answer.as_ref().is_ok_and(is_of_dead) {
        thread::sleep(PAUSE);
        answer = UnixStream::connect(path);
    }
    match answer {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(
            error.kind(),
            cannot_listen(path, &format!("cannot check for another listener: {error}; give another path")),
        )),
        Ok(stream) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            cannot_listen(path, &format!("{} already listens there; stop it, or give another path", who(&stream))),
        )),
    }
}

fn cannot_listen(path: &Path, why: &str) -> String {
    format!("control {}: cannot listen: {why}", path.display())
}

/// Whether the process that created the socket at the other end of a connection has ended.
fn is_of_dead(stream: &UnixStream) -> bool {
    let creator = socket_peercred(stream).ok().map(|peer| peer.pid);
    creator.is_some_and(|creator| test_kill_process(creator) == Err(Errno::SRCH))
}

/// Returns the name and ID of the process at the other end of a connection.
fn who(stream: &UnixStream) -> String {
    let Ok(peer) = socket_peercred(stream) else { return "a process".to_owned() };
    let number = peer.pid.as_raw_nonzero();
    match fs::read_to_string(format!("/proc/{number}/comm")) {
        Ok(name) => format!("process {number} ({})", name.trim_end()),
        Err(_) => format!("process {number}"),
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|it| (it.dev(), it.ino()) == self.identity);
        if is_ours {
            // If the file cannot be removed, the next gateway finds that no process answers, and removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Permissions of the socket's file: owner and group may read and write.
const FILE_MODE: u32 = 0o660;
/// Longest wait for the worker process of a killed supervisor.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
/// Largest number of connections that wait to be accepted.
pub(super) const BACKLOG: i32 = 16;
