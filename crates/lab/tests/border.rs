//! A border gateway between two real hosts: delivered data, packet sizes and counters.

use linux::features::{self, Toggle};
use linux::namespace::Namespace;
use offload::flow_offload::{self, OffloadStats};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Seek, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use wideload_lab::experiments::observe;
use wideload_lab::net::Offloading;
use wideload_lab::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4, v6};
use wideload_lab::traffic::{self, Messages};

#[test]
fn tcp_crosses_in_wide_segments_with_and_without_offloads() {
    for offloading in [Offloading::Off, Offloading::On] {
        let three_hosts = three_hosts(offloading);
        let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
        three_hosts.wait_until_forwarding().unwrap();
        for (to_wide, address) in [(true, v4(WIDE)), (false, v4(NARROW)), (true, v6(WIDE)), (false, v6(NARROW))] {
            let (from, to) = if to_wide {
                (&three_hosts.narrow, &three_hosts.wide)
            } else {
                (&three_hosts.wide, &three_hosts.narrow)
            };
            let before = three_hosts.counters().unwrap()[0];
            let transfer = traffic::tcp(from.space(), to.space(), address, TCP_LEN, 1).unwrap();
            assert!(transfer.intact, "to {address}, {offloading:?}");
            let after = three_hosts.counters().unwrap()[0];
            let (packets, bytes) = if to_wide {
                (
                    after.received.packet_count - before.received.packet_count,
                    after.received.byte_count - before.received.byte_count,
                )
            } else {
                (after.sent.packet_count - before.sent.packet_count, after.sent.byte_count - before.sent.byte_count)
            };
            let mean = bytes / packets;
            assert!(mean > 4_000, "to {address}, {offloading:?}: {packets} packets of {mean} bytes on average");
        }
        check_counters(&middle);
        three_hosts.clear(middle).unwrap();
    }
}

#[test]
fn gso_packets_of_an_offloaded_flow_pass_in_lengths_that_fit() {
    for workers in [1, 2] {
        are_offloaded(workers);
    }
}

fn are_offloaded(workers: usize) {
    let three_hosts = three_hosts(Offloading::On);
    let middle =
        three_hosts.gateway(&three_hosts.border(&format!("workers = {workers}\n{ONLY_PATH}"), "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let [wide_name, _, _, narrow_name] = three_hosts.names();
    for (to_wide, address) in [(true, v4(WIDE)), (false, v4(NARROW)), (true, v6(WIDE)), (false, v6(NARROW))] {
        let (from, to, name, end, mtu) = if to_wide {
            (&three_hosts.narrow, &three_hosts.wide, wide_name, 1, 9_000)
        } else {
            (&three_hosts.wide, &three_hosts.narrow, narrow_name, 0, 1_500)
        };
        let before = offloaded(&middle, end);
        let (transfer, observed) =
            observe(to, name, || traffic::tcp(from.space(), to.space(), address, TCP_LEN, 1)).unwrap();
        assert!(transfer.intact, "to {address}");
        let after = offloaded(&middle, end);
        assert!(after.bytes - before.bytes > TCP_LEN as u64 / 8, "to {address}: {before:?}, {after:?}");
        assert_eq!((observed.longest, after.dropped), (mtu, 0), "to {address}");
    }
    check_counters(&middle);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn a_continuing_flow_stays_offloaded() {
    let three_hosts = three_hosts(Offloading::On);
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    for (from, to, address, end) in [
        (&three_hosts.wide, &three_hosts.narrow, v4(NARROW), 0),
        (&three_hosts.narrow, &three_hosts.wide, v6(WIDE), 1),
    ] {
        let listener = to.space().enter(|| TcpListener::bind(SocketAddr::new(address, 0)).unwrap());
        let target = listener.local_addr().unwrap();
        let mut near = from.space().enter(|| TcpStream::connect(target).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        let content = vec![7; 60_000];
        let mut before = None;
        let begun = Instant::now();
        while begun.elapsed() < 5 * flow_offload::TERM {
            near.write_all(&content).unwrap();
            far.read_exact(&mut vec![0; content.len()]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            if begun.elapsed() > flow_offload::TERM / 5 {
                before.get_or_insert_with(|| seen_bytes(&middle, end));
            }
        }
        let by_worker = seen_bytes(&middle, end) - before.unwrap();
        // Each offload that expired would have caused such a packet. A machine that stalls may let one or two
        // expire.
        assert!(by_worker < 3 * content.len() as u64, "to {address}: {by_worker}");
    }
    check_counters(&middle);
    three_hosts.clear(middle).unwrap();
}

/// Number of bytes of the frames that the gateway's worker received at an endpoint.
fn seen_bytes(middle: &Middle, end: usize) -> u64 {
    let Middle::Gateway(service) = middle else { unreachable!("a gateway stands there") };
    service.snapshots().unwrap()[0].ends[end].rx.bytes
}

/// Counts of the packets that an endpoint received and the kernel forwarded by flow offload.
fn offloaded(middle: &Middle, end: usize) -> OffloadStats {
    let Middle::Gateway(service) = middle else { unreachable!("a gateway stands there") };
    let offloaded = service.snapshots().unwrap().into_iter().map(|snapshot| snapshot.ends[end].offloaded);
    offloaded.fold(OffloadStats::default(), OffloadStats::and)
}

#[test]
fn unread_data_is_charged_at_least_its_size() {
    let three_hosts = three_hosts(Offloading::On);
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    for (from, to, address, end) in [
        (&three_hosts.wide, &three_hosts.narrow, v4(NARROW), 0),
        (&three_hosts.wide, &three_hosts.narrow, v6(NARROW), 0),
        (&three_hosts.narrow, &three_hosts.wide, v4(WIDE), 1),
        (&three_hosts.narrow, &three_hosts.wide, v6(WIDE), 1),
    ] {
        let listener = to.space().enter(|| TcpListener::bind(SocketAddr::new(address, 0)).unwrap());
        let target = listener.local_addr().unwrap();
        let mut near = from.space().enter(|| TcpStream::connect(target).unwrap());
        let (mut far, _) = listener.accept().unwrap();
        near.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let content = vec![7; UNREAD_LEN];
        for _ in 0..32 {
            near.write_all(&content).unwrap();
            far.read_exact(&mut vec![0; UNREAD_LEN]).unwrap();
        }
        let before = offloaded(&middle, end);
        // Writes until neither socket has room.
        while near.write(&content).is_ok() {}
        let (unread, memory) = (rustix::io::ioctl_fionread(&far).unwrap(), receive_memory(&far));
        let after = offloaded(&middle, end);
        assert!(after.bytes - before.bytes > unread / 2, "to {address}: {before:?}, {after:?}");
        assert!(memory > unread, "to {address}: {unread} bytes in {memory}");
    }
    three_hosts.clear(middle).unwrap();
}

/// The memory that a socket's received packets are charged, in bytes.
fn receive_memory(socket: &TcpStream) -> u64 {
    let mut told = [0_u32; 9];
    let mut len = size_of_val(&told) as libc::socklen_t;
    // SAFETY: the kernel writes no more than the buffer holds, and both outlive the call.
    let outcome = unsafe {
        let to = (&raw mut told).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, to, &raw mut len)
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    told[0].into()
}

#[test]
fn checksums_of_kernel_segments_are_valid() {
    let three_hosts = three_hosts(Offloading::On);
    let [_, to_wide, to_narrow, _] = three_hosts.names();
    // The kernel completes checksums there, and hosts verify them.
    three_hosts.middle.space().enter(|| {
        for name in [to_wide, to_narrow] {
            drop(features::set(name, &[("tx-checksum-ip-generic", Toggle::Off)]).unwrap());
        }
    });
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    for (from, to, address, end) in [
        (&three_hosts.wide, &three_hosts.narrow, v4(NARROW), 0),
        (&three_hosts.wide, &three_hosts.narrow, v6(NARROW), 0),
        (&three_hosts.narrow, &three_hosts.wide, v4(WIDE), 1),
        (&three_hosts.narrow, &three_hosts.wide, v6(WIDE), 1),
    ] {
        let before = offloaded(&middle, end);
        let transfer = traffic::tcp(from.space(), to.space(), address, TCP_LEN, 1).unwrap();
        assert!(transfer.intact, "to {address}");
        let after = offloaded(&middle, end);
        assert!(after.bytes - before.bytes > TCP_LEN as u64 / 8, "to {address}: {before:?}, {after:?}");
        assert_eq!((after.dropped, wrong_sums(to.space())), (0, 0), "to {address}");
    }
    three_hosts.clear(middle).unwrap();
}

/// Segments with a wrong checksum, and IPv4 packets with a wrong header checksum, that the hosts of a namespace
/// received.
fn wrong_sums(space: &Namespace) -> u64 {
    let text = space.enter(|| fs::read_to_string("/proc/thread-self/net/snmp")).unwrap();
    let of = |protocol, counter| -> u64 {
        let mut lines = text.lines().filter(|line| line.starts_with(protocol)).map(str::split_whitespace);
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        names.zip(values).find(|(name, _)| *name == counter).and_then(|(_, value)| value.parse().ok()).unwrap()
    };
    of("Tcp:", "InCsumErrors") + of("Ip:", "InHdrErrors")
}

#[test]
fn datagrams_pass_unchanged_and_long_ones_give_icmp_errors() {
    let three_hosts = three_hosts(Offloading::Off);
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    for len in [8, 1_400, 1_472, 1_473, 8_000, 8_972, 8_973, 40_000, 65_507] {
        for (from, to, address) in [
            (&three_hosts.narrow, &three_hosts.wide, v4(WIDE)),
            (&three_hosts.wide, &three_hosts.narrow, v4(NARROW)),
        ] {
            // After ICMP errors at the first try, the host fragments at the second.
            let messages = Messages { len, count: 20, rate: Some(50e6) };
            let first = traffic::udp(from.space(), to.space(), address, messages, 2).unwrap();
            let second = traffic::udp(from.space(), to.space(), address, messages, 2).unwrap();
            assert!(first.intact && second.intact);
            assert_eq!(second.messages, 20, "{len} bytes to {address}");
        }
    }
    check_counters(&middle);
    three_hosts.clear(middle).unwrap();
}

// X5: pacing is the kernel's.
#[test]
fn a_queueing_discipline_paces_all_that_a_border_cuts() {
    for offloading in [Offloading::Off, Offloading::On] {
        let three_hosts = three_hosts(offloading);
        let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
        three_hosts.wait_until_forwarding().unwrap();
        let [_, _, narrow_port, narrow_host] = three_hosts.names();
        let tbf = format!("tc qdisc add dev {narrow_port} root tbf rate 100mbit burst {BURST} limit 4mb");
        let done = three_hosts.middle.space().enter(|| run(&tbf).output()).unwrap();
        assert!(done.status.success(), "{done:?}");
        let dump = format!("tcpdump -i {narrow_host} -Q in -ttenq --immediate-mode -B 65536 -s 80");
        let mut lines = tempfile::tempfile().unwrap();
        let to_file = lines.try_clone().unwrap();
        let mut capture = three_hosts.narrow.space().enter(|| run(&dump).stdout(to_file).spawn()).unwrap();
        let mut begun = [0; 1];
        capture.stderr.as_mut().unwrap().read_exact(&mut begun).unwrap();
        thread::sleep(Duration::from_millis(200));
        let (from, to) = (three_hosts.wide.space(), three_hosts.narrow.space());
        let transfer = traffic::tcp(from, to, v4(NARROW), 2 << 20, 1).unwrap();
        assert!(transfer.intact);
        // Datagrams in a burst: 40 fragments each.
        let messages = Messages { len: 58_000, count: 10, rate: None };
        let messages = traffic::udp(from, to, v4(NARROW), messages, 2).unwrap();
        assert!(messages.intact && messages.messages == 10, "{messages:?}");
        thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_child(&capture), Signal::INT).unwrap();
        capture.wait().unwrap();
        let mut said = String::new();
        lines.rewind().unwrap();
        lines.read_to_string(&mut said).unwrap();
        // 1790000000.123456 aa:.. > bb:.., IPv4, length 1514: ...
        let frames = said.lines().filter_map(|line| {
            let (time, rest) = line.split_once(' ')?;
            let len = rest.split_once("length ")?.1.split(':').next()?;
            Some((time.parse::<f64>().ok()?, len.parse::<f64>().ok()?))
        });
        // The law of a token bucket, with its fill at the time of the last frame.
        let (mut fill, mut before, mut bytes) = (0.0_f64, 0.0, 0.0);
        for (time, len) in frames {
            fill = (fill - (time - before) * 100e6 / 8.0).max(0.0) + len;
            assert!(fill <= BURST + LATE, "{offloading:?}: {fill} bytes at once after {bytes}");
            (before, bytes) = (time, bytes + len);
        }
        assert!(bytes > 2.6e6, "{offloading:?}: {bytes} bytes seen");
        assert!(offloaded(&middle, 0).frames > 0, "{offloading:?}: the kernel forwarded some of it");
        check_counters(&middle);
        three_hosts.clear(middle).unwrap();
    }
}

fn run(command: &str) -> Command {
    let mut words = command.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn many_connections_at_once_all_arrive_unchanged() {
    let three_hosts = three_hosts(Offloading::Off);
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let listener = three_hosts.wide.space().enter(|| TcpListener::bind(SocketAddr::new(v4(WIDE), 0)).unwrap());
    let target = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let echo = |mut stream: TcpStream| {
                let mut came = Vec::new();
                stream.read_to_end(&mut came).unwrap();
                stream.write_all(&came).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            };
            std::thread::scope(|scope| {
                for _ in 0..CONNECTIONS {
                    let (stream, _) = listener.accept().unwrap();
                    scope.spawn(move || echo(stream));
                }
            });
        });
        three_hosts.narrow.space().enter(|| {
            std::thread::scope(|scope| {
                for seed in 0..CONNECTIONS {
                    scope.spawn(move || {
                        let sent = traffic::content(seed, 100_000 + 7 * seed as usize);
                        let mut stream = TcpStream::connect(target).unwrap();
                        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                        stream.write_all(&sent).unwrap();
                        stream.shutdown(Shutdown::Write).unwrap();
                        let mut came = Vec::new();
                        stream.read_to_end(&mut came).unwrap();
                        assert!(came == sent, "connection {seed}");
                    });
                }
            });
        });
        server.join().unwrap();
    });
    check_counters(&middle);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn non_ip_frames_pass_up_to_the_other_sides_mtu() {
    let three_hosts = three_hosts(Offloading::Off);
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let [wide, _, _, _] = three_hosts.names();
    let seen = |middle: &Middle| {
        let Middle::Gateway(service) = middle else { unreachable!("a gateway stands there") };
        let end = service.snapshots().unwrap()[0].ends[0].clone();
        (end.rx.passed, end.rx.oversize)
    };
    let before = seen(&middle);
    three_hosts.wide.space().enter(|| {
        let mut port = port::open(&format!("packet:{wide}"), &port::Options::default()).unwrap();
        for len in [60, 1_514, 4_000] {
            let mut frame = vec![0x02; 12];
            // An EtherType for local experiments (IEEE 802).
            frame.extend([0x88, 0xB5]);
            frame.resize(len, 7);
            let wire = port::TxFrame { header: &frame, payload: &[], offload: port::TxOffload::default() };
            assert_eq!(port.transmit(&[wire]).unwrap(), 1);
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    let after = seen(&middle);
    assert_eq!((after.0 - before.0, after.1 - before.1), (2, 1));
    three_hosts.clear(middle).unwrap();
}

#[test]
fn a_border_flushes_at_its_end_and_leaves_nothing() {
    let three_hosts = three_hosts(Offloading::Off);
    let hold = "hold = \"25ms\"";
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, hold, hold)).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let listener = three_hosts.wide.space().enter(|| TcpListener::bind(SocketAddr::new(v4(WIDE), 0)).unwrap());
    let target = listener.local_addr().unwrap();
    let mut near = three_hosts.narrow.space().enter(|| TcpStream::connect(target).unwrap());
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(&traffic::content(3, 2_000)).unwrap();
    let ended = std::time::Instant::now();
    three_hosts.clear(middle).unwrap();
    far.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut came = vec![0; 2_000];
    far.read_exact(&mut came).unwrap();
    assert!(came == traffic::content(3, 2_000));
    assert!(ended.elapsed() < Duration::from_secs(2));
}

#[test]
fn small_requests_are_answered_at_once() {
    let three_hosts = three_hosts(Offloading::Off);
    let middle = three_hosts.gateway(&three_hosts.border(ONLY_PATH, "", "")).unwrap();
    three_hosts.wait_until_forwarding().unwrap();
    let server = three_hosts.wide.space().enter(|| UdpSocket::bind(SocketAddr::new(v4(WIDE), 0)).unwrap());
    let target = server.local_addr().unwrap();
    let client = three_hosts.narrow.space().enter(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    client.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut room = [0; 64];
    for number in 0..200_u64 {
        client.send_to(&number.to_be_bytes(), target).unwrap();
        let (len, from) = server.recv_from(&mut room).unwrap();
        server.send_to(&room[..len], from).unwrap();
        let (len, _) = client.recv_from(&mut room).unwrap();
        assert_eq!(&room[..len], &number.to_be_bytes());
    }
    check_counters(&middle);
    three_hosts.clear(middle).unwrap();
}

/// Checks that every packet and every buffer is accounted for, in every direction and at every endpoint.
fn check_counters(middle: &Middle) {
    let Middle::Gateway(service) = middle else { unreachable!("a gateway stands there") };
    for snapshot in service.snapshots().unwrap() {
        for direction in &snapshot.directions {
            assert_eq!(direction.broken, None);
        }
        for end in &snapshot.ends {
            assert_eq!((end.tx.rejected, end.tx.link_down, end.rx.dropped), (0, 0, 0), "{}", end.address);
        }
    }
}

fn three_hosts(offloading: Offloading) -> ThreeHosts {
    ThreeHosts::new([9_000, 1_500], offloading).unwrap()
}

/// Configuration of a border that is the only path between its two sides.
const ONLY_PATH: &str = "[mss]\nraise = \"always\"\n";
/// Burst of the token bucket, in bytes.
const BURST: f64 = 16_384.0;
/// Bytes that may seem to come at once because the capture's clock runs late by ten milliseconds.
const LATE: f64 = 125_000.0;
const TCP_LEN: usize = 16 << 20;
const UNREAD_LEN: usize = 1 << 18;
const CONNECTIONS: u64 = 20;
