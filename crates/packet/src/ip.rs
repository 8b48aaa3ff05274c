//! The facts of an IP header, in the same form for versions 4 and 6.
//!
//! Code that fragments, reassembles or merges packets uses only [`Ip`]. The files `ipv4.rs` and `ipv6.rs` implement
//! everything that differs between the versions. `version.rs` calls the file for the version of a packet.

use crate::checksum::Sum;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The facts of an IP header. Lengths and offsets are in bytes, not in the header's units of four or eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// IP version of the header.
    pub version: Version,
    /// Length of the IP headers that fragments repeat, in bytes, without a Fragment header. In IPv4, the length
    /// includes options. In IPv6, it includes the extension headers up to the last one that routers in transit
    /// read.
    pub header_len: u16,
    /// Offset of the payload that fragmentation divides, in bytes from the IP header. The payload is behind any
    /// Fragment header.
    pub payload_at: u16,
    /// Offset of the byte that names the payload's protocol, in bytes from the IP header.
    pub protocol_at: u16,
    /// Protocol number, or next header, of the payload.
    pub protocol: u8,
    /// ECN codepoint (RFC 3168 section 5).
    pub ecn: Ecn,
    /// Length of the packet, in bytes, including the IP header.
    pub len: u32,
    /// Whether routers must not fragment this packet: the DF bit in IPv4, always true in IPv6 (RFC 8200 section
    /// 4.5).
    pub dont_fragment: bool,
    /// The identification: 16 bits in IPv4, 32 bits in an IPv6 fragment, 0 in any other IPv6 packet.
    pub id: u32,
    /// Position in the datagram. `None` if the packet is no fragment.
    pub fragment: Option<Fragment>,
    /// The transport header. `None` if the packet lacks any header before it.
    pub upper: Option<Transport>,
    /// End of the headers that a first fragment must contain, in bytes from the IP header (RFC 7112 section 5). The
    /// transport header counts with its minimum length. The value exceeds the packet length if some of these
    /// headers are missing. IPv4 has no such rule, so there the value is the end of the IP header.
    pub headers_end: u16,
    /// Whether a later fragment has an option that only a first fragment may have (RFC 6274 section 3.13.2.5).
    pub option_misplaced: bool,
    /// Whether the length field is 0, as in captures on hosts with segmentation offload.
    pub length_missing: bool,
    /// Fingerprint of the header fields that reassembly checks.
    pub shape: FragmentFingerprint,
}

/// The header fields that reassembly checks, in one word. If two later fragments of a datagram have equal
/// fingerprints, reassembly needs to compare only the offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentFingerprint(u64);

/// The IP version of a packet.
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
    /// IP ID, equal in all fragments of the datagram.
    pub id: u32,
    /// Offset of the payload in the datagram, in bytes: a multiple of 8.
    pub offset: u16,
    /// Whether other fragments of the datagram follow this one (MF).
    pub more: bool,
}

/// The protocol and the position of the header behind the IP headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Protocol number of the transport.
    pub protocol: u8,
    /// Offset of the transport header, in bytes from the IP header.
    pub at: u16,
}

/// Values that all fragments of a packet share, used to write their headers. Unused in IPv6.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Common {
    /// Flags, at their position beside the fragment offset.
    pub(crate) flags: u16,
    /// One's complement sum of the header fields that are equal in every fragment.
    pub(crate) rest: Sum,
}

/// The ECN codepoint of a packet (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The source host does not support ECN.
    NotEct,
    /// The source host supports ECN: codepoint ECT(1).
    Ect1,
    /// The source host supports ECN: codepoint ECT(0).
    Ect0,
    /// Congestion experienced: a router marked the packet.
    Ce,
}

/// An IPv4 or IPv6 address as one number. An IPv4 address is stored as an IPv4-mapped address (RFC 4291 section
/// 2.5.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(u128);

/// Source and destination address in the byte order of a header, as four words. An IPv4 pair uses only the first
/// word. The IP version is not recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddressPair([u64; 4]);

/// The reason why a frame cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParseError {
    /// The link header announces a protocol other than IP.
    NotIp,
    /// The frame ends before its headers, or before the length in its headers.
    Truncated,
    /// The version is neither 4 nor 6, or differs from the version in the link header.
    BadVersion,
    /// The IPv4 header length is below 20 bytes.
    BadHeaderLen,
    /// The IPv4 total length is below the header length.
    BadTotalLen,
    /// The IPv4 header checksum is wrong.
    BadHeaderSum,
    /// More than 8 extension headers, or more than 256 bytes of them (rel:C7).
    ChainTooLong,
    /// An extension header runs past the end of the packet.
    ChainCut,
    /// A Fragment header behind a Fragment header (rel:A17).
    NestedFragment,
    /// Hop-by-Hop options are behind a Fragment header. Only the IPv6 header may name them (RFC 8200 section 4.1).
    HopByHopMisplaced,
    /// The packet is longer than 65,535 bytes, or is an IPv6 packet with the payload length 0 of a jumbogram (RFC
    /// 2675).
    TooLong,
    /// A GSO packet inside a tunnel has more segments than any kernel creates.
    TooManySegments,
}

impl Ip {
    /// The value before a header is parsed.
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

    /// Returns the length of the payload that fragmentation divides, in bytes.
    #[inline(always)]
    pub fn payload_len(&self) -> usize {
        self.len as usize - usize::from(self.payload_at)
    }

    /// Returns the size of the identification field of this packet, in bits.
    pub fn id_bits(&self) -> u32 {
        self.version.id_bits()
    }

    /// Whether the packet is a first fragment, or unfragmented.
    pub fn starts(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.offset == 0)
    }

    /// Returns these facts without the Fragment header.
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

    /// Returns the protocol, or 0 if it is not part of the fragment key. The protocol is part of the key in IPv4
    /// (RFC 791 section 3.2, R006). In IPv6 it is not, because later fragments may name any protocol (RFC 8200
    /// section 4.5, R093).
    pub fn key_protocol(&self) -> u8 {
        match self.version {
            Version::V4 => self.protocol,
            Version::V6 => 0,
        }
    }

    /// Whether an unfragmented packet of this version has an identification. In IPv6, only fragments have one (RFC
    /// 8200 section 4.5).
    pub fn is_numbered(&self) -> bool {
        self.version == Version::V4
    }

    /// Whether routers fragment packets of this version. IPv6 packets keep the length that their source host chose
    /// (RFC 8200 section 4, R087).
    pub fn is_fragmented_on_path(&self) -> bool {
        self.version == Version::V4
    }

    /// Whether a router may merge this fragment into a longer one. False with DF: a longer fragment might not fit a
    /// later link. The source host would then get an ICMP error about a size that it already respects (rel:C8).
    pub fn may_grow_on_path(&self) -> bool {
        self.is_fragmented_on_path() && !self.dont_fragment
    }
}

impl Version {
    /// Returns the size of the identification field of this version, in bits.
    #[inline]
    pub fn id_bits(self) -> u32 {
        match self {
            Version::V4 => 16,
            Version::V6 => 32,
        }
    }
}

impl FragmentFingerprint {
    /// The fingerprint of a header that was changed after parsing.
    pub const CHANGED: FragmentFingerprint = FragmentFingerprint(0);

    /// Returns the fingerprint of the fields packed in `says`. `says` must not be 0, and must differ between the IP
    /// versions.
    #[inline(always)]
    pub(crate) fn new(says: u64) -> FragmentFingerprint {
        FragmentFingerprint(says)
    }

    /// Whether two fingerprints are equal. False for headers that were changed after parsing.
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

    /// Returns the two header bits of the codepoint.
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
    /// Returns the address as one number, for tables and prefixes. For an IPv4 address, it is the IPv4-mapped form.
    pub fn number(self) -> u128 {
        self.0
    }

    /// Returns the first address of the network that contains this address. The network has the longest prefix that
    /// the Internet routes: /24 in IPv4, /48 in IPv6.
    pub fn routed_prefix(self) -> Address {
        let host_bits = if mapped(self) == 0 { 80 } else { 8 };
        Address(self.0 >> host_bits << host_bits)
    }

    /// Whether the address belongs to exactly one host. ICMP errors to other addresses, or about packets for other
    /// addresses, are forbidden (RFC 1122 section 3.2.2, RFC 4443 section 2.4(e); R020, R047).
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

    /// Returns the pair as four numbers, for tables.
    pub fn words(self) -> [u64; 4] {
        self.0
    }

    /// Returns the destination address. The pair must be from a packet of this IP version.
    pub fn destination(self, version: Version) -> Address {
        let [first, _, third, fourth] = self.0;
        match version {
            Version::V4 => Address(MAPPED_PREFIX | u128::from(first.to_be() & 0xFFFF_FFFF)),
            Version::V6 => Address(u128::from(third.to_be()) << 64 | u128::from(fourth.to_be())),
        }
    }

    /// Returns the source address. The pair must be from a packet of this IP version.
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

/// Returns the sum of the pseudo-header in TCP, UDP and ICMPv6 checksums (RFC 9293 section 3.1, RFC 8200 section
/// 8.1).
pub fn pseudo_sum((source, destination): (Address, Address), protocol: u8, upper_len: usize) -> Sum {
    let address = |address: Address| Sum::number(address.0 ^ mapped(address));
    let len = upper_len as u32;
    address(source)
        + address(destination)
        + Sum::word(u16::from(protocol))
        + Sum::word((len >> 16) as u16)
        + Sum::word(len as u16)
}

/// Returns the IPv4-mapped prefix if this address has it, otherwise 0.
fn mapped(address: Address) -> u128 {
    if (address.0 ^ MAPPED_PREFIX) <= u128::from(u32::MAX) { MAPPED_PREFIX } else { 0 }
}

/// Maximum length of a packet that may be followed by Ethernet padding, in bytes. A longer packet whose length
/// field is 0 comes from a host with segmentation offload.
pub(crate) const PADDED_LEN_MAX: usize = 60;
/// Maximum value of a 16-bit length field, in bytes.
pub const LEN_MAX: usize = 65_535;
/// The IPv4-mapped prefix ::ffff:0:0/96 (RFC 4291 section 2.5.5.2).
const MAPPED_PREFIX: u128 = 0xFFFF_0000_0000;
/// Addresses from 240.0.0.0 on are reserved (RFC 1112 section 4).
const FIRST_RESERVED_NETWORK: u8 = 240;
/// Protocol number of ICMP (RFC 792).
pub const ICMP: u8 = 1;
/// Protocol number of TCP (RFC 9293).
pub const TCP: u8 = 6;
/// Protocol number of UDP (RFC 768).
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6 (RFC 4443).
pub const ICMPV6: u8 = 58;
