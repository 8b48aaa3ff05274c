//! TUN and TAP devices in namespaces of the test: whole datagrams, GSO packets, and their treatment by the host.

mod port_support;

use packet::{Frame, Pool};
use port_support::{NOTHING, Namespace, forward_until, ip, receive_one, transfer, wire};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use wideload_port::{Kind, Offloads, Options, Port, Proof, SendError, Tap, TxFrame, TxOffload, open, self_test};

#[test]
fn a_datagram_of_60_000_bytes_arrives_whole_on_a_wide_tun() {
    Namespace::new().run(|| {
        let options = Options { mtu: Some(65_535), ..Options::default() };
        let mut tap = Tap::open("", Kind::Tun, &options).expect("a device can be made");
        assert_eq!(tap.address(), format!("tun:{}", tap.name()));
        ip(&format!("addr add 10.7.0.1/24 dev {}", tap.name()));
        ip(&format!("link set {} up", tap.name()));
        let socket = UdpSocket::bind("10.7.0.1:0").expect("the address is there");
        let sent = port_support::noise(60_000);
        socket.send_to(&sent, "10.7.0.2:9").expect("the way is there");
        let mut pool = Pool::new(1 << 20);
        let came = receive_one(&mut tap, &mut pool, |frame| match frame {
            Frame::Ip(packet) if packet.payload().len() > 8 && !packet.is_tcp() => {
                Some(packet.payload()[8..].to_vec())
            }
            _ => None,
        });
        assert!(came == sent, "{} bytes came", came.len());
        assert_eq!(pool.in_use_count(), tap.kept_count());
        tap.give_back(&mut pool);
        assert_eq!((pool.in_use_count(), tap.kept_count()), (0, 0));
    });
}

#[test]
fn a_stream_crosses_two_tuns_in_gso_packets() {
    let told = cross(Kind::Tun, Options::default());
    assert!(told.gso_count > 0 && told.longest > 1_500, "{told:?}");
    assert!(told.partial_count >= told.gso_count, "{told:?}");
}

#[test]
fn a_stream_crosses_two_taps_in_gso_packets() {
    let told = cross(Kind::Tap, Options { mtu: Some(9_000), ..Options::default() });
    assert!(told.gso_count > 0 && told.longest > 9_014, "{told:?}");
}

#[test]
fn without_offloads_a_stream_arrives_in_complete_packets() {
    let told = cross(Kind::Tun, Options { offloads: NOTHING, ..Options::default() });
    assert_eq!((told.gso_count, told.partial_count, told.longest), (0, 0, 1_500), "{told:?}");
}

#[test]
fn granted_options_are_reported() {
    Namespace::new().run(|| {
        let all = Offloads { checksum: true, tcp: true, udp: true };
        for (wanted, obtained) in [
            (all, all),
            (Offloads { udp: false, ..all }, Offloads { udp: false, ..all }),
            (Offloads { checksum: false, ..all }, NOTHING),
        ] {
            let tap = Tap::open("", Kind::Tun, &Options { offloads: wanted, ..Options::default() });
            assert_eq!(tap.expect("a device can be made").offloads(), obtained);
        }
    });
}

#[test]
fn several_queues_share_one_name() {
    Namespace::new().run(|| {
        let queues = Options { has_queues: true, ..Options::default() };
        let first = open("tun:wide%d", &queues).expect("a device can be made");
        let name = first.address().to_owned();
        assert_eq!(name, "tun:wide0");
        let second = open(&name, &queues).expect("it has several queues");
        assert_eq!(second.address(), name);
        let error = open(&name, &Options::default()).err().expect("it was made with queues");
        assert!(error.to_string().contains("tun:wide0: cannot create or open the device"), "{error}");
    });
}

#[test]
fn sending_to_a_down_device_gives_an_error() {
    Namespace::new().run(|| {
        let mut tap = Tap::open("", Kind::Tun, &Options::default()).expect("a device can be made");
        let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        let wire = TxFrame { header: &packet, payload: &[], offload: TxOffload::default() };
        let error = tap.transmit(&[wire]).expect_err("it is down");
        assert_eq!(SendError::of(&error), Some(SendError::Down), "{error}");
    });
}

#[test]
fn an_unknown_gso_kind_is_refused_by_name() {
    Namespace::new().run(|| {
        let mut tap = Tap::open("", Kind::Tun, &Options::default()).expect("a device can be made");
        ip(&format!("link set {} up", tap.name()));
        let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 253, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        // The checksum field would be past the packet's end.
        let to_do = TxOffload { checksum: Some((500, 516)), gso: None };
        let error =
            tap.transmit(&[TxFrame { header: &packet, payload: &[], offload: to_do }]).expect_err("it is nonsense");
        assert_eq!(SendError::of(&error), Some(SendError::UnsupportedOffload), "{error}");
    });
}

#[test]
fn a_frame_without_memory_is_lost_and_counted() {
    Namespace::new().run(|| {
        let mut tap = Tap::open("", Kind::Tun, &Options::default()).expect("a device can be made");
        ip(&format!("addr add 10.7.0.1/24 dev {}", tap.name()));
        ip(&format!("link set {} up", tap.name()));
        let socket = UdpSocket::bind("10.7.0.1:0").expect("the address is there");
        for _ in 0..3 {
            socket.send_to(&[7; 100], "10.7.0.2:9").expect("the way is there");
        }
        let mut frames = Vec::new();
        let received = tap.receive(packet::Ingress(0), &mut Pool::new(0), &mut frames).expect("it is up");
        assert!(received.count >= 3 && received.was_last && frames.is_empty(), "{received:?}");
        assert_eq!(received.count, received.lost_count);
    });
}

#[test]
fn full_queue_drops_are_counted_once_across_owners() {
    Namespace::new().run(|| {
        let mut tap = Tap::open("", Kind::Tun, &Options::default()).expect("a device can be made");
        let silent = Options { counts_drops: false, ..Options::default() };
        let mut other = Tap::open("", Kind::Tun, &silent).expect("a device can be made");
        for (number, name) in [(7, tap.name()), (8, other.name())] {
            ip(&format!("addr add 10.{number}.0.1/24 dev {name}"));
            ip(&format!("link set {name} up"));
        }
        let socket = UdpSocket::bind("0.0.0.0:0").expect("any address is free");
        let flood = |target: &str| (0..10_000).for_each(|_| drop(socket.send_to(&[7; 10], target)));
        flood("10.7.0.2:9");
        let mut pool = Pool::new(64 << 20);
        let mut came = 0;
        loop {
            let mut frames = Vec::new();
            let received = tap.receive(packet::Ingress(0), &mut pool, &mut frames).expect("it is up");
            for frame in frames {
                pool.give(match frame {
                    Frame::Ip(packet) => packet.into_buffer(),
                    Frame::Other(raw, _) => raw.into_buffer(),
                });
            }
            came += received.count;
            if received.was_last {
                break;
            }
        }
        assert!(
            came < 10_000 && tap.missed() > 0 && came as u64 + tap.missed() >= 10_000,
            "{came} came, {} missed",
            tap.missed()
        );
        let descriptors: Vec<_> =
            tap.fds().into_iter().map(|fd| fd.try_clone_to_owned().expect("there is room")).collect();
        let address = tap.address().to_owned();
        let mut heir = wideload_port::adopt(&address, descriptors, tap.offloads()).expect("it is there");
        assert_eq!(heir.missed(), 0);
        let before = tap.missed();
        flood("10.7.0.2:9");
        assert!(heir.missed() > 0 && tap.missed() > before);
        flood("10.8.0.2:9");
        assert_eq!(other.missed(), 0);
    });
}

#[test]
fn a_frame_is_sent_in_two_parts() {
    Namespace::new().run(|| {
        let mut tap = Tap::open("", Kind::Tun, &Options::default()).expect("a device can be made");
        ip(&format!("addr add 10.7.0.1/24 dev {}", tap.name()));
        ip(&format!("link set {} up", tap.name()));
        let socket = UdpSocket::bind("10.7.0.1:9").expect("the address is there");
        socket.send_to(b"there", "10.7.0.2:9").expect("the way is there");
        let mut pool = Pool::new(1 << 20);
        let sent = receive_one(&mut tap, &mut pool, |frame| match frame {
            Frame::Ip(packet) if packet.bytes().ends_with(b"there") => {
                Some(wire(frame, TxOffload::default()).header.to_vec())
            }
            _ => None,
        });
        // Returns the packet to its sender, without a UDP checksum, which IPv4 allows.
        let mut header = sent[..28].to_vec();
        header[12..20].rotate_left(4);
        header[26..28].fill(0);
        let back = TxFrame { header: &header, payload: b"again", offload: TxOffload::default() };
        assert_eq!(tap.transmit(&[back, back]).expect("it is up"), 2);
        let mut came = [0; 16];
        for _ in 0..2 {
            let (len, from) = socket.recv_from(&mut came).expect("it comes");
            assert_eq!((&came[..len], from.to_string()), (&b"again"[..], "10.7.0.2:9".to_owned()));
        }
    });
}

#[test]
fn kernel_segmentation_on_a_tun_is_valid() {
    Namespace::new().run(|| {
        let options = [Options::default(), Options { offloads: NOTHING, ..Options::default() }];
        let [mut one, mut other] =
            options.map(|options| Tap::open("wide%d", Kind::Tun, &options).expect("a device can be made"));
        for (path, value) in [("ipv4/ip_forward", "1"), ("ipv6/conf/all/forwarding", "1")] {
            std::fs::write(format!("/proc/sys/net/{path}"), value).expect("root may");
        }
        for (number, name) in [(18, "wide0"), (19, "wide1")] {
            ip(&format!("link set {name} up"));
            ip(&format!("addr add 198.{number}.0.1/16 dev {name}"));
            ip(&format!("-6 addr add 2001:db8:{}::1/48 dev {name} nodad", number - 17));
        }
        let mut pool = Pool::new(4 << 20);
        let started = std::time::Instant::now();
        let proof = self_test(&mut one, &mut other, &mut pool).expect("both are up");
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
        assert_eq!(proof, Proof { offloads: one.offloads(), doubts: Vec::new() });
    });
}

/// Sends 1 MiB of TCP between two devices in two namespaces, with a forwarder between them. Returns the counts of
/// the sender's frames.
fn cross(kind: Kind, options: Options) -> port_support::Told {
    let hosts = [Namespace::new(), Namespace::new()];
    let [mut one, mut other] = [0, 1].map(|index| {
        hosts[index].run(|| {
            let tap = Tap::open("wide0", kind, &options).expect("a device can be made");
            ip(&format!("addr add 10.7.0.{}/24 dev wide0", index + 1));
            ip("link set wide0 up");
            tap
        })
    });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarded = scope.spawn(|| forward_until(&stop, &mut one, &mut other));
        transfer(&hosts[0], &hosts[1], "10.7.0.2:7000", 1 << 20);
        stop.store(true, Ordering::Relaxed);
        let ([there, _], _) = forwarded.join().expect("it forwards to the end");
        there
    })
}
