//! A call on an IP header -> the implementation of its version, `ipv4.rs` or `ipv6.rs`.

use crate::checksum::Sum;
use crate::ip::{Address, AddressPair, Common, Fragment, Ip, LEN_MAX, ParseError, Version};
use crate::{ipv4, ipv6};

impl Ip {
    /// Reads the IP header at the start of `bytes`, which may extend past the packet (link padding).
    ///
    /// # Errors
    /// The reason for which these bytes are unparsed.
    pub fn parse(bytes: &[u8]) -> Result<Ip, ParseError> {
        let mut ip = Ip::NONE;
        ip.read(bytes)?;
        Ok(ip)
    }

    /// Replaces itself by the facts of the IP header at the start of `bytes`; unchanged on an error.
    ///
    /// # Errors
    /// See [`parse`](Ip::parse).
    #[inline(always)]
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<(), ParseError> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => ipv4::read(self, bytes),
            Some(6) => ipv6::read(self, bytes),
            Some(_) => Err(ParseError::BadVersion),
            None => Err(ParseError::Truncated),
        }
    }

    /// Source and destination, from the header that this was read from.
    pub fn addresses(&self, header: &[u8]) -> (Address, Address) {
        match self.version {
            Version::V4 => ipv4::addresses(header),
            Version::V6 => ipv6::addresses(header),
        }
    }

    /// Time to live or hop limit.
    pub(crate) fn ttl(&self, header: &[u8]) -> u8 {
        match self.version {
            Version::V4 => ipv4::ttl(header),
            Version::V6 => ipv6::ttl(header),
        }
    }

    /// Decrements it.
    pub(crate) fn decrement_ttl(&self, header: &mut [u8]) {
        match self.version {
            Version::V4 => ipv4::decrement_ttl(header),
            Version::V6 => ipv6::decrement_ttl(header),
        }
    }

    /// The minimum MTU of every link: packets are never fragmented for a smaller one.
    pub fn mtu_min(&self) -> usize {
        match self.version {
            Version::V4 => ipv4::MTU_MIN,
            Version::V6 => ipv6::MTU_MIN,
        }
    }

    /// Length of a header without options or extension headers, in bytes. An MSS counts neither this nor TCP's
    /// header.
    pub fn header_len_min(&self) -> usize {
        match self.version {
            Version::V4 => ipv4::HEADER_LEN,
            Version::V6 => ipv6::HEADER_LEN,
        }
    }

    /// Longest TCP payload that every host accepts, in bytes: the MSS of a host that announces none (RFC 9293
    /// section 3.7.1, R112).
    pub fn mss_default(&self) -> u16 {
        match self.version {
            Version::V4 => ipv4::MSS_DEFAULT,
            Version::V6 => ipv6::MSS_DEFAULT,
        }
    }

    /// The longest payload behind this header. The 16-bit length field includes the header in IPv4 and the
    /// extension headers in IPv6.
    pub fn payload_len_max(&self) -> usize {
        match self.version {
            Version::V4 => LEN_MAX - usize::from(self.header_len),
            Version::V6 => LEN_MAX + ipv6::HEADER_LEN - usize::from(self.header_len),
        }
    }

    /// The address pair of a packet with this header, as its bytes state it.
    #[inline(always)]
    pub fn ends(&self, header: &[u8]) -> AddressPair {
        match self.version {
            Version::V4 => ipv4::ends(header),
            Version::V6 => ipv6::ends(header),
        }
    }

    /// Whether a packet with this header has this address pair.
    #[inline(always)]
    pub fn has_ends(&self, header: &[u8], ends: &AddressPair) -> bool {
        match self.version {
            Version::V4 => ipv4::has_ends(header, ends),
            Version::V6 => ipv6::ends(header) == *ends,
        }
    }

    /// Whether it carries options that only a first fragment carries.
    #[inline]
    pub(crate) fn keeps_options_to_the_first(&self, header: &[u8]) -> bool {
        self.version == Version::V4 && ipv4::has_options(self) && ipv4::has_option_of_the_first(header)
    }

    /// Length of the header that fragments have and whole packets lack, in bytes.
    #[inline]
    pub(crate) fn fragment_header_len(&self) -> usize {
        match self.version {
            Version::V4 => 0,
            Version::V6 => ipv6::FRAGMENT_HEADER_LEN,
        }
    }

    /// Header lengths of fragments: of the first, and of the others.
    #[inline]
    pub(crate) fn fragment_header_lens(&self, header: &[u8]) -> [usize; 2] {
        match self.version {
            Version::V4 => ipv4::fragment_header_lens(header, self.starts()),
            Version::V6 => [header.len() + self.fragment_header_len(); 2],
        }
    }

    /// Reassembly time-out.
    pub fn patience(&self) -> core::time::Duration {
        match self.version {
            Version::V4 => ipv4::PATIENCE,
            Version::V6 => ipv6::PATIENCE,
        }
    }

    /// Values shared by all fragments with this header. `dont_fragment`: no router may fragment them.
    #[inline]
    pub(crate) fn common(&self, header: &[u8], dont_fragment: bool) -> Common {
        match self.version {
            Version::V4 => ipv4::common(header, dont_fragment),
            Version::V6 => Common::default(),
        }
    }

    /// Writes the header of later fragments to the front of `out`, where it differs from that of the first.
    pub(crate) fn later_header(&self, header: &[u8], out: &mut [u8]) {
        match self.version {
            Version::V4 => drop(ipv4::later_header(header, out)),
            Version::V6 => panic!("every IPv6 piece repeats the same headers"),
        }
    }

    /// Turns a copy of the packet's header into that of a fragment. In IPv6, the copy has room for a Fragment
    /// header behind it.
    #[inline]
    pub(crate) fn stamp(&self, header: &mut [u8], common: Common, payload_len: usize, fragment: Fragment) {
        match self.version {
            Version::V4 => ipv4::stamp(header, common, payload_len, fragment),
            Version::V6 => ipv6::stamp(self, header, payload_len, fragment),
        }
    }

    /// The sum of a header without the fields that differ between segments, where it has a checksum.
    #[inline]
    pub(crate) fn sum_of_rest(version: Version, header: &[u8]) -> Sum {
        match version {
            Version::V4 => ipv4::sum_of_rest(header),
            Version::V6 => Sum::ZERO,
        }
    }

    /// Writes the fields that differ between the segments of a GSO packet, for one with `upper_len` bytes behind
    /// the IP headers. `rest` is the [`sum_of_rest`](Ip::sum_of_rest).
    #[inline]
    pub(crate) fn stamp_segment(version: Version, header: &mut [u8], rest: Sum, upper_len: usize, id: u32) {
        match version {
            Version::V4 => ipv4::stamp_segment(header, rest, upper_len, id),
            Version::V6 => ipv6::stamp_segment(header, upper_len),
        }
    }

    /// Whether two headers of this version, up to the transport header, are equal, except lengths, identification
    /// and checksum.
    pub(crate) fn shares_header(&self, one: &[u8], other: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::shares_header(one, other),
            Version::V6 => ipv6::shares_header(one, other),
        }
    }

    /// Whether the header of a fragment can also stand for the next fragment of its datagram.
    pub(crate) fn shares_fragment_header(&self, one: &[u8], next: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::shares_fragment_header(one, next),
            Version::V6 => false,
        }
    }

    /// Whether the segments of a GSO packet may repeat this packet's IP headers.
    pub(crate) fn headers_may_be_shared(&self, packet: &[u8]) -> bool {
        let has_options = self.version == Version::V4 && ipv4::has_options(self);
        !has_options && !self.is_authenticated(packet)
    }

    /// Whether an Authentication header covers all of this packet (RFC 4302 section 3.3.3). In IPv4 it hides the
    /// bytes behind it.
    pub(crate) fn is_authenticated(&self, packet: &[u8]) -> bool {
        match (self.version, self.upper) {
            (Version::V6, Some(upper)) => ipv6::is_authenticated(packet, upper),
            _ => false,
        }
    }

    /// Whether the header's checksum, if it has one, is the one that sealing would write.
    pub(crate) fn checksum_is_canonical(&self, header: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::checksum_is_canonical(header),
            Version::V6 => true,
        }
    }

    /// Writes lengths, flags, ECN and the header's checksum for one packet of `len` bytes: a whole datagram, or in
    /// IPv4 this fragment of one.
    #[inline]
    pub(crate) fn seal(&self, header: &mut [u8], fragment: Option<Fragment>) {
        match self.version {
            Version::V4 => ipv4::seal(self, header, fragment),
            Version::V6 => ipv6::seal(self, header),
        }
    }
}
