//! Nothing -> proofs about network namespaces.

mod system_pair;

use linux::namespace::{Namespace, become_own_root};
use linux::netlink::Netlink;
use std::fs;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use system_pair::{becomes, inside, namespace, pair};

#[test]
fn a_fresh_namespace_has_a_loopback_that_is_up_and_nothing_else_but_idle_tunnels() {
    let interfaces = inside(&namespace()).interfaces().expect("it can be asked");
    let up: Vec<_> = interfaces.iter().filter(|interface| interface.is_up).map(|it| it.name.as_str()).collect();
    assert_eq!(up, ["lo"]);
}

#[test]
fn loopback_carries_packets_in_a_fresh_namespace() {
    let socket = namespace().enter(|| UdpSocket::bind("127.0.0.1:0")).expect("loopback is up");
    socket.send_to(b"self", socket.local_addr().expect("it is bound")).expect("loopback takes it");
    let mut buffer = [0; 8];
    assert_eq!(socket.recv(&mut buffer).expect("it came"), 4);
}

#[test]
fn a_call_runs_inside_and_its_caller_stays_outside() {
    let before = number();
    let namespace = namespace();
    let inner = namespace.enter(number);
    assert_ne!(inner, before);
    assert_eq!(number(), before);
    assert_eq!(namespace.enter(number), inner);
}

#[test]
fn a_panic_inside_goes_on_in_the_caller() {
    let namespace = namespace();
    let panic = catch_unwind(AssertUnwindSafe(|| namespace.enter(|| panic!("inside")))).expect_err("it panicked");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"inside"));
}

#[test]
fn a_spawned_thread_lives_inside_and_has_its_name() {
    let namespace = namespace();
    let name = || (number(), std::thread::current().name().map(str::to_owned));
    let thread = namespace.spawn("inmate", name).expect("there is room for a thread");
    let (inner, name) = thread.join().expect("it does not panic");
    assert_eq!(inner, namespace.enter(number));
    assert_eq!(name.as_deref(), Some("inmate"));
}

#[test]
fn a_program_runs_inside_until_its_guard_drops() {
    let namespace = namespace();
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let (mut program, tether) = namespace.start(command).expect("there is a program of this name");
    // Waiting for a child process closes its standard input. `cat` would then end by itself.
    let _input = program.stdin.take();
    let inner = namespace.enter(number);
    assert_eq!(fs::read_link(format!("/proc/{}/ns/net", program.id())).expect("it lives"), inner);
    assert_eq!(program.try_wait().expect("it can be asked"), None, "it waits for its input");
    drop(tether);
    assert_eq!(program.wait().expect("it ends").signal(), Some(libc::SIGTERM));

    let missing = namespace.start(Command::new("a program that nobody has written"));
    assert_eq!(missing.expect_err("there is none").kind(), ErrorKind::NotFound);
}

#[test]
fn here_is_where_the_caller_is() {
    let namespace = namespace();
    let here = namespace.enter(Namespace::here).expect("/proc is there");
    assert_eq!(here.enter(number), namespace.enter(number));
}

#[test]
fn a_namespace_opens_by_its_path() {
    let namespace = namespace();
    let path = format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd());
    let same = Namespace::open(&path).expect("it is there");
    assert_eq!(same.enter(number), namespace.enter(number));
}

#[test]
fn a_name_that_no_namespace_has_is_not_found() {
    let why = Namespace::open("wideload-nowhere").expect_err("there is none");
    assert_eq!(why.kind(), ErrorKind::NotFound);
    assert_eq!(
        why.to_string(),
        "namespace wideload-nowhere: No such file or directory; `ip netns` lists the named ones"
    );
}

#[test]
fn only_network_namespaces_can_be_opened() {
    let why = Namespace::open("/proc/self/ns/uts").expect_err("it is of another kind");
    assert!(
        why.to_string().starts_with("namespace /proc/self/ns/uts: cannot enter it: Invalid argument; "),
        "{why}"
    );
}

#[test]
fn an_unused_namespace_vanishes_with_its_veth_end() {
    let [mut near, far] = pair();
    assert!(near.netlink.interface("wire").is_ok());
    drop(far);
    becomes(|| near.netlink.interface("wire").err().filter(|why| why.kind() == ErrorKind::NotFound));
}

#[test]
fn a_netlink_stays_in_the_namespace_in_which_it_was_opened() {
    let [near, _far] = pair();
    let mut outside = Netlink::open().expect("a netlink socket is free");
    let mut moved = near.netlink;
    let here = namespace();
    assert!(here.enter(|| moved.interface("wire")).is_ok());
    assert!(outside.interface("wire").is_err());
}

#[test]
fn a_setting_holds_inside_and_nowhere_else() {
    let [near, far] = [namespace(), namespace()];
    let outside = fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl").expect("it is there");
    near.set_sysctl("ipv4/ip_default_ttl", "77").expect("it takes it");
    assert_eq!(near.sysctl("ipv4/ip_default_ttl").expect("it is there"), "77");
    assert_eq!(far.sysctl("ipv4/ip_default_ttl").expect("it is there"), "64");
    assert_eq!(fs::read_to_string("/proc/sys/net/ipv4/ip_default_ttl").expect("it is there"), outside);
}

#[test]
fn settings_that_are_not_there_or_elsewhere_are_refused() {
    let namespace = namespace();
    assert_eq!(namespace.sysctl("ipv4/nonsense").expect_err("there is none").kind(), ErrorKind::NotFound);
    assert_eq!(namespace.set_sysctl("ipv4/nonsense", "1").expect_err("there is none").kind(), ErrorKind::NotFound);
    assert_eq!(
        namespace.set_sysctl("../kernel/hostname", "x").expect_err("elsewhere").kind(),
        ErrorKind::InvalidInput
    );
    let why = namespace.set_sysctl("ipv4/ip_forward", "many").expect_err("it is a number");
    assert_eq!(why.to_string(), "/proc/sys/net/ipv4/ip_forward: cannot set many: Invalid argument");
}

#[test]
fn privileged_callers_keep_their_user_namespace() {
    let user = || fs::read_link("/proc/self/ns/user").expect("/proc is there");
    let before = user();
    become_own_root().expect("these tests have the right");
    assert_eq!(user(), before);
}

fn number() -> std::path::PathBuf {
    fs::read_link("/proc/thread-self/ns/net").expect("/proc is there")
}
