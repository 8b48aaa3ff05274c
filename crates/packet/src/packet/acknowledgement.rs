//! A TCP packet with one acknowledgement -> the same packet with another one.
//!
//! The checksum is updated for the changed bytes alone (RFC 1624), so a damaged packet stays damaged. The choice of
//! the numbers is left to the engine.

use super::{Body, Checksum};
use crate::checksum::{Sum, patched};
use crate::ip::TCP;
use crate::tcp::{self, Segment, TcpOption, Timestamps};

/// Methods for acknowledgements. They have no effect on other packets than unfragmented TCP segments.
impl Body {
    /// Writes the acknowledgement number, and the window without window scaling.
    pub fn set_ack(&mut self, ack: u32, window: u16) {
        self.put_tcp(ACK_AT, &ack.to_be_bytes());
        self.put_tcp(WINDOW_AT, &window.to_be_bytes());
    }

    /// Returns the timestamps (RFC 7323 section 3). `None` without this option.
    pub fn timestamps(&self) -> Option<Timestamps> {
        options_at(self.tcp_segment()?.options).find_map(|(at, option)| match option {
            TcpOption::Timestamps { value, echo } => Some(Timestamps { at: at as u16, value, echo }),
            _ => None,
        })
    }

    /// Writes timestamps at their offset, which must be that of this packet's own ones.
    pub fn set_timestamps(&mut self, stamps: &Timestamps) {
        if self.timestamps().is_some_and(|own| own.at == stamps.at) {
            let at = usize::from(stamps.at) + 2;
            self.put_tcp(at, &stamps.value.to_be_bytes());
            self.put_tcp(at + 4, &stamps.echo.to_be_bytes());
        }
    }

    /// Returns the blocks of selective acknowledgements: the first byte of each, and the byte behind it (RFC 2018
    /// section 3).
    pub fn sack_blocks(&self) -> impl Iterator<Item = [u32; 2]> {
        let options = tcp::options(self.tcp_segment().map_or(&[], |segment| segment.options));
        let blocks = options.filter_map(|option| match option {
            TcpOption::Sack(blocks) => Some(blocks),
            _ => None,
        });
        blocks.flat_map(|blocks| blocks.as_chunks().0).map(block)
    }

    /// Removes the blocks of selective acknowledgements that do not begin after `ack`. Padding replaces them.
    pub fn keep_sack_after(&mut self, ack: u32) {
        let Some(segment) = self.tcp_segment() else { return };
        let found = options_at(segment.options).find_map(|(at, option)| match option {
            TcpOption::Sack(blocks) => Some((at, blocks)),
            _ => None,
        });
        let Some((at, blocks)) = found else { return };
        let mut kept = Vec::with_capacity(2 + blocks.len());
        kept.extend([SACK, 0]);
        blocks
            .as_chunks()
            .0
            .iter()
            .filter(|bytes| tcp::is_before(ack, block(bytes)[0]))
            .for_each(|it| kept.extend(it));
        match kept.as_mut_slice() {
            [_, _] => kept.clear(),
            [_, len, blocks @ ..] => *len = 2 + blocks.len() as u8,
            _ => {}
        }
        kept.resize(2 + blocks.len(), NO_OPERATION);
        self.put_tcp(at, &kept);
    }

    /// Replaces bytes of the TCP header, at an offset from its start. Updates the checksum. A partial checksum stays
    /// unchanged, because it does not cover them.
    fn put_tcp(&mut self, at: usize, bytes: &[u8]) {
        let Some(upper) = self.ip.upper.filter(|_| self.tcp_segment().is_some()) else { return };
        let start = usize::from(upper.at);
        let Some(before) = self.bytes().get(start + at..start + at + bytes.len()) else { return };
        let [old, new] = [before, bytes].map(|bytes| Sum::of(bytes).at(at).fold());
        let field = patched(self.word(start + tcp::CHECKSUM_AT), old, new);
        self.memory.put(self.ip_at as usize + start + at, bytes);
        if self.checksum != Checksum::Partial {
            self.set_word(start + tcp::CHECKSUM_AT, field);
        }
        self.mark_modified();
    }

    fn tcp_segment(&self) -> Option<Segment<'_>> {
        let upper = self.ip.upper.filter(|upper| upper.protocol == TCP && self.ip.fragment.is_none())?;
        Segment::parse(self.upper_bytes(upper))
    }
}

/// Parses options with their offsets, in bytes from the TCP header.
fn options_at(options: &[u8]) -> impl Iterator<Item = (usize, TcpOption<'_>)> {
    tcp::options(options).scan(tcp::HEADER_LEN, |next, option| {
        let at = *next;
        *next += option.len();
        Some((at, option))
    })
}

fn block(&[s0, s1, s2, s3, e0, e1, e2, e3]: &[u8; 8]) -> [u32; 2] {
    [[s0, s1, s2, s3], [e0, e1, e2, e3]].map(u32::from_be_bytes)
}

/// Offset of the acknowledgement number in a TCP header, in bytes (RFC 9293 section 3.1).
const ACK_AT: usize = 8;
/// Offset of the window, in bytes.
const WINDOW_AT: usize = 14;
/// The kind of the option for selective acknowledgements (RFC 2018 section 3).
const SACK: u8 = 5;
/// One byte of padding (RFC 9293 section 3.1).
const NO_OPERATION: u8 = 1;
