//! Traffic -> proofs that the kernel's receive time is accounted to one NAPI thread.

#[path = "../../linux/tests/system_pair/mod.rs"]
mod system_pair;

use linux::addresses::Prefix;
use linux::features::{self, Toggle};
use linux::namespace::Namespace;
use linux::napi::{INTERFACE_LEN_MAX, ReceiveThread};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::Duration;
use system_pair::{FAR, NEAR, becomes, inside, namespace};
use wideload_offload::xdp::Passing;

#[test]
fn with_gro_thread_time_grows_with_traffic() {
    let pair = Pair::new();
    drop(pair.far.enter(|| features::set(&pair.name, &[("rx-gro", Toggle::On)])).expect("a veth can"));
    drop(pair.near.enter(|| features::as_a_wire("wire")).expect("a veth can"));
    pair.time_grows();
}

#[test]
fn with_an_xdp_pass_program_thread_time_grows_with_traffic() {
    let pair = Pair::new();
    let index = inside(&pair.far).interface(&pair.name).expect("it is there").index;
    let _passing = pair.far.enter(|| Passing::attach(index)).expect("a veth can");
    pair.time_grows();
}

#[test]
fn a_thread_that_is_gone_has_no_time() {
    let pair = Pair::new();
    let index = inside(&pair.far).interface(&pair.name).expect("it is there").index;
    let passing = pair.far.enter(|| Passing::attach(index)).expect("a veth can");
    let thread = pair.far.enter(|| ReceiveThread::of(&pair.name)).expect("it has NAPI");
    assert_eq!(pair.far.enter(|| ReceiveThread::of(&pair.name)).expect("it has one already"), thread);
    drop(passing);
    becomes(|| thread.time().err());
    thread.pin(0).expect_err("it is gone");
}

#[test]
fn an_interface_without_napi_threads_gives_a_remedy() {
    let pair = Pair::new();
    let said = |name: &str| {
        let error = pair.far.enter(|| ReceiveThread::of(name)).expect_err("it can have none").to_string();
        assert!(error.starts_with(&format!("{name}: cannot enable threaded NAPI: ")), "{error}");
        error
    };
    assert!(said(&pair.name).contains("gro on"), "{}", said(&pair.name));
    assert!(said("eth77").contains("No such file"), "{}", said("eth77"));
    assert_eq!(INTERFACE_LEN_MAX, 9);
    assert!(said("ten-bytes1").contains("up to 9 characters"), "{}", said("ten-bytes1"));
}

#[test]
fn threads_of_one_name_are_told_apart_by_number() {
    let pair = Pair::new();
    let twin = Pair::named(&pair.name);
    for pair in [&pair, &twin] {
        drop(pair.far.enter(|| features::set(&pair.name, &[("rx-gro", Toggle::On)])).expect("a veth can"));
    }
    pair.far.enter(|| ReceiveThread::of(&pair.name)).expect("it is the only one");
    let error = twin.far.enter(|| ReceiveThread::of(&twin.name)).expect_err("there are two").to_string();
    assert!(error.contains("2 threads have its name"), "{error}");
}

/// Two hosts on one veth pair. The far end has a name that no other test uses.
struct Pair {
    near: Namespace,
    far: Namespace,
    name: String,
}

impl Pair {
    fn new() -> Pair {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = std::process::id() * 10 + COUNT.fetch_add(1, Ordering::Relaxed);
        Pair::named(&format!("n{number:x}"))
    }

    fn named(name: &str) -> Pair {
        let [near, far] = [namespace(), namespace()];
        let mut netlink = inside(&near);
        netlink.make_veth("wire", name, &far).expect("the names are free");
        netlink.set_up("wire").expect("it is there");
        netlink.add_address("wire", Prefix::new(NEAR, 24)).expect("it has none");
        let mut netlink = inside(&far);
        netlink.set_up(name).expect("it is there");
        netlink.add_address(name, Prefix::new(FAR, 24)).expect("it has none");
        Pair { near, far, name: name.to_owned() }
    }

    fn time_grows(&self) {
        let thread = self.far.enter(|| ReceiveThread::of(&self.name)).expect("it has NAPI");
        thread.pin(0).expect("there is one");
        thread.pin(usize::from(u8::MAX)).expect_err("there are not so many");
        let sender = self.near.enter(|| UdpSocket::bind((NEAR, 0))).expect("it has the address");
        let receiver = self.far.enter(|| UdpSocket::bind((FAR, 7000))).expect("it has the address");
        receiver.set_nonblocking(true).expect("a socket can be");
        let spent = [0, 200, 20_000].map(|count| {
            sleep(Duration::from_millis(20));
            let before = thread.time().expect("it is there");
            let mut came = 0;
            let take = || (0..count).map_while(|_| receiver.recv(&mut [0; 1_000]).ok()).count();
            for _ in 0..count {
                sender.send_to(&[7; 1_000], (FAR, 7000)).expect("there is a route");
                came += take();
            }
            // On a busy machine, the receive thread may run late.
            let mut last = before;
            becomes(|| {
                sleep(Duration::from_millis(20));
                came += take();
                let told = thread.time().expect("it is there");
                (std::mem::replace(&mut last, told) == told && (count == 0 || came > 0)).then_some(())
            });
            last - before
        });
        println!("{:?} for nothing, 200 and 20,000 datagrams", spent);
        assert!(spent[2] > 5 * spent[1] && spent[1] > Duration::ZERO, "{spent:?}");
        assert!(spent[0] < spent[2] / 20, "{spent:?}");
    }
}
