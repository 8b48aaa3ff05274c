//! The description of a packet -> its bytes. Every length and checksum is right unless the test says otherwise.

use crate::fields::{
    ACK, AUTHENTICATION, DF, EXPERIMENT, FRAGMENT, FRAGMENT_LEN, ICMP, ICMPV6, IPV4_LEN, IPV6_LEN, ROUTING, TCP,
    UDP,
};
use crate::random::{noise, stream};
use crate::sum::{add, checksum, field_at, octets, pseudo_header, right_udp, sum_of};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

/// A packet to be built: fields as they stand in the header, with defaults that make it valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The port through which it arrives; not in its bytes.
    pub ingress: u32,
    /// Source and destination of its Ethernet header.
    pub macs: [[u8; 6]; 2],
    /// VLAN tags behind the Ethernet header; none: no Ethernet header, the packet starts with its IP header.
    pub vlans: Option<Vec<u16>>,
    /// EtherType of the first tag: 802.1Q's, or 802.1ad's (0x88A8).
    pub tag_type: u16,
    /// Source address. The version is that of the addresses.
    pub source: IpAddr,
    /// See `source`.
    pub destination: IpAddr,
    /// IPv4's type of service, IPv6's traffic class.
    pub tos: u8,
    /// IPv6's flow label.
    pub label: u32,
    /// Identification; in version 6 that of the Fragment header.
    pub id: u32,
    /// IPv4's reserved bit, DF and MF, as they stand in the header.
    pub ip_flags: u16,
    /// Offset in bytes and MF. In version 6 these are in a Fragment header.
    pub fragment: Option<(usize, bool)>,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// Protocol of the bytes behind the IP headers.
    pub protocol: u8,
    /// IPv4's options, a multiple of four bytes.
    pub ip_options: Vec<u8>,
    /// IPv6's extension headers: kind and bytes. The first byte is set here.
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// Error added to the IPv4 header checksum.
    pub ip_sum_off: u16,
    /// The transport header in front of the payload.
    pub transport: Transport,
    /// Source and destination port.
    pub ports: [u16; 2],
    /// TCP's sequence number.
    pub seq: u32,
    /// TCP's acknowledgement number.
    pub ack: u32,
    /// TCP's flags.
    pub flags: u8,
    /// The four bits behind TCP's data offset.
    pub reserved: u8,
    /// TCP's window.
    pub window: u16,
    /// TCP's urgent pointer.
    pub urgent: u16,
    /// TCP's options, a multiple of four bytes.
    pub options: Vec<u8>,
    /// The bytes behind all headers.
    pub payload: Vec<u8>,
    /// The transport's checksum.
    pub sum: Summed,
    /// Bytes of padding behind the packet.
    pub padding: usize,
}

/// The transport header to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// None: the payload is everything.
    None,
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// RFC 792 and RFC 4443: type, code and the four bytes behind the checksum.
    Icmp(u8, u8, [u8; 4]),
}

/// How a transport checksum is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summed {
    /// Correct.
    Right,
    /// Wrong by this amount.
    Off(u16),
    /// Partial: the pseudo-header's sum, for a network card to complete.
    Half,
    /// All ones where it is 0.
    AllOnes,
    /// UDP: 0, for none.
    None,
}

/// The position of a fragment in its datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its range in the bytes that fragmentation divides.
    pub range: Range<usize>,
    /// More fragments follow.
    pub more: bool,
}

/// A packet of this version with an unknown protocol.
pub fn ip(version: u8) -> Spec {
    let (source, destination) = match version {
        4 => (HOST_V4.into(), PEER_V4.into()),
        _ => (HOST_V6.into(), PEER_V6.into()),
    };
    Spec {
        ingress: 0,
        macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        vlans: None,
        tag_type: 0x8100,
        source,
        destination,
        tos: 0,
        label: 0x5_1234,
        id: 0x1234,
        ip_flags: 0,
        fragment: None,
        ttl: 64,
        protocol: EXPERIMENT,
        ip_options: Vec::new(),
        extensions: Vec::new(),
        ip_sum_off: 0,
        transport: Transport::None,
        ports: [1_500, 8_000],
        seq: 100,
        ack: 100,
        flags: ACK,
        reserved: 0,
        window: 65_535,
        urgent: 0,
        options: Vec::new(),
        payload: Vec::new(),
        sum: Summed::Right,
        padding: 0,
    }
}

/// A TCP segment, with DF.
pub fn tcp(version: u8) -> Spec {
    Spec { protocol: TCP, transport: Transport::Tcp, ip_flags: DF, ..ip(version) }
}

/// A UDP datagram, with DF.
pub fn udp(version: u8) -> Spec {
    Spec { protocol: UDP, transport: Transport::Udp, ip_flags: DF, ..ip(version) }
}

/// An ICMP message of this type and code.
pub fn icmp(version: u8, kind: u8, code: u8) -> Spec {
    let protocol = if version == 4 { ICMP } else { ICMPV6 };
    Spec { protocol, transport: Transport::Icmp(kind, code, [0; 4]), ..ip(version) }
}

impl Spec {
    /// 4 or 6.
    pub fn version(&self) -> u8 {
        if self.source.is_ipv4() { 4 } else { 6 }
    }

    /// Sets the source address.
    pub fn from(self, source: impl Into<IpAddr>) -> Spec {
        Spec { source: source.into(), ..self }
    }

    /// Sets the destination address.
    pub fn to(self, destination: impl Into<IpAddr>) -> Spec {
        Spec { destination: destination.into(), ..self }
    }

    /// Sets the addresses to the hosts of these numbers, see [`host`].
    pub fn between(self, source: u32, destination: u32) -> Spec {
        let version = self.version();
        self.from(host(version, source)).to(host(version, destination))
    }

    /// The other direction: addresses and ports change places.
    pub fn turned(self) -> Spec {
        let ([source, destination], [port, peer_port]) = (self.macs, self.ports);
        Spec {
            macs: [destination, source],
            source: self.destination,
            destination: self.source,
            ports: [peer_port, port],
            ..self
        }
    }

    /// Sets the ports.
    pub fn ports(self, source: u16, destination: u16) -> Spec {
        Spec { ports: [source, destination], ..self }
    }

    /// Sets the identification.
    pub fn id(self, id: u32) -> Spec {
        Spec { id, ..self }
    }

    /// Sets IPv4's flags: DF, MF, the reserved one.
    pub fn ip_flags(self, ip_flags: u16) -> Spec {
        Spec { ip_flags, ..self }
    }

    /// Sets the sequence number.
    pub fn seq(self, seq: u32) -> Spec {
        Spec { seq, ..self }
    }

    /// Sets TCP's flags.
    pub fn flags(self, flags: u8) -> Spec {
        Spec { flags, ..self }
    }

    /// Sets TCP's options.
    pub fn options(self, options: impl AsRef<[u8]>) -> Spec {
        Spec { options: options.as_ref().to_vec(), ..self }
    }

    /// Adds timestamps in the usual layout.
    pub fn stamped(self, value: u32, echo: u32) -> Spec {
        self.options([&[1, 1, 8, 10], &value.to_be_bytes()[..], &echo.to_be_bytes()].concat())
    }

    /// Sets the form of the transport checksum.
    pub fn sum(self, sum: Summed) -> Spec {
        Spec { sum, ..self }
    }

    /// Sets the payload.
    pub fn payload(self, payload: impl AsRef<[u8]>) -> Spec {
        Spec { payload: payload.as_ref().to_vec(), ..self }
    }

    /// Sets `len` bytes of noise as payload.
    pub fn noise(self, len: usize) -> Spec {
        self.payload(noise(len, len as u64))
    }

    /// Sets `len` bytes of a stream as payload, from `offset` on.
    pub fn carrying(self, offset: usize, len: usize) -> Spec {
        let seq = self.seq.wrapping_add(offset as u32);
        self.seq(seq).payload((offset..offset + len).map(|at| stream(at as u64)).collect::<Vec<_>>())
    }

    /// Puts it in an Ethernet frame without tags.
    pub fn ethernet(self) -> Spec {
        Spec { vlans: Some(Vec::new()), ..self }
    }

    /// Puts it in an Ethernet frame, with this tag behind its other tags.
    pub fn vlan(mut self, tag: u16) -> Spec {
        self.vlans.get_or_insert_default().push(tag);
        self
    }

    /// The fragment at this offset, in bytes, with this payload.
    pub fn part(self, offset: usize, payload: impl AsRef<[u8]>, more: bool) -> Spec {
        Spec { fragment: Some((offset, more)), ..self.payload(payload) }
    }

    /// The same packet, with its transport header as part of its payload.
    pub fn raw(&self) -> Spec {
        Spec { transport: Transport::None, payload: self.upper(), ..self.clone() }
    }

    /// The fragment at this position. Later fragments carry only the options with the copied bit, as in RFC 791.
    pub fn fragment(&self, place: &Place) -> Vec<u8> {
        let whole = if self.transport == Transport::None { self } else { &self.raw() };
        whole.fragment_with(place, &whole.payload[place.range.clone()])
    }

    /// The same fragment, with other bytes.
    pub fn fragment_with(&self, place: &Place, payload: &[u8]) -> Vec<u8> {
        let offset = place.range.start;
        self.around(payload, Some((offset, place.more)), &self.options_at(offset))
    }

    /// The positions of the fragments of a sender that fills each of them.
    pub fn places(&self, mtu: usize) -> Vec<Place> {
        let (mut places, mut start) = (Vec::new(), 0);
        let len = self.transport_len() + self.payload.len();
        loop {
            let (room, left) = (mtu - self.fragment_len(start), len - start);
            let range = start..start + if left <= room { left } else { room / 8 * 8 };
            let more = range.end < len;
            start = range.end;
            places.push(Place { range, more });
            if !more {
                return places;
            }
        }
    }

    /// The fragments of that sender.
    pub fn fragments(&self, mtu: usize) -> Vec<Vec<u8>> {
        let raw = self.raw();
        self.places(mtu).iter().map(|place| raw.fragment(place)).collect()
    }

    /// The fragments with `room` payload bytes in each but the last, and all options in each.
    pub fn parts(&self, room: usize) -> Vec<Vec<u8>> {
        let raw = self.raw();
        let last = raw.payload.len().div_ceil(room) - 1;
        let parts = raw.payload.chunks(room).enumerate();
        parts.map(|(index, part)| raw.clone().part(index * room, part, index < last).bytes()).collect()
    }

    /// Length of the link header.
    pub fn link_len(&self) -> usize {
        self.vlans.as_ref().map_or(0, |vlans| 14 + 4 * vlans.len())
    }

    /// Length of the IP header with its extensions.
    pub fn ip_header_len(&self) -> usize {
        let has_fragment_header = self.version() == 6 && self.fragment.is_some();
        self.fixed_len() + if has_fragment_header { FRAGMENT_LEN } else { 0 }
    }

    /// Length of the IP header of a fragment at `offset`.
    pub fn fragment_len(&self, offset: usize) -> usize {
        match self.version() {
            4 => IPV4_LEN + self.options_at(offset).len(),
            _ => self.fixed_len() + FRAGMENT_LEN,
        }
    }

    fn fixed_len(&self) -> usize {
        match self.version() {
            4 => IPV4_LEN + self.ip_options.len(),
            _ => IPV6_LEN + self.extensions.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(),
        }
    }

    /// Length of the transport header.
    pub fn transport_len(&self) -> usize {
        match self.transport {
            Transport::None => 0,
            Transport::Tcp => 20 + self.options.len(),
            Transport::Udp | Transport::Icmp(..) => 8,
        }
    }

    /// Length of the packet, from its IP header on.
    pub fn ip_len(&self) -> usize {
        self.ip_header_len() + self.transport_len() + self.payload.len()
    }

    /// The same packet without padding and with its checksum completed, as by an offloading network card.
    pub fn finished(&self) -> Spec {
        let sum = if self.sum == Summed::Half { Summed::Right } else { self.sum };
        Spec { sum, padding: 0, ..self.clone() }
    }

    /// Its frame, if it has a link header; else the packet.
    pub fn bytes(&self) -> Vec<u8> {
        self.around(&self.upper(), self.fragment, &self.ip_options)
    }

    /// The frame around these bytes.
    fn around(&self, upper: &[u8], fragment: Option<(usize, bool)>, ip_options: &[u8]) -> Vec<u8> {
        let mut bytes = self.link();
        bytes.extend(match self.version() {
            4 => self.ipv4(upper.len(), fragment.unwrap_or((0, false)), ip_options),
            _ => self.ipv6(upper.len(), fragment),
        });
        bytes.extend(upper);
        bytes.resize(bytes.len() + self.padding, 0xEE);
        bytes
    }

    /// The bytes behind the IP headers: the transport header with its checksum, and the payload.
    pub fn upper(&self) -> Vec<u8> {
        let mut upper = self.transport_header();
        upper.extend(&self.payload);
        if self.transport == Transport::None {
            return upper;
        }
        let at = field_at(self.protocol).unwrap_or_else(|| panic!("protocol {} has no checksum", self.protocol));
        let pseudo = match self.transport {
            Transport::Icmp(..) if self.version() == 4 => Vec::new(),
            _ => pseudo_header(self.source, self.destination, self.protocol, upper.len()),
        };
        let right = !sum_of(&[&pseudo, &upper]);
        let right = if self.transport == Transport::Udp { right_udp(right) } else { right };
        let field = match self.sum {
            Summed::Right => right,
            Summed::Off(off) => {
                // One's complement addition: the result never equals the original, in either form of 0.
                assert!(off != 0 && off != 0xFFFF);
                add(right, off)
            }
            Summed::Half => sum_of(&[&pseudo]),
            Summed::AllOnes => {
                assert!(right == 0 || right == 0xFFFF, "{right:04x}");
                0xFFFF
            }
            Summed::None => 0,
        };
        upper[at..at + 2].copy_from_slice(&field.to_be_bytes());
        upper
    }

    fn transport_header(&self) -> Vec<u8> {
        let [source, destination] = self.ports.map(u16::to_be_bytes);
        match self.transport {
            Transport::None => Vec::new(),
            Transport::Tcp => {
                assert!(self.options.len().is_multiple_of(4) && self.options.len() <= 40);
                let mut header = [source, destination].concat();
                header.extend(self.seq.to_be_bytes());
                header.extend(self.ack.to_be_bytes());
                header.extend([(self.transport_len() * 4) as u8 | self.reserved, self.flags]);
                header.extend(self.window.to_be_bytes());
                header.extend([0, 0]);
                header.extend(self.urgent.to_be_bytes());
                header.extend(&self.options);
                header
            }
            Transport::Udp => {
                [source, destination, ((8 + self.payload.len()) as u16).to_be_bytes(), [0, 0]].concat()
            }
            Transport::Icmp(kind, code, rest) => [&[kind, code, 0, 0][..], &rest].concat(),
        }
    }

    fn link(&self) -> Vec<u8> {
        let Some(vlans) = &self.vlans else { return Vec::new() };
        let mut link = [self.macs[1], self.macs[0]].concat();
        for (index, vlan) in vlans.iter().enumerate() {
            link.extend(if index == 0 { self.tag_type } else { 0x8100 }.to_be_bytes());
            link.extend(vlan.to_be_bytes());
        }
        link.extend(if self.version() == 4 { [0x08, 0x00] } else { [0x86, 0xDD] });
        link
    }

    fn ipv4(&self, upper_len: usize, (offset, more): (usize, bool), ip_options: &[u8]) -> Vec<u8> {
        let header_len = IPV4_LEN + ip_options.len();
        assert!(header_len.is_multiple_of(4) && header_len <= 60 && offset.is_multiple_of(8));
        let flags = self.ip_flags | u16::from(more) << 13 | (offset / 8) as u16;
        let mut bytes = vec![0x40 | (header_len / 4) as u8, self.tos];
        bytes.extend(((header_len + upper_len) as u16).to_be_bytes());
        bytes.extend((self.id as u16).to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend(octets(self.source));
        bytes.extend(octets(self.destination));
        bytes.extend(ip_options);
        let field = add(checksum(&bytes), self.ip_sum_off);
        bytes[10..12].copy_from_slice(&field.to_be_bytes());
        bytes
    }

    fn ipv6(&self, upper_len: usize, fragment: Option<(usize, bool)>) -> Vec<u8> {
        let mut headers = self.extensions.clone();
        if let Some((offset, more)) = fragment {
            assert!(offset.is_multiple_of(8));
            let word = (offset as u16 | u16::from(more)).to_be_bytes();
            headers.push((FRAGMENT, [&[0, 0], &word[..], &self.id.to_be_bytes()].concat()));
        }
        let (first, chain) = chain(&headers, self.protocol);
        let mut bytes = (6 << 28 | u32::from(self.tos) << 20 | self.label).to_be_bytes().to_vec();
        bytes.extend(((chain.len() + upper_len) as u16).to_be_bytes());
        bytes.extend([first, self.ttl]);
        bytes.extend(octets(self.source));
        bytes.extend(octets(self.destination));
        bytes.extend(chain);
        bytes
    }

    /// The options of a fragment: all of them at offset 0, else those with the copied bit (RFC 791 section 3.1).
    fn options_at(&self, offset: usize) -> Vec<u8> {
        if offset == 0 {
            return self.ip_options.clone();
        }
        let (mut kept, mut rest) = (Vec::new(), &self.ip_options[..]);
        while let Some(kind) = rest.first().filter(|kind| **kind != 0) {
            let len = if *kind == 1 { 1 } else { usize::from(rest[1]) };
            if kind & 0x80 != 0 {
                kept.extend(&rest[..len]);
            }
            rest = &rest[len..];
        }
        kept.resize(kept.len().next_multiple_of(4), 0);
        kept
    }
}

/// The host of this number: 10.0.0.0/8 and 2001:db8::/64.
pub fn host(version: u8, number: u32) -> IpAddr {
    match version {
        4 => Ipv4Addr::from_bits(10 << 24 | number).into(),
        _ => Ipv6Addr::from_bits(0x2001_0DB8 << 96 | u128::from(number)).into(),
    }
}

/// Extension headers in a row: the first one's number, and their bytes.
pub fn chain(headers: &[(u8, Vec<u8>)], last: u8) -> (u8, Vec<u8>) {
    let kinds: Vec<u8> = headers.iter().map(|(kind, _)| *kind).chain([last]).collect();
    let bytes = headers.iter().zip(&kinds[1..]).flat_map(|((_, header), next)| [&[*next], &header[1..]].concat());
    (kinds[0], bytes.collect())
}

/// An extension header of `len` bytes without effect: an experimental source route at its end (RFC 4727), an
/// authentication of zeros, or padding options.
pub fn extension(kind: u8, len: usize) -> (u8, Vec<u8>) {
    let mut bytes = vec![0; len];
    bytes[1] = (len / 8 - 1) as u8;
    match kind {
        ROUTING => bytes[2] = 253,
        AUTHENTICATION => bytes[1] = (len / 4 - 2) as u8,
        // PadN, with zeros as data.
        _ => (bytes[2], bytes[3]) = (1, (len - 4).min(255) as u8),
    }
    (kind, bytes)
}

/// An option of IPv4 with the copied bit: loose source route, one address.
pub fn copied_option() -> Vec<u8> {
    vec![0x83, 7, 4, 192, 0, 2, 9, 1]
}

/// An option of IPv4 without the copied bit: record route, three addresses.
pub fn uncopied_option() -> Vec<u8> {
    vec![0x07, 15, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
}

/// The usual source.
pub const HOST_V4: [u8; 4] = [10, 0, 0, 1];
/// The usual destination.
pub const PEER_V4: [u8; 4] = [10, 0, 0, 2];
/// The usual source.
pub const HOST_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The usual destination.
pub const PEER_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
