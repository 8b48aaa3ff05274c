//! Plain or compressed files -> a sliding window of uncompressed bytes.
//!
//! The window forgets bytes that have been consumed. It grows only by bytes that were really read, so a record that
//! claims a false length costs no memory.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

use crate::error::Error;

/// The part of the uncompressed file that is in memory.
pub(crate) struct Window<R: Read> {
    stream: Stream<R>,
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
    ended: bool,
}

impl<R: Read> Window<R> {
    /// Opens an input. The compression is detected from the magic number in the first bytes.
    pub fn new(input: R) -> Result<Window<R>, Error> {
        let mut raw = PeekedInput { input, count: 0, first: [0; 4], first_len: 0, first_given: 0, failed: false };
        raw.fill_first().map_err(|source| Error::Io { tried: READING, source })?;
        let stream = match raw.first {
            [0x1f, 0x8b, ..] => {
                let buffered = BufReader::with_capacity(COMPRESSED_LEN, raw);
                Stream::Gzip(Box::new(Members::new(buffered)))
            }
            // A zstd frame, or a skippable frame, which parallel compressors write first (RFC 8878 section 3.1).
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => {
                let buffered = BufReader::with_capacity(COMPRESSED_LEN, raw);
                let decoder = zstd::Decoder::with_buffer(buffered).and_then(|mut decoder| {
                    decoder.window_log_max(WINDOW_LOG_MAX)?;
                    Ok(decoder)
                });
                Stream::Zstd(Box::new(decoder.map_err(|source| Error::Io { tried: "prepare zstd", source })?))
            }
            _ => Stream::Plain(raw),
        };
        Ok(Window { stream, bytes: vec![0; WINDOW_LEN], start: 0, end: 0, offset: 0, ended: false })
    }

    /// Number of bytes read from the input so far, before decompression.
    pub fn bytes_read(&self) -> u64 {
        self.stream.raw().count
    }

    /// Offset of the next byte in the uncompressed file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The unconsumed bytes in memory.
    pub fn ahead(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Consumes the next `len` bytes. [`passed`](Window::passed) returns them until the next call of
    /// [`reach`](Window::reach).
    pub fn pass(&mut self, len: usize) {
        assert!(len <= self.end - self.start, "only bytes that are in memory can be passed");
        self.start += len;
        self.offset += len as u64;
    }

    /// The last `len` consumed bytes.
    pub fn passed(&self, len: usize) -> &[u8] {
        &self.bytes[self.start - len..self.start]
    }

    /// Reads until at least `len` unconsumed bytes are in memory. Returns false if the file ends before that.
    #[inline]
    pub fn reach(&mut self, len: usize) -> Result<bool, Failure> {
        if self.end - self.start >= len {
            return Ok(true);
        }
        self.refill(len)
    }

    #[cold]
    fn refill(&mut self, len: usize) -> Result<bool, Failure> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        while self.end < len && !self.ended {
            if self.end == self.bytes.len() {
                self.bytes.resize(len.min(2 * self.bytes.len()), 0);
            }
            match self.stream.read(&mut self.bytes[self.end..]) {
                Ok(0) => self.ended = true,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(self.end >= len)
    }

    fn failure(&self, error: io::Error) -> Failure {
        let compression = match &self.stream {
            Stream::Gzip(_) => "gzip",
            Stream::Zstd(_) => "zstd",
            Stream::Plain(_) => return Failure::Input(error),
        };
        match (self.stream.raw().failed, error.kind()) {
            (true, _) => Failure::Input(error),
            (false, io::ErrorKind::UnexpectedEof) => {
                Failure::Compression(format!("the file ends within its {compression} compression"))
            }
            (false, _) => Failure::Compression(format!("the {compression} compression is damaged here: {error}")),
        }
    }
}

/// The reason why no more bytes could be read.
pub(crate) enum Failure {
    /// The input reported an error.
    Input(io::Error),
    /// The compressed data is damaged.
    Compression(String),
}

/// The input stream with its decompressor.
enum Stream<R: Read> {
    Plain(PeekedInput<R>),
    Gzip(Box<Members<BufReader<PeekedInput<R>>>>),
    Zstd(Box<zstd::Decoder<'static, BufReader<PeekedInput<R>>>>),
}

impl<R: Read> Stream<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(raw) => raw.read(into),
            Stream::Gzip(members) => members.read(into),
            Stream::Zstd(decoder) => decoder.read(into),
        }
    }

    fn raw(&self) -> &PeekedInput<R> {
        match self {
            Stream::Plain(raw) => raw,
            Stream::Gzip(members) => members.input().get_ref(),
            Stream::Zstd(decoder) => decoder.get_ref().get_ref(),
        }
    }
}

/// All members of a gzip file, in sequence (RFC 1952 section 2.2). Zeros behind the last member are ignored,
/// because tapes and devices pad with zeros; gzip(1) does the same.
struct Members<R> {
    /// Decoder of the current member; `None` only between two members.
    decoder: Option<GzDecoder<R>>,
    is_padded: bool,
}

impl<R: BufRead> Members<R> {
    fn new(input: R) -> Members<R> {
        Members { decoder: Some(GzDecoder::new(input)), is_padded: false }
    }

    fn input(&self) -> &R {
        self.decoder.as_ref().expect("it is missing only within `read`").get_ref()
    }

    /// Skips zeros. Returns whether any other byte follows.
    fn pass_zeros(&mut self) -> io::Result<bool> {
        let input = self.decoder.as_mut().expect("it is missing only within `read`").get_mut();
        loop {
            let ahead = input.fill_buf()?;
            let zeros = ahead.iter().take_while(|byte| **byte == 0).count();
            if zeros == 0 {
                return Ok(!ahead.is_empty());
            }
            self.is_padded = true;
            input.consume(zeros);
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let decoder = self.decoder.as_mut().expect("it is missing only within `read`");
            match decoder.read(into)? {
                0 if !into.is_empty() => {}
                count => return Ok(count),
            }
            if !self.pass_zeros()? {
                return Ok(0);
            }
            if self.is_padded {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "data follows the zero padding at the end of the file",
                ));
            }
            self.decoder = self.decoder.take().map(|decoder| GzDecoder::new(decoder.into_inner()));
        }
    }
}

/// The raw input and the number of bytes read from it. The first bytes are read ahead for the magic number, and
/// `read` returns them again.
struct PeekedInput<R> {
    input: R,
    count: u64,
    first: [u8; 4],
    first_len: usize,
    first_given: usize,
    failed: bool,
}

impl<R: Read> PeekedInput<R> {
    fn fill_first(&mut self) -> io::Result<()> {
        while self.first_len < self.first.len() {
            match self.input.read(&mut self.first[self.first_len..]) {
                Ok(0) => break,
                Ok(count) => {
                    self.first_len += count;
                    self.count += count as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl<R: Read> Read for PeekedInput<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.first_given < self.first_len {
            let count = (&self.first[self.first_given..self.first_len]).read(into)?;
            self.first_given += count;
            return Ok(count);
        }
        let result = self.input.read(into);
        match &result {
            Ok(count) => self.count += *count as u64,
            Err(error) => self.failed = error.kind() != io::ErrorKind::Interrupted,
        }
        result
    }
}

/// The attempted operation in the error message of a failed input, worded to follow "cannot".
pub(crate) const READING: &str = "read the capture";
/// Initial size of the window, in bytes. A longer record enlarges the window. This size fits a second-level cache.
const WINDOW_LEN: usize = 512 << 10;
/// Size of the buffer for compressed bytes, in bytes.
const COMPRESSED_LEN: usize = 128 << 10;
/// Largest accepted zstd window, as a power of two: 64 MiB. Files with a larger window are rejected, to bound
/// memory.
const WINDOW_LOG_MAX: u32 = 26;
