//! The bytes of a capture -> packets, headers and other blocks.
//!
//! Every length in the file is checked before it is used. Decompression is left to `source.rs`.

use std::io::Read;

use packet::{LinkType, Time};

use crate::error::{Counted, Error, Grouped};
use crate::format::{
    BLOCK_LEN_MAX, ByteOrder, CAPTURED_LEN_MAX, Format, INTERFACE_COUNT_MAX, OBSOLETE_PACKET, PCAP_HEADER_LEN,
    PcapHeader, SECTION_HEADER_LEN_MIN, link_type_of, section_order,
};
use crate::interface::Interface;
use crate::source::{Failure, READING, Window};

/// A capture, read sequentially.
///
/// Items borrow the reader's buffer, so the caller must drop each item before reading the next.
pub struct Reader<R: Read> {
    window: Window<R>,
    layout: Layout,
    packets: u64,
    state: State,
}

impl<R: Read> Reader<R> {
    /// Opens a capture. Compression and format are detected from the first bytes.
    ///
    /// The reader requests large chunks, so `input` needs no buffer of its own.
    ///
    /// # Errors
    ///
    /// If the input cannot be read or is not a supported capture.
    pub fn new(input: R) -> Result<Reader<R>, Error> {
        let mut window = Window::new(input)?;
        let layout = recognise(&mut window)?;
        Ok(Reader { window, layout, packets: 0, state: State::Fresh })
    }

    /// Reads the next item; `None` at the end of the file, and after any error.
    #[allow(clippy::should_implement_trait, reason = "an Iterator's items cannot borrow the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<Item<'_>>, Error> {
        if matches!(self.state, State::Ended) {
            return Ok(None);
        }
        let offset = self.window.offset();
        let found = match &mut self.layout {
            Layout::Pcap(header) => find_record(&mut self.window, header, &mut self.state),
            Layout::Pcapng(section) => find_block(&mut self.window, section),
        };
        match found {
            Ok(Some(found)) => Ok(Some(self.show(offset, found))),
            Ok(None) => {
                self.state = State::Ended;
                Ok(None)
            }
            Err(stop) => {
                self.state = State::Ended;
                Err(stop.at(offset, self.packets))
            }
        }
    }

    /// The file format of the capture.
    pub fn format(&self) -> Format {
        match &self.layout {
            Layout::Pcap(header) => header.format(),
            Layout::Pcapng(_) => Format::Pcapng,
        }
    }

    /// Number of bytes read from the input so far, before decompression. Progress bars use this number.
    pub fn bytes_read(&self) -> u64 {
        self.window.bytes_read()
    }

    #[inline]
    fn show(&mut self, offset: u64, found: Found) -> Item<'_> {
        let raw = self.window.passed(found.raw_len);
        match found.kind {
            Kind::Header => Item::Header(raw),
            Kind::Interface => Item::Interface(raw),
            Kind::Block => Item::Block(raw),
            Kind::Packet(packet) => {
                self.packets += 1;
                // The options are between the padded packet and the repeated block length at the end of the block.
                let options_at = packet.data_at + packet.data_len.next_multiple_of(4);
                let options = raw.get(options_at..raw.len() - 4).unwrap_or_default();
                Item::Packet(Record {
                    number: self.packets,
                    offset,
                    interface: packet.interface,
                    pcap_link_type: packet.link_type,
                    link_type: link_type_of(packet.link_type),
                    time: packet.time,
                    original_len: packet.original_len,
                    data: &raw[packet.data_at..packet.data_at + packet.data_len],
                    options,
                    raw,
                })
            }
        }
    }
}

/// A part of a capture.
#[derive(Clone, Copy, Debug)]
pub enum Item<'a> {
    /// A pcap file header, or the header of a pcapng section. Behind a section header, interface numbers start
    /// again at 0. So write all pending packets of the previous section before this header.
    Header(&'a [u8]),
    /// The description of the section's next interface (pcapng only), as raw bytes.
    Interface(&'a [u8]),
    /// A block without a packet, such as names, statistics, secrets or comments (pcapng only), as raw bytes.
    Block(&'a [u8]),
    /// A packet with its metadata.
    Packet(Record<'a>),
}

/// A packet as a capture stores it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Number of the packet in the file, from 1.
    pub number: u64,
    /// Offset of the packet's record or block in the uncompressed file, in bytes.
    pub offset: u64,
    /// Number of the capturing interface within its section, from 0; 0 in pcap.
    pub interface: u32,
    /// Link type of the packet, as a number from the LINKTYPE_ registry.
    pub pcap_link_type: u32,
    /// Kind of link header; `None` if the link type is unsupported.
    pub link_type: Option<LinkType>,
    /// Capture time since 1970; `None` in a simple packet block, which has no timestamp.
    pub time: Option<Time>,
    /// Length of the packet on the wire, in bytes. Longer than `data` if the capture truncated the packet.
    pub original_len: u32,
    /// The captured bytes of the packet.
    pub data: &'a [u8],
    /// The raw options of the packet's block, such as comments; empty in pcap.
    pub options: &'a [u8],
    /// The complete record or block, as raw bytes of the file.
    pub raw: &'a [u8],
}

/// Parser state for the file's format.
enum Layout {
    Pcap(PcapHeader),
    Pcapng(Section),
}

/// Parser state for a pcapng section.
struct Section {
    order: ByteOrder,
    interfaces: Vec<Interface>,
}

enum State {
    /// Nothing was returned to the caller yet, so the pcap file header is the next item.
    Fresh,
    Running,
    Ended,
}

/// A parsed item, as positions in the window instead of borrowed slices.
struct Found {
    raw_len: usize,
    kind: Kind,
}

enum Kind {
    Header,
    Interface,
    Block,
    Packet(Packet),
}

struct Packet {
    interface: u32,
    link_type: u32,
    time: Option<Time>,
    original_len: u32,
    data_at: usize,
    data_len: usize,
}

/// The reason why reading stops.
enum Stop {
    Damaged(String),
    Failed(Failure),
}

impl Stop {
    fn at(self, offset: u64, packets: u64) -> Error {
        match self {
            Stop::Damaged(why) | Stop::Failed(Failure::Compression(why)) => Error::Damaged { offset, packets, why },
            Stop::Failed(Failure::Input(source)) => Error::Io { tried: READING, source },
        }
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Stop {
        Stop::Failed(failure)
    }
}

fn recognise<R: Read>(window: &mut Window<R>) -> Result<Layout, Error> {
    let reach = |window: &mut Window<R>, len| window.reach(len).map_err(|failure| Stop::from(failure).at(0, 0));
    reach(window, MAGIC_LEN)?;
    if PcapHeader::recognise(window.ahead()) {
        reach(window, PCAP_HEADER_LEN)?;
        let header = PcapHeader::parse(window.ahead());
        return header.map(Layout::Pcap).ok_or_else(|| cut_short(window, "pcap header of 24 bytes").at(0, 0));
    }
    if window.ahead().first_chunk() == Some(&SECTION_HEADER) {
        if !reach(window, BLOCK_START_LEN)? {
            return Err(cut_short(window, "pcapng section header").at(0, 0));
        }
        if let Some(order) = section_order(window.ahead()) {
            return Ok(Layout::Pcapng(Section { order, interfaces: Vec::new() }));
        }
    }
    // These bytes suffice for the longest magic number in `KNOWN`. A shorter file is identified by the bytes it
    // has.
    reach(window, KNOWN_LEN)?;
    Err(Error::UnknownFormat { why: unknown(window.ahead()) })
}

/// Returns an error message for an unsupported file that starts with `start`.
fn unknown(start: &[u8]) -> String {
    if start.is_empty() {
        return "the file is empty".into();
    }
    if start.len() < MAGIC_LEN {
        return format!("the file has {}, too few for a capture", Counted(start.len() as u64, "byte"));
    }
    match KNOWN.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, what)) => what.to_string(),
        None => "neither pcap nor pcapng, plain or in gzip or zstd".into(),
    }
}

#[inline]
fn find_record<R: Read>(
    window: &mut Window<R>,
    header: &PcapHeader,
    state: &mut State,
) -> Result<Option<Found>, Stop> {
    if matches!(state, State::Fresh) {
        *state = State::Running;
        window.pass(PCAP_HEADER_LEN);
        return Ok(Some(Found { raw_len: PCAP_HEADER_LEN, kind: Kind::Header }));
    }
    // pcap-parser's functions need the whole record before they report the record's claimed length. They also do
    // not support the big-endian modified format. So the four fields of the record header are read here.
    let header_len = header.record_header_len();
    window.reach(header_len)?;
    let bytes = window.ahead();
    let field = |at| header.order.u32(bytes, at);
    let fields = || Some((field(0)?, field(4)?, field(8)?, field(12)?));
    let (Some((seconds, fraction, captured_len, original_len)), true) = (fields(), bytes.len() >= header_len)
    else {
        if bytes.is_empty() {
            return Ok(None);
        }
        return Err(cut_short(window, "record header"));
    };
    let data_len = believe(captured_len)?;
    let raw_len = header_len + data_len;
    if !window.reach(raw_len)? {
        let claim = format!("record with a claimed length of {}", Counted(captured_len.into(), "byte"));
        return Err(cut_short(window, &claim));
    }
    window.pass(raw_len);
    let time = Some(header.time(seconds, fraction));
    let link_type = header.link_type;
    let packet = Packet { interface: 0, link_type, time, original_len, data_at: header_len, data_len };
    Ok(Some(Found { raw_len, kind: Kind::Packet(packet) }))
}

#[inline]
fn find_block<R: Read>(window: &mut Window<R>, section: &mut Section) -> Result<Option<Found>, Stop> {
    if !window.reach(BLOCK_START_LEN)? {
        if window.ahead().is_empty() {
            return Ok(None);
        }
        return Err(cut_short(window, "block"));
    }
    let bytes = window.ahead();
    let opens_section = bytes.first_chunk() == Some(&SECTION_HEADER);
    let order = match opens_section {
        true => section_order(bytes).ok_or_else(|| damaged("a section header without a byte-order magic"))?,
        false => section.order,
    };
    let (Some(block_type), Some(block_len)) = (order.u32(bytes, 0), order.u32(bytes, 4)) else {
        return Err(cut_short(window, "block"));
    };
    check_block_len(block_len, if opens_section { SECTION_HEADER_LEN_MIN } else { BLOCK_LEN_MIN })?;
    let raw_len = block_len as usize;
    if !window.reach(raw_len)? {
        let claim = format!("block with a claimed length of {}", Counted(block_len.into(), "byte"));
        return Err(cut_short(window, &claim));
    }
    let block = window.ahead().get(..raw_len).unwrap_or_default();
    match order.u32(block, raw_len - 4) {
        Some(end) if end == block_len => {}
        end => {
            let (start, end) = (Grouped(block_len.into()), Grouped(end.unwrap_or(0).into()));
            return Err(damaged(format!(
                "a block whose length is {start} bytes at its start and {end} at its end"
            )));
        }
    }
    let kind = if opens_section {
        *section = Section { order, interfaces: Vec::new() };
        Kind::Header
    } else {
        section.read_block(block_type, block)?
    };
    window.pass(raw_len);
    Ok(Some(Found { raw_len, kind }))
}

impl Section {
    /// Parses a block whose lengths have been checked.
    fn read_block(&mut self, block_type: u32, block: &[u8]) -> Result<Kind, Stop> {
        match block_type {
            pcap_parser::IDB_MAGIC => {
                if self.interfaces.len() == INTERFACE_COUNT_MAX {
                    let limit = Grouped(INTERFACE_COUNT_MAX as u64);
                    return Err(damaged(format!("a section that describes more than {limit} interfaces")));
                }
                self.interfaces.push(Interface::parse(self.order, block).map_err(Stop::Damaged)?);
                Ok(Kind::Interface)
            }
            pcap_parser::EPB_MAGIC => self.read_packet(block, self.order.u32(block, 8)),
            OBSOLETE_PACKET => self.read_packet(block, self.order.u16(block, 8).map(u32::from)),
            pcap_parser::SPB_MAGIC => self.read_simple_packet(block),
            _ => Ok(Kind::Block),
        }
    }

    /// Parses an enhanced or obsolete packet block. For this parser, the two kinds differ only in the width of the
    /// interface number.
    ///
    /// pcap-parser's function is not used, because it would allocate a `Vec` of options per packet.
    fn read_packet(&self, block: &[u8], interface: Option<u32>) -> Result<Kind, Stop> {
        let field = |at| self.order.u32(block, at);
        let fields = || Some((interface?, field(12)?, field(16)?, field(20)?, field(24)?));
        let Some((interface, high, low, captured_len, original_len)) = fields() else {
            return Err(damaged("a packet block shorter than its fields"));
        };
        let described = self.interface(interface)?;
        let data_len = check_len(believe(captured_len)?, PACKET_DATA_AT, block)?;
        let time = Some(described.clock.time(u64::from(high) << 32 | u64::from(low)));
        let link_type = described.link_type;
        Ok(Kind::Packet(Packet { interface, link_type, time, original_len, data_at: PACKET_DATA_AT, data_len }))
    }

    /// Parses a simple packet block, which has neither an interface number nor a timestamp. The packet belongs to
    /// the first interface of the section. The captured length follows from the snap length.
    fn read_simple_packet(&self, block: &[u8]) -> Result<Kind, Stop> {
        let Some(original_len) = self.order.u32(block, 8) else {
            return Err(damaged("a packet block shorter than its fields"));
        };
        let described = self.interface(0)?;
        let captured_len = match described.snap_len {
            0 => original_len,
            limit => original_len.min(limit),
        };
        let data_len = check_len(believe(captured_len)?, SIMPLE_DATA_AT, block)?;
        let link_type = described.link_type;
        let packet =
            Packet { interface: 0, link_type, time: None, original_len, data_at: SIMPLE_DATA_AT, data_len };
        Ok(Kind::Packet(packet))
    }

    fn interface(&self, number: u32) -> Result<&Interface, Stop> {
        self.interfaces.get(number as usize).ok_or_else(|| {
            let described = Counted(self.interfaces.len() as u64, "interface");
            damaged(format!("a packet of interface {number}, but the section describes only {described}"))
        })
    }
}

fn believe(captured_len: u32) -> Result<usize, Stop> {
    if captured_len > CAPTURED_LEN_MAX {
        let claim = Grouped(captured_len.into());
        return Err(damaged(format!("a record with a claimed length of {claim} bytes, too long for a packet")));
    }
    Ok(captured_len as usize)
}

/// Checks that a packet of `len` bytes fits between a block's fields and the repeated length at the end.
fn check_len(len: usize, data_at: usize, block: &[u8]) -> Result<usize, Stop> {
    if data_at + len + BLOCK_END_LEN > block.len() {
        let (len, block_len) = (Grouped(len as u64), Grouped(block.len() as u64));
        return Err(damaged(format!("a packet of {len} bytes in a block of {block_len}")));
    }
    Ok(len)
}

fn check_block_len(block_len: u32, min: u32) -> Result<(), Stop> {
    let reason = if block_len < min {
        format!("below the minimum of {min}")
    } else if !block_len.is_multiple_of(4) {
        "not a multiple of 4".into()
    } else if block_len > BLOCK_LEN_MAX {
        format!("above the limit of {}", Grouped(BLOCK_LEN_MAX.into()))
    } else {
        return Ok(());
    };
    let claim = Counted(block_len.into(), "byte");
    Err(damaged(format!("a block with a claimed length of {claim}, {reason}")))
}

fn damaged(why: impl Into<String>) -> Stop {
    Stop::Damaged(why.into())
}

fn cut_short<R: Read>(window: &Window<R>, of_what: &str) -> Stop {
    let len = Counted(window.ahead().len() as u64, "byte");
    damaged(format!("the file ends {len} into a {of_what}"))
}

/// Number of first bytes that distinguish pcap from pcapng.
const MAGIC_LEN: usize = 4;
/// Block type of a section header, equal in both byte orders (draft-ietf-opsawg-pcapng section 4.1).
const SECTION_HEADER: [u8; 4] = pcap_parser::SHB_MAGIC.to_le_bytes();
/// Length of a block's first three words, in bytes: type, length, and the byte-order magic of a section header.
const BLOCK_START_LEN: usize = 12;
/// Minimum length of a block, in bytes: a type and two lengths (draft-ietf-opsawg-pcapng section 3.1).
const BLOCK_LEN_MIN: u32 = 12;
/// Length of the repeated length field at the end of a block, in bytes.
const BLOCK_END_LEN: usize = 4;
/// Offset of the packet in an enhanced or obsolete packet block, in bytes (draft-ietf-opsawg-pcapng section 4.3).
const PACKET_DATA_AT: usize = 28;
/// Offset of the packet in a simple packet block, in bytes (draft-ietf-opsawg-pcapng section 4.4).
const SIMPLE_DATA_AT: usize = 12;

/// Magic numbers of unsupported file types, for precise error messages.
const KNOWN: [(&[u8], &str); 9] = [
    (b"snoop\0\0\0", "a snoop capture; convert it with editcap -F pcapng IN OUT"),
    (b"RTSS", "a Network Monitor 1 capture; convert it with editcap -F pcapng IN OUT"),
    (b"GMBU", "a Network Monitor 2 capture; convert it with editcap -F pcapng IN OUT"),
    (b"TRSNIFF data", "a Sniffer capture; convert it with editcap -F pcapng IN OUT"),
    (b"BZh", "a bzip2 file; unpack it with bunzip2"),
    (b"\xfd7zXZ\0", "an xz file; unpack it with unxz"),
    (b"\x04\x22\x4d\x18", "an lz4 file; unpack it with unlz4"),
    (b"PK\x03\x04", "a zip archive; unpack it with unzip"),
    (b"\x1f\x8b", "a gzip file inside a compressed file; unpack it once with gunzip"),
];
/// Length of the longest magic number in `KNOWN`, in bytes.
const KNOWN_LEN: usize = 12;
