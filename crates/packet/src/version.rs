//! A call on an IP header -> the implementation of its version, `ipv4.rs` or `ipv6.rs`.
//!
//! Code that fragments, reassembles or coalesces calls these methods, and so needs no code of its own for each
//! version.

use crate::checksum::Sum;
use crate::ip::{Address, AddressPair, Common, Fragment, Ip, LEN_MAX, ParseError, Version};
use crate::{ipv4, ipv6};

impl Ip {
    /// Parses the IP header at the start of `bytes`. `bytes` may include link padding behind the packet.
    ///
    /// # Errors
    /// The reason why the bytes cannot be parsed.
    pub fn parse(bytes: &[u8]) -> Result<Ip, ParseError> {
        let mut ip = Ip::NONE;
        ip.read(bytes)?;
        Ok(ip)
    }

    /// Replaces these facts by the facts of the IP header at the start of `bytes`. After an error, the old facts
    /// remain.
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

    /// Returns the source and destination address. `header` must be the header from which these facts were parsed.
    pub fn addresses(&self, header: &[u8]) -> (Address, Address) {
        match self.version {
            Version::V4 => ipv4::addresses(header),
            Version::V6 => ipv6::addresses(header),
        }
    }

    /// Returns the TTL or hop limit in `header`.
    pub(crate) fn ttl(&self, header: &[u8]) -> u8 {
        match self.version {
            Version::V4 => ipv4::ttl(header),
            Version::V6 => ipv6::ttl(header),
        }
    }

    /// Decrements the TTL or hop limit in `header`.
    pub(crate) fn decrement_ttl(&self, header: &mut [u8]) {
        match self.version {
            Version::V4 => ipv4::decrement_ttl(header),
            Version::V6 => ipv6::decrement_ttl(header),
        }
    }

    /// Clears DF, and sets the identification, in an IPv4 header and here. IPv6 headers have neither.
    pub(crate) fn clear_dont_fragment(&mut self, header: &mut [u8], id: u16) {
        if self.version == Version::V4 {
            ipv4::clear_dont_fragment(header, id);
            (self.dont_fragment, self.id) = (false, id.into());
        }
    }

    /// Returns the minimum MTU that this IP version requires of every link, in bytes. Packets are never fragmented
    /// for a smaller MTU.
    pub fn mtu_min(&self) -> usize {
        match self.version {
            Version::V4 => ipv4::MTU_MIN,
            Version::V6 => ipv6::MTU_MIN,
        }
    }

    /// Returns the length of a header without options or extension headers, in bytes. An MSS includes neither this
    /// header nor the TCP header.
    pub fn header_len_min(&self) -> usize {
        match self.version {
            Version::V4 => ipv4::HEADER_LEN,
            Version::V6 => ipv6::HEADER_LEN,
        }
    }

    /// Returns the maximum TCP payload that every host accepts, in bytes: the MSS of a host that announces none
    /// (RFC 9293 section 3.7.1, R112).
    pub fn mss_default(&self) -> u16 {
        match self.version {
            Version::V4 => ipv4::MSS_DEFAULT,
            Version::V6 => ipv6::MSS_DEFAULT,
        }
    }

    /// Returns the maximum payload behind this header, in bytes. The 16-bit length field includes the complete
    /// header in IPv4, but only the extension headers in IPv6.
    pub fn payload_len_max(&self) -> usize {
        match self.version {
            Version::V4 => LEN_MAX - usize::from(self.header_len),
            Version::V6 => LEN_MAX + ipv6::HEADER_LEN - usize::from(self.header_len),
        }
    }

    /// Returns the address pair of a header.
    #[inline(always)]
    pub fn ends(&self, header: &[u8]) -> AddressPair {
        match self.version {
            Version::V4 => ipv4::ends(header),
            Version::V6 => ipv6::ends(header),
        }
    }

    /// Whether a header has this address pair.
    #[inline(always)]
    pub fn has_ends(&self, header: &[u8], ends: &AddressPair) -> bool {
        match self.version {
            Version::V4 => ipv4::has_ends(header, ends),
            Version::V6 => ipv6::ends(header) == *ends,
        }
    }

    /// Whether the header has options that only a first fragment has.
    #[inline]
    pub(crate) fn keeps_options_to_the_first(&self, header: &[u8]) -> bool {
        self.version == Version::V4 && ipv4::has_options(self) && ipv4::has_option_of_the_first(header)
    }

    /// Returns the length of the header that only fragments have, in bytes: the IPv6 Fragment header.
    #[inline]
    pub(crate) fn fragment_header_len(&self) -> usize {
        match self.version {
            Version::V4 => 0,
            Version::V6 => ipv6::FRAGMENT_HEADER_LEN,
        }
    }

    /// Returns the header lengths of the first and of later fragments, in bytes.
    #[inline]
    pub(crate) fn fragment_header_lens(&self, header: &[u8]) -> [usize; 2] {
        match self.version {
            Version::V4 => ipv4::fragment_header_lens(header, self.starts()),
            Version::V6 => [header.len() + self.fragment_header_len(); 2],
        }
    }

    /// Returns the standard reassembly time-out of this IP version.
    pub fn reassembly_timeout(&self) -> core::time::Duration {
        match self.version {
            Version::V4 => ipv4::REASSEMBLY_TIMEOUT,
            Version::V6 => ipv6::REASSEMBLY_TIMEOUT,
        }
    }

    /// Returns the values that all fragments with this header share. `dont_fragment`: the fragments get DF.
    #[inline]
    pub(crate) fn common(&self, header: &[u8], dont_fragment: bool) -> Common {
        match self.version {
            Version::V4 => ipv4::common(header, dont_fragment),
            Version::V6 => Common::default(),
        }
    }

    /// Writes the header of later fragments to the start of `out`. IPv4 only: all fragments of an IPv6 packet have
    /// the same headers.
    pub(crate) fn later_header(&self, header: &[u8], out: &mut [u8]) {
        match self.version {
            Version::V4 => drop(ipv4::later_header(header, out)),
            Version::V6 => panic!("every IPv6 piece repeats the same headers"),
        }
    }

    /// Converts a copy of the packet's header to the header of a fragment. In IPv6, `header` must include room for
    /// a Fragment header at its end.
    #[inline]
    pub(crate) fn stamp(&self, header: &mut [u8], common: Common, payload_len: usize, fragment: Fragment) {
        match self.version {
            Version::V4 => ipv4::stamp(header, common, payload_len, fragment),
            Version::V6 => ipv6::stamp(self, header, payload_len, fragment),
        }
    }

    /// Returns the sum of a header without the fields that differ between segments. 0 if the header has no
    /// checksum.
    #[inline]
    pub(crate) fn sum_of_rest(version: Version, header: &[u8]) -> Sum {
        match version {
            Version::V4 => ipv4::sum_of_rest(header),
            Version::V6 => Sum::ZERO,
        }
    }

    /// Writes the fields that differ between the segments of a GSO packet. The segment has `upper_len` bytes behind
    /// the IP headers. `rest` is the [`sum_of_rest`](Ip::sum_of_rest).
    #[inline]
    pub(crate) fn stamp_segment(version: Version, header: &mut [u8], rest: Sum, upper_len: usize, id: u32) {
        match version {
            Version::V4 => ipv4::stamp_segment(header, rest, upper_len, id),
            Version::V6 => ipv6::stamp_segment(header, upper_len),
        }
    }

    /// Whether two headers up to the transport header are equal, except lengths, identification and checksum.
    pub(crate) fn shares_header(&self, one: &[u8], other: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::shares_header(one, other),
            Version::V6 => ipv6::shares_header(one, other),
        }
    }

    /// Whether the header of a fragment can also represent the next fragment of its datagram. Always false in IPv6,
    /// whose fragments keep the length that their source host chose.
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

    /// Whether an Authentication header before the transport header covers the complete packet (RFC 4302 section
    /// 3.3.3). Always false in IPv4, where the Authentication header itself is the parsed transport.
    pub(crate) fn is_authenticated(&self, packet: &[u8]) -> bool {
        match (self.version, self.upper) {
            (Version::V6, Some(upper)) => ipv6::is_authenticated(packet, upper),
            _ => false,
        }
    }

    /// Whether the header's checksum has the form that sealing would write. True without a checksum.
    pub(crate) fn checksum_is_canonical(&self, header: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::checksum_is_canonical(header),
            Version::V6 => true,
        }
    }

    /// Writes these facts into the header: length, flags, ECN and, in IPv4, the checksum. The packet must be an
    /// unfragmented datagram, or an IPv4 fragment.
    #[inline]
    pub(crate) fn seal(&self, header: &mut [u8], fragment: Option<Fragment>) {
        match self.version {
            Version::V4 => ipv4::seal(self, header, fragment),
            Version::V6 => ipv6::seal(self, header),
        }
    }
}
