//! Buffers of a pool -> memory for one frame of any length: a small buffer and an overflow buffer.
//!
//! Most frames are short, and the length of the next frame is unknown. A short frame stays in the small buffer. A
//! longer frame continues in the overflow buffer, which then becomes the frame's buffer. Only the part in the small
//! buffer is copied, to the start of the overflow buffer.
//!
//! With header split, the payload is received directly into a predicted place, and the headers into the small
//! buffer. The small buffer keeps room for the payload, in case the frame does not match the prediction.

use crate::vnet::{self, Split, VnetHeader};
use packet::{Buffer, CLASS_LENS, HEADROOM, HeaderLayout, LinkType, PayloadSlots, Pool, SplitFrame};
use std::ptr;

/// Position of a port's frames in their buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Offset of the frame's first byte in the buffer, in bytes.
    pub at: usize,
    /// Offset at which the small buffer's part of a frame ends, in bytes.
    seam: usize,
}

/// Memory for one frame and its virtio-net header.
#[derive(Debug, Default)]
pub(crate) struct RxBuffer {
    small: Option<Buffer>,
    overflow: Option<Buffer>,
    /// Whether the kernel receives the frame into the overflow buffer only.
    is_spill_first: bool,
    /// The virtio-net header.
    pub vnet: [u8; vnet::LEN],
}

/// A frame that was received into memory for header split.
#[derive(Debug)]
pub(crate) enum RxOutcome {
    /// A frame that matches the prediction. Its payload is in the predicted place.
    Split(SplitFrame),
    /// Any other frame, in contiguous memory.
    Single(Buffer),
}

impl Layout {
    /// Returns the layout for a port with this MTU.
    pub fn new(link_type: LinkType, mtu: usize) -> Layout {
        let link_len = if link_type == LinkType::Ethernet { ETHERNET_LEN } else { 0 };
        let [small, _, link_type, _] = CLASS_LENS;
        // With an MTU above the medium class, most frames exceed the small buffer. A smaller buffer then means a
        // smaller copy.
        let front_len = if mtu > small && mtu <= link_type { link_type } else { small };
        Layout { at: HEADROOM - link_len, seam: HEADROOM + front_len }
    }

    /// Whether frames can be received with header split into `places`. If the kernel strips VLAN tags, the
    /// predicted link header must have no tags: `link_len` is then its required length in bytes, otherwise `None`.
    pub fn takes(self, places: &PayloadSlots<'_>, link_len: Option<usize>) -> bool {
        let front = places.front();
        let fits = front.len() + places.step() <= self.front_len();
        fits && link_len.is_none_or(|link_len| link_len == front.link_len)
    }

    /// Whether a frame of `len` bytes exceeds the small buffer.
    pub fn is_long(self, len: usize) -> bool {
        len > self.front_len()
    }

    /// Returns the length of the part in the small buffer, in bytes.
    fn front_len(self) -> usize {
        self.seam - self.at
    }
}

impl RxBuffer {
    /// Takes a small buffer from the pool, if there is none yet. Returns whether a small buffer is available.
    pub fn allocate_small(&mut self, layout: Layout, pool: &mut Pool) -> bool {
        if self.small.is_none() {
            self.small = pool.allocate(layout.seam - HEADROOM);
        }
        self.small.is_some()
    }

    /// Takes an overflow buffer from the pool, if there is none yet. Returns whether an overflow buffer is
    /// available.
    pub fn allocate_overflow(&mut self, pool: &mut Pool) -> bool {
        let [.., largest] = CLASS_LENS;
        if self.overflow.is_none() {
            self.overflow = pool.allocate(largest);
        }
        self.overflow.is_some()
    }

    /// Returns the memory as I/O vectors: the virtio-net header (its first `vnet_len` bytes), the small buffer, the
    /// overflow buffer. A missing buffer has length 0. Without a small buffer, only the virtio-net header has
    /// memory.
    pub fn parts(&mut self, layout: Layout, vnet_len: usize) -> [libc::iovec; 3] {
        let RxBuffer { small, overflow: spill, is_spill_first, vnet } = self;
        *is_spill_first = false;
        let vnet = part(&mut vnet[..vnet_len]);
        let Some(small) = small else { return [vnet, NOTHING, NOTHING] };
        let small = part(small.bytes_mut(layout.at..layout.seam));
        let spill = spill.as_mut().map_or(NOTHING, |spill| part(spill.bytes_mut(layout.seam..OVERFLOW_END)));
        [vnet, small, spill]
    }

    /// Returns the memory for a long frame as I/O vectors: the virtio-net header, the overflow buffer. So a long
    /// frame needs no copy, but a short frame is copied completely.
    pub fn parts_long(&mut self, layout: Layout, vnet_len: usize) -> [libc::iovec; 3] {
        let (Some(_), Some(spill)) = (&self.small, &mut self.overflow) else { return self.parts(layout, vnet_len) };
        self.is_spill_first = true;
        [part(&mut self.vnet[..vnet_len]), part(spill.bytes_mut(layout.at..OVERFLOW_END)), NOTHING]
    }

    /// Returns the memory for header split as I/O vectors: the small buffer for the virtio-net header and the
    /// headers of `front`, `place` for the payload, and the overflow buffer. Without both buffers, returns the
    /// result of [`parts`](RxBuffer::parts).
    pub fn split_iovecs(
        &mut self,
        layout: Layout,
        vnet_len: usize,
        front: HeaderLayout,
        place: &mut [u8],
    ) -> [libc::iovec; 3] {
        let (Some(small), Some(spill)) = (&mut self.small, &mut self.overflow) else {
            return self.parts(layout, vnet_len);
        };
        let place_at = layout.at + front.len();
        // Includes the virtio-net header in front of the frame. One vector less saves a tenth of a microsecond.
        let small = part(small.bytes_mut(layout.at - vnet_len..place_at));
        let spill = part(spill.bytes_mut(place_at + place.len()..OVERFLOW_END));
        [small, part(place), spill]
    }

    /// Whether there is memory for a frame of any length.
    pub fn is_stocked(&self) -> bool {
        self.small.is_some() && self.overflow.is_some()
    }

    /// Whether a frame of `len` bytes may have been truncated.
    pub fn may_be_cut(&self, layout: Layout, len: usize) -> bool {
        let room = if self.overflow.is_some() { OVERFLOW_END - layout.at } else { layout.front_len() };
        len >= room
    }

    /// Returns the buffer with the received frame of `len` bytes; `None` if there was no memory for the frame.
    pub fn take(&mut self, layout: Layout, len: usize) -> Option<Buffer> {
        let is_short = len <= layout.front_len();
        match (&mut self.small, &mut self.overflow) {
            (None, _) => return None,
            (Some(small), Some(spill)) if is_short && self.is_spill_first => {
                small.put(layout.at, spill.bytes(layout.at..layout.at + len));
            }
            (Some(small), Some(spill)) if !is_short && !self.is_spill_first => {
                spill.put(layout.at, small.bytes(layout.at..layout.seam));
            }
            _ => {}
        }
        if is_short { self.small.take() } else { self.overflow.take() }
    }

    /// Returns the frame that was received into [`split_iovecs`](RxBuffer::split_iovecs). The
    /// [memory](RxBuffer::is_stocked) must have been complete. `laid` is the position of the frame after it is made
    /// contiguous. A frame that does not match the prediction is made contiguous, and so is every frame if
    /// `may_stay` is false.
    pub fn split_frame(
        &mut self,
        vnet_len: usize,
        laid: Split,
        (front, place): (HeaderLayout, &[u8]),
        may_stay: bool,
    ) -> Option<RxOutcome> {
        let Split { at, len, link_type, ingress } = laid;
        let place_at = at + front.len();
        let mut small = self.small.take()?;
        self.vnet[..vnet_len].copy_from_slice(small.bytes(at - vnet_len..at));
        if len > front.len() + place.len() {
            let mut spill = self.overflow.take()?;
            spill.put(at, small.bytes(at..place_at));
            spill.put(place_at, place);
            self.small = Some(small);
            return Some(RxOutcome::Single(spill));
        }
        let header = VnetHeader::read(&self.vnet);
        if !may_stay || !header.leaves_nothing() {
            small.put(place_at, &place[..len.saturating_sub(front.len())]);
            return Some(RxOutcome::Single(small));
        }
        Some(match SplitFrame::of(small, at, len, front, place, link_type, ingress) {
            Ok(split_frame) => RxOutcome::Split(split_frame.with_checksum(header.checksum())),
            Err(buffer) => RxOutcome::Single(buffer),
        })
    }

    /// Returns the number of buffers in this memory.
    pub fn kept_count(&self) -> usize {
        usize::from(self.small.is_some()) + usize::from(self.overflow.is_some())
    }

    /// Returns the buffers to the pool.
    pub fn give_back(&mut self, pool: &mut Pool) {
        self.small.take().into_iter().chain(self.overflow.take()).for_each(|buffer| pool.give(buffer));
    }
}

/// Returns an I/O vector over memory that the kernel may write to.
fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() }
}

/// Size limit of a batch of several frames, in bytes. In a measurement with GSO packets of 64 KiB over packet
/// sockets, batches of 16 cost a tenth less than batches of 64 frames. Larger batches leave the CPU's cache before
/// they are sent.
pub(crate) const BATCH_LEN: usize = 1 << 20;
/// An I/O vector without memory.
pub(crate) const NOTHING: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
/// Length of an Ethernet header without tags, in bytes.
const ETHERNET_LEN: usize = 14;
/// End of the longest frame in a buffer, in bytes. The longest packet with two tags extends a few bytes into the
/// buffer's bitmap. The bitmap has no meaning for a received packet.
const OVERFLOW_END: usize = HEADROOM + 65_536 + 8;

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Ingress;

    #[test]
    fn a_frame_of_any_length_is_contiguous() {
        let mut pool = Pool::new(1 << 20);
        for (link_type, mtu) in [(LinkType::Ethernet, 1_500), (LinkType::Ethernet, 9_000), (LinkType::Ip, 65_535)] {
            let layout = Layout::new(link_type, mtu);
            for len in [1, 60, 1_514, 2_048, 2_049, 2_062, 2_063, 9_014, 16_384, 16_398, 16_399, 65_535] {
                let frame: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
                let mut landing = RxBuffer::default();
                assert!(landing.allocate_small(layout, &mut pool) && landing.allocate_overflow(&mut pool));
                scatter(&mut landing, layout, &frame);
                assert!(!landing.may_be_cut(layout, len), "{len}");
                let buffer = landing.take(layout, len).expect("there is memory");
                assert_eq!(buffer.bytes(layout.at..layout.at + len), frame, "{len} on {mtu}");
                assert_eq!(landing.kept_count(), 1);
                pool.give(buffer);
                landing.give_back(&mut pool);
                assert_eq!(pool.in_use_count(), 0);
            }
        }
    }

    #[test]
    fn expected_long_frames_are_not_copied_and_short_ones_use_the_small_buffer() {
        let mut pool = Pool::new(1 << 20);
        let layout = Layout::new(LinkType::Ethernet, 9_000);
        for len in [1, 60, 9_014, 16_398, 16_399, 65_535] {
            let frame: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
            let mut landing = RxBuffer::default();
            assert!(landing.allocate_small(layout, &mut pool) && landing.allocate_overflow(&mut pool));
            let [_, spill, none] = landing.parts_long(layout, vnet::LEN);
            assert!(spill.iov_len > 65_535 && none.iov_len == 0);
            landing.small.as_mut().expect("it was lent").put(layout.at, &[0xEE; 20]);
            landing.overflow.as_mut().expect("it was lent").put(layout.at, &frame);
            let buffer = landing.take(layout, len).expect("there is memory");
            assert_eq!(buffer.bytes(layout.at..layout.at + len), frame, "{len}");
            assert_eq!(buffer.capacity() == 65_536, layout.is_long(len), "{len}");
            pool.give(buffer);
            landing.give_back(&mut pool);
            assert_eq!(pool.in_use_count(), 0);
        }
    }

    #[test]
    fn without_memory_for_long_frames_all_are_received_alike() {
        let mut pool = Pool::new(20_000);
        let layout = Layout::new(LinkType::Ethernet, 9_000);
        let mut landing = RxBuffer::default();
        assert!(landing.allocate_small(layout, &mut pool) && !landing.allocate_overflow(&mut pool));
        let lens = landing.parts_long(layout, vnet::LEN).map(|part| part.iov_len);
        assert_eq!(lens, [vnet::LEN, layout.front_len(), 0]);
        landing.small.as_mut().expect("it was lent").put(layout.at, &[7; 60]);
        let buffer = landing.take(layout, 60).expect("there is memory");
        assert_eq!(buffer.bytes(layout.at..layout.at + 60), [7; 60]);
    }

    #[test]
    fn the_small_buffer_takes_a_whole_packet_of_a_usual_mtu() {
        for (mtu, front_len) in [(1_500, 2_048), (2_048, 2_048), (9_000, 16_384), (65_535, 2_048)] {
            assert_eq!(Layout::new(LinkType::Ip, mtu).front_len(), front_len, "{mtu}");
            assert_eq!(Layout::new(LinkType::Ethernet, mtu).front_len(), 14 + front_len, "{mtu}");
        }
    }

    #[test]
    fn without_overflow_a_full_small_buffer_counts_as_truncated() {
        let layout = Layout::new(LinkType::Ip, 1_500);
        let mut pool = Pool::new(5_000);
        let mut landing = RxBuffer::default();
        assert!(landing.allocate_small(layout, &mut pool) && !landing.allocate_overflow(&mut pool));
        assert!(!landing.may_be_cut(layout, 2_047) && landing.may_be_cut(layout, 2_048));
        assert!(landing.take(layout, 2_049).is_none());
    }

    #[test]
    fn a_frame_in_an_unsuitable_place_stays_whole() {
        let mut pool = Pool::new(1 << 20);
        let layout = Layout::new(LinkType::Ethernet, 1_500);
        let front = HeaderLayout { link_len: 14, header_len: 20 };
        for len in [1, 20, 34, 35, 60, 1_513, 1_514, 1_515, 2_062, 2_063, 9_014, 65_535] {
            for place_len in [8, 1_480] {
                let frame: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
                let mut landing = RxBuffer::default();
                assert!(landing.allocate_small(layout, &mut pool) && landing.allocate_overflow(&mut pool));
                let mut place = vec![0xEE; place_len];
                let lens = landing.split_iovecs(layout, vnet::LEN, front, &mut place).map(|part| part.iov_len);
                assert_eq!(lens[..2], [vnet::LEN + 34, place_len]);
                assert!(lens.iter().sum::<usize>() > vnet::LEN + 65_535, "{lens:?}");
                scatter_apart(&mut landing, layout, front, &mut place, &frame);
                let laid = Split { at: layout.at, len, link_type: LinkType::Ethernet, ingress: Ingress(0) };
                let came = landing.split_frame(vnet::LEN, laid, (front, &place), true);
                let Some(RxOutcome::Single(buffer)) = came else { panic!("{len} bytes are no fragment") };
                assert_eq!(buffer.bytes(layout.at..layout.at + len), frame, "{len} behind {place_len}");
                pool.give(buffer);
                landing.give_back(&mut pool);
                assert_eq!(pool.in_use_count(), 0);
            }
        }
    }

    /// Fills the I/O vectors around a place, as the kernel does.
    fn scatter_apart(landing: &mut RxBuffer, layout: Layout, front: HeaderLayout, place: &mut [u8], frame: &[u8]) {
        let (header, rest) = frame.split_at(frame.len().min(front.len()));
        let (payload, rest) = rest.split_at(rest.len().min(place.len()));
        let small = landing.small.as_mut().expect("it was lent");
        small.put(layout.at - vnet::LEN, &[0; vnet::LEN]);
        small.put(layout.at, header);
        place[..payload.len()].copy_from_slice(payload);
        landing.overflow.as_mut().expect("it was lent").put(layout.at + front.len() + place.len(), rest);
    }

    /// Fills the I/O vectors, as the kernel does.
    fn scatter(landing: &mut RxBuffer, layout: Layout, frame: &[u8]) {
        let (front, rest) = frame.split_at(frame.len().min(layout.front_len()));
        landing.small.as_mut().expect("it was lent").put(layout.at, front);
        landing.overflow.as_mut().expect("it was lent").put(layout.seam, rest);
        let [_, small, spill] = landing.parts(layout, 12);
        assert!(small.iov_len + spill.iov_len > HEADROOM - layout.at + 65_535 + 8);
    }
}
