//! The directory of control sockets -> the requested socket.
//!
//! Most hosts run one gateway, so commands need no path. Sockets of killed gateways are removed here.

use super::socket::Identity;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Returns the path of a gateway's control socket. `wanted` is a path with a slash or the gateway's name. `None`
/// stands for the only socket in the directory.
///
/// # Errors
/// There is no such socket, or the directory contains several and none is named.
pub fn find(wanted: Option<&str>) -> io::Result<PathBuf> {
    match wanted {
        Some(path) if path.contains('/') => Ok(path.into()),
        Some(name) => Ok(Path::new(DIRECTORY).join(format!("{name}.sock"))),
        None => only_one(Path::new(DIRECTORY)),
    }
}

/// Removes the control sockets of killed gateways from the default directory. Returns the removed paths.
///
/// # Errors
/// A socket cannot be removed.
pub fn undo() -> io::Result<Vec<PathBuf>> {
    undo_in(Path::new(DIRECTORY), OPEN_TIMEOUT)
}

fn undo_in(directory: &Path, timeout: Duration) -> io::Result<Vec<PathBuf>> {
    let left: Vec<_> = paths_in(directory).into_iter().filter_map(|path| Some((left_at(&path)?, path))).collect();
    if !left.is_empty() {
        // A new socket has a file before it listens.
        std::thread::sleep(timeout);
    }
    let mut removed = Vec::new();
    for (identity, path) in left {
        if left_at(&path) != Some(identity) {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => removed.push(path),
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let text = format!("{}: cannot remove it: {error}", path.display());
                return Err(io::Error::new(error.kind(), text));
            }
        }
    }
    Ok(removed)
}

/// Returns the identity of the stale socket at a path; `None` if there is no socket, or if a process listens on it.
fn left_at(path: &Path) -> Option<Identity> {
    let it = fs::symlink_metadata(path).ok().filter(|it| it.file_type().is_socket())?;
    // Connecting to a socket with a full queue would block.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    let answer = connect(&socket, &SocketAddrUnix::new(path).ok()?);
    (answer == Err(Errno::CONNREFUSED)).then(|| (it.dev(), it.ino()))
}

/// Returns the paths of possible control sockets in a directory, sorted.
fn paths_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    paths.sort();
    paths
}

fn only_one(directory: &Path) -> io::Result<PathBuf> {
    match &paths_in(directory)[..] {
        [path] => Ok(path.clone()),
        [] => {
            let said =
                format!("{}: no gateway runs here; give the path of its control socket", directory.display());
            Err(io::Error::new(io::ErrorKind::NotFound, said))
        }
        several => {
            let names: Vec<_> = several.iter().filter_map(|path| path.file_stem()?.to_str()).collect();
            Err(io::Error::other(format!("several gateways run here; name one of {}", names.join(", "))))
        }
    }
}

/// The default directory of control sockets.
const DIRECTORY: &str = "/run/wideload";
/// Longest time between the creation of a socket's file and the start of listening.
const OPEN_TIMEOUT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::socket::BACKLOG;
    use rustix::net::{bind, listen};
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_stale_sockets_are_removed() {
        let folder = tempfile::tempdir().expect("there is room");
        let at = |name: &str| folder.path().join(name);
        let listens = UnixListener::bind(at("works.sock")).expect("the path is free");
        for name in ["killed.sock", "killed.other"] {
            drop(UnixListener::bind(at(name)).expect("the path is free"));
        }
        fs::write(at("file.sock"), "precious").expect("there is room");
        std::os::unix::fs::symlink(at("killed.other"), at("link.sock")).expect("there is room");
        // This socket starts to listen a moment later.
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("it is free");
        let address = SocketAddrUnix::new(at("begins.sock")).expect("it is short");
        bind(&socket, &address).expect("the path is free");
        let folder = &folder;
        let removed = std::thread::scope(|scope| {
            let timeout = Duration::from_secs(1);
            let undoing = scope.spawn(move || undo_in(folder.path(), timeout));
            std::thread::sleep(timeout / 4);
            listen(&socket, BACKLOG).expect("any socket can listen");
            undoing.join().expect("it does not panic")
        });
        assert_eq!(removed.expect("all can be removed"), [at("killed.sock")]);
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).expect("it is there").flatten().map(|it| it.file_name()).collect();
        names.sort();
        assert_eq!(names, ["begins.sock", "file.sock", "killed.other", "link.sock", "works.sock"]);
        drop(listens);
    }
}
