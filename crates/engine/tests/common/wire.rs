//! Datagrams in, the bytes of their pieces out; and bytes in, what they say out. Built from the RFCs alone: nothing here
//! asks the engine.

use std::ops::Range;

/// A datagram as its sender made it.
#[derive(Clone, Debug)]
pub struct Datagram {
    /// What every piece repeats.
    pub header: Header,
    /// What fragmentation divides.
    pub payload: Vec<u8>,
}

/// An IP header, and where its packet travels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// 4 or 6.
    pub version: u8,
    /// Last three bytes of the source and destination addresses.
    pub source: u32,
    /// See `source`.
    pub destination: u32,
    /// Identification.
    pub id: u32,
    /// Protocol of the payload.
    pub protocol: u8,
    /// IPv4's DF bit.
    pub dont_fragment: bool,
    /// Congestion mark.
    pub ecn: u8,
    /// Time to live, hop limit.
    pub ttl: u8,
    /// IPv4: whole options. IPv6: extension headers, each with its number; their first bytes are written here.
    pub extras: Vec<Extra>,
    /// VLAN tags of the Ethernet frame; none: the packet has no link header.
    pub vlans: Vec<u16>,
    /// The port that it comes from.
    pub ingress: u32,
}

/// An IPv4 option or an IPv6 extension header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extra {
    /// Header number; unused in IPv4, whose options name themselves.
    pub number: u8,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

/// Which part of a datagram a piece is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its bytes in the datagram.
    pub range: Range<usize>,
    /// More fragments follow.
    pub more: bool,
}

/// What the bytes of a packet say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// 4 or 6.
    pub version: u8,
    /// Last three bytes of the source and destination addresses.
    pub source: u32,
    /// See `source`.
    pub destination: u32,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Identification; 0 in a whole IPv6 packet.
    pub id: u32,
    /// Offset in bytes, MF; none for a packet that is no fragment.
    pub fragment: Option<(usize, bool)>,
    /// IPv4's DF bit.
    pub dont_fragment: bool,
    /// Congestion mark.
    pub ecn: u8,
    /// Where the payload starts behind IP and Fragment header.
    pub payload_at: usize,
    /// Length of the packet.
    pub len: usize,
}

impl Header {
    /// A plain header of this version.
    pub fn plain(version: u8) -> Header {
        Header {
            version,
            source: 0x0001_0001,
            destination: 0x0001_0002,
            id: 0x1234,
            protocol: UDP,
            dont_fragment: false,
            ecn: 0,
            ttl: 61,
            extras: Vec::new(),
            vlans: Vec::new(),
            ingress: 0,
        }
    }

    /// Length of the header of a piece at `offset`, any Fragment header counted.
    pub fn piece_len(&self, offset: usize) -> usize {
        match self.version {
            4 => IPV4_LEN + self.options(offset).len(),
            _ => IPV6_LEN + self.extras_len() + FRAGMENT_LEN,
        }
    }

    fn extras_len(&self) -> usize {
        self.extras.iter().map(|extra| extra.bytes.len()).sum()
    }

    /// The options of a piece: all of them at offset 0, else those with the copied bit (RFC 791 section 3.1).
    fn options(&self, offset: usize) -> Vec<u8> {
        let kept = self.extras.iter().filter(|extra| offset == 0 || extra.bytes[0] & 0x80 != 0);
        let mut options: Vec<u8> = kept.flat_map(|extra| extra.bytes.clone()).collect();
        options.resize(options.len().next_multiple_of(4), 0);
        options
    }

    /// Length of the link header.
    pub fn link_len(&self) -> usize {
        self.link().len()
    }

    fn link(&self) -> Vec<u8> {
        if self.vlans.is_empty() {
            return Vec::new();
        }
        let mut link = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for vlan in &self.vlans {
            link.extend([0x81, 0x00]);
            link.extend(vlan.to_be_bytes());
        }
        link.extend(if self.version == 4 { [0x08, 0x00] } else { [0x86, 0xDD] });
        link
    }

    fn ipv4(&self, payload: &[u8], offset: usize, more: bool) -> Vec<u8> {
        let options = self.options(offset);
        let header_len = IPV4_LEN + options.len();
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(more) << 13 | (offset / 8) as u16;
        let mut bytes = vec![0x40 | (header_len / 4) as u8, 0xB8 | self.ecn];
        bytes.extend(((header_len + payload.len()) as u16).to_be_bytes());
        bytes.extend((self.id as u16).to_be_bytes());
        bytes.extend(flags.to_be_bytes());
        bytes.extend([self.ttl, self.protocol, 0, 0]);
        bytes.extend((0x0A00_0000 | self.source).to_be_bytes());
        bytes.extend((0x0A00_0000 | self.destination).to_be_bytes());
        bytes.extend(options);
        seal(&mut bytes);
        bytes.extend(payload);
        bytes
    }

    fn ipv6(&self, payload: &[u8], place: Option<(usize, bool)>) -> Vec<u8> {
        let fragment_len = if place.is_some() { FRAGMENT_LEN } else { 0 };
        let last = if place.is_some() { FRAGMENT } else { self.protocol };
        let numbers: Vec<u8> = self.extras.iter().map(|extra| extra.number).chain([last]).collect();
        let mut bytes = (0x6000_0000u32 | 0xB8 << 20 | u32::from(self.ecn) << 20 | 0x5_1234).to_be_bytes().to_vec();
        bytes.extend(((self.extras_len() + fragment_len + payload.len()) as u16).to_be_bytes());
        bytes.extend([numbers[0], self.ttl]);
        for address in [self.source, self.destination] {
            bytes.extend([0x20, 0x01, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0]);
            bytes.extend(address.to_be_bytes());
        }
        for (extra, next) in self.extras.iter().zip(&numbers[1..]) {
            let start = bytes.len();
            bytes.extend(&extra.bytes);
            bytes[start] = *next;
            bytes[start + 1] = (extra.bytes.len() / 8 - 1) as u8;
        }
        if let Some((offset, more)) = place {
            bytes.extend([self.protocol, 0]);
            bytes.extend((offset as u16 | u16::from(more)).to_be_bytes());
            bytes.extend(self.id.to_be_bytes());
        }
        bytes.extend(payload);
        bytes
    }
}

impl Datagram {
    /// A datagram of this version with noise as payload.
    pub fn plain(version: u8, payload_len: usize) -> Datagram {
        Datagram { header: Header::plain(version), payload: super::noise(payload_len, payload_len as u64) }
    }

    /// The whole datagram, with its link header.
    pub fn whole(&self) -> Vec<u8> {
        let mut frame = self.header.link();
        frame.extend(match self.header.version {
            4 => self.header.ipv4(&self.payload, 0, false),
            _ => self.header.ipv6(&self.payload, None),
        });
        frame
    }

    /// The piece at this place, with its link header.
    pub fn piece(&self, place: &Place) -> Vec<u8> {
        self.piece_with(place, &self.payload[place.range.clone()])
    }

    /// A piece at this place, with other bytes.
    pub fn piece_with(&self, place: &Place, payload: &[u8]) -> Vec<u8> {
        let mut frame = self.header.link();
        frame.extend(match self.header.version {
            4 => self.header.ipv4(payload, place.range.start, place.more),
            _ => self.header.ipv6(payload, Some((place.range.start, place.more))),
        });
        frame
    }

    /// Where a sender that fills its pieces cuts this datagram.
    pub fn places(&self, mtu: usize) -> Vec<Place> {
        let mut places = Vec::new();
        let mut start = 0;
        loop {
            let room = mtu - self.header.piece_len(start);
            let left = self.payload.len() - start;
            let len = if left <= room { left } else { room / 8 * 8 };
            let range = start..start + len;
            let more = range.end < self.payload.len();
            start = range.end;
            places.push(Place { range, more });
            if !more {
                return places;
            }
        }
    }

    /// The pieces that such a sender sends.
    pub fn pieces(&self, mtu: usize) -> Vec<Vec<u8>> {
        self.places(mtu).iter().map(|place| self.piece(place)).collect()
    }
}

/// Reads a packet that starts with its IP header.
pub fn read(bytes: &[u8]) -> Seen {
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let address = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
    if bytes[0] >> 4 == 4 {
        let payload_at = usize::from(bytes[0] & 15) * 4;
        assert_eq!(sum(&bytes[..payload_at]), 0xFFFF, "an IPv4 header's checksum is right");
        let flags = word(6);
        let (offset, more) = (usize::from(flags & 0x1FFF) * 8, flags & 0x2000 != 0);
        return Seen {
            version: 4,
            source: address(12) & 0x00FF_FFFF,
            destination: address(16) & 0x00FF_FFFF,
            protocol: bytes[9],
            id: u32::from(word(4)),
            fragment: (offset > 0 || more).then_some((offset, more)),
            dont_fragment: flags & 0x4000 != 0,
            ecn: bytes[1] & 3,
            payload_at,
            len: usize::from(word(2)),
        };
    }
    let mut seen = Seen {
        version: 6,
        source: address(20),
        destination: address(36),
        protocol: bytes[6],
        id: 0,
        fragment: None,
        dont_fragment: false,
        ecn: bytes[1] >> 4 & 3,
        payload_at: IPV6_LEN,
        len: IPV6_LEN + usize::from(word(4)),
    };
    while [HOP_BY_HOP, ROUTING, DESTINATION_OPTIONS, FRAGMENT].contains(&seen.protocol) {
        let at = seen.payload_at;
        let is_fragment = seen.protocol == FRAGMENT;
        seen.protocol = bytes[at];
        if is_fragment {
            seen.fragment = Some((usize::from(word(at + 2) & 0xFFF8), bytes[at + 3] & 1 != 0));
            seen.id = address(at + 4);
            seen.payload_at += FRAGMENT_LEN;
            return seen;
        }
        seen.payload_at += (usize::from(bytes[at + 1]) + 1) * 8;
    }
    seen
}

/// Writes an IPv4 header's checksum.
pub fn seal(header: &mut [u8]) {
    let header_len = usize::from(header[0] & 15) * 4;
    header[10..12].fill(0);
    let checksum = !sum(&header[..header_len]);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The one's complement sum of some 16-bit words.
pub fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    words.fold(0u32, |sum, word| if sum + word > 0xFFFF { sum + word - 0xFFFF } else { sum + word }) as u16
}

/// An option with the copied bit: loose source route, one address.
pub fn copied_option() -> Extra {
    Extra { number: 0, bytes: vec![0x83, 7, 4, 192, 0, 2, 9] }
}

/// An option without the copied bit: record route, three addresses.
pub fn uncopied_option() -> Extra {
    Extra { number: 0, bytes: vec![0x07, 15, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] }
}

/// An extension header of `len` bytes, filled with padding options.
pub fn extension(number: u8, len: usize) -> Extra {
    let mut bytes = vec![0; len];
    if number == ROUTING {
        // Type 253 (RFC 4727) with no segments left.
        bytes[2] = 253;
    } else {
        bytes[2..4].copy_from_slice(&[1, (len - 4) as u8]);
    }
    Extra { number, bytes }
}

/// Header numbers (IANA).
pub const HOP_BY_HOP: u8 = 0;
/// See [`HOP_BY_HOP`].
pub const ROUTING: u8 = 43;
/// See [`HOP_BY_HOP`].
pub const FRAGMENT: u8 = 44;
/// See [`HOP_BY_HOP`].
pub const DESTINATION_OPTIONS: u8 = 60;
/// See [`HOP_BY_HOP`].
pub const UDP: u8 = 17;
/// For experiments (RFC 3692): nobody looks into it.
pub const EXPERIMENT: u8 = 253;
/// Header lengths, in bytes.
pub const IPV4_LEN: usize = 20;
/// See [`IPV4_LEN`].
pub const IPV6_LEN: usize = 40;
/// See [`IPV4_LEN`].
pub const FRAGMENT_LEN: usize = 8;
