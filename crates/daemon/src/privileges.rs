//! A privileged process -> an unprivileged process, which keeps its open descriptors and can open no others.
//!
//! A worker process parses packets from untrusted hosts, so it must not have privileges. First the groups and the
//! user change, because this needs privileges. Then all capabilities are dropped. Finally, all system calls except
//! those of the data path and of requests are forbidden.

use config::Priority;
use linux::descriptors;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid, getpriority_process, setpriority_process};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// Drops all privileges. A process with root privileges changes to `user`, if given. The process keeps no
/// capability, and cannot gain one by executing a program. Must be called before the process has a second thread.
///
/// A process without root privileges keeps its user.
///
/// # Errors
/// The user does not exist, or the process lacks a privilege that the change needs.
pub fn drop_privileges(user: Option<&str>) -> io::Result<()> {
    let ids = user.filter(|_| geteuid().is_root()).map(descriptors::user).transpose()?;
    let refused = |what: &'static str| {
        move |why: Errno| io::Error::new(why.kind(), format!("{what}: {}; run as root", io::Error::from(why)))
    };
    for capability in CapabilitySet::all().iter() {
        match remove_capability_from_bounding_set(capability) {
            // This kernel does not know the capability, or the process does not have it.
            Ok(()) | Err(Errno::INVAL | Errno::PERM) => {}
            Err(why) => return Err(refused("cannot set no_new_privs")(why)),
        }
    }
    if let Some((user, group)) = ids {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        set_thread_groups(&[group]).map_err(refused("cannot drop supplementary groups"))?;
        set_thread_res_gid(group, group, group).map_err(refused("cannot change the group"))?;
        set_thread_res_uid(user, user, user).map_err(refused("cannot change the user"))?;
    }
    clear_ambient_capability_set().map_err(refused("cannot drop capabilities"))?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(refused("cannot drop capabilities"))?;
    set_no_new_privs(true).map_err(refused("cannot set no_new_privs"))
}

/// A higher priority of the calling thread and of the threads that it starts. Dropping this value restores the
/// priority of the dropping thread.
#[derive(Debug)]
pub struct PriorityGuard {
    before: i32,
}

/// Raises the priority of the calling thread and of the threads that it starts, if configured. Without the
/// privilege, nothing changes and packets are forwarded nevertheless.
pub fn above_others(priority: Priority) -> Option<PriorityGuard> {
    let before = getpriority_process(None).ok().filter(|_| priority == Priority::High)?;
    setpriority_process(None, FIRST).ok().map(|()| PriorityGuard { before })
}

impl Drop for PriorityGuard {
    fn drop(&mut self) {
        // Lowering the priority needs no privilege.
        let _ = setpriority_process(None, self.before);
    }
}

/// Limits all threads of this process to the system calls of the data path and of requests. Any other call kills
/// the process.
///
/// # Errors
/// The kernel does not support seccomp filters.
pub fn confine() -> io::Result<()> {
    let said = |error: &dyn std::fmt::Display| {
        io::Error::other(format!("cannot install the seccomp filter: {error}; use a kernel with seccomp"))
    };
    let programs = [
        refused(libc::SYS_openat, libc::EACCES),
        refused(libc::SYS_clone3, libc::ENOSYS),
        allowed(SeccompAction::KillProcess),
    ];
    for program in programs {
        let program = program.map_err(|error| said(&error))?;
        seccompiler::apply_filter_all_threads(&program).map_err(|error| said(&error))?;
    }
    Ok(())
}

/// Returns a filter that rejects the system call `call` with the error `why`. The C library may try these calls,
/// and works without them. A worker process opens no file (`openat`). Threads start with `clone`, as a filter
/// cannot check the flags of `clone3`.
fn refused(call: i64, why: libc::c_int) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let denied = SeccompAction::Errno(why as u32);
    SeccompFilter::new([(call, Vec::new())].into(), SeccompAction::Allow, denied, arch)?.try_into()
}

/// Returns a filter that allows [`CALLS`] and some uses of `socket` and `clone`. The action `otherwise` applies to
/// all other calls. Of two filters, the stricter one applies. Only sockets that query an interface's state and MTU
/// can be created; none can connect. Threads can be created, but no processes and namespaces.
fn allowed(otherwise: SeccompAction) -> Result<BpfProgram, BackendError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    let mut rules: BTreeMap<_, _> = CALLS.iter().map(|call| (*call, Vec::new())).collect();
    let is = |place, what: libc::c_int| {
        SeccompCondition::new(place, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, what as u64)
    };
    let asks = vec![is(0, libc::AF_INET)?, is(1, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC)?, is(2, 0)?];
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(asks)?]);
    let flags = SeccompCmpOp::MaskedEq((libc::CLONE_THREAD | NAMESPACES) as u32 as u64);
    let is_thread = SeccompCondition::new(0, SeccompCmpArgLen::Dword, flags, libc::CLONE_THREAD as u64)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]);
    SeccompFilter::new(rules, otherwise, SeccompAction::Allow, arch)?.try_into()
}

/// Nice value of the highest priority of an ordinary process. Only real-time processes run before it.
const FIRST: i32 = -20;
/// Flags of `clone` that create a namespace (clone(2)).
const NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;
/// The allowed system calls: packets, time, memory, threads and their ends, messages, metrics and requests.
/// `openat` and `clone3` are only allowed here because [`refused`] rejects them with an error instead of killing
/// the process.
const CALLS: &[i64] = &[
    libc::SYS_ppoll,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_recvmmsg,
    libc::SYS_sendmmsg,
    libc::SYS_getsockopt,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_gettid,
    libc::SYS_prctl,
    libc::SYS_rseq,
    libc::SYS_rt_sigprocmask,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_accept4,
    libc::SYS_close,
    libc::SYS_eventfd2,
    libc::SYS_fcntl,
    libc::SYS_getrandom,
    libc::SYS_ioctl,
    libc::SYS_shutdown,
    libc::SYS_openat,
    // The process ID in answers of the control socket.
    libc::SYS_getpid,
    // Newer architectures have only `ppoll`.
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_setsockopt,
    // Index of the interface of a port that is down or gone.
    libc::SYS_getsockname,
    // Number of wake-ups of each worker.
    libc::SYS_getrusage,
];

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    use std::thread;

    #[test]
    fn a_thread_and_its_children_have_priority_while_asked_for() {
        let own = || getpriority_process(None).expect("a thread may ask");
        let before = own();
        assert!(above_others(Priority::Fair).is_none());
        let above = above_others(Priority::High).expect("these tests have the right");
        assert_eq!(own(), FIRST);
        let started = std::thread::spawn(own);
        drop(above);
        assert_eq!((own(), started.join().expect("it asks")), (before, FIRST));
    }

    #[test]
    #[expect(deprecated, reason = "the call that takes its place is unsafe, and this crate has none")]
    fn a_thread_can_be_made_and_neither_a_process_nor_a_namespace() {
        let outcomes = thread::spawn(|| {
            for program in
                [refused(libc::SYS_clone3, libc::ENOSYS), allowed(SeccompAction::Errno(libc::EPERM as u32))]
            {
                seccompiler::apply_filter(&program.expect("it is right")).expect("the kernel takes it");
            }
            let thread = thread::Builder::new().spawn(|| 7).map(|thread| thread.join().expect("it ends"));
            let process = std::process::Command::new("/bin/true").spawn().map(drop);
            let namespace = rustix::thread::unshare(rustix::thread::UnshareFlags::NEWUSER);
            (thread.ok(), process.is_err(), namespace.is_err())
        });
        assert_eq!(outcomes.join().expect("it ends"), (Some(7), true, true));
    }

    #[test]
    fn only_sockets_for_interface_queries_can_be_made() {
        let program = allowed(SeccompAction::Errno(libc::EPERM as u32)).expect("it is right");
        let outcomes = thread::spawn(move || {
            seccompiler::apply_filter(&program).expect("the kernel takes it");
            [
                (AddressFamily::INET, SocketType::DGRAM),
                (AddressFamily::INET, SocketType::STREAM),
                (AddressFamily::INET6, SocketType::DGRAM),
                (AddressFamily::UNIX, SocketType::DGRAM),
                (AddressFamily::NETLINK, SocketType::RAW),
            ]
            .map(|(family, kind)| socket_with(family, kind, SocketFlags::CLOEXEC, None).err())
        });
        let refused = Some(Errno::PERM);
        assert_eq!(outcomes.join().expect("it ends"), [None, refused, refused, refused, refused]);
    }
}
