//! A TCP segment or UDP datagram -> the facts that decide whether it continues another packet.
//!
//! Two packets can share one header if all bytes before their payload are equal. Two kinds of fields may differ:
//!
//! - the fields recorded here;
//! - the fields that are rewritten for each segment: lengths, identification, checksums.
//!
//! The decision to join is left to the engine.

use crate::checksum::Sum;
use crate::ip::{TCP, Transport, UDP, pseudo_sum};
use crate::packet::{Checksum, Packet};
use crate::tcp::{self, TcpFacts, TcpOption, TcpSegmentFacts, Timestamps};
use crate::udp::{self, UdpHeader};

/// The fields of a packet that change along its flow.
#[derive(Clone, Copy, Debug)]
pub struct SegmentFacts {
    /// Offset of the payload, in bytes from the IP header.
    pub payload_at: u16,
    /// Length of the payload, in bytes; at least 1.
    pub payload_len: u16,
    /// Sum of the payload, as at an even offset.
    pub payload_sum: Sum,
    /// IP ID of the packet.
    pub id: u32,
    /// Whether rewriting the headers would produce identical checksums. A checksum of 0 has two representations,
    /// and only one of them is ever written.
    pub canonical: bool,
    /// The TCP fields. `None` for UDP.
    pub tcp: Option<TcpSegmentFacts>,
}

impl SegmentFacts {
    /// Returns the facts of a packet. `None` for a packet that can share its header with no other (L6; R114, R115,
    /// R118):
    ///
    /// - a fragment, a packet without payload, or a packet whose length was left to segmentation offload;
    /// - a packet that is neither TCP nor UDP;
    /// - a packet with IPv4 options or an Authentication header;
    /// - a TCP segment with flags other than ACK, PSH, FIN and ECE, or with options other than timestamps;
    /// - a packet with a wrong checksum.
    pub fn of(packet: &Packet) -> Option<SegmentFacts> {
        SegmentFacts::with(packet, packet.tcp_facts().as_ref())
    }

    /// Returns the facts of a packet, as [`of`](SegmentFacts::of) does. `facts` must be the parsed TCP header of a
    /// TCP packet; it is ignored for UDP.
    pub fn with(packet: &Packet, facts: Option<&TcpFacts>) -> Option<SegmentFacts> {
        let ip = packet.ip();
        let upper = ip.upper?;
        if ip.fragment.is_some() || ip.length_missing || !ip.headers_may_be_shared(packet.bytes()) {
            return None;
        }
        let bytes = packet.upper_bytes(upper);
        let (header_len, tcp) = match upper.protocol {
            TCP => tcp_part(bytes, facts?)?,
            UDP => (udp_header_len(bytes)?, None),
            _ => return None,
        };
        let (header, payload) = bytes.split_at_checked(header_len)?;
        let payload_sum = payload_sum(packet, upper, header, payload)?;
        Some(SegmentFacts {
            payload_at: upper.at + header_len as u16,
            payload_len: payload.len() as u16,
            payload_sum,
            id: ip.id,
            canonical: packet.has_canonical_checksums(),
            tcp,
        })
    }

    /// Returns the sequence number behind the last payload byte. `None` for UDP.
    pub fn seq_end(&self) -> Option<u32> {
        self.tcp.map(|tcp| tcp.seq.wrapping_add(u32::from(self.payload_len)))
    }
}

/// Whether the headers of two packets are equal, except the fields in [`SegmentFacts`] and the fields that are
/// rewritten for each segment.
///
/// The comparison includes link header, IP header (with DF, hop limit, traffic class and ECN), ports, reserved
/// bits, flags, and the layout of options.
pub fn share_headers(one: &Packet, one_part: &SegmentFacts, other: &Packet, other_part: &SegmentFacts) -> bool {
    let (ip, other_ip) = (one.ip(), other.ip());
    let same_layout = ip.version == other_ip.version && ip.upper == other_ip.upper;
    let (Some(upper), true) = (ip.upper, same_layout && one_part.payload_at == other_part.payload_at) else {
        return false;
    };
    let end = usize::from(one_part.payload_at);
    let (Some((ip_header, header)), Some((other_ip_header, other_header))) =
        (split(one, end, upper), split(other, end, upper))
    else {
        return false;
    };
    one.link() == other.link()
        && ip.shares_header(ip_header, other_ip_header)
        && match (one_part.tcp, other_part.tcp) {
            (Some(tcp), Some(other_tcp)) => tcp_headers_share(header, &tcp, other_header, &other_tcp),
            (None, None) => udp_headers_share(header, other_header),
            _ => false,
        }
}

fn split(packet: &Packet, end: usize, upper: Transport) -> Option<(&[u8], &[u8])> {
    packet.bytes().get(..end)?.split_at_checked(upper.at.into())
}

/// Whether two TCP headers are equal, except sequence and acknowledgement number, PSH and FIN, window, checksum and
/// timestamps.
pub(crate) fn tcp_headers_share(
    one: &[u8],
    one_part: &TcpSegmentFacts,
    other: &[u8],
    other_part: &TcpSegmentFacts,
) -> bool {
    let stamps_at = |part: &TcpSegmentFacts| part.timestamps.map(|stamps| usize::from(stamps.at));
    if one.len() != other.len() || stamps_at(one_part) != stamps_at(other_part) {
        return false;
    }
    let same = |from: usize, to: usize| one.get(from..to) == other.get(from..to);
    let flags = |header: &[u8]| header.get(FLAGS_AT).map(|flags| flags & !(tcp::PSH | tcp::FIN));
    let same_options = match stamps_at(one_part) {
        Some(at) => same(tcp::HEADER_LEN, at) && same(at + TIMESTAMPS_LEN, one.len()),
        None => same(tcp::HEADER_LEN, one.len()),
    };
    same(0, SEQ_AT)
        && same(FLAGS_AT - 1, FLAGS_AT)
        && flags(one) == flags(other)
        && same(URGENT_AT, URGENT_AT + 2)
        && same_options
}

/// Whether two UDP headers have equal ports, and both or neither have a checksum.
fn udp_headers_share(one: &[u8], other: &[u8]) -> bool {
    let has_checksum = |header| UdpHeader::parse(header).is_some_and(|(header, _)| header.checksum.get() != 0);
    one.get(..UDP_LEN_AT) == other.get(..UDP_LEN_AT) && has_checksum(one) == has_checksum(other)
}

/// Returns the length of a TCP header and its changing fields. `None` if the header has a field that the segments
/// of a GSO packet cannot repeat.
fn tcp_part(bytes: &[u8], facts: &TcpFacts) -> Option<(usize, Option<TcpSegmentFacts>)> {
    let &TcpFacts { seq, ack, window, flags, header_len, payload_len, .. } = facts;
    let plain = flags & !(tcp::PSH | tcp::FIN | tcp::ECE) == tcp::ACK;
    if !plain || payload_len == 0 {
        return None;
    }
    let timestamps = timestamps(bytes.get(tcp::HEADER_LEN..header_len.into())?)?;
    let part = TcpSegmentFacts { seq, ack, window, ends: flags & (tcp::PSH | tcp::FIN), timestamps };
    Some((header_len.into(), Some(part)))
}

/// Returns the timestamps. `Some(None)`: there are no timestamps. `None`: there is any other option.
pub(crate) fn timestamps(options: &[u8]) -> Option<Option<Timestamps>> {
    let mut found = None;
    let mut at = tcp::HEADER_LEN;
    for option in tcp::options(options) {
        match option {
            TcpOption::NoOperation => at += 1,
            TcpOption::End => break,
            TcpOption::Timestamps { value, echo } if found.is_none() => {
                found = Some(Timestamps { at: at as u16 + 2, value, echo });
                at += 2 + TIMESTAMPS_LEN;
            }
            _ => return None,
        }
    }
    Some(found)
}

/// Returns the length of the UDP header. `None` without payload, or if the UDP length differs from the actual
/// length.
fn udp_header_len(bytes: &[u8]) -> Option<usize> {
    let (header, payload) = UdpHeader::parse(bytes)?;
    (usize::from(header.len.get()) == bytes.len() && !payload.is_empty()).then_some(udp::HEADER_LEN)
}

/// Returns the sum of the payload. `None` if the transport checksum is wrong. If the checksum is known to be
/// correct, the sum follows from the headers (X3).
fn payload_sum(packet: &Packet, upper: Transport, header: &[u8], payload: &[u8]) -> Option<Sum> {
    let has_checksum =
        upper.protocol == TCP || UdpHeader::parse(header).is_some_and(|(it, _)| it.checksum.get() != 0);
    let headers = || pseudo_sum(packet.addresses(), upper.protocol, header.len() + payload.len()) + Sum::of(header);
    match packet.checksum {
        Checksum::Verified if has_checksum => Some(Sum::ZERO - headers()),
        Checksum::Unverified if has_checksum => {
            let sum = Sum::of(payload);
            (headers() + sum).is_right().then_some(sum)
        }
        Checksum::Verified | Checksum::Unverified | Checksum::Partial => Some(Sum::of(payload)),
    }
}

/// Offset of the sequence number in a TCP header, in bytes (RFC 9293 section 3.1).
const SEQ_AT: usize = 4;
/// See [`SEQ_AT`].
const FLAGS_AT: usize = 13;
/// See [`SEQ_AT`].
const URGENT_AT: usize = 18;
/// Offset of the length in a UDP header, in bytes.
const UDP_LEN_AT: usize = 4;
/// Length of the data of a timestamps option, in bytes: value and echo.
const TIMESTAMPS_LEN: usize = 8;
