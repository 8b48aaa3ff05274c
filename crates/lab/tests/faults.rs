//! Faults of links, hosts and the gateway itself -> traffic continues, and all losses are counted.

use engine::{
    Batch, Egress, Event, FragmentPolicy, Gateway, GatewaySettings, Holding, Mode, Position, Prefixes, Secret,
    Secrets, SideSettings,
};
use gateway::snapshot::Snapshot;
use packet::{Frame, Ingress, LinkType, Packet, Pool, Time};
use port::helper::Direction;
use port::{Options, Port};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::{Spec, Summed, tcp, udp};
use wideload_lab::net::{Host, HostLink, Offloading, cable};
use wideload_lab::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4, v6};
use wideload_lab::traffic::{self, Messages};
use wideload_lab::two_hosts::TwoHosts;

#[test]
fn an_interface_that_was_down_forwards_again_within_a_second_of_its_return() {
    for workers in [1, 2] {
        let (three_hosts, middle) = border(workers);
        three_hosts.wait_until_forwarding().unwrap();
        let echo = Echo::at(&three_hosts.wide, v4(WIDE));
        let [wide, to_wide, to_narrow, narrow] = three_hosts.names();
        ask_again_soon(&three_hosts.wide, wide);
        ask_again_soon(&three_hosts.narrow, narrow);
        for name in [to_wide, to_narrow, to_wide] {
            echo.answers(&three_hosts.narrow).unwrap();
            three_hosts.middle.tell(|netlink| netlink.set_down(name)).unwrap();
            thread::sleep(Duration::from_millis(400));
            assert!(
                snapshots(&middle).iter().any(|it| it.ends.iter().any(|end| !end.is_up)),
                "{name} is seen down"
            );
            three_hosts.middle.tell(|netlink| netlink.set_up(name)).unwrap();
            let took = echo.answers(&three_hosts.narrow).unwrap();
            println!("{workers} workers: {name} forwards {took:.0?} after its return");
            assert!(took < Duration::from_secs(1), "{name}: {took:?}");
            assert!(snapshots(&middle).iter().all(|it| it.ends.iter().all(|end| end.is_up)));
        }
        check_books(&middle);
        three_hosts.clear(middle).unwrap();
    }
}

#[test]
fn a_carrier_that_flaps_twenty_times_delays_a_transfer_and_nothing_more() {
    let (three_hosts, middle) = border(1);
    three_hosts.wait_until_forwarding().unwrap();
    let [wide, _, _, narrow] = three_hosts.names();
    ask_again_soon(&three_hosts.wide, wide);
    ask_again_soon(&three_hosts.narrow, narrow);
    thread::scope(|scope| {
        let transfer = scope.spawn(|| throttled(&three_hosts.wide, &three_hosts.narrow, v4(NARROW), 24 << 20));
        for _ in 0..20 {
            three_hosts.narrow.tell(|netlink| netlink.set_down(narrow)).unwrap();
            thread::sleep(Duration::from_millis(20));
            three_hosts.narrow.tell(|netlink| netlink.set_up(narrow)).unwrap();
            thread::sleep(Duration::from_millis(60));
        }
        assert_eq!(transfer.join().unwrap().unwrap(), Fate::Intact);
    });
    let echo = Echo::at(&three_hosts.wide, v4(WIDE));
    assert!(echo.answers(&three_hosts.narrow).unwrap() < Duration::from_secs(1));
    check_books(&middle);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn an_mtu_that_changes_under_way_loses_only_what_is_counted_as_refused() {
    // Packets arrive one by one. The interface itself would drop and count the segments of GSO packets that are too
    // long.
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let as_is = "offloads = \"as-is\"";
    let middle = three_hosts.gateway(&three_hosts.border("[mss]\nraise = \"always\"", as_is, as_is)).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let [_, to_wide, to_narrow, _] = three_hosts.names();
    thread::scope(|scope| {
        let transfers = [
            scope.spawn(|| throttled(&three_hosts.narrow, &three_hosts.wide, v4(WIDE), 24 << 20)),
            scope.spawn(|| throttled(&three_hosts.wide, &three_hosts.narrow, v4(NARROW), 24 << 20)),
        ];
        for (name, mtu) in
            [(to_wide, 4_000), (to_wide, 9_000), (to_narrow, 1_280), (to_narrow, 1_500), (to_wide, 9_216)]
        {
            thread::sleep(Duration::from_millis(150));
            three_hosts.middle.tell(|netlink| netlink.set_mtu(name, mtu)).unwrap();
        }
        for transfer in transfers {
            assert_eq!(transfer.join().unwrap().unwrap(), Fate::Intact);
        }
    });
    let refused: Vec<_> = snapshots(&middle)[0].ends.iter().map(|end| end.tx.rejected).collect();
    println!("refused for length at the wide and the narrow end: {refused:?}");
    assert!(refused[0] > 0, "the wide link took less than the gateway was told");
    // Frames that exceed the interface's former MTU still arrive complete.
    let lost: u64 = snapshots(&middle)[0].ends.iter().map(|end| end.rx.dropped).sum();
    assert_eq!(lost, 0);
    check_books(&middle);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn a_recreated_interface_forwards_within_a_second() {
    for workers in [1, 2] {
        let (three_hosts, middle) = border(workers);
        three_hosts.wait_until_forwarding().unwrap();
        for round in 0..3 {
            let wide_is_new = round % 2 == 0;
            make_anew(&three_hosts, wide_is_new);
            let began = Instant::now();
            let echo = Echo::at(&three_hosts.wide, v4(WIDE));
            echo.answers(&three_hosts.narrow).unwrap();
            let took = began.elapsed();
            println!("{workers} workers: a new interface forwards after {took:.0?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
            for (from, to, host) in
                [(&three_hosts.narrow, &three_hosts.wide, WIDE), (&three_hosts.wide, &three_hosts.narrow, NARROW)]
            {
                assert!(traffic::tcp(from.space(), to.space(), v4(host), 1 << 20, round).unwrap().intact);
            }
        }
        // Both directions of every connection meet at one worker, as before. Otherwise that worker would not know
        // the MSS.
        for snapshot in snapshots(&middle) {
            assert_eq!(snapshot.peers.sent, 0);
            assert_eq!(snapshot.directions[0].ledger.event(Event::MssUnknown).packets, 0);
        }
        check_books(&middle);
        three_hosts.clear(middle).unwrap();
    }
}

#[test]
fn a_recreated_interface_is_intercepted_again() {
    let (three_hosts, middle) = border(1);
    three_hosts.wait_until_forwarding().unwrap();
    make_anew(&three_hosts, true);
    let echo = Echo::at(&three_hosts.wide, v4(WIDE));
    echo.answers(&three_hosts.narrow).unwrap();
    // An address of the middle host must not answer: the gateway is no host.
    let [_, to_wide, _, _] = three_hosts.names();
    let prefix = linux::addresses::Prefix::new(v4(9), 24);
    three_hosts.middle.tell(|netlink| netlink.add_address(to_wide, prefix)).unwrap();
    let silent = Echo::at(&three_hosts.middle, v4(9));
    let error = silent.answers(&three_hosts.wide).expect_err("the kernel of the middle hears nothing");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn a_removed_helper_is_recreated() {
    for workers in [1, 2] {
        for direction in [Direction::Ingress, Direction::Egress] {
            let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
            let more = format!("workers = {workers}\n");
            let service = pair.start(0, &pair.wide_interface(0, 65_535, [&more, "", ""])).unwrap();
            let echo = Echo::at(&pair.hosts[1], v4(2));
            echo.answers(&pair.hosts[0]).unwrap();
            let device = direction.device(pair.names()[0]);
            for _ in 0..2 {
                pair.hosts[0].tell(|netlink| netlink.remove(&device)).unwrap();
                // Meanwhile the kernel fragments and reassembles by itself.
                let began = Instant::now();
                let [one, other] = &pair.hosts;
                let messages = |count| Messages { len: 20_000, count, rate: Some(100e6) };
                let counters = || one.tell(|netlink| Ok(netlink.interface(&device)?.counters)).ok();
                while counters().is_none_or(|counters| counters.received.packet_count == 0) {
                    assert!(began.elapsed() < Duration::from_secs(5), "{device}: nothing goes by it");
                    for (from, to, host) in [(one, other, 2), (other, one, 1)] {
                        traffic::udp(from.space(), to.space(), v4(host), messages(1), 2).unwrap();
                    }
                }
                println!("{device}, {workers} workers: works again after {:.0?}", began.elapsed());
                for (from, to, host) in [(one, other, 2), (other, one, 1)] {
                    let transfer = traffic::udp(from.space(), to.space(), v4(host), messages(50), 3).unwrap();
                    assert_eq!((transfer.messages, transfer.intact), (50, true));
                }
                let counters = counters().unwrap();
                let both = [counters.sent.packet_count, counters.received.packet_count];
                assert!(both.into_iter().all(|count| count >= 50), "they went by it: {both:?}");
            }
            for snapshot in service.snapshots().unwrap() {
                assert!(snapshot.directions.iter().all(|direction| direction.broken.is_none()), "{snapshot:?}");
            }
            service.stop();
        }
    }
}

#[test]
fn a_silent_peer_delays_no_others() {
    let pair = TwoHosts::new(1_500, Offloading::Off).unwrap();
    let service = pair.start(0, &pair.wide_interface(0, 9_000, [""; 3])).unwrap();
    let echo = Echo::at(&pair.hosts[1], v4(2));
    echo.answers(&pair.hosts[0]).unwrap();
    let socket = pair.hosts[0].space().enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    for number in 0..3_000 {
        // The kernel asks for the MAC address, and keeps few of these datagrams meanwhile.
        let _ = socket.send_to(&[7; 8_000], (v4(99), 9));
        if number % 20 == 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
    assert!(echo.answers(&pair.hosts[0]).unwrap() < Duration::from_secs(1), "another peer is not held up");
    let after = service.snapshots().unwrap().remove(0);
    assert_eq!(after.directions.each_ref().map(|direction| direction.broken.clone()), [None, None]);
    service.stop();
}

#[test]
fn drops_at_an_unread_port_are_counted_and_order_is_kept() {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    // A device replaces the cable to the narrow host. The test holds its other end and does not read it.
    let mut far = three_hosts.middle.space().enter(|| port::open("tap:slow0", &Options::default()).unwrap());
    three_hosts.middle.tell(|netlink| netlink.set_up("slow0")).unwrap();
    let [wide, _, to_narrow, _] = three_hosts.names();
    let text = three_hosts.border("", "", "").replace(to_narrow, "slow0");
    let middle = three_hosts.gateway(&text).unwrap();
    let count = 30_000_u64;
    let mut near =
        three_hosts.wide.space().enter(|| port::open(&format!("packet:{wide}"), &Options::default()).unwrap());
    let began = Instant::now();
    for numbers in (0..count).collect::<Vec<_>>().chunks(50) {
        send(near.as_mut(), &numbers.iter().map(|number| numbered(*number, 1_000)).collect::<Vec<_>>());
        // As fast as the gateway reads; the far side may be slower.
        until(Duration::from_secs(30), || {
            let seen = snapshots(&middle)[0].ends[0].rx.frames;
            (seen + 2_000 > numbers[0]).then_some(())
        });
    }
    let snapshot = until(Duration::from_secs(30), || {
        let snapshot = snapshots(&middle).remove(0);
        (snapshot.ends[0].rx.packets >= count).then_some(snapshot)
    });
    let sent = snapshot.ends[1].tx;
    println!("in {:.1?}: taken {}, dropped for a full port {}", began.elapsed(), sent.packets, sent.queue_full);
    assert_eq!(snapshot.ends[0].missed, 0);
    assert!(sent.packets + sent.queue_full >= count && sent.rejected == 0 && sent.link_down == 0, "{sent:?}");
    assert!(snapshot.directions[0].in_use_count < 200, "{}", snapshot.directions[0].in_use_count);
    check_books(&middle);
    // A late reader gets the queued frames in order, and then the new ones.
    let (mut last, mut after, mut all) = (None, 0, 0);
    let mut pool = Pool::new(64 << 20);
    for number in count..count + 500 {
        send(near.as_mut(), &[numbered(number, 1_000)]);
        thread::sleep(Duration::from_micros(200));
        for number in received(far.as_mut(), &mut pool) {
            assert!(last < Some(number), "{number} after {last:?}");
            last = Some(number);
            after += u64::from(number >= count);
            all += 1;
        }
    }
    let ended = Instant::now();
    while after < 500 && ended.elapsed() < Duration::from_secs(5) {
        for number in received(far.as_mut(), &mut pool) {
            assert!(last < Some(number), "{number} after {last:?}");
            last = Some(number);
            after += u64::from(number >= count);
            all += 1;
        }
    }
    assert!(after >= 490, "{after} of 500 came once somebody read");
    // The device counts the unread frames; a few packets are the host's own.
    let device = three_hosts.middle.tell(|netlink| Ok(netlink.interface("slow0")?.counters)).unwrap().sent;
    let sent = snapshots(&middle)[0].ends[1].tx;
    println!("{all} read, {} dropped by the device", device.drop_count);
    let accounted = all + device.drop_count + sent.queue_full;
    assert!((count + 500..count + 550).contains(&accounted), "{accounted}");
    check_books(&middle);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn a_leaping_clock_flushes_held_packets_once() {
    for leap in [0, 1, 50_000, 1_000_000, 1_000_000_000, 3_600_000_000_000, u64::MAX / 4] {
        let mut rng = fastrand::Rng::with_seed(leap);
        let mut gateway = coalescing();
        let mut now = Time::ZERO.later(1_000_000_000);
        let mut next = [0_u32; 8];
        let mut came = [0_u32; 8];
        for step in 0..4_000 {
            let flow = rng.usize(..8);
            push(&mut gateway, now, flow as u8, &mut next[flow]);
            if step % 97 == 0 {
                // Past every deadline at once. With a leap of 0 no time passes.
                now = now.later(leap);
                gateway.expire(now);
                assert!(leap < 2_000_000 || gateway.held(0).1 == 0, "{leap}: something is held past its deadline");
            }
            now = now.later(rng.u64(..3_000));
            gateway.expire(now);
            collect(&mut gateway, &mut came);
            gateway.check(0).unwrap_or_else(|broken| panic!("leap of {leap} ns: {broken}"));
        }
        gateway.flush(now);
        collect(&mut gateway, &mut came);
        assert_eq!(came, next, "leap of {leap} ns: every byte left once, in order");
        assert_eq!(gateway.output(0).pool.in_use_count(), 0);
    }
}

#[test]
fn a_clock_that_stands_still_or_falls_back_loses_nothing() {
    let mut gateway = coalescing();
    let mut rng = fastrand::Rng::with_seed(9);
    let (mut next, mut came) = ([0_u32; 8], [0_u32; 8]);
    let mut now = Time::ZERO.later(3_600_000_000_000);
    for step in 0..4_000 {
        let flow = rng.usize(..8);
        // A monotonic clock does not go back. Held packets must leave nevertheless.
        let told = if step % 31 == 0 { Time::ZERO.later(rng.u64(..1_000_000)) } else { now };
        push(&mut gateway, told, flow as u8, &mut next[flow]);
        gateway.expire(told);
        collect(&mut gateway, &mut came);
        gateway.check(0).unwrap_or_else(|broken| panic!("step {step}: {broken}"));
        now = now.later(rng.u64(..2_000));
    }
    gateway.flush(now);
    collect(&mut gateway, &mut came);
    assert_eq!(came, next);
    assert_eq!(gateway.output(0).pool.in_use_count(), 0);
}

#[test]
fn fifty_connections_survive_ten_restarts_of_the_gateway() {
    for workers in [1, 2] {
        let (three_hosts, first) = border(workers);
        three_hosts.wait_until_forwarding().unwrap();
        let ended = AtomicBool::new(false);
        let middle = thread::scope(|scope| {
            let flows: Vec<_> = (0..50_u64)
                .map(|seed| {
                    let three_hosts = &three_hosts;
                    scope.spawn(move || {
                        let to_wide = seed % 2 == 0;
                        let (from, to, host) = if to_wide {
                            (&three_hosts.narrow, &three_hosts.wide, WIDE)
                        } else {
                            (&three_hosts.wide, &three_hosts.narrow, NARROW)
                        };
                        let address = if seed % 4 < 2 { v4(host) } else { v6(host) };
                        paced(from, to, address, 1 << 20, Duration::from_secs(7), seed)
                    })
                })
                .collect();
            let restarts = scope.spawn(|| {
                let mut middle = first;
                for _ in 0..10 {
                    thread::sleep(Duration::from_millis(300));
                    three_hosts.clear(middle).unwrap();
                    thread::sleep(Duration::from_millis(20));
                    middle = three_hosts.gateway(&three_hosts.border(&of(workers), "", "")).unwrap();
                }
                ended.store(true, Ordering::Relaxed);
                middle
            });
            for (seed, flow) in flows.into_iter().enumerate() {
                assert_eq!(flow.join().unwrap().unwrap(), Fate::Intact, "{workers} workers, connection {seed}");
            }
            assert!(ended.load(Ordering::Relaxed), "they were under way all the time");
            restarts.join().unwrap()
        });
        check_books(&middle);
        three_hosts.clear(middle).unwrap();
    }
}

/// The outcome of a transfer.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The SHA-256 at the receiver is that of the sent bytes.
    Intact,
    Changed,
}

/// A server that returns each datagram.
struct Echo {
    target: SocketAddr,
    ends: std::sync::Arc<AtomicBool>,
}

impl Echo {
    fn at(host: &Host, address: IpAddr) -> Echo {
        let socket = host.space().enter(|| UdpSocket::bind(SocketAddr::new(address, 0)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let target = socket.local_addr().unwrap();
        let ends = std::sync::Arc::new(AtomicBool::new(false));
        let told = std::sync::Arc::clone(&ends);
        thread::spawn(move || {
            let mut room = [0; 64];
            while !told.load(Ordering::Relaxed) {
                if let Ok((len, from)) = socket.recv_from(&mut room) {
                    // While the link is down there is no route back.
                    let _ = socket.send_to(&room[..len], from);
                }
            }
        });
        Echo { target, ends }
    }

    /// The time until the server answers.
    fn answers(&self, from: &Host) -> io::Result<Duration> {
        let socket = from.space().enter(|| UdpSocket::bind("0.0.0.0:0"))?;
        socket.set_read_timeout(Some(Duration::from_millis(10)))?;
        let began = Instant::now();
        let mut room = [0; 64];
        while began.elapsed() < Duration::from_secs(10) {
            // While the link is down, the host itself may reject the message.
            let _ = socket.send_to(b"are you there?", self.target);
            if socket.recv_from(&mut room).is_ok() {
                return Ok(began.elapsed());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "nobody answers"))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// A transfer that takes about 1.5 s.
fn throttled(from: &Host, to: &Host, address: IpAddr, len: usize) -> io::Result<Fate> {
    paced(from, to, address, len, Duration::from_millis(1_500), 11)
}

/// Sends `len` bytes in one connection, spread over a duration.
fn paced(from: &Host, to: &Host, address: IpAddr, len: usize, stretch: Duration, seed: u64) -> io::Result<Fate> {
    let listener = to.space().enter(|| TcpListener::bind(SocketAddr::new(address, 0)))?;
    let target = listener.local_addr()?;
    let sent = traffic::content(seed, len);
    let expected = traffic::digest(&sent);
    thread::scope(|scope| {
        let receiver = scope.spawn(move || -> io::Result<String> {
            let (mut stream, _) = listener.accept()?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            let mut came = Vec::new();
            stream.read_to_end(&mut came)?;
            Ok(traffic::digest(&came))
        });
        let mut stream = from.space().enter(|| TcpStream::connect_timeout(&target, TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let parts = sent.chunks(len.div_ceil(50));
        for part in parts {
            stream.write_all(part)?;
            thread::sleep(stretch / 50);
        }
        stream.shutdown(Shutdown::Write)?;
        let came = receiver.join().expect("a receiver that panics has said why")?;
        Ok(if came == expected { Fate::Intact } else { Fate::Changed })
    })
}

/// Removes a cable, and creates it again with the same names, MTUs and addresses.
fn make_anew(three_hosts: &ThreeHosts, is_wide: bool) {
    let [wide, to_wide, to_narrow, narrow] = three_hosts.names();
    let (host, name, own, number, mtu) = if is_wide {
        (&three_hosts.wide, wide, to_wide, WIDE, 9_000)
    } else {
        (&three_hosts.narrow, narrow, to_narrow, NARROW, 1_500)
    };
    // As with a NIC that was removed and inserted again: other hosts remember the MAC address.
    let mac = host.tell(|netlink| Ok(netlink.interface(name)?.mac)).unwrap().expect("a cable has addresses");
    three_hosts.middle.tell(|netlink| netlink.remove(own)).unwrap();
    thread::sleep(Duration::from_millis(300));
    let addresses = [linux::addresses::Prefix::new(v4(number), 24), linux::addresses::Prefix::new(v6(number), 64)];
    let ends = [
        HostLink { host, interface: name, mtu, addresses: &addresses },
        HostLink { host: &three_hosts.middle, interface: own, mtu, addresses: &[] },
    ];
    cable(ends, Offloading::Off).unwrap();
    host.tell(|netlink| netlink.set_mac(name, mac)).unwrap();
    ask_again_soon(host, name);
}

/// Sets the retry of neighbour requests to 100 ms. A request sent before there is a path is otherwise repeated
/// after a second.
fn ask_again_soon(host: &Host, name: &str) {
    host.space().set_sysctl(&format!("ipv4/neigh/{name}/retrans_time_ms"), "100").unwrap();
}

fn until<T>(timeout: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < timeout, "it did not come to that within {timeout:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn send(port: &mut dyn Port, frames: &[Vec<u8>]) {
    let wires: Vec<_> = frames
        .iter()
        .map(|frame| port::TxFrame { header: frame, payload: &[], offload: port::TxOffload::default() })
        .collect();
    let mut rest = &wires[..];
    while !rest.is_empty() {
        let count = port.transmit(rest).unwrap();
        rest = &rest[count..];
    }
}

/// Numbers of the test's frames in the receive queue.
fn received(port: &mut dyn Port, pool: &mut Pool) -> Vec<u64> {
    let mut frames = Vec::new();
    port.receive(Ingress(0), pool, &mut frames).unwrap();
    let mut numbers = Vec::new();
    for frame in frames {
        match frame {
            Frame::Ip(packet) => {
                if packet.frame().get(26..28) == Some(&[198, 18]) {
                    numbers.extend(packet.frame()[42..].first_chunk().map(|bytes| u64::from_be_bytes(*bytes)));
                }
                pool.give(packet.into_buffer());
            }
            Frame::Other(raw, _) => pool.give(raw.into_buffer()),
        }
    }
    numbers
}

/// A UDP packet with a number.
fn numbered(number: u64, payload_len: usize) -> Vec<u8> {
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(payload_len, 7);
    let packet = udp(4).from([198, 18, 0, 1]).to([198, 19, 0, 1]).ports(12_345, 9).sum(Summed::None);
    Spec { macs: STATIONS, ..packet.payload(payload).ethernet() }.bytes()
}

/// The next segment of a flow, of random length.
fn segment(flow: u8, next: &mut u32, pool: &mut Pool) -> Packet {
    let len = 500 + u32::from(flow) * 100;
    let payload: Vec<u8> = (*next..*next + len).map(|at| at as u8).collect();
    let packet = tcp(4).from([10, 0, 0, flow]).to([10, 0, 1, flow]).ports(0x3000 | u16::from(flow), 80).seq(*next);
    *next += len;
    let frame = Spec { macs: STATIONS, ..packet.payload(payload).ethernet() }.bytes();
    Frame::copy(&frame, LinkType::Ethernet, Ingress(0), pool).expect("it is a packet")
}

/// Takes the packets that leave: their bytes must continue their flows.
fn collect(gateway: &mut Gateway, came: &mut [u32; 8]) {
    while let Some(direction) = gateway.next(0) {
        let Egress::Forward(packet) = direction else { panic!("only segments came") };
        let tcp = packet.payload();
        let expected = &mut came[usize::from(tcp[1])];
        assert_eq!(u32::from_be_bytes(tcp[4..8].try_into().expect("four bytes")), *expected, "in order, once");
        assert!(tcp[20..].iter().enumerate().all(|(at, byte)| *byte == (*expected + at as u32) as u8));
        *expected += tcp.len() as u32 - 20;
        gateway.recycle(0, packet);
    }
}

/// Pushes the next segment of a flow.
fn push(gateway: &mut Gateway, now: Time, flow: u8, next: &mut u32) {
    let packet = segment(flow, next, &mut gateway.output_mut(0).pool);
    let mut batch = Batch { frames: vec![Frame::Ip(packet)], ..Batch::default() };
    gateway.push(now, 0, &mut batch);
}

fn coalescing() -> Gateway {
    let side = SideSettings {
        memory: 1 << 20,
        policies: Prefixes::new(FragmentPolicy::Reassemble),
        coalesce: Some(Mode::Resize),
        hold: Holding::Fixed(Duration::from_millis(1)),
        ..SideSettings::new(9_000, Position::Transit)
    };
    Gateway::new(&GatewaySettings::one(side), Secrets::both(Secret::new(5)), || Pool::new(1 << 24))
}

fn border(workers: usize) -> (ThreeHosts, Middle) {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let middle = three_hosts.gateway(&three_hosts.border(&of(workers), "", "")).unwrap();
    (three_hosts, middle)
}

/// Configuration of a border that is the only path between its two sides.
fn of(workers: usize) -> String {
    format!("workers = {workers}\n[mss]\nraise = \"always\"\n")
}

fn snapshots(middle: &Middle) -> Vec<Snapshot> {
    let Middle::Gateway(service) = middle else { unreachable!("a gateway stands there") };
    service.snapshots().unwrap()
}

fn check_books(middle: &Middle) {
    for snapshot in snapshots(middle) {
        for direction in &snapshot.directions {
            assert_eq!(direction.broken, None);
        }
    }
}

/// MAC addresses of a sender and a receiver outside of the network.
const STATIONS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 9]];
/// Longest allowed stall of a connection.
const TIMEOUT: Duration = Duration::from_secs(20);
