//! A question about an IP header in, the answer of its version's file out.

use crate::checksum::Sum;
use crate::ip::{Address, AddressPair, Common, Fragment, Ip, LEN_MAX, ParseError, Version};
use crate::{ipv4, ipv6};

impl Ip {
    /// Reads the IP header at the start of `bytes`, which may go on past the packet (link padding).
    ///
    /// # Errors
    /// Why these bytes are not an IP packet that can be worked on.
    pub fn parse(bytes: &[u8]) -> Result<Ip, ParseError> {
        let mut ip = Ip::NONE;
        ip.read(bytes)?;
        Ok(ip)
    }

    /// Becomes what the IP header at the start of `bytes` says, in place; or stays what it is.
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

    /// Hops that the packet with this header may still take.
    pub(crate) fn ttl(&self, header: &[u8]) -> u8 {
        match self.version {
            Version::V4 => ipv4::ttl(header),
            Version::V6 => ipv6::ttl(header),
        }
    }

    /// Takes one hop.
    pub(crate) fn decrement_ttl(&self, header: &mut [u8]) {
        match self.version {
            Version::V4 => ipv4::decrement_ttl(header),
            Version::V6 => ipv6::decrement_ttl(header),
        }
    }

    /// The smallest MTU that every link has: packets are never cut for a smaller one.
    pub fn mtu_min(&self) -> usize {
        match self.version {
            Version::V4 => ipv4::MTU_MIN,
            Version::V6 => ipv6::MTU_MIN,
        }
    }

    /// Length of a header without options or extension headers, in bytes: what an MSS does not count, beside TCP's.
    pub fn header_len_min(&self) -> usize {
        match self.version {
            Version::V4 => ipv4::HEADER_LEN,
            Version::V6 => ipv6::HEADER_LEN,
        }
    }

    /// Longest TCP payload that every host takes, in bytes: the MSS of one that announces none (RFC 9293 section
    /// 3.7.1, R112).
    pub fn mss_default(&self) -> u16 {
        match self.version {
            Version::V4 => ipv4::MSS_DEFAULT,
            Version::V6 => ipv6::MSS_DEFAULT,
        }
    }

    /// The longest payload that may stand behind this header: the length field has 16 bits, and counts the header
    /// in IPv4 and the extension headers in IPv6.
    pub fn payload_len_max(&self) -> usize {
        match self.version {
            Version::V4 => LEN_MAX - usize::from(self.header_len),
            Version::V6 => LEN_MAX + ipv6::HEADER_LEN - usize::from(self.header_len),
        }
    }

    /// Which two hosts a packet with this header is between, as its bytes say it.
    #[inline(always)]
    pub fn ends(&self, header: &[u8]) -> AddressPair {
        match self.version {
            Version::V4 => ipv4::ends(header),
            Version::V6 => ipv6::ends(header),
        }
    }

    /// Is a packet with this header between these two?
    #[inline(always)]
    pub fn has_ends(&self, header: &[u8], ends: &AddressPair) -> bool {
        match self.version {
            Version::V4 => ipv4::has_ends(header, ends),
            Version::V6 => ipv6::ends(header) == *ends,
        }
    }

    /// Does it carry options that only a first piece carries?
    #[inline]
    pub(crate) fn keeps_options_to_the_first(&self, header: &[u8]) -> bool {
        self.version == Version::V4 && ipv4::has_options(self) && ipv4::has_option_of_the_first(header)
    }

    /// Length of the header that pieces have and whole packets have not, in bytes.
    #[inline]
    pub(crate) fn fragment_header_len(&self) -> usize {
        match self.version {
            Version::V4 => 0,
            Version::V6 => ipv6::FRAGMENT_HEADER_LEN,
        }
    }

    /// Lengths of the headers of pieces: of the one that starts the datagram, and of the others.
    #[inline]
    pub(crate) fn fragment_header_lens(&self, header: &[u8]) -> [usize; 2] {
        match self.version {
            Version::V4 => ipv4::fragment_header_lens(header, self.starts()),
            Version::V6 => [header.len() + self.fragment_header_len(); 2],
        }
    }

    /// How long a host waits for the pieces of a datagram.
    pub fn patience(&self) -> core::time::Duration {
        match self.version {
            Version::V4 => ipv4::PATIENCE,
            Version::V6 => ipv6::PATIENCE,
        }
    }

    /// What pieces with this header have in common. `dont_fragment`: no router may cut them.
    #[inline]
    pub(crate) fn common(&self, header: &[u8], dont_fragment: bool) -> Common {
        match self.version {
            Version::V4 => ipv4::common(header, dont_fragment),
            Version::V6 => Common::default(),
        }
    }

    /// Writes the header of the pieces that do not start their datagram to the front of `out`, where it is another
    /// than that of the piece that does.
    pub(crate) fn later_header(&self, header: &[u8], out: &mut [u8]) {
        match self.version {
            Version::V4 => drop(ipv4::later_header(header, out)),
            Version::V6 => panic!("every IPv6 piece repeats the same headers"),
        }
    }

    /// Writes what makes a copy of the packet's header that of a piece. In IPv6, a Fragment header's room is behind
    /// the copy.
    #[inline]
    pub(crate) fn stamp(&self, header: &mut [u8], common: Common, payload_len: usize, fragment: Fragment) {
        match self.version {
            Version::V4 => ipv4::stamp(header, common, payload_len, fragment),
            Version::V6 => ipv6::stamp(self, header, payload_len, fragment),
        }
    }

    /// The sum of a header without what segments differ in, where it has a checksum.
    #[inline]
    pub(crate) fn sum_of_rest(version: Version, header: &[u8]) -> Sum {
        match version {
            Version::V4 => ipv4::sum_of_rest(header),
            Version::V6 => Sum::ZERO,
        }
    }

    /// Writes what differs between the segments of a train, for one with `upper_len` bytes behind the IP headers.
    /// `rest` is the [`sum_of_rest`](Ip::sum_of_rest).
    #[inline]
    pub(crate) fn stamp_segment(version: Version, header: &mut [u8], rest: Sum, upper_len: usize, id: u32) {
        match version {
            Version::V4 => ipv4::stamp_segment(header, rest, upper_len, id),
            Version::V6 => ipv6::stamp_segment(header, upper_len),
        }
    }

    /// Are two headers of this version, up to the transport header, equal but for lengths, identification and
    /// checksum?
    pub(crate) fn shares_header(&self, one: &[u8], other: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::shares_header(one, other),
            Version::V6 => ipv6::shares_header(one, other),
        }
    }

    /// Can the header of a fragment stand for the fragment that follows it in its datagram, too?
    pub(crate) fn shares_fragment_header(&self, one: &[u8], next: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::shares_fragment_header(one, next),
            Version::V6 => false,
        }
    }

    /// May the packets of a train repeat this packet's IP headers, once they have come as one?
    pub(crate) fn headers_may_be_shared(&self, packet: &[u8]) -> bool {
        let has_options = self.version == Version::V4 && ipv4::has_options(self);
        !has_options && !self.is_authenticated(packet)
    }

    /// Does an Authentication header cover all of this packet (RFC 4302 section 3.3.3)? In IPv4 it hides what is
    /// behind.
    pub(crate) fn is_authenticated(&self, packet: &[u8]) -> bool {
        match (self.version, self.upper) {
            (Version::V6, Some(upper)) => ipv6::is_authenticated(packet, upper),
            _ => false,
        }
    }

    /// Is the header's checksum, where it has one, what sealing would write?
    pub(crate) fn checksum_is_canonical(&self, header: &[u8]) -> bool {
        match self.version {
            Version::V4 => ipv4::checksum_is_canonical(header),
            Version::V6 => true,
        }
    }

    /// Writes lengths, marks and the header's checksum for one packet of `len` bytes: a whole datagram, or in IPv4
    /// this fragment of one.
    #[inline]
    pub(crate) fn seal(&self, header: &mut [u8], fragment: Option<Fragment>) {
        match self.version {
            Version::V4 => ipv4::seal(self, header, fragment),
            Version::V6 => ipv6::seal(self, header),
        }
    }
}
