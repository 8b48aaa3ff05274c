//! A name or nothing in, a network namespace out: its own interfaces, addresses, routes and sockets.
//!
//! A socket, a TUN device or a [`Netlink`] stays for good in the namespace in which it was opened, whichever thread uses it
//! later. So it is enough to open things inside.

use crate::failure::{advised, failed, last};
use crate::netlink::Netlink;
use rustix::fs::fstat;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Signal, getgid, getuid, set_parent_process_death_signal};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};
use rustix::thread::{capabilities, move_into_link_name_space, unshare_unsafe};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

/// A network namespace, held by a file descriptor.
///
/// One that was made here has no name: it goes, with all that is in it, when the last descriptor, thread and socket in it
/// goes, however the process ends.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

/// Lets a program go when it is dropped; see [`Namespace::start`].
#[derive(Debug)]
pub struct NamespaceGuard(#[expect(dead_code, reason = "it is dropped")] Sender<()>);

impl Namespace {
    /// A fresh namespace, with nothing in it but a loopback interface that is up.
    ///
    /// # Errors
    /// Most often that the right to make one is missing; see [`become_own_root`].
    pub fn new() -> io::Result<Namespace> {
        let made = thread::scope(|scope| {
            let maker = Builder::new().name("namespace".to_owned()).spawn_scoped(scope, || {
                // SAFETY: the thread ends with this closure, and its descriptors and memory stay shared.
                unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
                let namespace = Namespace::here()?;
                Netlink::open()?.set_up("lo")?;
                Ok(namespace)
            })?;
            maker.join().unwrap_or_else(|panic| resume_unwind(panic))
        });
        made.map_err(|why: io::Error| advised("cannot make a network namespace", &why, RIGHTS))
    }

    /// The number of the namespace in which the calling thread is; the kernel gives it to no other until it starts anew.
    ///
    /// # Errors
    /// The kernel is older than Linux 5.14.
    pub fn cookie() -> io::Result<u64> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        let (mut cookie, mut len) = (0_u64, size_of::<u64>() as libc::socklen_t);
        let (level, option) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
        // SAFETY: the kernel writes one number and its length, which outlive the call.
        let outcome =
            unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut cookie).cast(), &raw mut len) };
        if outcome < 0 { Err(last("cannot ask for the number of the network namespace")) } else { Ok(cookie) }
    }

    /// The namespace in which the calling thread is.
    ///
    /// # Errors
    /// That `/proc` is not there.
    pub fn here() -> io::Result<Namespace> {
        let file = File::open(HERE).map_err(|why| advised(HERE, &why, "mount /proc"))?;
        Ok(Namespace { fd: file.into() })
    }

    /// A namespace that has a name, as `ip netns` gives them, or a path, such as `/proc/4711/ns/net`.
    ///
    /// # Errors
    /// That there is none, or that it cannot be entered.
    pub fn open(name: &str) -> io::Result<Namespace> {
        let path = if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMED).join(name) };
        let what = format!("namespace {name}");
        let file =
            File::open(path).map_err(|why| advised(&what, &why, "`ip netns` lists those that have a name"))?;
        let namespace = Namespace { fd: file.into() };
        namespace.inside(|| ()).map_err(|why| advised(format!("{what}: cannot enter it"), &why, ENTRY))?;
        Ok(namespace)
    }

    /// Runs `f` on a thread inside and gives what it gives; a panic in `f` goes on in the caller.
    ///
    /// # Panics
    /// As `f` does; where there can be no further thread; and where the process has no right to enter: after
    /// [`Namespace::new`] and [`Namespace::open`] it had the right, and what [`Namespace::here`] gave needs it only from a
    /// thread that is elsewhere.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.inside(f).expect("a namespace that was open to us stays so")
    }

    /// Starts a thread of this name that lives inside.
    ///
    /// # Errors
    /// That there can be no further thread, or that it has no right to enter.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        // A thread starts where the one that makes it is.
        let spawned = self.inside(|| Builder::new().name(name.to_owned()).spawn(f)).and_then(|spawned| spawned);
        spawned.map_err(|why| advised(format!("{name}: cannot start it in its namespace"), &why, ENTRY))
    }

    /// Starts a program inside. It is told to end, by SIGTERM, once the tether is dropped, or this process has ended in whatever way:
    /// no program holds a namespace that nobody knows of.
    ///
    /// # Errors
    /// That it cannot be started, or that there can be no further thread.
    pub fn start(&self, mut command: Command) -> io::Result<(Child, NamespaceGuard)> {
        let die = || set_parent_process_death_signal(Some(Signal::TERM)).map_err(io::Error::from);
        // SAFETY: in the new process, before the program begins, it is one system call; it takes no lock and no memory.
        unsafe { command.pre_exec(die) };
        let (tell, told) = channel();
        let (tether, is_cut) = channel();
        // To the kernel the parent is the thread that starts it; so this one stays as long as the tether.
        self.spawn("starter", move || {
            let _ = tell.send(command.spawn());
            let _ = is_cut.recv();
        })?;
        let started =
            told.recv().map_err(|_| io::Error::other("the thread that was to start a program has ended"))?;
        Ok((started?, NamespaceGuard(tether)))
    }

    /// What a setting under `/proc/sys/net/` says inside, such as `ipv4/ip_forward`.
    ///
    /// # Errors
    /// That there is no such setting.
    pub fn sysctl(&self, name: &str) -> io::Result<String> {
        let path = setting(name)?;
        let said = self.enter(|| fs::read_to_string(&path)).map_err(|why| failed(path.display(), &why))?;
        Ok(said.trim_end().to_owned())
    }

    /// Changes a setting under `/proc/sys/net/` inside, such as `ipv4/ip_forward` to `1`.
    ///
    /// # Errors
    /// That there is no such setting, that it takes no such value, or that the right is missing.
    pub fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let path = setting(name)?;
        self.enter(|| OpenOptions::new().write(true).open(&path)?.write_all(value.as_bytes())).map_err(|why| {
            let what = format!("{}: cannot set {value}", path.display());
            match why.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    advised(what, &why, SETTINGS)
                }
                _ => failed(what, &why),
            }
        })
    }

    fn inside<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let inside = Builder::new().spawn_scoped(scope, || self.move_in().map(|()| f()))?;
            inside.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn move_in(&self) -> io::Result<()> {
        if self.is_here() {
            return Ok(());
        }
        Ok(move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Where this is so, to move in needs no right.
    fn is_here(&self) -> bool {
        match (fs::metadata(HERE), fstat(&self.fd)) {
            (Ok(here), Ok(held)) => here.dev() == held.st_dev && here.ino() == held.st_ino,
            _ => false,
        }
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Lets a person who is not root make namespaces, and be root in them: puts the process into a user namespace of its own.
///
/// Does nothing where the process may already make namespaces. It must be called before the process has a second
/// thread. What the process could not do to the host it cannot do after this either, and programs at interfaces
/// stay forbidden.
///
/// # Errors
/// That the kernel does not let such people have user namespaces, or that there is a second thread.
pub fn become_own_root() -> io::Result<()> {
    let held = capabilities(None)?.effective;
    if held.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN) {
        return Ok(());
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    // SAFETY: the kernel refuses it to a process of several threads, and descriptors stay shared.
    let attempt = || unsafe { unshare_unsafe(UnshareFlags::NEWUSER) };
    let mut outcome = attempt();
    // A thread that was joined may still be on its way out of the kernel.
    for _ in 0..LEAVING_TRIES {
        if outcome != Err(rustix::io::Errno::INVAL) {
            break;
        }
        thread::sleep(LEAVING_TRY);
        outcome = attempt();
    }
    outcome.map_err(|why| {
        let advice = if why == rustix::io::Errno::INVAL { SINGLE } else { USER_NAMESPACES };
        advised("cannot make a user namespace", &why.into(), advice)
    })?;
    let write = |file: &str, text: String| {
        fs::write(file, text).map_err(|why| advised(format!("{file}: cannot become root"), &why, USER_NAMESPACES))
    };
    write("/proc/self/setgroups", "deny".to_owned())?;
    write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", format!("0 {gid} 1"))
}

fn setting(name: &str) -> io::Result<PathBuf> {
    let path = Path::new(name);
    let is_plain = !name.is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)));
    if !is_plain {
        let text = format!("{name}: not a setting; name it as under {SYSCTLS}, such as ipv4/ip_forward");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(Path::new(SYSCTLS).join(path))
}

/// How often, and after how long each time, a process is looked at again that seems to have a second thread.
const LEAVING_TRIES: u32 = 20;
const LEAVING_TRY: Duration = Duration::from_millis(5);
const HERE: &str = "/proc/thread-self/ns/net";
const NAMED: &str = "/run/netns";
const SYSCTLS: &str = "/proc/sys/net";
const RIGHTS: &str = "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)";
const ENTRY: &str = "it must be a network namespace; run as root or give CAP_SYS_ADMIN";
const SETTINGS: &str = "run as root, or mount /proc/sys writable";
const SINGLE: &str = "call it before there is a second thread";
const USER_NAMESPACES: &str = "run as root, or allow user namespaces (sysctl user.max_user_namespaces above 0, \
                               kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)";
