//! Capture files in, packets out, and back again.
//!
//! A capture is the one place where a packet can be looked at twice, so what is not changed must come out as it
//! went in: every record is handed out with its raw bytes, and [`Writer::copy`] writes them byte for byte.
//! Only new packets are composed, in the format, byte order and time resolution of the section that they join.
//!
//! Reads and writes pcap (both byte orders, microseconds and nanoseconds, and the modified format of 24-byte
//! record headers) and pcapng (several sections and interfaces), plain or in gzip or zstd. Everything streams:
//! memory is bounded whatever the file says of itself, and a damaged file gives up every record in front of the
//! damage and then says where it is and what is wrong.
//!
//! It does not look into packets, and it does not skip damage in search of a later record.
//!
//! ```
//! use wideload_capture::{Compression, Item, Reader, Resolution, Writer};
//! use packet::Time;
//!
//! # fn main() -> Result<(), wideload_capture::Error> {
//! let mut made = Writer::new(Vec::new(), Compression::Gzip)?;
//! made.header(&wideload_capture::pcap_header(Resolution::Nanoseconds, 1))?;
//! made.packet(0, Some(Time::from_nanos(1_234_567_890)), &[b"a header, ", b"a payload"])?;
//! let file = made.finish()?;
//!
//! let mut reader = Reader::new(&file[..])?;
//! while let Some(item) = reader.next()? {
//!     if let Item::Packet(record) = item {
//!         assert_eq!(record.data, b"a header, a payload");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::items_after_test_module, reason = "a file's tests come first")]

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
