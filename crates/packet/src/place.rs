//! Memory where payloads should land in, packets whose payload lies there out.
//!
//! A port that copies frames to memory anyway can as well put the payload of one where it belongs in the end, if somebody guesses
//! where that is before its header is seen. Who guesses lends [`Places`], one for each of the frames that come next (K2); the
//! port receives headers and payloads apart (K1); what can be the fragment that was guessed is a [`Landed`], whose header then
//! tells whether the guess was right (K3). The payload of any other frame is copied out of its place (K4), so nothing is lost.

use crate::buffer::{Buffer, HEADROOM};
use crate::ip::{ICMPV6, TCP, UDP};
use crate::link::Medium;
use crate::packet::{Frame, Ingress, Packet};
use core::slice::IterMut;

/// Where the payloads of the frames that come next should land, in their order.
#[derive(Debug)]
pub struct Places<'a> {
    front: Front,
    step: usize,
    rest: &'a mut [u8],
    fresh: IterMut<'a, Option<Buffer>>,
    fresh_len: usize,
    left: usize,
    taken_count: &'a mut usize,
}

/// What stands in front of the payload of the fragments that are expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Front {
    /// Length of the link header, in bytes.
    pub link_len: usize,
    /// Length of the IP header, a Fragment header counted, in bytes.
    pub header_len: usize,
}

/// How places lie: pieces of a datagram one behind the other, then those of datagrams of which nothing has come.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// What stands in front of each payload.
    pub front: Front,
    /// Payload of each piece but the last, in bytes.
    pub step: usize,
    /// Payload of each datagram of which nothing has come, in bytes.
    pub fresh_len: usize,
    /// Places, at most.
    pub count: usize,
}

/// A fragment whose payload lies at its place, apart from its header.
#[derive(Debug)]
pub struct Landed {
    packet: Packet,
    /// Where the payload would stand in the buffer's memory, and its length with the link's padding, in bytes.
    payload_at: usize,
    len: usize,
}

impl<'a> Places<'a> {
    /// Places in `rest`, what is missing of a datagram, and then in the content of `fresh` buffers. How many are taken is
    /// written to `taken_count`.
    pub fn new(
        grid: Grid,
        rest: &'a mut [u8],
        fresh: &'a mut [Option<Buffer>],
        taken_count: &'a mut usize,
    ) -> Places<'a> {
        let Grid { front, step, fresh_len, count } = grid;
        *taken_count = 0;
        Places { front, step: step.max(1), rest, fresh: fresh.iter_mut(), fresh_len, left: count, taken_count }
    }

    /// What is to be received in front of each of them.
    pub fn front(&self) -> Front {
        self.front
    }

    /// Length of the longest place, in bytes.
    pub fn step(&self) -> usize {
        self.step
    }
}

impl<'a> Iterator for Places<'a> {
    type Item = &'a mut [u8];

    fn next(&mut self) -> Option<&'a mut [u8]> {
        if self.left == 0 {
            return None;
        }
        if self.rest.is_empty() {
            let buffer = self.fresh.by_ref().flatten().next()?;
            self.rest = buffer.bytes_mut(HEADROOM..HEADROOM + self.fresh_len);
        }
        let rest = core::mem::take(&mut self.rest);
        let (place, rest) = rest.split_at_mut(self.step.min(rest.len()));
        self.rest = rest;
        self.left -= 1;
        *self.taken_count += 1;
        Some(place)
    }
}

impl Front {
    /// Bytes in front of the payload.
    pub fn len(self) -> usize {
        self.link_len + self.header_len
    }

    /// Never: there is an IP header.
    pub fn is_empty(self) -> bool {
        false
    }

    /// How much of the payload must be seen to read a packet with these bytes in front, if it can be a fragment.
    fn peek_len(self, front: &[u8]) -> Option<usize> {
        let header = front.get(self.link_len..)?;
        match *header.first()? {
            V4_PLAIN if self.header_len == V4_LEN => {
                let word = u16::from_be_bytes([*header.get(6)?, *header.get(7)?]);
                let is_first = word & V4_OFFSET == 0;
                (word & (V4_OFFSET | V4_MORE) != 0).then_some(if is_first { PEEK_LEN } else { 0 })
            }
            first if first >> 4 == 6 && self.header_len == V6_LEN => {
                let &[next_header, _, high, low, ..] = header.get(V6_LEN - V6_FRAGMENT_LEN..)? else { return None };
                let is_first = u16::from_be_bytes([high, low]) & V6_OFFSET == 0;
                // More extension headers would have to be read where the payload starts.
                let is_plain = matches!(next_header, TCP | UDP | ICMPV6);
                let is_fragment = header.get(6) == Some(&V6_FRAGMENT);
                (is_fragment && (is_plain || !is_first)).then_some(if is_first { PEEK_LEN } else { 0 })
            }
            _ => None,
        }
    }
}

impl Landed {
    /// Reads the frame of `len` bytes whose front lies at `at` in the buffer's memory, the bytes behind it in `place`, and what
    /// found no room there in the buffer again, behind room for as much as the place takes.
    ///
    /// # Errors
    /// The buffer, with the whole frame in it: it is not what was expected.
    pub fn read(
        mut buffer: Buffer,
        at: usize,
        len: usize,
        front: Front,
        place: &[u8],
        medium: Medium,
        ingress: Ingress,
    ) -> Result<Landed, Buffer> {
        let payload_at = at + front.len();
        let Some(behind_len) = len.checked_sub(front.len()) else { return Err(buffer) };
        if behind_len <= place.len()
            && let Some(peek_len) = front.peek_len(buffer.bytes(at..payload_at))
        {
            put(&mut buffer, payload_at, place, peek_len.min(behind_len));
            buffer = match Frame::read(buffer, at, len, medium, ingress) {
                Frame::Ip(packet) if front.is_of(&packet) => {
                    return Ok(Landed { packet, payload_at, len: behind_len });
                }
                Frame::Ip(packet) => packet.into_buffer(),
                Frame::Other(raw, _) => raw.into_buffer(),
            };
        }
        put(&mut buffer, payload_at, place, behind_len);
        Err(buffer)
    }

    /// The fragment. Its headers are there, its payload is not.
    #[inline]
    pub fn piece(&self) -> &Packet {
        &self.packet
    }

    /// The same, for what its port knows of it.
    pub fn piece_mut(&mut self) -> &mut Packet {
        &mut self.packet
    }

    /// Bytes of its place that are its own.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Is nothing of its place its own?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The whole fragment, its payload copied out of its place.
    pub fn copy_out(mut self, place: &[u8]) -> Packet {
        if let Some(bytes) = place.get(..self.len) {
            self.packet.memory_mut().put(self.payload_at, bytes);
        }
        self.packet
    }

    /// Gives the buffer back; what lies at its place belongs to whom it was lent by.
    #[inline]
    pub fn into_buffer(self) -> Buffer {
        self.packet.into_buffer()
    }
}

impl Front {
    fn is_of(self, packet: &Packet) -> bool {
        let ip = packet.ip();
        ip.fragment.is_some() && packet.link_len() == self.link_len && usize::from(ip.payload_at) == self.header_len
    }
}

/// Copies the first `len` bytes of a place, or all.
fn put(buffer: &mut Buffer, at: usize, place: &[u8], len: usize) {
    buffer.put(at, place.get(..len).unwrap_or(place));
}

/// As much of a first piece's payload as anybody reads: a UDP header and the start of a tunnel's behind it, in bytes.
const PEEK_LEN: usize = 64;
/// First byte and length of an IPv4 header without options, and what its word of flags and offset says.
const V4_PLAIN: u8 = 0x45;
const V4_LEN: usize = 20;
const V4_OFFSET: u16 = 0x1FFF;
const V4_MORE: u16 = 0x2000;
/// Length of an IPv6 header with a Fragment header alone behind it, that header's length and number, and its offset.
const V6_LEN: usize = 48;
const V6_FRAGMENT_LEN: usize = 8;
const V6_FRAGMENT: u8 = 44;
const V6_OFFSET: u16 = 0xFFF8;
