//! ICMP errors of a border: their source addresses, and the packets without an error.

use linux::addresses::Prefix;
use linux::frames::FrameSocket;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Spec, Summed, udp};
use wideload_lab::net::Offloading;
use wideload_lab::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4, v6};

#[test]
fn icmp_errors_have_the_interface_address_by_default() {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let [wide, to_wide, ..] = three_hosts.names();
    let own = [v4(9), v6(9)];
    three_hosts
        .middle
        .tell(|netlink| {
            netlink.add_address(to_wide, Prefix::new(own[0], 24))?;
            netlink.add_address(to_wide, Prefix::new(own[1], 64))
        })
        .unwrap();
    let middle = three_hosts.gateway(&three_hosts.border("", "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let mut seen = three_hosts.wide.space().enter(|| FrameSocket::open(wide)).unwrap();
    for (version, from) in [4, 6].into_iter().zip(own) {
        let [at, target] = if version == 4 { [v4(WIDE), v4(NARROW)] } else { [v6(WIDE), v6(NARROW)] };
        let socket = three_hosts.wide.space().enter(|| UdpSocket::bind(SocketAddr::new(at, 0))).unwrap();
        dont_fragment(&socket, version);
        socket.send_to(&[7; 3_000], SocketAddr::new(target, 9)).unwrap();
        assert_eq!(next_error(&mut seen).expect("the host is told"), from);
    }
    three_hosts.clear(middle).unwrap();
}

#[test]
fn no_icmp_error_for_packets_within_one_side() {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let [wide, ..] = three_hosts.names();
    let middle = three_hosts.gateway(&three_hosts.border("icmp-source = [\"10.77.0.9\"]", "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let mut socket = three_hosts.wide.space().enter(|| FrameSocket::open(wide)).unwrap();
    let stations = [[2, 0, 0, 0, 0, 0xA], [2, 0, 0, 0, 0, 0xB], [2, 0, 0, 0, 0, 0xC]];
    let [one, other, unheard] = stations;
    let long = |to| datagram(one, to, 3_000);
    for (to, is_told, round) in [(unheard, true, 0), (other, false, 0), (unheard, true, 1), (other, false, 1)] {
        // The other station sends an ARP request; and again, as a station with another address may replace it.
        socket.send(&arp(other)).unwrap();
        socket.send(&long(to)).unwrap();
        assert_eq!(next_error(&mut socket).is_some(), is_told, "to {to:x?}, round {round}");
    }
    // Packets within the MTU pass as before.
    let mut narrow = three_hosts.narrow.space().enter(|| FrameSocket::open(three_hosts.names()[3])).unwrap();
    socket.send(&datagram(one, other, 200)).unwrap();
    let until = Instant::now() + Duration::from_secs(2);
    while !narrow.receive().unwrap().is_some_and(|frame| frame.bytes.starts_with(&other)) {
        assert!(Instant::now() < until, "it does not come");
        thread::sleep(Duration::from_millis(1));
    }
    three_hosts.clear(middle).unwrap();
}

#[test]
fn a_border_fragments_df_datagrams_silently_if_configured() {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let middle =
        three_hosts.gateway(&three_hosts.border("icmp-source = [\"10.77.0.9\"]", "", "df = \"fragment\"")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let [wide, ..] = three_hosts.names();
    let mut seen = three_hosts.wide.space().enter(|| FrameSocket::open(wide)).unwrap();
    let receiver = three_hosts.narrow.space().enter(|| UdpSocket::bind(SocketAddr::new(v4(NARROW), 0))).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    let socket = three_hosts.wide.space().enter(|| UdpSocket::bind(SocketAddr::new(v4(WIDE), 0))).unwrap();
    dont_fragment(&socket, 4);
    let mut room = [0; 9_000];
    for len in [3_000, 8_972] {
        socket.send_to(&vec![7; len], receiver.local_addr().unwrap()).unwrap();
        let came = receiver.recv(&mut room).expect("it comes");
        assert!(came == len && room[..len].iter().all(|byte| *byte == 7));
    }
    assert_eq!(next_error(&mut seen), None);
    let Middle::Gateway(service) = &middle else { panic!("a gateway stands there") };
    assert_eq!(service.snapshots().unwrap()[0].directions[0].ledger.event(engine::Event::DfFragmented).packets, 2);
    three_hosts.clear(middle).unwrap();
}

// The kernel's own bridge forwards such packets too.
#[test]
fn packets_as_long_as_the_mtu_cross_a_border_behind_two_tags_and_behind_one_of_802_1ad() {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let [wide, .., narrow] = three_hosts.names();
    let middle = three_hosts.gateway(&three_hosts.border("", "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let socket = three_hosts.wide.space().enter(|| FrameSocket::open(wide)).unwrap();
    let mut seen = three_hosts.narrow.space().enter(|| FrameSocket::open(narrow)).unwrap();
    let plain = datagram([2, 0, 0, 0, 0, 0xA], [2, 0, 0, 0, 0, 0xB], 1_500);
    for tags in [&[0x88, 0xA8, 0, 3][..], &[0x88, 0xA8, 0, 3, 0x81, 0, 0, 7], &[0x81, 0, 0, 3, 0x81, 0, 0, 7]] {
        // IP, a PPPoE session, and MPLS.
        for inside in [[0x08, 0], [0x88, 0x64], [0x88, 0x47]] {
            let frame = [&plain[..12], tags, &inside, &plain[14..]].concat();
            socket.send(&frame).unwrap();
            let until = Instant::now() + Duration::from_secs(2);
            while seen.receive().unwrap().is_none_or(|came| came.bytes != frame) {
                assert!(Instant::now() < until, "{tags:x?} {inside:x?}: it does not come");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let Middle::Gateway(service) = &middle else { panic!("a gateway stands there") };
    let refused: u64 = service.snapshots().unwrap()[0].ends.iter().map(|end| end.tx.rejected).sum();
    assert_eq!(refused, 0);
    three_hosts.clear(middle).unwrap();
}

/// The source of the next ICMP "too big" error within a third of a second.
fn next_error(socket: &mut FrameSocket) -> Option<IpAddr> {
    let until = Instant::now() + Duration::from_millis(300);
    while Instant::now() < until {
        let Some(seen) = socket.receive().unwrap() else {
            thread::sleep(Duration::from_millis(1));
            continue;
        };
        let ip = seen.bytes.get(14..).unwrap_or_default();
        match ip {
            [0x45, ..] if ip[9] == 1 && ip[20..22] == [3, 4] => {
                return Some(<[u8; 4]>::try_from(&ip[12..16]).unwrap().into());
            }
            [0x60, ..] if ip[6] == 58 && ip[40] == 2 => {
                return Some(<[u8; 16]>::try_from(&ip[8..24]).unwrap().into());
            }
            _ => {}
        }
    }
    None
}

fn arp(from: [u8; 6]) -> Vec<u8> {
    let mut frame = [&[0xFF; 6][..], &from, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]].concat();
    frame.extend(from);
    frame.extend([10, 77, 0, 11]);
    frame.extend([0; 6]);
    frame.extend([10, 77, 0, 12]);
    frame.resize(60, 0);
    frame
}

/// A UDP datagram with DF between two unknown hosts.
fn datagram(from: [u8; 6], to: [u8; 6], len: usize) -> Vec<u8> {
    let packet = udp(4).from([10, 77, 0, 10]).to([10, 77, 0, 11]).ports(9, 9).sum(Summed::None);
    Spec { macs: [from, to], ..packet.payload(vec![0; len - 28]).ethernet() }.bytes()
}

fn dont_fragment(socket: &UdpSocket, version: u8) {
    let (level, option) = if version == 4 {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER)
    };
    let value = libc::IP_PMTUDISC_PROBE;
    // SAFETY: the kernel reads one number, which outlives the call.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(outcome, 0);
}
