//! A frame's bytes in, where its IP packet starts out.

use crate::Unfit;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// What stands in front of an IP packet on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Medium {
    /// Ethernet II, with any IEEE 802.1Q and 802.1ad tags.
    Ethernet,
    /// Nothing: the packet starts with its IP header.
    Ip,
    /// BSD loopback: four bytes of address family, in either byte order.
    Loopback,
    /// Linux cooked capture, version 1 (16 bytes).
    Cooked,
    /// Linux cooked capture, version 2 (20 bytes).
    Cooked2,
}

/// What a link header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Bytes in front of the IP header, at most [`LINK_LEN_MAX`].
    pub len: usize,
    /// The VLANs that the packet travels in.
    pub tags: Tags,
    /// What kind of header it is.
    pub medium: Medium,
}

/// The VLAN identifiers of a frame's tags, outermost first: twelve bits each and a mark that a tag was there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags(u64);

impl Link {
    /// Reads the link header of a frame.
    ///
    /// # Errors
    /// Why the frame does not carry an IP packet that we can work on.
    pub fn parse(medium: Medium, frame: &[u8]) -> Result<Link, Unfit> {
        let (len, tags) = match medium {
            Medium::Ip => (0, Tags::default()),
            Medium::Loopback => loopback(frame)?,
            Medium::Ethernet => tagged(frame, 12, Tags::default())?,
            Medium::Cooked => tagged(frame, 14, Tags::default())?,
            Medium::Cooked2 => cooked2(frame)?,
        };
        Ok(Link { len, tags, medium })
    }
}

impl Medium {
    /// Was the frame behind this link header sent to more stations than one?
    pub(crate) fn is_for_many(self, header: &[u8]) -> bool {
        match self {
            // The group bit of the destination (IEEE 802 section 8.2.2).
            Medium::Ethernet => header.first().is_some_and(|first| first & 1 == 1),
            // The packet types broadcast and multicast of Linux.
            Medium::Cooked => matches!(header, [0, 1 | 2, ..]),
            Medium::Cooked2 => matches!(header.get(COOKED2_TYPE_AT), Some(1 | 2)),
            Medium::Ip | Medium::Loopback => false,
        }
    }
}

impl Tags {
    fn with(self, tag: U16) -> Tags {
        Tags(self.0 << 13 | 1 << 12 | u64::from(tag.get() & VLAN_ID))
    }
}

/// Follows EtherTypes from byte `at` through any VLAN tags to IP.
fn tagged(frame: &[u8], mut at: usize, mut tags: Tags) -> Result<(usize, Tags), Unfit> {
    for _ in 0..=TAGS_MAX {
        let rest = frame.get(at..).ok_or(Unfit::Truncated)?;
        let (ether_type, rest) = U16::read_from_prefix(rest).map_err(|_| Unfit::Truncated)?;
        match ether_type.get() {
            IPV4 | IPV6 => return Ok((at + 2, tags)),
            CUSTOMER_TAG | SERVICE_TAG | OLD_SERVICE_TAG => {
                let (tag, _) = U16::read_from_prefix(rest).map_err(|_| Unfit::Truncated)?;
                tags = tags.with(tag);
                at += TAG_LEN;
            }
            _ => return Err(Unfit::NotIp),
        }
    }
    Err(Unfit::NotIp)
}

fn loopback(frame: &[u8]) -> Result<(usize, Tags), Unfit> {
    let (family, _) = <[u8; 4]>::read_from_prefix(frame).map_err(|_| Unfit::Truncated)?;
    match u32::from_be_bytes(family).min(u32::from_le_bytes(family)) {
        AF_INET => {}
        family if AF_INET6.contains(&family) => {}
        _ => return Err(Unfit::NotIp),
    }
    Ok((4, Tags::default()))
}

/// Version 2 puts the EtherType first, and any tag that the kernel left in place behind its 20 bytes.
fn cooked2(frame: &[u8]) -> Result<(usize, Tags), Unfit> {
    let (header, rest) = Cooked2Header::read_from_prefix(frame).map_err(|_| Unfit::Truncated)?;
    match header.ether_type.get() {
        IPV4 | IPV6 => Ok((COOKED2_LEN, Tags::default())),
        CUSTOMER_TAG | SERVICE_TAG | OLD_SERVICE_TAG => {
            let (tag, _) = U16::read_from_prefix(rest).map_err(|_| Unfit::Truncated)?;
            tagged(frame, COOKED2_LEN + 2, Tags::default().with(tag))
        }
        _ => Err(Unfit::NotIp),
    }
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Cooked2Header {
    ether_type: U16,
    _rest: [u8; COOKED2_LEN - 2],
}

/// Longest link header we work on, in bytes: Ethernet or Linux cooked version 2, with three tags.
pub const LINK_LEN_MAX: usize = COOKED2_LEN + TAGS_MAX * TAG_LEN;

/// EtherTypes (IEEE 802 numbers): IP, and the tags that may stand before it.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86DD;
const CUSTOMER_TAG: u16 = 0x8100;
const SERVICE_TAG: u16 = 0x88A8;
/// Service tag of equipment older than 802.1ad.
const OLD_SERVICE_TAG: u16 = 0x9100;
/// The VLAN identifier within a tag's 16 bits.
const VLAN_ID: u16 = 0x0FFF;
const TAG_LEN: usize = 4;
const TAGS_MAX: usize = 3;
const COOKED2_LEN: usize = 20;
/// Where the packet type stands in a Linux cooked header of version 2.
const COOKED2_TYPE_AT: usize = 10;
const AF_INET: u32 = 2;
/// AF_INET6 of Linux (10), NetBSD and OpenBSD (24), FreeBSD (28) and macOS (30).
const AF_INET6: [u32; 4] = [10, 24, 28, 30];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_medium_says_where_ip_starts() {
        let mut ethernet = vec![0xAA; 12];
        ethernet.extend([0x08, 0x00, 0x45]);
        assert_eq!(Link::parse(Medium::Ethernet, &ethernet).map(|link| link.len), Ok(14));
        assert_eq!(Link::parse(Medium::Ip, &[0x45]).map(|link| link.len), Ok(0));
        for family in [[0, 0, 0, 2], [2, 0, 0, 0], [30, 0, 0, 0], [0, 0, 0, 10]] {
            assert_eq!(Link::parse(Medium::Loopback, &family).map(|link| link.len), Ok(4), "{family:?}");
        }
        assert_eq!(Link::parse(Medium::Loopback, &[7, 0, 0, 0]), Err(Unfit::NotIp));
        let mut cooked = vec![0; 14];
        cooked.extend([0x86, 0xDD]);
        assert_eq!(Link::parse(Medium::Cooked, &cooked).map(|link| link.len), Ok(16));
        let mut cooked2 = vec![0x08, 0x00];
        cooked2.extend([0; 18]);
        assert_eq!(Link::parse(Medium::Cooked2, &cooked2).map(|link| link.len), Ok(20));
    }

    #[test]
    fn tags_are_part_of_who_a_packet_belongs_to() {
        let frame = |tags: &[[u8; 4]]| {
            let mut frame = vec![0; 12];
            tags.iter().for_each(|tag| frame.extend(tag));
            frame.extend([0x08, 0x00]);
            Link::parse(Medium::Ethernet, &frame)
        };
        let one = frame(&[[0x81, 0, 0, 1]]).unwrap();
        let two = frame(&[[0x88, 0xA8, 0, 1], [0x81, 0, 0, 1]]).unwrap();
        assert_eq!((one.len, two.len), (18, 22));
        assert_ne!(one.tags, two.tags);
        assert_ne!(one.tags, frame(&[[0x81, 0, 0, 2]]).unwrap().tags);
        assert_ne!(one.tags, frame(&[]).unwrap().tags);
        // The priority bits do not part one VLAN's packets.
        assert_eq!(one.tags, frame(&[[0x81, 0, 0xE0, 1]]).unwrap().tags);
        assert_eq!(frame(&[[0x81, 0, 0, 1]; 4]), Err(Unfit::NotIp));
    }

    #[test]
    fn a_frame_too_short_for_its_header_is_truncated() {
        for medium in [Medium::Ethernet, Medium::Loopback, Medium::Cooked, Medium::Cooked2] {
            assert_eq!(Link::parse(medium, &[0x08, 0x00]), Err(Unfit::Truncated), "{medium:?}");
        }
    }
}
