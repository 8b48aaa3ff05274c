//! Bytes of a capture -> compressed output.
//!
//! The writer sees one output type whatever the compression. Reading compressed files is left to `source.rs`.

use std::io::{self, Write};
use std::path::Path;

use crate::error::Error;

/// The compression of a written capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip at its default level.
    Gzip,
    /// zstd at its default level.
    Zstd,
}

impl Compression {
    /// The compression for a file name: gzip for `.gz`, zstd for `.zst`, otherwise none.
    pub fn from_path(path: impl AsRef<Path>) -> Compression {
        match path.as_ref().extension() {
            Some(extension) if extension.eq_ignore_ascii_case("gz") => Compression::Gzip,
            Some(extension) if extension.eq_ignore_ascii_case("zst") => Compression::Zstd,
            _ => Compression::None,
        }
    }
}

/// An output stream with its compressor.
pub(crate) enum Packed<W: Write> {
    Plain(W),
    Gzip(flate2::write::GzEncoder<W>),
    Zstd(zstd::Encoder<'static, W>),
}

impl<W: Write> Packed<W> {
    pub(crate) fn new(output: W, compression: Compression) -> Result<Packed<W>, Error> {
        Ok(match compression {
            Compression::None => Packed::Plain(output),
            Compression::Gzip => {
                Packed::Gzip(flate2::write::GzEncoder::new(output, flate2::Compression::default()))
            }
            Compression::Zstd => {
                let encoder = zstd::Encoder::new(output, zstd::DEFAULT_COMPRESSION_LEVEL);
                Packed::Zstd(encoder.map_err(|source| Error::Io { tried: "prepare zstd", source })?)
            }
        })
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Packed::Plain(output) => output.write_all(bytes),
            Packed::Gzip(encoder) => encoder.write_all(bytes),
            Packed::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    pub(crate) fn finish(self) -> io::Result<W> {
        let mut output = match self {
            Packed::Plain(output) => output,
            Packed::Gzip(encoder) => encoder.finish()?,
            Packed::Zstd(encoder) => encoder.finish()?,
        };
        output.flush()?;
        Ok(output)
    }
}

/// Size of the output buffer, in bytes. Without a buffer, the write calls for single packets would cost as much as
/// copying their bytes.
pub(crate) const BUFFER_LEN: usize = 256 << 10;
