//! A port that one process opened and another process adopts -> proofs that queued packets are not lost.

mod port_support;

use linux::descriptors::{self, DESCRIPTORS_MAX};
use packet::{Frame, Ingress, Pool};
use port_support::{Namespace, ip};
use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};
use wideload_port::{Offloads, Options, Port, TxFrame, TxOffload, adopt, open};

#[test]
fn frames_in_a_packet_socket_wait_for_its_next_owner() {
    Namespace::new().run(|| {
        ip("link add one type veth peer name other");
        ip("link set one up");
        ip("link set other up");
        let mut one = open("packet:one", &Options::default()).expect("it is there");
        let mut other = open("packet:other", &Options::default()).expect("it is there");
        settle(one.as_mut(), other.as_mut());
        settle(other.as_mut(), one.as_mut());
        for number in 0..3 {
            assert_eq!(one.transmit(&[wire(&frame(number))]).expect("it is up"), 1);
        }
        let mut other = hand_over(other);
        assert_eq!(other.address(), "packet:other");
        takes(other.as_mut(), &[frame(0), frame(1), frame(2)]);
        assert_eq!(other.transmit(&[wire(&frame(7))]).expect("it is up"), 1);
        takes(one.as_mut(), &[frame(7)]);
    });
}

#[test]
fn a_device_lives_as_long_as_its_new_owner() {
    Namespace::new().run(|| {
        let tap = open("tap:t%d", &Options { mtu: Some(9_000), ..Options::default() }).expect("tests run as root");
        let address = tap.address().to_owned();
        ip("link set t0 up");
        let (offloads, tap) = (tap.offloads(), hand_over(tap));
        assert_eq!((tap.address(), tap.offloads()), (&address[..], offloads));
        ip("link set t0 mtu 1500");
        drop(tap);
        // A child process of another test also has the descriptor, until it executes its program.
        let is_gone = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            open("packet:t0", &Options::default()).is_err()
        });
        assert!(is_gone, "the device goes with the last who has it");
    });
}

#[test]
fn a_failed_handover_gives_an_error() {
    let [one, other] = descriptors::pair().expect("there is room");
    let many = vec![one.as_fd(); DESCRIPTORS_MAX + 1];
    assert!(descriptors::send(&one, b"many", &many).is_err());
    descriptors::send(&one, b"all", &many[..DESCRIPTORS_MAX]).expect("as many may be");
    let (message, came) = descriptors::receive(&other, 16).expect("it came").expect("it is open");
    assert_eq!((&message[..], came.len()), (&b"all"[..], DESCRIPTORS_MAX));
    drop(came);
    descriptors::send(&one, b"seventeen letters", &[]).expect("there is room");
    assert!(descriptors::receive(&other, 16).is_err(), "a message that is cut is none");
    let why = adopt("xdp:lo", vec![one], Offloads::default()).err().expect("its memory is one process's own");
    assert!(why.to_string().contains("open it again"), "{why}");
    // A child process of another test also has the socket, until it executes its program.
    let until = Instant::now() + TIMEOUT;
    while let Err(why) = descriptors::receive(&other, 16).map(|came| assert!(came.is_none())) {
        assert!(why.kind() == io::ErrorKind::WouldBlock && Instant::now() < until, "{why}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_user_has_a_number_or_is_none() {
    assert_eq!(descriptors::user("root").expect("everybody has one"), (0, 0));
    let why = descriptors::user("no such user").expect_err("nobody is called so");
    assert!(why.to_string().contains("getent passwd"), "{why}");
}

fn hand_over(port: Box<dyn Port>) -> Box<dyn Port> {
    let [ours, theirs] = descriptors::pair().expect("there is room");
    descriptors::send(&ours, port.address().as_bytes(), &[port.fd()]).expect("there is room");
    let offloads = port.offloads();
    drop(port);
    let (address, came) = descriptors::receive(&theirs, 64).expect("it came").expect("it is open");
    let [descriptor] = <[_; 1]>::try_from(came).expect("one was sent");
    adopt(str::from_utf8(&address).expect("it is text"), vec![descriptor], offloads).expect("it is there")
}

/// Checks that the next packets of the test are the expected ones.
fn takes(port: &mut dyn Port, expected: &[Vec<u8>]) {
    let mut came = Vec::new();
    let until = Instant::now() + TIMEOUT;
    while came.len() < expected.len() {
        assert!(Instant::now() < until, "{} of {} came", came.len(), expected.len());
        came.extend(ours(port).into_iter().filter(|came| *came != frame(KNOCK)));
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(came, expected);
}

/// Sends until a frame arrives: an interface that has just come up drops frames for a moment.
fn settle(one: &mut dyn Port, other: &mut dyn Port) {
    let until = Instant::now() + TIMEOUT;
    while ours(other).is_empty() {
        assert!(Instant::now() < until, "a frame comes through");
        assert_eq!(one.transmit(&[wire(&frame(KNOCK))]).expect("it is up"), 1);
        thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the packets of the test that have arrived.
fn ours(port: &mut dyn Port) -> Vec<Vec<u8>> {
    let (mut pool, mut frames) = (Pool::new(4 << 20), Vec::new());
    port.receive(Ingress(0), &mut pool, &mut frames).expect("it is up");
    let of_ours = |frame| match frame {
        Frame::Ip(packet) if packet.header().get(9) == Some(&253) => Some(packet.frame().to_vec()),
        _ => None,
    };
    let came = frames.into_iter().filter_map(of_ours).collect();
    port.give_back(&mut pool);
    came
}

fn wire(frame: &[u8]) -> TxFrame<'_> {
    TxFrame { header: frame, payload: &[], offload: TxOffload::default() }
}

fn frame(number: u8) -> Vec<u8> {
    testkit::ip(4).id(number.into()).payload([number; 40]).ethernet().bytes()
}

/// Number of a frame that only tests whether frames arrive.
const KNOCK: u8 = 77;
const TIMEOUT: Duration = Duration::from_secs(10);
