//! A process without privileges -> proof that it can be root of its own namespaces.
//!
//! Each test runs in a forked child with one thread, because only a process with one thread can create a user
//! namespace. Another user might not be allowed to read a separate test program.

#[path = "../../linux/tests/system_pair/mod.rs"]
mod system_pair;

use linux::namespace::{Namespace, become_own_root};
use offload::intercept::Intercept;
use offload::steer;
use rustix::process::{DumpableBehavior, WaitOptions, set_dumpable_behavior, waitpid};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use system_pair::{FAR, NEAR, pair};
use wideload_port::{Fanout, FanoutMode, Options, PacketSocket};

#[test]
fn an_unprivileged_user_makes_namespaces_and_links_as_their_root() {
    let said = in_a_child_without_rights(|| {
        let refused = Namespace::new().expect_err("it has no right").to_string();
        become_own_root()?;
        let [near, far] = pair();
        let receiver = far.namespace.enter(|| UdpSocket::bind((FAR, 7000)))?;
        let sender = near.namespace.enter(|| UdpSocket::bind((NEAR, 7000)))?;
        sender.send_to(b"across", (FAR, 7000))?;
        let mut buffer = [0; 16];
        let (len, from) = receiver.recv_from(&mut buffer)?;
        near.namespace.set_sysctl("ipv4/ip_forward", "1")?;
        let why = near.namespace.enter(|| Intercept::all(near.index)).expect_err("the host forbids it");
        assert_eq!(why.kind(), io::ErrorKind::PermissionDenied);
        Ok(format!("{refused} | {len} bytes from {from}"))
    });
    assert_eq!(
        said,
        "cannot create a network namespace: Operation not permitted; run as root, or allow user namespaces (sysctl \
         kernel.unprivileged_userns_clone=1) | 6 bytes from 192.0.2.1:7000"
    );
}

#[test]
fn without_bpf_rights_steering_uses_the_kernels_hash() {
    let said = in_a_child_without_rights(|| {
        become_own_root()?;
        let [near, _far] = pair();
        let open = |spread| {
            let options = Options { fanout: Some(Fanout { group: 7, spread }), ..Options::default() };
            near.namespace.enter(|| PacketSocket::open("wire", &options).map(drop))
        };
        open(FanoutMode::Flow)?;
        let refused = open(FanoutMode::Steered(2)).expect_err("the host forbids it");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        Ok(steer::allowed().expect_err("the host forbids it").to_string())
    });
    assert_eq!(
        said,
        "cannot load the program that distributes frames over workers: Operation not permitted; run as root or give CAP_BPF and \
         CAP_NET_ADMIN of the host"
    );
}

#[test]
fn becoming_root_fails_with_several_threads() {
    let said = in_a_child_without_rights(|| {
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let second = std::thread::spawn(move || wait.recv());
        let why = become_own_root().expect_err("there is a second thread");
        drop(end);
        second.join().expect("it does not panic").ok();
        Ok(why.to_string())
    });
    assert_eq!(said, "cannot create a user namespace: Invalid argument; call it before a second thread starts");
}

/// Returns the text that `f` returns in a child process without privileges, or the text of its error.
fn in_a_child_without_rights(f: impl FnOnce() -> io::Result<String>) -> String {
    let (reader, writer): (OwnedFd, OwnedFd) = rustix::pipe::pipe().expect("descriptors are free");
    // SAFETY: the C library readies its allocator for a child, and the child prints nothing.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        std::panic::set_hook(Box::new(|_| {}));
        let said = catch_unwind(AssertUnwindSafe(|| become_nobody().and_then(|()| f())));
        let text = match said {
            Ok(Ok(text)) => text,
            Ok(Err(why)) => why.to_string(),
            Err(panic) => format!("it panicked: {:?}", panic.downcast_ref::<String>()),
        };
        File::from(writer).write_all(text.as_bytes()).ok();
        // SAFETY: no code of the parent may run at this end.
        unsafe { libc::_exit(0) };
    }
    drop(writer);
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).expect("it is text");
    waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty()).expect("it is our child");
    text
}

fn become_nobody() -> io::Result<()> {
    // SAFETY: three calls on numbers, in a process of one thread.
    let done = unsafe {
        libc::setgroups(0, std::ptr::null()) == 0
            && libc::setresgid(NOBODY, NOBODY, NOBODY) == 0
            && libc::setresuid(NOBODY, NOBODY, NOBODY) == 0
    };
    if !done {
        return Err(io::Error::last_os_error());
    }
    // A process that changed its user is not allowed to write its user and group maps, unless it is dumpable.
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

const NOBODY: u32 = 65_534;
