//! Capture files -> packets, and packets -> capture files.
//!
//! Unchanged records must leave a rewrite exactly as they were, because a capture can be compared packet by packet.
//! Every record is therefore returned with its raw bytes, and [`Writer::copy`] writes them byte for byte. Only new
//! packets are composed, in the format, byte order and time resolution of their section.
//!
//! Supported are pcap (both byte orders, microseconds and nanoseconds, and the modified format with 24-byte record
//! headers) and pcapng (several sections and interfaces). Both may be plain or compressed with gzip or zstd.
//!
//! Everything streams: memory is bounded, whatever lengths the file claims. A damaged file yields every record in
//! front of the damage, then an error with place and cause. Later records are not searched for.
//!
//! Packets are not parsed here.
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
pub use format::{ByteOrder, Format, Resolution, Variant, medium, pcap_header};
pub use packed::Compression;
pub use reader::{Item, Reader, Record};
pub use writer::Writer;
