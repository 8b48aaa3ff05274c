//! Programs and functions -> network namespaces, each with its own interfaces, addresses, routes and sockets.
//!
//! A socket, a TUN device or a [`Netlink`] stays in the namespace in which it was opened. Any thread can use it
//! there. So only the opening must run in the namespace.

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

/// A network namespace, kept by a file descriptor.
///
/// A namespace made by [`Namespace::new`] has no name. The kernel removes such a namespace when its last
/// descriptor, socket and thread are gone, even if the process was killed.
#[derive(Debug)]
pub struct Namespace {
    fd: OwnedFd,
}

/// Sends SIGTERM to a program on drop; see [`Namespace::start`].
#[derive(Debug)]
pub struct NamespaceGuard(#[expect(dead_code, reason = "it is dropped")] Sender<()>);

impl Namespace {
    /// Creates a namespace with only a loopback interface, which is up.
    ///
    /// # Errors
    /// The privilege is missing (see [`become_own_root`]), or the kernel refuses for another reason.
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
        made.map_err(|why: io::Error| advised("cannot create a network namespace", &why, RIGHTS))
    }

    /// Returns the cookie of the calling thread's namespace: a number that the kernel gives to no other namespace
    /// before the next boot.
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
        if outcome < 0 { Err(last("cannot read the cookie of the network namespace")) } else { Ok(cookie) }
    }

    /// Returns the namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn here() -> io::Result<Namespace> {
        let file = File::open(HERE).map_err(|why| advised(HERE, &why, "mount /proc"))?;
        Ok(Namespace { fd: file.into() })
    }

    /// Opens a namespace by its name in `ip netns`, or by a path such as `/proc/4711/ns/net`.
    ///
    /// # Errors
    /// The namespace does not exist, or cannot be entered.
    pub fn open(name: &str) -> io::Result<Namespace> {
        let path = if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMED).join(name) };
        let what = format!("namespace {name}");
        let file = File::open(path).map_err(|why| advised(&what, &why, "`ip netns` lists the named ones"))?;
        let namespace = Namespace { fd: file.into() };
        namespace.inside(|| ()).map_err(|why| advised(format!("{what}: cannot enter it"), &why, ENTRY))?;
        Ok(namespace)
    }

    /// Runs `f` on a thread in this namespace, and returns the result. A panic in `f` continues in the caller.
    ///
    /// # Panics
    /// - `f` panics.
    /// - The kernel cannot create a thread.
    /// - The process is not allowed to enter the namespace. For a namespace of [`Namespace::new`] or
    ///   [`Namespace::open`], this was checked. For one of [`Namespace::here`], only a thread in another namespace
    ///   needs the privilege.
    pub fn enter<T: Send>(&self, f: impl FnOnce() -> T + Send) -> T {
        self.inside(f).expect("a namespace that was open to us stays so")
    }

    /// Starts a named thread in this namespace.
    ///
    /// # Errors
    /// The kernel cannot create a thread, or the thread is not allowed to enter the namespace.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        // A new thread starts in the namespace of its creator.
        let spawned = self.inside(|| Builder::new().name(name.to_owned()).spawn(f)).and_then(|spawned| spawned);
        spawned.map_err(|why| advised(format!("{name}: cannot start it in its namespace"), &why, ENTRY))
    }

    /// Starts a program in this namespace. The program receives SIGTERM when the guard is dropped or this process
    /// ends. So no program keeps a forgotten namespace alive.
    ///
    /// # Errors
    /// The program cannot be started, or the kernel cannot create a thread.
    pub fn start(&self, mut command: Command) -> io::Result<(Child, NamespaceGuard)> {
        let die = || set_parent_process_death_signal(Some(Signal::TERM)).map_err(io::Error::from);
        // SAFETY: in the new process, before the program begins, it is one system call; it takes no lock and no
        // memory.
        unsafe { command.pre_exec(die) };
        let (tell, told) = channel();
        let (tether, is_cut) = channel();
        // The kernel treats the starting thread as the parent. So the starting thread must live as long as the
        // guard.
        self.spawn("starter", move || {
            let _ = tell.send(command.spawn());
            let _ = is_cut.recv();
        })?;
        let started =
            told.recv().map_err(|_| io::Error::other("the thread that was to start a program has ended"))?;
        Ok((started?, NamespaceGuard(tether)))
    }

    /// Returns the value of this namespace's setting under `/proc/sys/net/`, such as `ipv4/ip_forward`.
    ///
    /// # Errors
    /// There is no such setting.
    pub fn sysctl(&self, name: &str) -> io::Result<String> {
        let path = setting(name)?;
        let said = self.enter(|| fs::read_to_string(&path)).map_err(|why| failed(path.display(), &why))?;
        Ok(said.trim_end().to_owned())
    }

    /// Changes this namespace's setting under `/proc/sys/net/`, such as `ipv4/ip_forward` to `1`.
    ///
    /// # Errors
    /// There is no such setting, the kernel rejects the value, or privileges are missing.
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

    /// Whether the calling thread is already in this namespace. Entering then needs no privilege.
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

/// Moves the process into a user namespace of its own. An ordinary user can then create network namespaces and be
/// root in them.
///
/// Does nothing if the process is already allowed to create namespaces. Call this before the process has a second
/// thread. The process gains no privileges on the host, and still cannot attach programs to interfaces.
///
/// # Errors
/// The kernel does not allow user namespaces to ordinary users, or there is a second thread.
pub fn become_own_root() -> io::Result<()> {
    let held = capabilities(None)?.effective;
    if held.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN) {
        return Ok(());
    }
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    // SAFETY: the kernel refuses it to a process of several threads, and descriptors stay shared.
    let attempt = || unsafe { unshare_unsafe(UnshareFlags::NEWUSER) };
    let mut outcome = attempt();
    // A joined thread may still be leaving the kernel.
    for _ in 0..LEAVING_TRIES {
        if outcome != Err(rustix::io::Errno::INVAL) {
            break;
        }
        thread::sleep(LEAVING_TRY);
        outcome = attempt();
    }
    outcome.map_err(|why| {
        let advice = if why == rustix::io::Errno::INVAL { SINGLE } else { USER_NAMESPACES };
        advised("cannot create a user namespace", &why.into(), advice)
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

/// Number of retries while the process seems to have a second thread, and the delay before each.
const LEAVING_TRIES: u32 = 20;
const LEAVING_TRY: Duration = Duration::from_millis(5);
const HERE: &str = "/proc/thread-self/ns/net";
const NAMED: &str = "/run/netns";
const SYSCTLS: &str = "/proc/sys/net";
const RIGHTS: &str = "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)";
const ENTRY: &str = "it must be a network namespace; run as root or give CAP_SYS_ADMIN";
const SETTINGS: &str = "run as root, or mount /proc/sys writable";
const SINGLE: &str = "call it before a second thread starts";
const USER_NAMESPACES: &str = "run as root, or allow user namespaces (sysctl user.max_user_namespaces above 0, \
                               kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0)";
