//! Packet sockets on veth pairs in namespaces of the test: GSO packets, tags, limits, and a forwarder's cost.

mod port_support;

use packet::{Frame, Ingress, Pool};
use port_support::{
    Namespace, Told, drain, drain_at_least, forward_until, into_buffer, ip, ours, plain, receive_one, run, send,
    settle, to_nobody, transfer, wait,
};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Spec, tcp, udp};
use wideload_port::{
    Fanout, FanoutMode, Options, PacketSocket, Port, Proof, Received, SendError, TxFrame, TxOffload, open,
    self_test,
};

#[test]
fn a_stream_crosses_two_packet_sockets_in_gso_packets() {
    let (told, spent, elapsed) = cross(1_500, &[], 64 << 20);
    assert!(told.gso_count > 0 && told.partial_count >= told.gso_count, "{told:?}");
    assert!(told.longest > 10_000, "{told:?}");
    report("trains", told, spent, elapsed);
}

#[test]
fn a_stream_of_jumbo_frames_crosses_two_packet_sockets_in_gso_packets() {
    let (told, spent, elapsed) = cross(9_000, &[], 64 << 20);
    assert!(told.gso_count > 0, "{told:?}");
    report("trains of jumbo frames", told, spent, elapsed);
}

#[test]
fn without_flow_offload_the_port_works_and_gives_the_reason() {
    Namespace::new().run(|| {
        ip("link add pa type veth peer name pb");
        let open = |may_offload| {
            PacketSocket::open("pa", &Options { may_offload, ..Options::default() }).expect("it is there")
        };
        assert_eq!(open(true).why_no_offload(), None);
        // Capabilities belong to a thread.
        let few = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        let few = CapabilitySets { effective: few, permitted: few, inheritable: CapabilitySet::empty() };
        set_capabilities(None, few).expect("a thread may give up rights");
        let port = open(true);
        let why = port.why_no_offload().expect("it says why");
        assert!(why.contains("cannot offload flows to the kernel: Operation not permitted"), "{why}");
        assert_eq!(open(false).why_no_offload(), None, "it was not to");
    });
}

#[test]
fn without_offloads_a_stream_crosses_in_complete_packets() {
    let (told, spent, elapsed) = cross(1_500, &["tx off", "tso off", "gso off"], 4 << 20);
    assert_eq!((told.gso_count, told.partial_count, told.longest), (0, 0, 1_514), "{told:?}");
    report("single packets", told, spent, elapsed);
}

#[test]
fn a_vlan_tag_is_put_back_in_front() {
    pair(1_500, |one, other| {
        let tagged = to_nobody(testkit::ip(4).payload([0xAB; 62])).vlan(0x6007).bytes();
        for tag in [&[0x81, 0, 0x60, 7][..], &[0x88, 0xA8, 0, 3, 0x81, 0, 0x60, 7]] {
            let frame = [&tagged[..12], tag, &tagged[16..]].concat();
            send(one, &frame);
            let mut pool = Pool::new(1 << 20);
            let came = receive_one(other, &mut pool, |came| match came {
                Frame::Ip(packet) if packet.link().starts_with(&tagged[..12]) => {
                    assert_eq!(packet.link().len(), 14 + tag.len());
                    Some(packet.frame().to_vec())
                }
                _ => None,
            });
            assert_eq!(came, frame);
            other.give_back(&mut pool);
        }
    });
}

// The kernel's bridge also passes such packets. It stores the outer tag outside the frame, and allows one tag in
// it.
#[test]
fn a_packet_as_long_as_the_mtu_passes_behind_two_tags_and_behind_one_of_802_1ad() {
    Namespace::new().run(|| {
        ip("link add pa mtu 1500 type veth peer name pb mtu 1500");
        ip("link set pa addrgenmode none arp off up");
        ip("link set pb addrgenmode none arp off up");
        let mut one =
            PacketSocket::open("pa", &Options { may_offload: true, ..Options::default() }).expect("it is there");
        let mut other = PacketSocket::open("pb", &Options::default()).expect("it is there");
        settle(&mut one, &mut other);
        drain(&mut other);
        let (customer, service) = ([0x81, 0, 0x60, 7], [0x88, 0xA8, 0, 3]);
        for tags in [&[customer][..], &[service], &[customer, customer], &[service, customer], &[service, service]]
        {
            for (version, protocol) in [(4, 6), (4, 17), (4, 1), (4, 50), (6, 6), (6, 17), (6, 58)] {
                for len in [60, 1_500] {
                    let frame = tagged(tags, version, protocol, len);
                    send(&mut one, &frame);
                    let mut pool = Pool::new(1 << 20);
                    let came = receive_one(&mut other, &mut pool, |came| match came {
                        Frame::Ip(packet) => Some(packet.frame().to_vec()),
                        _ => None,
                    });
                    assert!(came == frame, "{tags:x?}, {version}, {protocol}, {len}: {:x?}", &came[..40]);
                    other.give_back(&mut pool);
                }
            }
        }
    });
}

/// Returns the frame of a packet of `len` bytes after these tags, with correct checksums.
fn tagged(tags: &[[u8; 4]], version: u8, protocol: u8, len: u16) -> Vec<u8> {
    let packet = if protocol == 6 { tcp(version) } else { udp(version) }.ports(9, 9).ethernet();
    let len = usize::from(len) - packet.ip_len();
    let frame = Spec { macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 9]], ..packet }.payload(vec![0xAB; len]).bytes();
    [&frame[..12], &tags.concat(), &frame[12..]].concat()
}

#[test]
fn sent_frames_are_not_received() {
    pair(1_500, |one, other| {
        (0..10).for_each(|_| send(one, &ours(200)));
        let mut pool = Pool::new(1 << 20);
        receive_one(other, &mut pool, |frame| is_ours(frame).then_some(()));
        assert_eq!(drain(one), 0);
    });
    Namespace::new().run(|| {
        let options = Options::default();
        let mut ports = [0, 1].map(|_| open("packet:lo", &options).expect("it is there"));
        (0..10).for_each(|_| send(&mut *ports[0], &ours(200)));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("it is there");
        socket.send_to(b"from the host", "127.0.0.1:9").expect("it is up");
        for port in &mut ports {
            let mut pool = Pool::new(1 << 20);
            receive_one(&mut **port, &mut pool, |frame| {
                assert!(!is_ours(frame), "a frame of ours came back");
                matches!(frame, Frame::Ip(packet) if packet.bytes().ends_with(b"from the host")).then_some(())
            });
        }
    });
}

#[test]
fn a_frame_above_the_mtu_is_refused_by_name_and_those_before_it_are_sent() {
    pair(1_500, |one, other| {
        let (fits, too_long) = (ours(1_514), ours(1_519));
        let wires = [&fits, &fits, &too_long, &fits].map(|frame| plain(frame));
        assert_eq!(one.transmit(&wires).expect("the first two fit"), 2);
        let error = one.transmit(&wires[2..]).expect_err("it is too long");
        assert_eq!(SendError::of(&error), Some(SendError::TooLong), "{error}");
        assert!(error.to_string().contains("packet:pa: cannot send"), "{error}");
        assert_eq!(drain_at_least(other, 2), 2);
    });
}

#[test]
fn a_long_frame_is_sent_in_parts_if_kernel_memory_is_fragmented() {
    pair(9_000, |one, other| {
        // Simulates a kernel with fragmented memory: it accepts only one frame at a time.
        refuse_batches();
        let [long, short] = [9_014, 100].map(ours);
        for left in (1..=3).rev() {
            assert_eq!(
                one.transmit(&[&long; 3][..left].iter().map(|it| plain(it)).collect::<Vec<_>>()).ok(),
                Some(1)
            );
        }
        assert_eq!(drain_at_least(other, 3), 3);
        let sent = one.transmit(&[&short; 2].map(|frame| plain(frame))).expect("it waits for room");
        assert_eq!(sent, 0, "a short one lies in one piece anyway");
    });
}

#[test]
fn an_invalid_gso_packet_is_refused_by_name() {
    pair(1_500, |one, _| {
        let frame = ours(100);
        let wire =
            TxFrame { header: &frame, payload: &[], offload: TxOffload { checksum: Some((900, 916)), gso: None } };
        let error = one.transmit(&[wire]).expect_err("it is nonsense");
        assert_eq!(SendError::of(&error), Some(SendError::UnsupportedOffload), "{error}");
    });
}

#[test]
fn a_down_interface_gives_an_error_and_recovers() {
    pair(1_500, |one, other| {
        let mut pool = Pool::new(1 << 20);
        ip("link set pa down");
        let error = one.receive(Ingress(0), &mut pool, &mut Vec::new()).expect_err("it is down");
        assert!(error.to_string().contains("packet:pa: cannot receive"), "{error}");
        let error = one.transmit(&[plain(&ours(100))]).expect_err("it is down");
        assert_eq!(SendError::of(&error), Some(SendError::Down), "{error}");
        ip("link set pa up");
        one.give_back(&mut pool);
        settle(one, other);
        settle(other, one);
    });
}

#[test]
fn frames_not_read_in_time_are_counted() {
    pair(1_500, |one, other| {
        assert_eq!(other.missed(), 0);
        let frame = ours(1_514);
        (0..5_000).for_each(|_| send(one, &frame));
        let (began, mut taken) = (Instant::now(), 0);
        let missed = loop {
            taken += drain(other);
            let missed = other.missed();
            if missed + taken >= 5_000 || began.elapsed() > TIMEOUT {
                break missed;
            }
        };
        assert!(missed > 0 && taken > 0, "{missed} missed, {taken} taken");
        assert_eq!(missed + taken, 5_000);
        assert_eq!(other.missed(), missed);
    });
}

#[test]
fn a_frame_without_memory_is_lost_and_counted() {
    pair(1_500, |one, other| {
        // First no memory at all, then memory for two short frames and one overflow buffer.
        for (limit, lost) in [(0, 5), (70_000, 0)] {
            let mut pool = Pool::new(limit);
            let mut frames = Vec::new();
            let mut told = Received::default();
            (0..5).for_each(|_| send(one, &ours(100)));
            for _ in 0..100 {
                wait(&[other], 20);
                let received = other.receive(Ingress(0), &mut pool, &mut frames).expect("it is up");
                told.count += received.count;
                told.lost_count += received.lost_count;
                frames.drain(..).for_each(|frame| pool.give(into_buffer(frame)));
                if told.count == 5 {
                    break;
                }
            }
            assert_eq!((told.count, told.lost_count), (5, lost), "with {limit} bytes");
            assert!(pool.heap_len() <= limit);
        }
    });
}

#[test]
fn a_fanout_group_distributes_frames_by_flow() {
    pair(1_500, |one, _| {
        let options = Options { fanout: Some(Fanout { group: 7, spread: FanoutMode::Flow }), ..Options::default() };
        let mut group = [0, 1, 2].map(|_| PacketSocket::open("pb", &options).expect("it is there"));
        // Frames that other sockets send by the interface are not received.
        let mut other = PacketSocket::open("pb", &Options::default()).expect("it is there");
        (0..10).for_each(|_| send(&mut other, &ours(100)));
        for flow in 0..30u8 {
            for _ in 0..3 {
                send(one, &to_nobody(testkit::ip(4).payload([0xCD; 66])).from([flow, 7, 0, 1]).bytes());
            }
        }
        let mut pool = Pool::new(16 << 20);
        let mut flows = group.each_mut().map(|port| {
            let mut frames = Vec::new();
            wait(&[port], 20);
            while port.receive(Ingress(0), &mut pool, &mut frames).expect("it is up").count > 0 {
                wait(&[port], 20);
            }
            frames
        });
        let began = Instant::now();
        while flows.iter().map(Vec::len).sum::<usize>() < 90 && began.elapsed() < TIMEOUT {
            for (port, frames) in group.iter_mut().zip(&mut flows) {
                port.receive(Ingress(0), &mut pool, frames).expect("it is up");
            }
        }
        let count: usize = flows.iter().map(Vec::len).sum();
        assert_eq!(count, 90);
        let sets = flows.each_mut().map(|frames| {
            let flow = |frame: Frame| match frame {
                Frame::Ip(packet) => packet.bytes()[12],
                Frame::Other(..) => panic!("all are packets"),
            };
            frames.drain(..).map(flow).collect::<HashSet<u8>>()
        });
        assert!(sets.iter().all(|set| !set.is_empty()), "{sets:?}");
        assert_eq!(sets.iter().map(HashSet::len).sum::<usize>(), 30, "{sets:?}");
    });
}

#[test]
fn an_unusable_interface_gives_a_remedy() {
    Namespace::new().run(|| {
        let error = open("packet:eth7", &Options::default()).err().expect("there is none");
        assert!(error.to_string().contains("packet:eth7: cannot open it: No such device"), "{error}");
    });
}

#[test]
fn bare_ip_goes_through_an_interface_without_link_headers() {
    Namespace::new().run(|| {
        let mut tun = wideload_port::Tap::open("wide0", wideload_port::Kind::Tun, &Options::default())
            .expect("it can be made");
        ip("link set wide0 up");
        let mut socket = open("packet:wide0", &Options::default()).expect("it is there");
        assert_eq!(socket.link_type(), packet::LinkType::Ip);
        let frame = ours(100)[14..].to_vec();
        let came = |packet: &Frame| is_ours(packet).then_some(());
        let mut pool = Pool::new(1 << 20);
        send(&mut *socket, &frame);
        receive_one(&mut tun, &mut pool, came);
        send(&mut tun, &frame);
        receive_one(&mut *socket, &mut pool, came);
    });
}

#[test]
fn kernel_segmentation_on_a_packet_socket_is_valid() {
    for does_cut in [true, false] {
        pair(1_500, |one, other| {
            if does_cut {
                ["tso off", "gso off", "tx off"]
                    .iter()
                    .for_each(|feature| run("ethtool", &format!("-K pa {feature}")));
            }
            let mut pool = Pool::new(4 << 20);
            let proof = self_test(one, other, &mut pool).expect("both are up");
            assert_eq!(proof, Proof { offloads: one.offloads(), doubts: Vec::new() }, "cut: {does_cut}");
            assert_eq!(pool.in_use_count(), 0);
        });
    }
}

/// Sends `len` bytes of TCP between two hosts over a forwarder between two packet sockets. Returns the forwarder's
/// counts, its CPU time and the duration of the transfer.
fn cross(mtu: usize, features: &[&str], len: usize) -> (Told, Duration, Duration) {
    let [middle, left, right] = [0, 1, 2].map(|_| Namespace::new());
    for (number, host) in [(1, &left), (2, &right)] {
        middle.run(|| {
            ip(&format!(
                "link add port{number} mtu {mtu} type veth peer name host mtu {mtu} netns {}",
                host.path()
            ));
            features.iter().for_each(|feature| run("ethtool", &format!("-K port{number} {feature}")));
            ip(&format!("link set port{number} addrgenmode none up"));
        });
        host.run(|| {
            features.iter().for_each(|feature| run("ethtool", &format!("-K host {feature}")));
            ip(&format!("addr add 10.7.0.{number}/24 dev host"));
            ip("link set host addrgenmode none up");
        });
    }
    let [mut one, mut other] = middle.run(|| {
        [1, 2].map(|number| PacketSocket::open(&format!("port{number}"), &Options::default()).expect("it is there"))
    });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let forwarded = scope.spawn(|| forward_until(&stop, &mut one, &mut other));
        let elapsed = transfer(&left, &right, "10.7.0.2:7000", len);
        stop.store(true, Ordering::Relaxed);
        let ([there, back], spent) = forwarded.join().expect("it forwards to the end");
        assert_eq!((there.lost_count, back.lost_count), (0, 0));
        (Told { frame_count: there.frame_count + back.frame_count, ..there }, spent, elapsed)
    })
}

/// Runs `within` with sockets at both ends of a veth pair, `pa` and `pb`. There is no other traffic.
fn pair(mtu: usize, within: impl FnOnce(&mut dyn Port, &mut dyn Port) + Send) {
    Namespace::new().run(|| {
        ip(&format!("link add pa mtu {mtu} type veth peer name pb mtu {mtu}"));
        ip("link set pa addrgenmode none arp off up");
        ip("link set pb addrgenmode none arp off up");
        let options = Options { socket_buffer_len: 1 << 20, ..Options::default() };
        let mut one = PacketSocket::open("pa", &options).expect("it is there");
        let mut other = PacketSocket::open("pb", &options).expect("it is there");
        settle(&mut one, &mut other);
        settle(&mut other, &mut one);
        drain(&mut other);
        within(&mut one, &mut other);
    });
}

/// Makes the kernel report to this thread that it has no memory for more than one frame per call.
fn refuse_batches() {
    let step = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let verdict = |k| step(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    let mut steps = [
        load(0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 3, libc::SYS_sendmmsg as u32),
        load(if cfg!(target_endian = "little") { 32 } else { 36 }),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, 1),
        verdict(libc::SECCOMP_RET_ERRNO | libc::ENOBUFS as u32),
        verdict(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads the program, which lives until the call is over.
    let outcome = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(outcome, 0, "the test runs as root");
}

fn is_ours(frame: &Frame) -> bool {
    matches!(frame, Frame::Ip(packet) if packet.ip().upper.is_some_and(|upper| upper.protocol == 253))
}

fn report(what: &str, told: Told, spent: Duration, elapsed: Duration) {
    let per_frame = spent.as_nanos() as u64 / told.frame_count.max(1);
    let gigabits = told.byte_count as f64 * 8.0 / elapsed.as_nanos() as f64;
    let per_core = told.byte_count as f64 * 8.0 / spent.as_nanos() as f64;
    println!(
        "{what}: {per_frame} ns of CPU per frame, {gigabits:.1} Gbit/s, {per_core:.1} Gbit/s per core; {told:?}"
    );
}

const TIMEOUT: Duration = Duration::from_secs(10);
