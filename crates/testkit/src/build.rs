//! Descriptions of packets -> their bytes.
//!
//! Tests need packets with any field, valid or not. Lengths and checksums are correct unless the test asks for an
//! error. Reading packets is left to `read.rs`.

use crate::fields::{
    ACK, AUTHENTICATION, DF, EXPERIMENT, FRAGMENT, FRAGMENT_LEN, ICMP, ICMPV6, IPV4_LEN, IPV6_LEN, ROUTING, TCP,
    UDP,
};
use crate::random::{noise, stream};
use crate::sum::{add, checksum, field_at, octets, pseudo_header, right_udp, sum_of};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

/// The description of a packet: values of header fields, with defaults that make the packet valid.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Number of the port where the packet arrives; not part of the packet's bytes.
    pub ingress: u32,
    /// Source and destination MAC address, if the packet has an Ethernet header.
    pub macs: [[u8; 6]; 2],
    /// VLAN tags of the Ethernet header. `None`: the packet has no Ethernet header and starts with its IP header.
    pub vlans: Option<Vec<u16>>,
    /// EtherType of the first VLAN tag: 802.1Q (0x8100) or 802.1ad (0x88A8).
    pub tag_type: u16,
    /// Source address, whose family determines the IP version.
    pub source: IpAddr,
    /// Destination address, of the same IP version as `source`.
    pub destination: IpAddr,
    /// IPv4's type of service or IPv6's traffic class.
    pub tos: u8,
    /// IPv6's flow label.
    pub label: u32,
    /// IP ID; in IPv6, the identification in the Fragment header.
    pub id: u32,
    /// IPv4's reserved bit, DF and MF, at their position in the 16-bit word of flags and offset.
    pub ip_flags: u16,
    /// Fragment offset in bytes, and the MF flag. In IPv6 they are written to a Fragment header. `None`: not a
    /// fragment.
    pub fragment: Option<(usize, bool)>,
    /// IPv4's time to live or IPv6's hop limit.
    pub ttl: u8,
    /// Protocol number of the bytes behind the IP headers.
    pub protocol: u8,
    /// IPv4's options; their length must be a multiple of four bytes.
    pub ip_options: Vec<u8>,
    /// IPv6's extension headers: protocol number and bytes. The first byte of each header (next header) is filled
    /// in.
    pub extensions: Vec<(u8, Vec<u8>)>,
    /// Amount added to the correct IPv4 header checksum; 0 = correct.
    pub ip_sum_off: u16,
    /// The transport header between IP header and payload.
    pub transport: Transport,
    /// Source and destination port.
    pub ports: [u16; 2],
    /// TCP's sequence number.
    pub seq: u32,
    /// TCP's acknowledgement number.
    pub ack: u32,
    /// TCP's flags.
    pub flags: u8,
    /// TCP's four reserved bits behind the data offset.
    pub reserved: u8,
    /// TCP's window.
    pub window: u16,
    /// TCP's urgent pointer.
    pub urgent: u16,
    /// TCP's options; their length must be a multiple of four bytes.
    pub options: Vec<u8>,
    /// The bytes behind all headers.
    pub payload: Vec<u8>,
    /// The form of the transport checksum.
    pub sum: Summed,
    /// Number of padding bytes behind the packet, as on short Ethernet frames.
    pub padding: usize,
}

/// The transport header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// No transport header: the payload follows the IP headers.
    None,
    /// TCP (RFC 9293).
    Tcp,
    /// UDP (RFC 768).
    Udp,
    /// ICMP (RFC 792) or ICMPv6 (RFC 4443): type, code and the four bytes behind the checksum.
    Icmp(u8, u8, [u8; 4]),
}

/// The form of a transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Summed {
    /// The correct checksum.
    Right,
    /// The correct checksum plus this amount.
    Off(u16),
    /// Only the sum of the pseudo-header. A NIC completes this checksum.
    Half,
    /// All ones if the correct checksum is 0, otherwise the correct checksum.
    AllOnes,
    /// The value 0, which means "no checksum" in UDP.
    None,
}

/// The position of a fragment in its datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The fragment's range of bytes in the datagram's body.
    pub range: Range<usize>,
    /// Whether more fragments follow (MF).
    pub more: bool,
}

/// A packet of IP version `version` with an unknown protocol number and no transport header.
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

/// A TCP segment with DF set.
pub fn tcp(version: u8) -> Spec {
    Spec { protocol: TCP, transport: Transport::Tcp, ip_flags: DF, ..ip(version) }
}

/// A UDP datagram with DF set.
pub fn udp(version: u8) -> Spec {
    Spec { protocol: UDP, transport: Transport::Udp, ip_flags: DF, ..ip(version) }
}

/// An ICMP message of type `kind` and code `code`.
pub fn icmp(version: u8, kind: u8, code: u8) -> Spec {
    let protocol = if version == 4 { ICMP } else { ICMPV6 };
    Spec { protocol, transport: Transport::Icmp(kind, code, [0; 4]), ..ip(version) }
}

impl Spec {
    /// The IP version: 4 or 6.
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

    /// Sets source and destination address to the addresses of these two hosts, see [`host`].
    pub fn between(self, source: u32, destination: u32) -> Spec {
        let version = self.version();
        self.from(host(version, source)).to(host(version, destination))
    }

    /// Swaps source and destination: addresses and ports.
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

    /// Sets source and destination port.
    pub fn ports(self, source: u16, destination: u16) -> Spec {
        Spec { ports: [source, destination], ..self }
    }

    /// Sets the identification.
    pub fn id(self, id: u32) -> Spec {
        Spec { id, ..self }
    }

    /// Sets IPv4's flags: DF, MF or the reserved bit.
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

    /// Adds TCP timestamps: NOP, NOP, option.
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

    /// Sets `len` bytes of noise as the payload.
    pub fn noise(self, len: usize) -> Spec {
        self.payload(noise(len, len as u64))
    }

    /// Sets `len` bytes of the test stream as the payload, from position `offset` of the stream on, and adds
    /// `offset` to the sequence number.
    pub fn carrying(self, offset: usize, len: usize) -> Spec {
        let seq = self.seq.wrapping_add(offset as u32);
        self.seq(seq).payload((offset..offset + len).map(|at| stream(at as u64)).collect::<Vec<_>>())
    }

    /// Adds an Ethernet header without VLAN tags.
    pub fn ethernet(self) -> Spec {
        Spec { vlans: Some(Vec::new()), ..self }
    }

    /// Adds a VLAN tag behind all other tags, and an Ethernet header if there is none.
    pub fn vlan(mut self, tag: u16) -> Spec {
        self.vlans.get_or_insert_default().push(tag);
        self
    }

    /// Makes the packet a fragment with this offset in bytes, this payload and this MF flag.
    pub fn part(self, offset: usize, payload: impl AsRef<[u8]>, more: bool) -> Spec {
        Spec { fragment: Some((offset, more)), ..self.payload(payload) }
    }

    /// The packet with its transport header moved into its payload.
    pub fn raw(&self) -> Spec {
        Spec { transport: Transport::None, payload: self.upper(), ..self.clone() }
    }

    /// Returns the fragment at this position. Fragments behind the first carry only IPv4 options with the copied
    /// bit (RFC 791).
    pub fn fragment(&self, place: &Place) -> Vec<u8> {
        let whole = if self.transport == Transport::None { self } else { &self.raw() };
        whole.fragment_with(place, &whole.payload[place.range.clone()])
    }

    /// Returns the fragment at this position, with `payload` instead of the packet's own bytes.
    pub fn fragment_with(&self, place: &Place, payload: &[u8]) -> Vec<u8> {
        let offset = place.range.start;
        self.around(payload, Some((offset, place.more)), &self.options_at(offset))
    }

    /// The positions of the packet's fragments at this MTU. Each fragment except the last fills the MTU.
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

    /// The packet's fragments at this MTU. Each fragment except the last fills the MTU.
    pub fn fragments(&self, mtu: usize) -> Vec<Vec<u8>> {
        let raw = self.raw();
        self.places(mtu).iter().map(|place| raw.fragment(place)).collect()
    }

    /// The fragments with `room` payload bytes in each except the last. Every fragment carries all IPv4 options.
    pub fn parts(&self, room: usize) -> Vec<Vec<u8>> {
        let raw = self.raw();
        let last = raw.payload.len().div_ceil(room) - 1;
        let parts = raw.payload.chunks(room).enumerate();
        parts.map(|(index, part)| raw.clone().part(index * room, part, index < last).bytes()).collect()
    }

    /// Length of the link header, in bytes.
    pub fn link_len(&self) -> usize {
        self.vlans.as_ref().map_or(0, |vlans| 14 + 4 * vlans.len())
    }

    /// Length of the IP header with extension headers, in bytes.
    pub fn ip_header_len(&self) -> usize {
        let has_fragment_header = self.version() == 6 && self.fragment.is_some();
        self.fixed_len() + if has_fragment_header { FRAGMENT_LEN } else { 0 }
    }

    /// Length of the IP header of a fragment at `offset`, in bytes.
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

    /// Length of the transport header, in bytes.
    pub fn transport_len(&self) -> usize {
        match self.transport {
            Transport::None => 0,
            Transport::Tcp => 20 + self.options.len(),
            Transport::Udp | Transport::Icmp(..) => 8,
        }
    }

    /// Length of the packet from its IP header on, in bytes.
    pub fn ip_len(&self) -> usize {
        self.ip_header_len() + self.transport_len() + self.payload.len()
    }

    /// The packet without padding and with a complete checksum, as a NIC with checksum offload transmits it.
    pub fn finished(&self) -> Spec {
        let sum = if self.sum == Summed::Half { Summed::Right } else { self.sum };
        Spec { sum, padding: 0, ..self.clone() }
    }

    /// The bytes of the packet, including any link header and padding.
    pub fn bytes(&self) -> Vec<u8> {
        self.around(&self.upper(), self.fragment, &self.ip_options)
    }

    /// Adds link header, IP header and padding to the bytes `upper`.
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

    /// The IPv4 options of a fragment: all at offset 0, else only options with the copied bit (RFC 791 section
    /// 3.1).
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

/// The address of test host `number`, in 10.0.0.0/8 or 2001:db8::/64.
pub fn host(version: u8, number: u32) -> IpAddr {
    match version {
        4 => Ipv4Addr::from_bits(10 << 24 | number).into(),
        _ => Ipv6Addr::from_bits(0x2001_0DB8 << 96 | u128::from(number)).into(),
    }
}

/// Chains extension headers; `last` is the protocol number behind them. Returns the protocol number of the first
/// header and the bytes of all headers.
pub fn chain(headers: &[(u8, Vec<u8>)], last: u8) -> (u8, Vec<u8>) {
    let kinds: Vec<u8> = headers.iter().map(|(kind, _)| *kind).chain([last]).collect();
    let bytes = headers.iter().zip(&kinds[1..]).flat_map(|((_, header), next)| [&[*next], &header[1..]].concat());
    (kinds[0], bytes.collect())
}

/// An extension header of `len` bytes that has no effect. A Routing header has an experimental type and no segments
/// left (RFC 4727). An Authentication header has zeros as data. All other headers contain padding options.
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

/// An IPv4 option with the copied bit: a loose source route with one address.
pub fn copied_option() -> Vec<u8> {
    vec![0x83, 7, 4, 192, 0, 2, 9, 1]
}

/// An IPv4 option without the copied bit: a record route with three addresses.
pub fn uncopied_option() -> Vec<u8> {
    vec![0x07, 15, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
}

/// The default IPv4 source address.
pub const HOST_V4: [u8; 4] = [10, 0, 0, 1];
/// The default IPv4 destination address.
pub const PEER_V4: [u8; 4] = [10, 0, 0, 2];
/// The default IPv6 source address.
pub const HOST_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The default IPv6 destination address.
pub const PEER_V6: [u8; 16] = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
