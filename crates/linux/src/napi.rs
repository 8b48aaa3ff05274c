//! An interface in, the kernel's thread that receives for it out.
//!
//! What an interface receives is worked on by whoever happens to run, often by the sender of another host: nobody's account then
//! says what it cost. With threaded NAPI the kernel gives the interface a thread of its own, and that has an account.
//!
//! A veth goes past its NAPI where GRO is all that it has it for and the other end may send trains of TCP: the
//! account then stays empty. [`features::as_a_wire`](crate::features::as_a_wire) at the other end, or an XDP
//! program at this one, sees to that.

use crate::failure::{advised, failed};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::Pid;
use rustix::thread::{CpuSet, UnshareFlags, sched_setaffinity, unshare_unsafe};
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::thread::{self, Builder};
use std::time::Duration;

/// The kernel's thread for one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveThread {
    pid: i32,
}

impl ReceiveThread {
    /// Gives the interface, in the namespace of the calling thread, a thread of its own. The interface has one queue, and a
    /// name that is the only one of its kind on this machine and no longer than [`INTERFACE_LEN_MAX`] bytes, for the thread is
    /// found by it.
    ///
    /// # Errors
    /// The interface has no NAPI, which a veth has where GRO is on or an XDP program stands in front of it; the kernel's
    /// threads cannot be seen from here; or several bear this name.
    pub fn of(interface: &str) -> io::Result<ReceiveThread> {
        let failed =
            |why: String| io::Error::other(format!("{interface}: cannot give it a thread of its own: {why}"));
        if interface.len() > INTERFACE_LEN_MAX {
            return Err(failed(format!("its name is too long; use up to {INTERFACE_LEN_MAX} letters")));
        }
        set(interface, &[("threaded", 1)]).map_err(|error| {
            let advice = match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => "; it has no NAPI, which GRO gives a veth: `ethtool -K NAME gro on`",
                Some(libc::EPERM | libc::EACCES) => "; run as root",
                _ => "",
            };
            failed(format!("{error}{advice}"))
        })?;
        let threads = threads_of(interface)?;
        match threads[..] {
            [pid] => Ok(ReceiveThread { pid }),
            [] => {
                Err(failed("the kernel's threads cannot be seen; run in the host's process namespace".to_owned()))
            }
            _ => Err(failed(format!("{} threads bear its name; give it another, and one queue", threads.len()))),
        }
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

/// Has GRO hold what an interface, in the namespace of the calling thread, received for so long after the last packet, so that
/// what comes one by one is joined too.
///
/// # Errors
/// There is no such interface, or the right is missing.
pub fn hold_joined(interface: &str, stretch: Duration) -> io::Result<()> {
    let nanos = u64::try_from(stretch.as_nanos()).unwrap_or(u64::MAX);
    set(interface, &[("gro_flush_timeout", nanos), ("napi_defer_hard_irqs", POLLS)]).map_err(|error| {
        let what = format!("{interface}: cannot have GRO hold what it received");
        match error.raw_os_error() {
            Some(libc::ENOENT) => advised(what, &error, "`ip link` lists the interfaces that are there"),
            Some(libc::EPERM | libc::EACCES) => advised(what, &error, "run as root"),
            _ => failed(what, &error),
        }
    })
}

/// Writes settings of an interface. Those of a namespace's are seen where its own view of /sys is mounted: that is done on a
/// thread that ends with it.
fn set(interface: &str, settings: &[(&str, u64)]) -> io::Result<()> {
    let set = || {
        // SAFETY: only this thread's view of mounts is parted from the others'; no descriptor changes.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None)?;
        settings.iter().try_for_each(|(name, value)| {
            fs::write(format!("/sys/class/net/{interface}/{name}"), value.to_string())
        })
    };
    thread::scope(|scope| {
        let done = Builder::new().spawn_scoped(scope, set)?;
        done.join().unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// The threads of the kernel that bear the name of this interface.
fn threads_of(interface: &str) -> io::Result<Vec<i32>> {
    let wanted = format!("napi/{interface}-");
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        // One that has just ended has no name.
        if fs::read_to_string(path.join("comm")).unwrap_or_default().starts_with(&wanted) {
            threads.push(pid);
        }
    }
    Ok(threads)
}

/// Empty looks after which GRO lets go of what it holds.
const POLLS: u64 = 2;
/// Longest name of an interface whose thread can be told by its name, in bytes: 15 hold `napi/`, it, and `-`.
pub const INTERFACE_LEN_MAX: usize = 9;
