//! Two workers between two real hosts: all packets of a datagram or flow meet at one worker.

use offload::steer;
use packet::{Buffer, Frame, Ingress, Pool};
use port::{Options, Port, TxFrame, TxOffload};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testkit::{Place, Spec, Summed, tcp, udp};
use wideload_lab::net::{Host, Offloading};
use wideload_lab::three_hosts::{Middle, NARROW, ThreeHosts, WIDE, v4, v6};
use wideload_lab::traffic;

#[test]
fn a_million_fragments_reach_the_worker_of_their_datagram() {
    fragments_meet(251_000);
}

/// Datagrams of two to six fragments between many pairs of hosts, in both IP versions. Fragments of several are in
/// transit at once.
fn fragments_meet(datagram_count: u32) {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let middle = three_hosts
        .gateway(&three_hosts.border("workers = 2\n", "fragment-policy = \"reassemble-hop\"", ""))
        .unwrap();
    let mut rng = fastrand::Rng::with_seed(5);
    let mut fragments = Vec::new();
    let mut fragment_count = 0;
    let mut window = Vec::new();
    for number in 0..datagram_count {
        let mut of_one = datagram(number, 2 + rng.u32(..5), rng.bool());
        rng.shuffle(&mut of_one);
        fragment_count += of_one.len();
        window.push(of_one);
        // Eight datagrams of eight pairs are sent in turns.
        if window.len() == 8 || number + 1 == datagram_count {
            while !window.is_empty() {
                let at = rng.usize(..window.len());
                let fragment = window[at].pop().expect("none is empty");
                let ends = window[at].is_empty();
                if ends {
                    window.swap_remove(at);
                }
                fragments.push((fragment, u64::from(ends)));
            }
        }
    }
    let mut last = HashMap::new();
    let began = Instant::now();
    let arrived = flood(&three_hosts, &fragments, AHEAD, |frame| {
        let number = datagram_number(frame)?;
        let before = last.insert(number % PAIRS, number);
        assert!(before < Some(number), "{number} came after {before:?} of its hosts");
        Some(())
    });
    let took = began.elapsed();
    let snapshots = snapshots(&middle);
    let reassembled = |ledger: &engine::Ledger| ledger.event(engine::Event::Reassembled).packets;
    let each: Vec<_> = snapshots.iter().map(|snapshot| reassembled(&snapshot.directions[1].ledger)).collect();
    println!(
        "{fragment_count} fragments of {datagram_count} datagrams in {took:.1?}: {arrived} whole at the far host, by \
         worker {each:?}"
    );
    assert_eq!(snapshots.iter().map(|snapshot| snapshot.ends[1].missed).sum::<u64>(), 0, "the sender was too fast");
    assert_eq!(arrived, u64::from(datagram_count));
    assert_eq!(each.iter().sum::<u64>(), u64::from(datagram_count));
    assert!(each.iter().all(|count| *count > u64::from(datagram_count) / 4), "{each:?}");
    check_books(&middle);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn segments_stay_in_order_and_reassembled_datagrams_reach_their_worker() {
    let three_hosts = ThreeHosts::new([9_000, 1_500], Offloading::Off).unwrap();
    let middle = three_hosts
        .gateway(&three_hosts.border("workers = 2\n", "fragment-policy = \"reassemble-hop\"", ""))
        .unwrap();
    let mut frames = Vec::new();
    let mut next = [0_u32; FLOWS as usize];
    let mut rng = fastrand::Rng::with_seed(6);
    for _ in 0..20_000 {
        let flow = rng.u16(..FLOWS);
        // The second half of the flows sends all segments in fragments.
        frames.extend(segment(flow, &mut next[usize::from(flow)], flow >= FLOWS / 2));
    }
    let mut expected = [0_u32; FLOWS as usize];
    let bytes = flood(&three_hosts, &frames, AHEAD * u64::from(SEGMENT_LEN), |frame| {
        let (flow, sequence, len) = tcp_of(frame)?;
        let expected = &mut expected[usize::from(flow)];
        assert_eq!(sequence, *expected, "flow {flow} is in order");
        *expected += len;
        Some(())
    });
    assert!(bytes > 0);
    assert_eq!(expected, next, "every byte came");
    let moved: Vec<_> = snapshots(&middle).iter().map(|snapshot| snapshot.peers).collect();
    let steered = |bytes: &[u8]| steer::worker(packet::LinkType::Ethernet, bytes, 2);
    let strangers = |flow: u16| {
        let mut start = 0;
        let [whole, fragment] = [false, true].map(|cut| segment(flow, &mut start, cut)[0].0.clone());
        steered(&whole) != steered(&fragment)
    };
    assert!((FLOWS / 2..FLOWS).any(strangers), "some flows are not where their fragments are");
    let [given, taken, refused] =
        [moved[0].sent + moved[1].sent, moved[0].received + moved[1].received, moved[0].refused + moved[1].refused];
    println!("{given} packets went to their flow's worker, {refused} found no room there");
    assert!(given > 1_000 && given == taken && refused == 0, "{moved:?}");
    check_books(&middle);
    three_hosts.clear(middle).unwrap();
}

#[test]
fn both_directions_of_real_connections_cross_two_workers_and_both_work() {
    for offloading in [Offloading::Off, Offloading::On] {
        let three_hosts = ThreeHosts::new([9_000, 1_500], offloading).unwrap();
        let middle =
            three_hosts.gateway(&three_hosts.border("workers = 2\n[mss]\nraise = \"always\"\n", "", "")).unwrap();
        three_hosts.wait_until_forwarding().unwrap();
        std::thread::scope(|scope| {
            for seed in 0..CONNECTIONS {
                let three_hosts = &three_hosts;
                scope.spawn(move || {
                    let (from, to, host) = if seed % 2 == 0 {
                        (&three_hosts.narrow, &three_hosts.wide, WIDE)
                    } else {
                        (&three_hosts.wide, &three_hosts.narrow, NARROW)
                    };
                    let address = if seed % 4 < 2 { v4(host) } else { v6(host) };
                    let transfer = traffic::tcp(from.space(), to.space(), address, 1 << 20, seed).unwrap();
                    assert!(transfer.intact, "connection {seed}");
                });
            }
        });
        let snapshots = snapshots(&middle);
        for snapshot in &snapshots {
            let forwarded = [0, 1].map(|direction| {
                snapshot.directions[direction].ledger.forwarded.packets
                    + snapshot.ends[direction].offloaded.packets_out
            });
            // A GSO packet is one packet, so a few connections make few; but none of 24 makes none.
            assert!(forwarded.iter().all(|count| *count > CONNECTIONS / 2), "{forwarded:?}");
            assert_eq!(snapshot.peers.sent, 0, "nothing came to another worker than its own");
            let unknown = snapshot.directions[0].ledger.event(engine::Event::MssUnknown).packets;
            assert_eq!(unknown, 0, "who sees a connection has seen its SYN");
        }
        check_books(&middle);
        three_hosts.clear(middle).unwrap();
    }
}

/// Sends frames from the narrow host. No more are outstanding than the queues hold; each frame has a number of
/// expected arrivals. Returns the number of arrivals.
fn flood(
    three_hosts: &ThreeHosts,
    frames: &[(Vec<u8>, u64)],
    ahead: u64,
    mut see: impl FnMut(&[u8]) -> Option<()> + Send,
) -> u64 {
    let [wide, _, _, narrow] = three_hosts.names();
    let total: u64 = frames.iter().map(|(_, count)| count).sum();
    let arrived = AtomicU64::new(0);
    let open = |host: &Host, name: &str| {
        host.space().enter(|| port::open(&format!("packet:{name}"), &Options::default()).unwrap())
    };
    let (mut from, mut to) = (open(&three_hosts.narrow, narrow), open(&three_hosts.wide, wide));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent = 0;
            for batch in frames.chunks(32) {
                let wires: Vec<_> = batch.iter().map(|(frame, _)| wire(frame)).collect();
                let mut rest = &wires[..];
                while !rest.is_empty() {
                    let count = from.transmit(rest).unwrap();
                    rest = &rest[count..];
                }
                sent += batch.iter().map(|(_, count)| count).sum::<u64>();
                let stuck = Instant::now();
                while sent > arrived.load(Ordering::Relaxed) + ahead {
                    std::thread::sleep(Duration::from_micros(100));
                    if stuck.elapsed() > TIMEOUT {
                        return;
                    }
                }
            }
        });
        let mut pool = Pool::new(64 << 20);
        let mut batch = Vec::new();
        let mut quiet = Instant::now();
        while arrived.load(Ordering::Relaxed) < total && quiet.elapsed() < TIMEOUT {
            wait(to.as_ref());
            to.receive(Ingress(0), &mut pool, &mut batch).unwrap();
            for frame in batch.drain(..) {
                let (seen, buffer) = seen(frame, &mut see);
                pool.give(buffer);
                if seen > 0 {
                    arrived.fetch_add(seen, Ordering::Relaxed);
                    quiet = Instant::now();
                }
            }
        }
    });
    arrived.into_inner()
}

/// The arrivals of a frame: one for each byte of a TCP packet, one for any other.
fn seen(frame: Frame, see: &mut impl FnMut(&[u8]) -> Option<()>) -> (u64, Buffer) {
    match frame {
        Frame::Ip(packet) => {
            let count = tcp_of(packet.frame()).map_or(1, |(_, _, len)| u64::from(len));
            let seen = see(packet.frame()).map_or(0, |()| count);
            (seen, packet.into_buffer())
        }
        Frame::Other(raw, _) => (0, raw.into_buffer()),
    }
}

fn wait(port: &dyn Port) {
    let mut fds = [PollFd::from_borrowed_fd(port.fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 100_000_000 })).unwrap();
}

fn wire(frame: &[u8]) -> TxFrame<'_> {
    TxFrame { header: frame, payload: &[], offload: TxOffload::default() }
}

/// The fragments of the UDP datagram of this number. Datagrams of the same hosts are [`PAIRS`] apart.
fn datagram(number: u32, fragment_count: u32, is_v6: bool) -> Vec<Vec<u8>> {
    let fragment_len = 256;
    let mut payload = number.to_be_bytes().to_vec();
    payload.resize(fragment_count as usize * fragment_len - 8, number as u8);
    let datagram = udp(if is_v6 && fragment_count > 1 { 6 } else { 4 }).ports(12_345, 9).sum(Summed::None);
    of_pair(number % PAIRS, datagram.id(number).payload(payload)).parts(fragment_len)
}

/// The next segment of a flow, complete or in two fragments.
fn segment(flow: u16, next: &mut u32, in_fragments: bool) -> Vec<(Vec<u8>, u64)> {
    let sequence = *next;
    *next += SEGMENT_LEN;
    let payload: Vec<u8> = (0..SEGMENT_LEN).map(|at| (at + sequence) as u8).collect();
    let segment = tcp(4).ports(1_000 + flow, 80).seq(sequence).id(sequence / SEGMENT_LEN).payload(payload);
    let segment = of_pair(flow.into(), segment);
    if in_fragments {
        let [front, rest] = [(0..256, true), (256..20 + SEGMENT_LEN as usize, false)];
        let [front, rest] = [front, rest].map(|(range, more)| segment.fragment(&Place { range, more }));
        return vec![(front, 0), (rest, SEGMENT_LEN.into())];
    }
    vec![(segment.bytes(), SEGMENT_LEN.into())]
}

/// A packet between the hosts of this pair; it may be fragmented.
fn of_pair(pair: u32, packet: Spec) -> Spec {
    let addresses: [IpAddr; 2] = match packet.version() {
        4 => [18, 19].map(|network| Ipv4Addr::from_bits(198 << 24 | network << 16 | pair).into()),
        _ => [1, 2].map(|network| Ipv6Addr::from_bits(0x2001_0DB8 << 96 | network << 80 | u128::from(pair)).into()),
    };
    let macs = [[2, 0, 0, 0, 0, 8], [2, 0, 0, 0, 0, 9]];
    Spec { macs, ..packet.ip_flags(0).from(addresses[0]).to(addresses[1]).ethernet() }
}

/// The number of one of the test's datagrams, if it is complete. An IPv6 datagram leaves a border in fragments
/// again, in order: it is complete with its last one.
fn datagram_number(frame: &[u8]) -> Option<u32> {
    let ip = frame.get(14..)?;
    match (frame.get(12..14)?, ip) {
        ([8, 0], ip) if ip.get(6..10)? == [0, 0, 64, 17] && ip.get(12..14)? == [198, 18] => {
            let udp = ip.get(20..)?;
            let (number, rest) = udp.get(8..)?.split_first_chunk::<4>()?;
            let number = u32::from_be_bytes(*number);
            assert_eq!(u16::from_be_bytes([udp[4], udp[5]]) as usize, udp.len(), "{number} is whole");
            assert!(rest.iter().all(|byte| *byte == number as u8), "{number} came unchanged");
            Some(number)
        }
        ([0x86, 0xDD], ip) if *ip.get(6)? == 44 && ip.get(8..10)? == [0x20, 0x01] => {
            let number = u32::from_be_bytes(ip.get(44..48)?.try_into().ok()?);
            let offset = u16::from_be_bytes([ip[42], ip[43]]);
            let rest = ip.get(if offset >> 3 == 0 { 60 } else { 48 }..)?;
            assert!(rest.iter().all(|byte| *byte == number as u8), "{number} came unchanged");
            (offset & 1 == 0).then_some(number)
        }
        _ => None,
    }
}

/// Flow, sequence number and length of one of the test's TCP packets.
fn tcp_of(frame: &[u8]) -> Option<(u16, u32, u32)> {
    if frame.get(12..14)? != [8, 0] || *frame.get(23)? != 6 || frame.get(26..28)? != [198, 18] {
        return None;
    }
    let tcp = frame.get(34..)?;
    let sequence = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    let payload = tcp.get(20..)?;
    let is_right = payload.iter().enumerate().all(|(at, byte)| *byte == (sequence + at as u32) as u8);
    assert!(is_right, "its bytes came unchanged");
    Some((u16::from_be_bytes([tcp[0], tcp[1]]) - 1_000, sequence, payload.len() as u32))
}

fn snapshots(middle: &Middle) -> Vec<gateway::snapshot::Snapshot> {
    let Middle::Gateway(service) = middle else { unreachable!("a gateway stands there") };
    assert_eq!(service.note(), None, "packets are steered as we say");
    service.snapshots().unwrap()
}

fn check_books(middle: &Middle) {
    for snapshot in snapshots(middle) {
        for direction in &snapshot.directions {
            assert_eq!(direction.broken, None);
        }
    }
}

/// Number of host pairs.
const PAIRS: u32 = 1_000;
/// Number of connections, half of them in each direction.
const CONNECTIONS: u64 = 24;
const FLOWS: u16 = 32;
/// Payload of a segment, in bytes.
const SEGMENT_LEN: u32 = 1_000;
/// Number of arrivals that may be outstanding.
const AHEAD: u64 = 400;
const TIMEOUT: Duration = Duration::from_secs(5);
