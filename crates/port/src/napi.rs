//! An interface in, the kernel's thread that receives for it out.
//!
//! What an interface receives is worked on by whoever happens to run, often by the sender of another host: nobody's account then
//! says what it cost. With threaded NAPI the kernel gives the interface a thread of its own, and that has an account.

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::Pid;
use rustix::thread::{CpuSet, UnshareFlags, sched_setaffinity, unshare_unsafe};
use std::fs;
use std::io;
use std::time::Duration;

/// The kernel's thread for one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveThread {
    pid: i32,
}

impl ReceiveThread {
    /// Gives the interface, in the namespace of the calling thread, a thread of its own. Its name must be the only one of its
    /// kind on this machine, and no longer than [`INTERFACE_LEN_MAX`] bytes, for the thread is found by it.
    ///
    /// The calling thread gets a mount namespace of its own for it: it should end soon, as one in
    /// [`Namespace::enter`](crate::namespace::Namespace::enter) does.
    ///
    /// # Errors
    /// The interface has no NAPI, which a veth has where GRO is on or an XDP program stands in front of it; or the kernel's
    /// threads cannot be seen from here.
    pub fn of(interface: &str) -> io::Result<ReceiveThread> {
        assert!(interface.len() <= INTERFACE_LEN_MAX, "{interface}: the thread's name would not hold it");
        let said = |error: io::Error| {
            io::Error::new(error.kind(), format!("{interface}: cannot give it a thread of its own: {error}"))
        };
        see_sysfs().and_then(|()| fs::write(format!("/sys/class/net/{interface}/threaded"), "1")).map_err(said)?;
        let wanted = format!("napi/{interface}-");
        for entry in fs::read_dir("/proc")? {
            let path = entry?.path();
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            let pid = path.file_name().and_then(|pid| pid.to_str()?.parse().ok());
            if let Some(pid) = pid.filter(|_| name.starts_with(&wanted)) {
                return Ok(ReceiveThread { pid });
            }
        }
        let said =
            format!("{interface}: the kernel's thread for it cannot be seen; run in the host's process namespace");
        Err(io::Error::new(io::ErrorKind::NotFound, said))
    }

    /// Processor time that it took so far.
    ///
    /// # Errors
    /// It is gone, with its interface.
    pub fn time(self) -> io::Result<Duration> {
        let line = fs::read_to_string(format!("/proc/{}/schedstat", self.pid))?;
        let nanos = line.split(' ').next().and_then(|nanos| nanos.parse().ok());
        nanos.map(Duration::from_nanos).ok_or_else(|| io::Error::other("schedstat: its first word is no number"))
    }

    /// Has it run on one processor.
    ///
    /// # Errors
    /// There is no such processor, or the right is missing.
    pub fn pin(self, processor: usize) -> io::Result<()> {
        let mut set = CpuSet::new();
        set.set(processor);
        Ok(sched_setaffinity(Pid::from_raw(self.pid), &set)?)
    }
}

/// Settings of a namespace's interfaces are seen where its own view of /sys is mounted: for this thread alone.
fn see_sysfs() -> io::Result<()> {
    // SAFETY: only the view of mounts is parted from the other threads'; no descriptor changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    Ok(mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)?)
}

/// Longest name of an interface whose thread can be told by its name, in bytes: 15 hold `napi/`, it, and `-`.
pub const INTERFACE_LEN_MAX: usize = 9;
