//! Packets, headers and other blocks -> the bytes of a capture.
//!
//! Unchanged items are copied byte for byte, so that a rewrite changes no more than necessary. Compression is left
//! to `packed.rs`.

use std::io::{self, Write};

use packet::Time;

use crate::behind::Behind;
use crate::error::Error;
use crate::format::{
    ByteOrder, CAPTURED_LEN_MAX, PCAP_HEADER_LEN, PCAP_SNAP_LEN_AT, PcapHeader, SECTION_HEADER_LEN_MIN,
    SNAP_LEN_MIN, section_order,
};
use crate::interface::Interface;
use crate::packed::{BUFFER_LEN, Compression, Packed};
use crate::reader::Record;

/// A capture, written sequentially.
///
/// Items of a [`Reader`](crate::Reader) are copied byte for byte, except two fields that would be wrong in a
/// rewritten capture:
///
/// - A snap length from 1 to 262,143 is raised to 262,144, so that wide packets fit.
/// - A pcapng section's length becomes "not specified".
///
/// The output is complete only after [`finish`](Writer::finish). A dropped writer leaves a truncated file.
pub struct Writer<W: Write> {
    output: Output<W>,
    buffer: Vec<u8>,
    bytes_written: u64,
    packets: u64,
    section: Section,
}

impl<W: Write> Writer<W> {
    /// Starts a capture on `output`, which needs no buffer of its own.
    pub fn new(output: W, compression: Compression) -> Result<Writer<W>, Error> {
        let packed = Packed::new(output, compression)?;
        Ok(Writer::of(Output::Here(packed)))
    }

    fn of(output: Output<W>) -> Writer<W> {
        let buffer = Vec::with_capacity(BUFFER_LEN);
        Writer { output, buffer, bytes_written: 0, packets: 0, section: Section::None }
    }

    /// Writes a pcap file header or a pcapng section header. Later packets get the header's format and byte order.
    pub fn header(&mut self, raw: &[u8]) -> Result<(), Error> {
        if let (Some(header), true) = (PcapHeader::parse(raw), raw.len() == PCAP_HEADER_LEN) {
            self.section = Section::Pcap(header);
            return self.put_raised(header.order, raw, PCAP_SNAP_LEN_AT, header.snap_len);
        }
        let Some(order) = section_order(raw).filter(|_| raw.len() >= SECTION_HEADER_LEN_MIN as usize) else {
            return Err(Error::UnknownFormat { why: "the header of neither pcap nor pcapng".into() });
        };
        self.section = Section::Pcapng { order, interfaces: Vec::new() };
        // The section's length would be wrong if any packet changes its size. The value -1 means "not specified"
        // (draft-ietf-opsawg-pcapng section 4.1).
        let (front, rest) = raw.split_at(SECTION_LEN_AT);
        self.put(front)?;
        self.put(&(-1i64).to_le_bytes())?;
        self.put(&rest[8..])
    }

    /// Writes the description of a pcapng section's next interface.
    ///
    /// # Panics
    ///
    /// If no pcapng section header has been written.
    pub fn interface(&mut self, raw: &[u8]) -> Result<(), Error> {
        let Section::Pcapng { order, interfaces } = &mut self.section else {
            panic!("an interface description belongs into a pcapng section");
        };
        let order = *order;
        match Interface::parse(order, raw) {
            Ok(interface) => {
                interfaces.push(interface);
                self.put_raised(order, raw, INTERFACE_SNAP_LEN_AT, interface.snap_len)
            }
            Err(why) => Err(self.damaged(why)),
        }
    }

    /// Writes a pcapng block without a packet, byte for byte.
    pub fn block(&mut self, raw: &[u8]) -> Result<(), Error> {
        self.put(raw)
    }

    /// Writes an unchanged packet, byte for byte.
    ///
    /// The only exception is a simple packet block whose packet was truncated to the snap length. Readers compute
    /// the captured length of such a packet from the snap length. If the snap length was raised, the packet is
    /// written as an enhanced packet block at time 0.
    pub fn copy(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if self.needs_raised_snap_len(record) {
            return self.put_packet(record.interface, None, &[record.data], record.original_len, &[]);
        }
        self.packets += 1;
        self.put(record.raw)
    }

    /// Writes a new packet, the concatenation of `parts`. The packet is encoded in the format, byte order and time
    /// resolution of the current section and interface.
    ///
    /// In pcap, `interface` is ignored. An unknown time is written as 0.
    ///
    /// # Panics
    ///
    /// If no header has been written, the section has no such interface, or the packet is longer than 16 MiB, the
    /// reader's limit.
    pub fn packet(&mut self, interface: u32, time: Option<Time>, parts: &[&[u8]]) -> Result<(), Error> {
        self.packet_with_options(interface, time, parts, &[])
    }

    /// Writes a new packet with raw block options, see [`packet`](Writer::packet). In pcap the options are
    /// discarded.
    pub fn packet_with_options(
        &mut self,
        interface: u32,
        time: Option<Time>,
        parts: &[&[u8]],
        options: &[u8],
    ) -> Result<(), Error> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len <= CAPTURED_LEN_MAX as usize, "no reader believes a packet of {len} bytes");
        self.put_packet(interface, time, parts, len as u32, options)
    }

    /// Number of bytes written so far, before compression.
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Writes all buffered bytes, finishes the compression, and returns the output.
    pub fn finish(mut self) -> Result<W, Error> {
        self.output.take(&mut self.buffer).and_then(|()| self.output.finish()).map_err(cannot_write)
    }

    fn put_packet(
        &mut self,
        interface: u32,
        time: Option<Time>,
        parts: &[&[u8]],
        original_len: u32,
        options: &[u8],
    ) -> Result<(), Error> {
        self.packets += 1;
        let captured_len: u32 = parts.iter().map(|part| part.len() as u32).sum();
        match &self.section {
            Section::None => panic!("a capture starts with its header"),
            Section::Pcap(header) => {
                let record = pcap_record(header, time, captured_len, original_len);
                self.put(&record[..header.record_header_len()])?;
                parts.iter().try_for_each(|part| self.put(part))
            }
            Section::Pcapng { order, interfaces } => {
                let order = *order;
                let Some(described) = interfaces.get(interface as usize) else {
                    panic!("interface {interface} was not described in this section");
                };
                let ticks = time.map_or(0, |time| described.clock.ticks(time));
                let padding = captured_len.next_multiple_of(4) - captured_len;
                let block_len = ENHANCED_LEN_MIN + captured_len + padding + options.len() as u32;
                self.put(&enhanced_packet(order, block_len, interface, ticks, captured_len, original_len))?;
                parts.iter().try_for_each(|part| self.put(part))?;
                self.put(&[0; 4][..padding as usize])?;
                self.put(options)?;
                self.put(&order.u32_bytes(block_len))
            }
        }
    }

    fn needs_raised_snap_len(&self, record: &Record<'_>) -> bool {
        let Section::Pcapng { order, interfaces } = &self.section else {
            return false;
        };
        let is_cut = (record.data.len() as u64) < record.original_len.into();
        is_cut
            && order.u32(record.raw, 0) == Some(pcap_parser::SPB_MAGIC)
            && interfaces.first().is_some_and(|interface| raised(interface.snap_len).is_some())
    }

    /// Writes `raw`, with a larger snap length at offset `at` if `snap_len` is too small.
    fn put_raised(&mut self, order: ByteOrder, raw: &[u8], at: usize, snap_len: u32) -> Result<(), Error> {
        let Some(snap_len) = raised(snap_len) else {
            return self.put(raw);
        };
        let (front, rest) = raw.split_at(at);
        self.put(front)?;
        self.put(&order.u32_bytes(snap_len))?;
        self.put(&rest[4..])
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.bytes_written += bytes.len() as u64;
        if bytes.len() <= self.buffer.capacity() - self.buffer.len() {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.put_slowly(bytes).map_err(cannot_write)
    }

    #[cold]
    fn put_slowly(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        loop {
            self.output.take(&mut self.buffer)?;
            let (part, rest) = bytes.split_at(bytes.len().min(BUFFER_LEN));
            self.buffer.extend_from_slice(part);
            bytes = rest;
            if bytes.is_empty() {
                return Ok(());
            }
        }
    }

    fn damaged(&self, why: String) -> Error {
        Error::Damaged { offset: self.bytes_written, packets: self.packets, why }
    }
}

impl<W: Write + Send + 'static> Writer<W> {
    /// Starts a capture whose compression and output run in another thread. Write errors of the thread are reported
    /// when a later packet is written, or by `finish`.
    pub fn behind(output: W, compression: Compression) -> Result<Writer<W>, Error> {
        let packed = Packed::new(output, compression)?;
        let behind = Behind::start(packed).map_err(|source| Error::Io { tried: "start a thread", source })?;
        Ok(Writer::of(Output::Behind(behind)))
    }
}

/// State of the current section: format, byte order and interfaces for later packets.
enum Section {
    None,
    Pcap(PcapHeader),
    Pcapng { order: ByteOrder, interfaces: Vec<Interface> },
}

/// The destination of full buffers: this thread's output, or another thread.
enum Output<W: Write> {
    Here(Packed<W>),
    Behind(Behind<W>),
}

impl<W: Write> Output<W> {
    /// Writes the bytes of `buffer` and empties the buffer. After a failure, the output is incomplete.
    fn take(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        match self {
            Output::Here(packed) => {
                packed.write_all(buffer)?;
                buffer.clear();
                Ok(())
            }
            Output::Behind(behind) => behind.take(buffer),
        }
    }

    fn finish(self) -> io::Result<W> {
        match self {
            Output::Here(packed) => packed.finish(),
            Output::Behind(behind) => behind.finish(),
        }
    }
}

/// Encodes the header of a pcap record: 16 bytes, or 24 in the modified variant.
fn pcap_record(header: &PcapHeader, time: Option<Time>, captured_len: u32, original_len: u32) -> [u8; 24] {
    let (seconds, fraction) = header.time_stamp(time.unwrap_or(Time::ZERO));
    let mut record = [0; 24];
    for (at, value) in [(0, seconds), (4, fraction), (8, captured_len), (12, original_len)] {
        header.order.set_u32(&mut record, at, value);
    }
    record
}

/// Encodes the fields of an enhanced packet block in front of its packet (draft-ietf-opsawg-pcapng section 4.3).
fn enhanced_packet(
    order: ByteOrder,
    block_len: u32,
    interface: u32,
    ticks: u64,
    captured_len: u32,
    original_len: u32,
) -> [u8; 28] {
    let (high, low) = ((ticks >> 32) as u32, ticks as u32);
    let fields = [pcap_parser::EPB_MAGIC, block_len, interface, high, low, captured_len, original_len];
    let mut block = [0; 28];
    for (number, value) in fields.into_iter().enumerate() {
        order.set_u32(&mut block, 4 * number, value);
    }
    block
}

/// The replacement for a snap length that is too small; `None` if it is large enough or 0 (no limit).
fn raised(snap_len: u32) -> Option<u32> {
    (snap_len != 0 && snap_len < SNAP_LEN_MIN).then_some(SNAP_LEN_MIN)
}

fn cannot_write(source: io::Error) -> Error {
    Error::Io { tried: "write the capture", source }
}

/// Offset of the snap length in an interface description, in bytes.
const INTERFACE_SNAP_LEN_AT: usize = 12;
/// Offset of the section length (8 bytes) in a section header, in bytes.
const SECTION_LEN_AT: usize = 16;
/// Length of an enhanced packet block without packet and options, in bytes.
const ENHANCED_LEN_MIN: u32 = 32;
