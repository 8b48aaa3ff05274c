//! Segments in, packets with real bytes and sums out; packets in, segments out.

use super::connection::Outgoing;
use super::pattern::Pattern;
use super::segment::{SYN, Segment, Timestamps};
use packet::ip::{Version, pseudo_sum};
use packet::tcp::{HEADER_LEN, TcpOption};
use packet::{Address, Buffer, Ecn, Frame, HEADROOM, Ingress, Link, Medium, Packet, Pool, Sum, ip, tcp};
use std::net::{IpAddr, SocketAddr};

/// Where the packets of one direction go, and what they carry.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// Who sends.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// The bytes of the stream.
    pub pattern: Pattern,
}

/// A segment that was read from a packet.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// What it says.
    pub segment: Segment,
    /// The bytes that it carries.
    pub payload: &'a [u8],
}

/// A router's report that a packet of ours was too long, as it quotes the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// What the router's link takes, in bytes.
    pub mtu: u32,
    /// The sequence number that is quoted.
    pub seq: u32,
    /// Who sent the quoted packet.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
}

/// The packet that carries a segment; none where no buffer is left. `id` is its identification, of IPv4.
///
/// # Panics
/// Where it would be longer than 65,535 bytes, or between addresses of two versions.
pub fn packet(outgoing: &Outgoing, course: &Course, id: u16, pool: &mut Pool) -> Option<Packet> {
    let segment = &outgoing.segment;
    let (source, destination) = (course.source.ip(), course.destination.ip());
    let tcp_len = segment.header_len() + segment.len as usize;
    let mut header = [0; IP_HEADER_LEN_MAX];
    let ip_len = write_ip(&mut header, source, destination, tcp_len, segment.ecn, outgoing.dont_fragment, id);
    let mut buffer = pool.lend(ip_len + tcp_len)?;
    buffer.put(HEADROOM, &header[..ip_len]);
    let at = HEADROOM + ip_len;
    let pseudo = pseudo_sum((source.into(), destination.into()), ip::TCP, tcp_len);
    write_tcp(buffer.bytes_mut(at..at + tcp_len), outgoing, course, pseudo);
    Some(parsed(buffer, ip_len + tcp_len))
}

fn parsed(buffer: Buffer, len: usize) -> Packet {
    let link = Link::parse(Medium::Ip, &[]).expect("no header is there to be wrong");
    match Frame::parse(buffer, len, link, Ingress(0)) {
        Frame::Ip(packet) => packet,
        Frame::Other(_, unfit) => panic!("a packet that we wrote is one: {unfit:?}"),
    }
}

/// Writes an IP header, and returns its length.
fn write_ip(
    header: &mut [u8; IP_HEADER_LEN_MAX],
    source: IpAddr,
    destination: IpAddr,
    payload_len: usize,
    ecn: Ecn,
    dont_fragment: bool,
    id: u16,
) -> usize {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let len = u16::try_from(20 + payload_len).expect("a packet has at most 65,535 bytes");
            (header[0], header[1]) = (0x45, ecn.bits());
            header[2..4].copy_from_slice(&len.to_be_bytes());
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[6] = if dont_fragment { 0x40 } else { 0 };
            (header[8], header[9]) = (HOP_COUNT, ip::TCP);
            header[12..16].copy_from_slice(&source.octets());
            header[16..20].copy_from_slice(&destination.octets());
            let checksum = Sum::of(&header[..20]).checksum();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            20
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let len = u16::try_from(payload_len).expect("a packet has at most 65,535 bytes");
            (header[0], header[1]) = (0x60, ecn.bits() << 4);
            header[4..6].copy_from_slice(&len.to_be_bytes());
            (header[6], header[7]) = (ip::TCP, HOP_COUNT);
            header[8..24].copy_from_slice(&source.octets());
            header[24..40].copy_from_slice(&destination.octets());
            40
        }
        _ => panic!("a connection has both ends in one version of IP: {source}, {destination}"),
    }
}

/// Writes header, options, the bytes of the stream, and the checksum over them.
fn write_tcp(bytes: &mut [u8], outgoing: &Outgoing, course: &Course, pseudo: Sum) {
    let segment = &outgoing.segment;
    let header_len = segment.header_len();
    let (header, payload) = bytes.split_at_mut(header_len);
    header[0..2].copy_from_slice(&course.source.port().to_be_bytes());
    header[2..4].copy_from_slice(&course.destination.port().to_be_bytes());
    header[4..8].copy_from_slice(&segment.seq.to_be_bytes());
    header[8..12].copy_from_slice(&segment.ack.to_be_bytes());
    (header[12], header[13]) = ((header_len as u8 / 4) << 4, segment.flags);
    header[14..16].copy_from_slice(&segment.window.to_be_bytes());
    header[16..20].fill(0);
    write_options(&mut header[HEADER_LEN..], segment);
    course.pattern.write(outgoing.offset, payload);
    let checksum = (pseudo + Sum::of(bytes)).checksum();
    bytes[16..18].copy_from_slice(&checksum.to_be_bytes());
}

/// Writes the options in Linux's order, padded to words.
fn write_options(mut room: &mut [u8], segment: &Segment) {
    let mut put = |bytes: &[u8]| {
        let (front, rest) = std::mem::take(&mut room).split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        room = rest;
    };
    let is_syn = segment.has(SYN);
    if let Some(mss) = segment.mss.filter(|_| is_syn) {
        put(&[2, 4]);
        put(&mss.to_be_bytes());
    }
    let permitted = segment.sack_permitted && is_syn;
    match segment.timestamps {
        Some(stamps) => {
            put(if permitted { &[4, 2, 8, 10] } else { &[1, 1, 8, 10] });
            put(&stamps.value.to_be_bytes());
            put(&stamps.echo.to_be_bytes());
        }
        None if permitted => put(&[1, 1, 4, 2]),
        None => {}
    }
    if let Some(scale) = segment.window_scale.filter(|_| is_syn) {
        put(&[1, 3, 3, scale]);
    }
    let blocks = segment.sack.as_slice();
    if !blocks.is_empty() && !is_syn {
        put(&[1, 1, 5, 2 + 8 * blocks.len() as u8]);
        for (start, end) in blocks {
            put(&start.to_be_bytes());
            put(&end.to_be_bytes());
        }
    }
}

/// Reads the segment of a packet: none where it carries no whole TCP segment, or one with a wrong checksum.
pub fn read(packet: &Packet) -> Option<Read<'_>> {
    let upper = packet.ip().upper.filter(|upper| upper.protocol == ip::TCP && packet.ip().fragment.is_none())?;
    let wrong = packet.checksum_error();
    if wrong.fold() != 0 && !wrong.is_right() {
        return None;
    }
    let parsed = tcp::Segment::parse(packet.upper_bytes(upper))?;
    let (source, destination) = packet.addresses();
    Some(Read {
        source: socket(source, parsed.header.source.get()),
        destination: socket(destination, parsed.header.destination.get()),
        segment: segment_of(&parsed, packet.ip().ecn),
        payload: parsed.payload,
    })
}

fn segment_of(parsed: &tcp::Segment<'_>, ecn: Ecn) -> Segment {
    let header = parsed.header;
    let mut segment = Segment {
        seq: header.seq.get(),
        ack: header.ack.get(),
        flags: header.flags(),
        window: header.window.get(),
        len: parsed.payload.len() as u32,
        ecn,
        ..Segment::default()
    };
    for option in parsed.options() {
        match option {
            TcpOption::MaximumSegmentSize(mss) => segment.mss = Some(mss),
            TcpOption::WindowScale(scale) => segment.window_scale = Some(scale),
            TcpOption::SackPermitted => segment.sack_permitted = true,
            TcpOption::Timestamps { value, echo } => segment.timestamps = Some(Timestamps { value, echo }),
            TcpOption::Sack(blocks) => {
                for [s0, s1, s2, s3, e0, e1, e2, e3] in blocks.as_chunks::<8>().0.iter().copied() {
                    segment.sack.push(u32::from_be_bytes([s0, s1, s2, s3]), u32::from_be_bytes([e0, e1, e2, e3]));
                }
            }
            TcpOption::End | TcpOption::Malformed(_) => break,
            TcpOption::NoOperation | TcpOption::Other(..) => {}
        }
    }
    segment
}

/// Reads a router's report about a TCP packet that was too long (RFC 1191 section 4, RFC 4443 section 3.2); none where it
/// is none, or does not quote ports and sequence number.
pub fn too_big(packet: &Packet) -> Option<TooBig> {
    let upper = packet.ip().upper?;
    let bytes = packet.upper_bytes(upper);
    let (head, quote) = bytes.split_at_checked(ICMP_HEADER_LEN)?;
    let mtu = match (packet.ip().version, upper.protocol, head[0], head[1]) {
        (Version::V4, ip::ICMP, 3, 4) => u32::from(u16::from_be_bytes([head[6], head[7]])),
        (Version::V6, ip::ICMPV6, 2, 0) => u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
        _ => return None,
    };
    let (source, destination, at) = quoted_addresses(quote)?;
    let [s0, s1, d0, d1, q0, q1, q2, q3] = *quote.get(at..)?.first_chunk::<8>()?;
    Some(TooBig {
        mtu,
        seq: u32::from_be_bytes([q0, q1, q2, q3]),
        source: SocketAddr::new(source, u16::from_be_bytes([s0, s1])),
        destination: SocketAddr::new(destination, u16::from_be_bytes([d0, d1])),
    })
}

/// Addresses of a quoted TCP packet, and where its TCP header starts. The quote ends before the packet does.
fn quoted_addresses(quote: &[u8]) -> Option<(IpAddr, IpAddr, usize)> {
    match quote.first()? >> 4 {
        4 => {
            let is_first = u16::from_be_bytes([*quote.get(6)?, *quote.get(7)?]) & 0x1FFF == 0;
            let at = usize::from(quote[0] & 15) * 4;
            let of = |range| <[u8; 4]>::try_from(quote.get(range)?).ok().map(IpAddr::from);
            (is_first && *quote.get(9)? == ip::TCP).then_some(())?;
            Some((of(12..16)?, of(16..20)?, at))
        }
        6 => {
            let of = |range| <[u8; 16]>::try_from(quote.get(range)?).ok().map(IpAddr::from);
            (*quote.get(6)? == ip::TCP).then_some(())?;
            Some((of(8..24)?, of(24..40)?, 40))
        }
        _ => None,
    }
}

fn socket(address: Address, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

/// Hops that a packet of ours may take; Linux's default.
const HOP_COUNT: u8 = 64;
const IP_HEADER_LEN_MAX: usize = 40;
const ICMP_HEADER_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::segment::{ACK, Blocks, CWR, ECE, FIN, PSH};
    use super::*;
    use packet::icmp::{self, Complaint};

    #[test]
    fn a_segment_comes_out_of_its_packet_as_it_went_in() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut pool = Pool::new(1 << 20);
        for round in 0..2_000 {
            let course = course(round % 2 == 0);
            let outgoing = drawn(&mut random);
            let packet = packet(&outgoing, &course, 7, &mut pool).unwrap();
            let read = read(&packet).expect("its checksum is right");
            assert_eq!(read.segment, outgoing.segment, "round {round}");
            assert_eq!((read.source, read.destination), (course.source, course.destination));
            assert_eq!(course.pattern.check(outgoing.offset, read.payload), Ok(()));
            assert_eq!(packet.ip().dont_fragment, outgoing.dont_fragment || round % 2 == 1);
            pool.give(packet.into_buffer());
        }
    }

    #[test]
    fn a_packet_with_a_flipped_bit_is_no_segment() {
        let mut pool = Pool::new(1 << 20);
        let outgoing = drawn(&mut fastrand::Rng::with_seed(4));
        let whole = packet(&outgoing, &course(true), 7, &mut pool).unwrap().bytes().to_vec();
        for at in 20 * 8..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let flipped = Frame::copy(&bytes, Medium::Ip, Ingress(0), &mut pool).unwrap();
            assert!(read(&flipped).is_none(), "bit {at}");
            pool.give(flipped.into_buffer());
        }
    }

    #[test]
    fn a_routers_report_tells_whose_packet_it_quotes_rfc_1191_4_and_rfc_4443_3_2() {
        let mut pool = Pool::new(1 << 20);
        for (is_v4, router) in [(true, "192.0.2.254"), (false, "2001:db8::fe")] {
            let outgoing = drawn(&mut fastrand::Rng::with_seed(5));
            let outgoing = Outgoing { dont_fragment: true, ..outgoing };
            let course = course(is_v4);
            let long = packet(&outgoing, &course, 7, &mut pool).unwrap();
            assert_eq!(too_big(&long), None);
            let report =
                icmp::error(Complaint::TooBig { mtu: 1_400 }, &long, router.parse().unwrap(), &mut pool).unwrap();
            let expected = TooBig {
                mtu: 1_400,
                seq: outgoing.segment.seq,
                source: course.source,
                destination: course.destination,
            };
            assert_eq!(too_big(&report), Some(expected));
            assert!(read(&report).is_none());
        }
    }

    fn course(is_v4: bool) -> Course {
        let ends =
            if is_v4 { ["192.0.2.1:4000", "192.0.2.2:80"] } else { ["[2001:db8::1]:4000", "[2001:db8::2]:80"] };
        let [source, destination] = ends.map(|end| end.parse().unwrap());
        Course { source, destination, pattern: Pattern::new(9) }
    }

    fn drawn(random: &mut fastrand::Rng) -> Outgoing {
        let is_syn = random.bool();
        let stamps = random.bool().then(|| Timestamps { value: random.u32(..), echo: random.u32(..) });
        let mut sack = Blocks::default();
        for _ in 0..if is_syn { 0 } else { random.u32(0..4) } {
            sack.push(random.u32(..), random.u32(..));
        }
        let others = [FIN, PSH, ECE, CWR][random.usize(0..4)];
        Outgoing {
            segment: Segment {
                seq: random.u32(..),
                ack: random.u32(..),
                flags: if is_syn { SYN | ACK } else { ACK | others },
                window: random.u16(..),
                len: if is_syn { 0 } else { random.u32(0..3_000) },
                mss: is_syn.then_some(1_460),
                window_scale: (is_syn && random.bool()).then_some(7),
                sack_permitted: is_syn && random.bool(),
                timestamps: stamps,
                sack,
                ecn: if random.bool() { Ecn::Ect0 } else { Ecn::NotEct },
            },
            offset: random.u64(0..1 << 40),
            dont_fragment: random.bool(),
            is_again: false,
        }
    }
}
