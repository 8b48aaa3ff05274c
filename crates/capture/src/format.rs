//! The first bytes of a file -> its capture format.
//!
//! Header layouts and the size limits of reader and writer are defined here. Records and blocks are parsed in
//! `reader.rs`.

use packet::{LinkType, Time};
use pcap_parser::parse_pcap_header;

/// The file format of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// The format of tcpdump: one file header, then records.
    Pcap {
        /// Byte order of all numeric fields.
        order: ByteOrder,
        /// Unit of the fraction of a second in timestamps.
        resolution: Resolution,
        /// Layout of the record headers.
        variant: Variant,
    },
    /// The format of Wireshark: a sequence of blocks. Each section has its own byte order.
    Pcapng,
}

/// Byte order of numbers in a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// The unit of the fraction of a second in a pcap timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
}

/// The layout of the header of a pcap record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// 16 bytes: timestamp, captured length and original length.
    Standard,
    /// 24 bytes: Kuznetzov's patched libpcap adds an interface, a protocol and a packet type.
    Modified,
}

/// The kind of link header for a link type (a number from the LINKTYPE_ registry); `None` for unsupported types.
///
/// Types 12 and 14 mean raw IP, like 101. Some systems wrote their own value of DLT_RAW into files.
pub fn link_type_of(link_type: u32) -> Option<LinkType> {
    match link_type {
        1 => Some(LinkType::Ethernet),
        12 | 14 | 101 | 228 | 229 => Some(LinkType::Ip),
        0 | 108 => Some(LinkType::Loopback),
        113 => Some(LinkType::Cooked),
        276 => Some(LinkType::Cooked2),
        _ => None,
    }
}

/// The file header of a new little-endian pcap capture, for [`Writer::header`](crate::Writer::header).
pub fn pcap_header(resolution: Resolution, link_type: u16) -> [u8; PCAP_HEADER_LEN] {
    let magic = match resolution {
        Resolution::Microseconds => MAGIC_MICROSECONDS,
        Resolution::Nanoseconds => MAGIC_NANOSECONDS,
    };
    let mut header = [0; PCAP_HEADER_LEN];
    ByteOrder::Little.set_u32(&mut header, 0, magic);
    ByteOrder::Little.set_u32(&mut header, 4, VERSION_2_4);
    ByteOrder::Little.set_u32(&mut header, 16, SNAP_LEN_MIN);
    ByteOrder::Little.set_u32(&mut header, 20, link_type.into());
    header
}

impl ByteOrder {
    pub(crate) fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let field = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u16::from_le_bytes(field),
            ByteOrder::Big => u16::from_be_bytes(field),
        })
    }

    pub(crate) fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let field = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            ByteOrder::Little => u32::from_le_bytes(field),
            ByteOrder::Big => u32::from_be_bytes(field),
        })
    }

    pub(crate) fn u32_bytes(self, value: u32) -> [u8; 4] {
        match self {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        }
    }

    /// Writes `value` into `header` at offset `at`, in this byte order.
    pub(crate) fn set_u32(self, header: &mut [u8], at: usize, value: u32) {
        header[at..at + 4].copy_from_slice(&self.u32_bytes(value));
    }
}

/// The fields of a pcap file header that affect how records are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PcapHeader {
    pub order: ByteOrder,
    pub resolution: Resolution,
    pub variant: Variant,
    pub snap_len: u32,
    pub link_type: u32,
}

impl PcapHeader {
    /// Decodes the four bytes of a magic number; all other fields become 0. `None` for an unknown magic number.
    fn of_magic(magic: [u8; 4]) -> Option<PcapHeader> {
        use {ByteOrder::*, Resolution::*, Variant::*};
        let (order, number) = match magic[0] {
            0xa1 => (Big, u32::from_be_bytes(magic)),
            _ => (Little, u32::from_le_bytes(magic)),
        };
        let (resolution, variant) = match number {
            MAGIC_MICROSECONDS => (Microseconds, Standard),
            MAGIC_NANOSECONDS => (Nanoseconds, Standard),
            MAGIC_MODIFIED => (Microseconds, Modified),
            _ => return None,
        };
        Some(PcapHeader { order, resolution, variant, snap_len: 0, link_type: 0 })
    }

    /// Whether the file starts with a magic number of pcap.
    pub fn recognise(start: &[u8]) -> bool {
        start.first_chunk().is_some_and(|magic| PcapHeader::of_magic(*magic).is_some())
    }

    /// Parses a complete file header; `None` if it is not a pcap header.
    pub fn parse(bytes: &[u8]) -> Option<PcapHeader> {
        let header = PcapHeader::of_magic(*bytes.first_chunk()?)?;
        // pcap-parser knows the modified format in little-endian only. All variants have the same header behind the
        // magic number. So this header is parsed as a standard header of the same byte order.
        let mut standard: [u8; PCAP_HEADER_LEN] = *bytes.first_chunk()?;
        header.order.set_u32(&mut standard, 0, MAGIC_MICROSECONDS);
        let (_, parsed) = parse_pcap_header(&standard).ok()?;
        // The upper half of the link type field holds the length of the frame check sequence and reserved bits.
        // libpcap keeps 26 bits. No link type needs more than 16, which is also the size in pcapng
        // (draft-ietf-opsawg-pcap section 4: "LinkType (16 bits)").
        let link_type = parsed.network.0 as u32 & 0xffff;
        Some(PcapHeader { snap_len: parsed.snaplen, link_type, ..header })
    }

    pub fn format(&self) -> Format {
        Format::Pcap { order: self.order, resolution: self.resolution, variant: self.variant }
    }

    /// Length of the header in front of each record, in bytes.
    pub fn record_header_len(&self) -> usize {
        match self.variant {
            Variant::Standard => 16,
            Variant::Modified => 24,
        }
    }

    pub fn time(&self, seconds: u32, fraction: u32) -> Time {
        // The result is at most about 2^32 × 10^9 + 2^32 × 1,000, so it fits 64 bits even if the fraction exceeds
        // one second.
        let fraction = u64::from(fraction) * self.nanos_per_fraction();
        Time::from_nanos(u64::from(seconds) * NANOS_PER_SECOND + fraction)
    }

    /// Splits a time into seconds and fraction. Times after 2106 get the last second that 32 bits can express.
    pub fn time_stamp(&self, time: Time) -> (u32, u32) {
        let seconds = u32::try_from(time.nanos() / NANOS_PER_SECOND).unwrap_or(u32::MAX);
        let fraction = time.nanos() % NANOS_PER_SECOND / self.nanos_per_fraction();
        (seconds, fraction as u32)
    }

    fn nanos_per_fraction(&self) -> u64 {
        match self.resolution {
            Resolution::Microseconds => 1000,
            Resolution::Nanoseconds => 1,
        }
    }
}

/// The byte order of a pcapng section, from its section header; `None` for an unknown byte-order magic.
///
/// The section's version is ignored, because blocks state their own length in every version. A packet block whose
/// layout differs from version 1.x fails a check. Any other such block is copied unchanged.
pub(crate) fn section_order(block: &[u8]) -> Option<ByteOrder> {
    [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u32(block, 8) == Some(BYTE_ORDER_MAGIC))
}

/// Length of a pcap file header, in bytes (draft-ietf-opsawg-pcap section 4).
pub(crate) const PCAP_HEADER_LEN: usize = 24;
/// Offset of the snap length in a pcap file header, in bytes.
pub(crate) const PCAP_SNAP_LEN_AT: usize = 16;
/// Minimum snap length of a written capture, in bytes. libpcap's maximum, 262,144 bytes, exceeds any IP packet.
pub(crate) const SNAP_LEN_MIN: u32 = 262_144;
/// Maximum length of a captured packet, in bytes: 64 times libpcap's maximum. A longer packet is reported as
/// damage.
pub(crate) const CAPTURED_LEN_MAX: u32 = 16 << 20;
/// Maximum length of a pcapng block, in bytes: twice the maximum packet, to have room for options.
pub(crate) const BLOCK_LEN_MAX: u32 = 32 << 20;
/// Maximum number of interfaces in a pcapng section. The limit bounds memory.
pub(crate) const INTERFACE_COUNT_MAX: usize = 65_536;
/// Type of the obsolete packet block, which enhanced packet blocks replaced (draft-ietf-opsawg-pcapng appendix A).
pub(crate) const OBSOLETE_PACKET: u32 = 2;
/// Length of a section header without options, in bytes (draft-ietf-opsawg-pcapng section 4.1).
pub(crate) const SECTION_HEADER_LEN_MIN: u32 = 28;

pub(crate) const NANOS_PER_SECOND: u64 = 1_000_000_000;
const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;
const BYTE_ORDER_MAGIC: u32 = pcap_parser::BOM_MAGIC;
/// pcap version 2.4, read as one little-endian number.
const VERSION_2_4: u32 = 4 << 16 | 2;
