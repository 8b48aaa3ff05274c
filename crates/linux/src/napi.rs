//! An interface -> the kernel thread that receives its packets, and the thread's CPU time.
//!
//! By default, the receive work of an interface runs on any thread, often on that of the sending host. So the CPU
//! time of this work is not visible. With threaded NAPI, the interface has a kernel thread of its own.
//!
//! A veth does not use NAPI if only GRO needs NAPI and the other end may send TCP GSO packets. The thread's CPU
//! time then stays 0. [`features::as_a_wire`](crate::features::as_a_wire) at the other end prevents this, and so
//! does an XDP program at this end.

use crate::failure::{advised, failed};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::Pid;
use rustix::thread::{CpuSet, UnshareFlags, sched_setaffinity, unshare_unsafe};
use std::fs;
use std::io;
use std::panic::resume_unwind;
use std::thread::{self, Builder};
use std::time::Duration;

/// The kernel's receive thread of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveThread {
    pid: i32,
}

impl ReceiveThread {
    /// Gives an interface of the calling thread's namespace its own receive thread. The interface must have one
    /// queue. The thread is found by the interface's name. The name must be unique on this machine and have at most
    /// [`INTERFACE_LEN_MAX`] bytes.
    ///
    /// # Errors
    /// - The interface has no NAPI. A veth has NAPI with GRO on or with an XDP program.
    /// - The kernel's threads are not visible to this process.
    /// - Several threads have this name.
    pub fn of(interface: &str) -> io::Result<ReceiveThread> {
        let failed = |why: String| io::Error::other(format!("{interface}: cannot enable threaded NAPI: {why}"));
        if interface.len() > INTERFACE_LEN_MAX {
            return Err(failed(format!(
                "the interface name is too long; use up to {INTERFACE_LEN_MAX} characters"
            )));
        }
        set(interface, &[("threaded", 1)]).map_err(|error| {
            let advice = match error.raw_os_error() {
                Some(libc::EOPNOTSUPP) => {
                    "; the interface has no NAPI; for a veth, switch GRO on: `ethtool -K NAME gro on`"
                }
                Some(libc::EPERM | libc::EACCES) => "; run as root",
                _ => "",
            };
            failed(format!("{error}{advice}"))
        })?;
        let threads = threads_of(interface)?;
        match threads[..] {
            [pid] => Ok(ReceiveThread { pid }),
            [] => Err(failed("the kernel threads are not visible; run in the host's PID namespace".to_owned())),
            _ => Err(failed(format!(
                "{} threads have its name; rename the interface, and give it one queue",
                threads.len()
            ))),
        }
    }

    /// Returns the thread's CPU time since its start.
    ///
    /// # Errors
    /// The thread does not exist any more, as its interface was removed.
    pub fn time(self) -> io::Result<Duration> {
        let line = fs::read_to_string(format!("/proc/{}/schedstat", self.pid))?;
        let nanos = line.split(' ').next().and_then(|nanos| nanos.parse().ok());
        nanos
            .map(Duration::from_nanos)
            .ok_or_else(|| io::Error::other("schedstat: the first field is not a number"))
    }

    /// Pins the thread to one CPU.
    ///
    /// # Errors
    /// There is no such CPU, or privileges are missing.
    pub fn pin(self, processor: usize) -> io::Result<()> {
        let mut set = CpuSet::new();
        set.set(processor);
        Ok(sched_setaffinity(Pid::from_raw(self.pid), &set)?)
    }
}

/// Makes GRO hold packets for the time `stretch` after the last packet. So GRO also coalesces packets that arrive
/// singly. The interface must be in the calling thread's namespace.
///
/// # Errors
/// There is no such interface, or privileges are missing.
pub fn set_gro_flush_timeout(interface: &str, stretch: Duration) -> io::Result<()> {
    let nanos = u64::try_from(stretch.as_nanos()).unwrap_or(u64::MAX);
    set(interface, &[("gro_flush_timeout", nanos), ("napi_defer_hard_irqs", POLLS)]).map_err(|error| {
        let what = format!("{interface}: cannot set the GRO flush time-out");
        match error.raw_os_error() {
            Some(libc::ENOENT) => advised(what, &error, "`ip link` lists the interfaces"),
            Some(libc::EPERM | libc::EACCES) => advised(what, &error, "run as root"),
            _ => failed(what, &error),
        }
    })
}

/// Writes settings of an interface under /sys. A namespace's settings are only visible in a sysfs that was mounted
/// in that namespace. A thread that ends with the call makes this mount.
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

/// Returns the kernel threads with the name of this interface.
fn threads_of(interface: &str) -> io::Result<Vec<i32>> {
    let wanted = format!("napi/{interface}-");
    let mut threads = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let path = entry?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        // A thread that has just ended has no name.
        if fs::read_to_string(path.join("comm")).unwrap_or_default().starts_with(&wanted) {
            threads.push(pid);
        }
    }
    Ok(threads)
}

/// Number of empty polls after which GRO releases its packets.
const POLLS: u64 = 2;
/// Longest name of an interface whose thread can be found, in bytes. The thread's name has at most 15 bytes:
/// `napi/`, the interface's name, `-` and a number.
pub const INTERFACE_LEN_MAX: usize = 9;
