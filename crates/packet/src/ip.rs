//! The facts of an IP header, in the same form for versions 4 and 6.
//!
//! Code that fragments, reassembles or merges packets uses only [`Ip`]. The two header files implement everything
//! on which the versions differ; `version.rs` calls the right one.

use crate::checksum::Sum;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The facts of an IP header, in bytes and without units of eight or four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// IP version of the header.
    pub version: Version,
    /// Length of the header that every fragment repeats, in bytes, without a Fragment header. IPv4: header with
    /// options. IPv6: up to the last header that routers on the path read.
    pub header_len: u16,
    /// Offset of the payload that fragmentation divides, in bytes from the IP header: behind any Fragment header.
    pub payload_at: u16,
    /// Offset of the byte that names the payload's protocol.
    pub protocol_at: u16,
    /// The payload's protocol or next header.
    pub protocol: u8,
    /// ECN codepoint (RFC 3168 section 5).
    pub ecn: Ecn,
    /// Length of the packet, header included, in bytes.
    pub len: u32,
    /// Whether routers must not fragment this packet: IPv4's DF bit, and always in IPv6 (RFC 8200 section 4.5).
    pub dont_fragment: bool,
    /// The sender's identification: 16 bits in IPv4; 32 bits in an IPv6 fragment, else 0.
    pub id: u32,
    /// Position in the datagram, if this is a fragment.
    pub fragment: Option<Fragment>,
    /// The transport header, where the packet holds all headers in front of it.
    pub upper: Option<Transport>,
    /// End of the headers that a first fragment must hold, in bytes from the IP header, with the shortest transport
    /// header (RFC 7112 section 5). It lies beyond the packet's end where the packet lacks some of them. IPv4 has
    /// no such rule.
    pub headers_end: u16,
    /// Whether a later fragment carries an option that only a first one may carry (RFC 6274 section 3.13.2.5).
    pub option_misplaced: bool,
    /// Whether the length field is 0, as in captures of offloading senders.
    pub length_missing: bool,
    /// Fingerprint of the fields that reassembly checks.
    pub shape: FragmentFingerprint,
}

/// The header fields that reassembly checks, in one word. Two later fragments of a datagram with equal fingerprints
/// differ, for reassembly, only in their offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFingerprint(u64);

/// The two Internet protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// RFC 791.
    V4,
    /// RFC 8200.
    V6,
}

/// The position of a fragment in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Identification of all fragments of the datagram.
    pub id: u32,
    /// Offset of the payload in the datagram, in bytes; a multiple of 8.
    pub offset: u16,
    /// Whether more fragments follow this one in the datagram (MF).
    pub more: bool,
}

/// The header behind the IP headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Its protocol number.
    pub protocol: u8,
    /// Its offset, in bytes from the IP header.
    pub at: u16,
}

/// Values that the fragments of a packet share beside the header's bytes; unused in IPv6.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Common {
    /// Flags, as they stand beside the fragment offset.
    pub(crate) flags: u16,
    /// The sum of the bytes that are equal in every fragment.
    pub(crate) rest: Sum,
}

/// The ECN codepoint of a packet (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The sender does not support ECN.
    NotEct,
    /// The sender supports ECN (second codepoint).
    Ect1,
    /// The sender supports ECN.
    Ect0,
    /// Congestion experienced: a router marked the packet.
    Ce,
}

/// An IPv4 or IPv6 address in one number; IPv4 as an IPv4-mapped address (RFC 4291 section 2.5.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(u128);

/// Source and destination as they stand in a header, in four words. IPv4 uses the first word only. The words do not
/// record the version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressPair([u64; 4]);

/// Reason for which a frame is unparsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The link header announces a protocol other than IP.
    NotIp,
    /// The frame ends before its headers, or before the length that they claim.
    Truncated,
    /// The version is neither 4 nor 6, or not the one that the link header announces.
    BadVersion,
    /// The IPv4 header length is below 20 bytes, or above the packet's.
    BadHeaderLen,
    /// The total length is below the header's.
    BadTotalLen,
    /// The IPv4 header checksum is wrong.
    BadHeaderSum,
    /// More than 8 extension headers, or more than 256 bytes of them (rel:C7).
    ChainTooLong,
    /// An extension header runs past the end of the packet.
    ChainCut,
    /// A Fragment header behind a Fragment header (rel:A17).
    NestedFragment,
    /// Hop-by-Hop options behind a Fragment header; only the IPv6 header may name them (RFC 8200 section 4.1).
    HopByHopMisplaced,
    /// Longer than 65,535 bytes.
    TooLong,
    /// A GSO packet inside a tunnel with more segments than a kernel makes.
    TooManySegments,
}

impl Ip {
    /// The value before a header is read.
    pub(crate) const NONE: Ip = Ip {
        version: Version::V4,
        header_len: 0,
        payload_at: 0,
        protocol_at: 0,
        protocol: 0,
        ecn: Ecn::NotEct,
        len: 0,
        dont_fragment: false,
        id: 0,
        fragment: None,
        upper: None,
        headers_end: 0,
        option_misplaced: false,
        length_missing: false,
        shape: FragmentFingerprint::CHANGED,
    };

    /// Bytes that fragmentation divides.
    #[inline(always)]
    pub fn payload_len(&self) -> usize {
        self.len as usize - usize::from(self.payload_at)
    }

    /// Size of the identification field, in bits.
    pub fn id_bits(&self) -> u32 {
        self.version.id_bits()
    }

    /// Whether this is a first fragment or a whole datagram.
    pub fn starts(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.offset == 0)
    }

    /// The same header without its Fragment header.
    pub(crate) fn without_fragment_header(mut self) -> Ip {
        let len = self.payload_at - self.header_len;
        if len == 0 {
            return self;
        }
        self.payload_at = self.header_len;
        self.len -= u32::from(len);
        self.headers_end = self.headers_end.saturating_sub(len);
        if let Some(upper) = &mut self.upper {
            upper.at -= len;
        }
        self
    }

    /// The protocol, if it is part of the fragment key. It is in IPv4 (RFC 791 section 3.2, R006). It is not in
    /// IPv6, where later fragments may name any protocol (RFC 8200 section 4.5, R093).
    pub fn key_protocol(&self) -> u8 {
        match self.version {
            Version::V4 => self.protocol,
            Version::V6 => 0,
        }
    }

    /// Whether a whole packet of this version has an identification. In IPv6 only fragments have one (RFC 8200
    /// section 4.5).
    pub fn is_numbered(&self) -> bool {
        self.version == Version::V4
    }

    /// Whether routers fragment packets of this version. In IPv6 packets keep their sender's length (RFC 8200
    /// section 4, R087).
    pub fn is_fragmented_on_path(&self) -> bool {
        self.version == Version::V4
    }

    /// Whether a router may merge this fragment into a longer one. Not with DF: a longer fragment could be
    /// undeliverable, and its sender would be told of a size that it already kept to (rel:C8).
    pub fn may_grow_on_path(&self) -> bool {
        self.is_fragmented_on_path() && !self.dont_fragment
    }
}

impl Version {
    /// Size of the identification field, in bits.
    #[inline]
    pub fn id_bits(self) -> u32 {
        match self {
            Version::V4 => 16,
            Version::V6 => 32,
        }
    }
}

impl FragmentFingerprint {
    /// The fingerprint of a header that was changed after it was read.
    pub const CHANGED: FragmentFingerprint = FragmentFingerprint(0);

    /// The fingerprint of the fields in `says`; never 0, and never equal for two versions.
    #[inline(always)]
    pub(crate) fn new(says: u64) -> FragmentFingerprint {
        FragmentFingerprint(says)
    }

    /// Whether two fingerprints are equal. Those of changed headers never are.
    #[inline(always)]
    pub fn is_same(self, other: FragmentFingerprint) -> bool {
        self == other && other != FragmentFingerprint::CHANGED
    }
}

impl Ecn {
    pub(crate) fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// The two bits as they stand in a header.
    pub fn bits(self) -> u8 {
        match self {
            Ecn::NotEct => 0,
            Ecn::Ect1 => 1,
            Ecn::Ect0 => 2,
            Ecn::Ce => 3,
        }
    }
}

impl Address {
    /// The address as a number, the same for every packet that carries it.
    pub fn number(self) -> u128 {
        self.0
    }

    /// The first address of the surrounding network, of the smallest size that the Internet routes: 24 bits in
    /// IPv4, 48 in IPv6.
    pub fn site(self) -> Address {
        let host_bits = if mapped(self) == 0 { 80 } else { 8 };
        Address(self.0 >> host_bits << host_bits)
    }

    /// Whether the address stands for exactly one host. ICMP errors to other addresses, or about packets for them,
    /// are forbidden (RFC 1122 section 3.2.2, RFC 4443 section 2.4(e); R020, R047).
    pub fn is_one_host(self) -> bool {
        match IpAddr::from(self) {
            IpAddr::V4(ip) => {
                let [network, ..] = ip.octets();
                network != 0 && network < FIRST_RESERVED_NETWORK && !ip.is_multicast() && !ip.is_loopback()
            }
            IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback(),
        }
    }
}

impl AddressPair {
    pub(crate) fn new(words: [u64; 4]) -> AddressPair {
        AddressPair(words)
    }

    /// The pair as four numbers, for tables.
    pub fn words(self) -> [u64; 4] {
        self.0
    }

    /// The destination of a packet of this version.
    pub fn destination(self, version: Version) -> Address {
        let [first, _, third, fourth] = self.0;
        match version {
            Version::V4 => Address(MAPPED_PREFIX | u128::from(first.to_be() & 0xFFFF_FFFF)),
            Version::V6 => Address(u128::from(third.to_be()) << 64 | u128::from(fourth.to_be())),
        }
    }

    /// The source of a packet of this version.
    pub fn source(self, version: Version) -> Address {
        let [first, second, ..] = self.0;
        match version {
            Version::V4 => Address(MAPPED_PREFIX | u128::from(first.to_be() >> 32)),
            Version::V6 => Address(u128::from(first.to_be()) << 64 | u128::from(second.to_be())),
        }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Address {
        match ip {
            IpAddr::V4(ip) => Address(MAPPED_PREFIX | u128::from(ip.to_bits())),
            IpAddr::V6(ip) => Address(ip.to_bits()),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> IpAddr {
        match address.0 ^ MAPPED_PREFIX {
            bits if bits <= u128::from(u32::MAX) => IpAddr::V4(Ipv4Addr::from_bits(bits as u32)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(address.0)),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)
    }
}

/// The sum of the pseudo-header that TCP, UDP and ICMPv6 checksums cover (RFC 9293 section 3.1, RFC 8200
/// section 8.1).
pub fn pseudo_sum((source, destination): (Address, Address), protocol: u8, upper_len: usize) -> Sum {
    let address = |address: Address| Sum::number(address.0 ^ mapped(address));
    let len = upper_len as u32;
    address(source)
        + address(destination)
        + Sum::word(u16::from(protocol))
        + Sum::word((len >> 16) as u16)
        + Sum::word(len as u16)
}

/// The IPv4-mapped prefix, if this address has it; else 0.
fn mapped(address: Address) -> u128 {
    if (address.0 ^ MAPPED_PREFIX) <= u128::from(u32::MAX) { MAPPED_PREFIX } else { 0 }
}

/// A frame up to Ethernet's minimum may be padding behind a short packet. A longer frame whose length field is 0
/// comes from an offloading sender. In bytes of IP.
pub(crate) const PADDED_LEN_MAX: usize = 60;
/// Maximum of a 16-bit length field, in bytes.
pub const LEN_MAX: usize = 65_535;
/// ::ffff:0:0/96 (RFC 4291 section 2.5.5.2).
const MAPPED_PREFIX: u128 = 0xFFFF_0000_0000;
/// Addresses from 240.0.0.0 on are reserved (RFC 1112 section 4).
const FIRST_RESERVED_NETWORK: u8 = 240;
/// Protocol numbers (IANA) that the engine inspects.
pub const ICMP: u8 = 1;
/// TCP (RFC 9293).
pub const TCP: u8 = 6;
/// UDP (RFC 768).
pub const UDP: u8 = 17;
/// ICMPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;
