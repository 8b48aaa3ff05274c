//! Capture files -> packets, and packets -> capture files.
//!
//! A rewrite must keep unchanged records bit for bit, so that two captures can be compared packet by packet. Every
//! record is therefore returned with its raw bytes, which [`Writer::copy`] writes. New packets are encoded in the
//! format, byte order and time resolution of their section.
//!
//! Supported formats are pcap and pcapng. pcap may have either byte order, microseconds or nanoseconds, and record
//! headers of 16 or 24 bytes. pcapng may have several sections and interfaces. Both may be compressed with gzip or
//! zstd.
//!
//! Captures are streamed, so memory is bounded even if the file claims huge lengths. From a damaged file, all
//! records in front of the damage are read. Then an error states the place and the cause of the damage. Records
//! behind the damage are not read.
//!
//! This crate does not parse the headers of the packets themselves.
//!
//! ```
//! use wideload_capture::packet::Time;
//! use wideload_capture::{Compression, Error, Item, Reader, Resolution, Writer, pcap_header};
//!
//! fn main() -> Result<(), Error> {
//!     // A new capture of Ethernet frames (link type 1), compressed, in memory.
//!     let mut writer = Writer::new(Vec::new(), Compression::Gzip)?;
//!     writer.header(&pcap_header(Resolution::Nanoseconds, 1))?;
//!     writer.packet(0, Some(Time::from_nanos(1_234_567_890)), &[b"a header, ", b"a payload"])?;
//!     let file = writer.finish()?;
//!
//!     // The reader recognises format and compression.
//!     let mut reader = Reader::new(&file[..])?;
//!     while let Some(item) = reader.next()? {
//!         if let Item::Packet(record) = item {
//!             assert_eq!(record.time, Some(Time::from_nanos(1_234_567_890)));
//!             assert_eq!(record.data, b"a header, a payload");
//!         }
//!     }
//!     Ok(())
//! }
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::items_after_test_module, reason = "a file's tests come first")]

pub use packet;

mod behind;
mod error;
mod format;
mod interface;
mod packed;
mod reader;
mod source;
mod writer;

pub use error::Error;
pub use format::{ByteOrder, Format, Resolution, Variant, link_type_of, pcap_header};
pub use packed::Compression;
pub use reader::{Item, Reader, Record};
pub use writer::Writer;
