//! The bytes of a frame -> the offset of its IP packet, its VLAN tags and its cooked interface.
//!
//! Captures and ports have several kinds of link headers, but the engine sees only IP packets and their
//! [`L2Scope`]. The IP header is left to [`Ip`](crate::Ip).

use crate::ip::{ParseError, Version};
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The kind of link header before an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet II, with or without IEEE 802.1Q and 802.1ad tags.
    Ethernet,
    /// No link header: the frame starts with the IP header.
    Ip,
    /// BSD loopback: an address family of four bytes, in either byte order.
    Loopback,
    /// Linux cooked capture, version 1 (16 bytes).
    Cooked,
    /// Linux cooked capture, version 2 (20 bytes).
    Cooked2,
}

/// The facts of a link header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Length of the link header, in bytes, at most [`LINK_LEN_MAX`].
    pub len: usize,
    /// Kind of the link header.
    pub link_type: LinkType,
    /// The IP version in the link header. `None` if the header does not name a version.
    pub version: Option<Version>,
    /// The VLAN tags of the packet.
    pub tags: Tags,
    /// The interface of the capturing host, if the header is a cooked one.
    pub channel: CookedInterface,
}

/// The interface in a Linux cooked header.
///
/// A capture of all interfaces has a single link type, so only this header tells interfaces apart. The number
/// combines the index of the interface with the direction, received or sent. A header of version 1 contains only
/// the direction. 0 for other link types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CookedInterface(u64);

/// The ingress of a packet: port, VLAN tags, and cooked interface. Packets of different scopes are never joined.
///
/// Two words, so that a comparison is cheap: tags and direction; interface and port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct L2Scope([u64; 2]);

/// The port that received a packet, as the number that a worker assigned to the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ingress(pub u32);

/// The MAC address of the station that sent a frame, as a number. 0 if the link type has no addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PrevHop(u64);

/// The VLAN identifiers of a frame's tags, the outermost first. Each tag uses 13 bits: one that marks its presence,
/// and twelve for the identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags(u64);

impl Link {
    /// Parses the link header of a frame.
    ///
    /// # Errors
    /// The reason why the link header cannot be parsed.
    #[inline]
    pub fn parse(link_type: LinkType, frame: &[u8]) -> Result<Link, ParseError> {
        let plain =
            Link { len: 0, link_type, version: None, tags: Tags::default(), channel: CookedInterface::default() };
        match link_type {
            LinkType::Ip => Ok(plain),
            LinkType::Loopback => loopback(frame, plain),
            LinkType::Ethernet => tagged(frame, 12, plain),
            LinkType::Cooked => tagged(frame, 14, Link { channel: CookedInterface::cooked(frame)?, ..plain }),
            LinkType::Cooked2 => cooked2(frame, plain),
        }
    }
}

impl LinkType {
    /// Whether the frame with this link header was sent to more than one station.
    pub(crate) fn is_for_many(self, header: &[u8]) -> bool {
        match self {
            // The group bit of the destination (IEEE 802 section 8.2.2).
            LinkType::Ethernet => header.first().is_some_and(|first| first & 1 == 1),
            // Linux's packet types for broadcast and multicast.
            LinkType::Cooked => matches!(header, [0, 1 | 2, ..]),
            LinkType::Cooked2 => matches!(header.get(COOKED2_TYPE_AT), Some(1 | 2)),
            LinkType::Ip | LinkType::Loopback => false,
        }
    }
}

impl L2Scope {
    /// Returns the scope of a frame that was received by `ingress` with this link header.
    #[inline]
    pub fn new(link: &Link, ingress: Ingress) -> L2Scope {
        let CookedInterface(channel) = link.channel;
        L2Scope([link.tags.0 << 1 | channel & 1, channel >> 1 << 32 | u64::from(ingress.0)])
    }

    /// Returns the ingress port.
    pub fn ingress(self) -> Ingress {
        let [_, ports] = self.0;
        Ingress(ports as u32)
    }

    /// Returns the VLAN tags.
    pub fn tags(self) -> Tags {
        let [tags, _] = self.0;
        Tags(tags >> 1)
    }

    /// Returns the interface of the capturing host.
    pub fn channel(self) -> CookedInterface {
        let [tags, ports] = self.0;
        CookedInterface(ports >> 32 << 1 | tags & 1)
    }

    /// Returns the scope as two numbers, for tables.
    pub fn words(self) -> [u64; 2] {
        self.0
    }
}

impl PrevHop {
    /// Returns the address as a number, for tables.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Returns the source address in a link header of this kind.
    pub(crate) fn of(link_type: LinkType, header: &[u8]) -> PrevHop {
        let address = match link_type {
            LinkType::Ethernet => header.get(6..12),
            LinkType::Cooked => header.get(5).and_then(|len| header.get(6..6 + usize::from(*len).min(8))),
            LinkType::Cooked2 => header.get(11).and_then(|len| header.get(12..12 + usize::from(*len).min(8))),
            LinkType::Ip | LinkType::Loopback => None,
        };
        PrevHop(address.unwrap_or_default().iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl Tags {
    fn with(self, tag: U16) -> Tags {
        Tags(self.0 << 13 | 1 << 12 | u64::from(tag.get() & VLAN_ID))
    }
}

impl CookedInterface {
    fn cooked(frame: &[u8]) -> Result<CookedInterface, ParseError> {
        let (kind, _) = U16::read_from_prefix(frame).map_err(|_| ParseError::Truncated)?;
        Ok(CookedInterface(u64::from(kind.get() == OUTGOING)))
    }

    fn cooked2(header: &Cooked2Header) -> CookedInterface {
        CookedInterface(u64::from(header.interface.get()) << 1 | u64::from(u16::from(header.kind) == OUTGOING))
    }
}

/// Parses the VLAN tags between the EtherType at offset `at` and the IP header.
fn tagged(frame: &[u8], mut at: usize, mut link: Link) -> Result<Link, ParseError> {
    for _ in 0..=TAGS_MAX {
        let rest = frame.get(at..).ok_or(ParseError::Truncated)?;
        let (ether_type, rest) = U16::read_from_prefix(rest).map_err(|_| ParseError::Truncated)?;
        if let Some(version) = version(ether_type)? {
            return Ok(Link { len: at + 2, version: Some(version), ..link });
        }
        let (tag, _) = U16::read_from_prefix(rest).map_err(|_| ParseError::Truncated)?;
        link.tags = link.tags.with(tag);
        at += TAG_LEN;
    }
    Err(ParseError::NotIp)
}

/// Returns the IP version of an EtherType. `None` for a VLAN tag.
fn version(ether_type: U16) -> Result<Option<Version>, ParseError> {
    match ether_type.get() {
        IPV4 => Ok(Some(Version::V4)),
        IPV6 => Ok(Some(Version::V6)),
        CUSTOMER_TAG | SERVICE_TAG | OLD_SERVICE_TAG => Ok(None),
        _ => Err(ParseError::NotIp),
    }
}

fn loopback(frame: &[u8], link: Link) -> Result<Link, ParseError> {
    let (family, _) = <[u8; 4]>::read_from_prefix(frame).map_err(|_| ParseError::Truncated)?;
    let version = match u32::from_be_bytes(family).min(u32::from_le_bytes(family)) {
        AF_INET => Version::V4,
        family if AF_INET6.contains(&family) => Version::V6,
        _ => return Err(ParseError::NotIp),
    };
    Ok(Link { len: 4, version: Some(version), ..link })
}

/// Parses a Linux cooked header of version 2. The header starts with the EtherType. VLAN tags that the kernel did
/// not remove follow the 20 bytes of the header.
fn cooked2(frame: &[u8], link: Link) -> Result<Link, ParseError> {
    let (header, rest) = Cooked2Header::read_from_prefix(frame).map_err(|_| ParseError::Truncated)?;
    let link = Link { channel: CookedInterface::cooked2(&header), ..link };
    if let Some(version) = version(header.ether_type)? {
        return Ok(Link { len: COOKED2_LEN, version: Some(version), ..link });
    }
    let (tag, _) = U16::read_from_prefix(rest).map_err(|_| ParseError::Truncated)?;
    let link = tagged(frame, COOKED2_LEN + 2, Link { tags: link.tags.with(tag), ..link })?;
    if link.len > LINK_LEN_MAX { Err(ParseError::NotIp) } else { Ok(link) }
}

/// The Linux cooked header, version 2.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Cooked2Header {
    ether_type: U16,
    _reserved: U16,
    interface: U32,
    _hardware: U16,
    kind: u8,
    _address_len: u8,
    _address: [u8; 8],
}

/// Maximum length of a supported link header, in bytes: Linux cooked version 2 with three tags.
pub const LINK_LEN_MAX: usize = COOKED2_LEN + TAGS_MAX * TAG_LEN;

/// EtherTypes (IEEE 802 numbers) of IP, and of VLAN tags before it.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88A8;
/// EtherType of service tags from equipment older than 802.1ad.
const OLD_SERVICE_TAG: u16 = 0x9100;
/// Mask of the VLAN identifier in a tag's 16 bits.
const VLAN_ID: u16 = 0x0FFF;
const TAG_LEN: usize = 4;
const TAGS_MAX: usize = 3;
const COOKED2_LEN: usize = 20;
/// Cooked packet type of frames that the capturing host sent.
const OUTGOING: u16 = 4;
/// Offset of the packet type in a Linux cooked header of version 2, in bytes.
const COOKED2_TYPE_AT: usize = 10;
const AF_INET: u32 = 2;
/// Numbers of AF_INET6: Linux (10), NetBSD and OpenBSD (24), FreeBSD (28) and macOS (30).
const AF_INET6: [u32; 4] = [10, 24, 28, 30];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_type_locates_the_ip_header() {
        let mut ethernet = vec![0xAA; 12];
        ethernet.extend([0x08, 0x00, 0x45]);
        assert_eq!(Link::parse(LinkType::Ethernet, &ethernet).map(|link| link.len), Ok(14));
        assert_eq!(Link::parse(LinkType::Ip, &[0x45]).map(|link| link.len), Ok(0));
        for family in [[0, 0, 0, 2], [2, 0, 0, 0], [30, 0, 0, 0], [0, 0, 0, 10]] {
            assert_eq!(Link::parse(LinkType::Loopback, &family).map(|link| link.len), Ok(4), "{family:?}");
        }
        assert_eq!(Link::parse(LinkType::Loopback, &[7, 0, 0, 0]), Err(ParseError::NotIp));
        let mut cooked = vec![0; 14];
        cooked.extend([0x86, 0xDD]);
        assert_eq!(Link::parse(LinkType::Cooked, &cooked).map(|link| link.len), Ok(16));
        let mut cooked2 = vec![0x08, 0x00];
        cooked2.extend([0; 18]);
        assert_eq!(Link::parse(LinkType::Cooked2, &cooked2).map(|link| link.len), Ok(20));
    }

    #[test]
    fn tags_are_part_of_the_l2_scope() {
        let frame = |tags: &[[u8; 4]]| {
            let mut frame = vec![0; 12];
            tags.iter().for_each(|tag| frame.extend(tag));
            frame.extend([0x08, 0x00]);
            Link::parse(LinkType::Ethernet, &frame)
        };
        let one = frame(&[[0x81, 0, 0, 1]]).unwrap();
        let two = frame(&[[0x88, 0xA8, 0, 1], [0x81, 0, 0, 1]]).unwrap();
        assert_eq!((one.len, two.len), (18, 22));
        assert_ne!(one.tags, two.tags);
        assert_ne!(one.tags, frame(&[[0x81, 0, 0, 2]]).unwrap().tags);
        assert_ne!(one.tags, frame(&[]).unwrap().tags);
        // The priority bits do not separate the packets of one VLAN.
        assert_eq!(one.tags, frame(&[[0x81, 0, 0xE0, 1]]).unwrap().tags);
        assert_eq!(frame(&[[0x81, 0, 0, 1]; 4]), Err(ParseError::NotIp));
    }

    #[test]
    fn a_link_header_gives_the_senders_address() {
        let mut ethernet = vec![0xAA; 6];
        ethernet.extend([2, 0, 0, 0, 0, 7, 8, 0]);
        assert_eq!(PrevHop::of(LinkType::Ethernet, &ethernet), PrevHop(0x0200_0000_0007));
        // The bytes behind an address that is shorter than its field are ignored.
        let cooked = |len: u8, rest: u8| [0, 0, 0, 1, 0, len, 2, 0, 0, 0, 0, 7, rest, rest, 8, 0];
        assert_eq!(PrevHop::of(LinkType::Cooked, &cooked(6, 1)), PrevHop(0x0200_0000_0007));
        assert_eq!(PrevHop::of(LinkType::Cooked, &cooked(6, 2)), PrevHop(0x0200_0000_0007));
        assert_eq!(PrevHop::of(LinkType::Cooked, &cooked(200, 1)), PrevHop(0x0200_0000_0007_0101));
        let mut cooked2 = vec![8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6];
        cooked2.extend([2, 0, 0, 0, 0, 7, 9, 9]);
        assert_eq!(PrevHop::of(LinkType::Cooked2, &cooked2), PrevHop(0x0200_0000_0007));
        assert_eq!(PrevHop::of(LinkType::Ip, &[]), PrevHop::default());
        assert_eq!(PrevHop::of(LinkType::Loopback, &[0, 0, 0, 2]), PrevHop::default());
    }

    #[test]
    fn a_frame_too_short_for_its_header_is_truncated() {
        for link_type in [LinkType::Ethernet, LinkType::Loopback, LinkType::Cooked, LinkType::Cooked2] {
            assert_eq!(Link::parse(link_type, &[0x08, 0x00]), Err(ParseError::Truncated), "{link_type:?}");
        }
    }
}
