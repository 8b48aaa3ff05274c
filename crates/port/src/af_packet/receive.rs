//! A packet socket's queue -> frames in buffers, one batch per system call.
//!
//! The kernel strips a VLAN tag from a frame and reports the tag in the ancillary data. Here the tag is inserted
//! again, so that other modules see the frame as it was on the wire.

use super::{BATCH_COUNT, NO_MESSAGE};
use crate::rx_buffer::{BATCH_LEN, Layout, NOTHING, RxBuffer, RxOutcome};
use crate::vnet::{Split, VnetHeader};
use linux::device::checked;
use packet::{Buffer, HeaderLayout, LinkType, PayloadSlots, Pool, SplitFrame};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

/// The buffers and messages for receiving batches of frames.
pub(super) struct Receiving {
    /// Largest number of frames in the next batch.
    wanted_count: usize,
    /// Predicted length of the next frames.
    expected: Expected,
    rx_buffers: [RxBuffer; BATCH_COUNT],
    controls: [Control; BATCH_COUNT],
    parts: [[libc::iovec; 3]; BATCH_COUNT],
    messages: [libc::mmsghdr; BATCH_COUNT],
}

/// Predicted length of the next frames. It determines the buffer into which the kernel writes a frame first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Frames at most as long as the MTU.
    Short,
    /// GSO packets.
    Long,
}

/// Destinations of the payloads of a batch with header split.
pub(super) struct SplitWriter<'a> {
    front: HeaderLayout,
    places: [Option<&'a mut [u8]>; BATCH_COUNT],
}

/// A frame of a batch.
pub(super) enum ReceivedFrame {
    /// A frame whose payload is in its predicted place.
    Split(SplitFrame),
    /// A contiguous frame: its buffer, its position, and its virtio-net header.
    Single(Buffer, Split, VnetHeader),
}

/// Memory for a frame's ancillary data.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Control([u8; CONTROL_LEN]);

// SAFETY: the pointers are written anew before each call to the kernel and followed by nobody after it.
unsafe impl Send for Receiving {}

impl<'a> SplitWriter<'a> {
    /// Makes a writer with the first `count` of these places.
    pub(super) fn new(mut places: PayloadSlots<'a>, count: usize) -> SplitWriter<'a> {
        let front = places.front();
        let next = |index: usize| if index < count { places.next() } else { None };
        SplitWriter { front, places: std::array::from_fn(next) }
    }

    pub(super) fn place(&self, index: usize) -> Option<(HeaderLayout, &[u8])> {
        self.places[index].as_deref().map(|place| (self.front, place))
    }

    fn place_mut(&mut self, index: usize) -> Option<(HeaderLayout, &mut [u8])> {
        self.places[index].as_deref_mut().map(|place| (self.front, place))
    }
}

impl Receiving {
    pub(super) fn new() -> Receiving {
        Receiving {
            wanted_count: FIRST_BATCH_COUNT,
            expected: Expected::Short,
            rx_buffers: std::array::from_fn(|_| RxBuffer::default()),
            controls: [Control([0; CONTROL_LEN]); BATCH_COUNT],
            parts: [[NOTHING; 3]; BATCH_COUNT],
            messages: [NO_MESSAGE; BATCH_COUNT],
        }
    }

    /// Takes the buffers of a batch from the pool, and returns the number of frames to receive. If memory is short,
    /// the batch is smaller. Without any memory, only headers are received, and the frames are dropped.
    pub(super) fn stock(&mut self, layout: Layout, pool: &mut Pool) -> usize {
        let wanted = &mut self.rx_buffers[..self.wanted_count];
        let mut whole =
            |landing: &mut RxBuffer| landing.allocate_small(layout, pool) && landing.allocate_overflow(pool);
        match wanted.iter_mut().position(|landing| !whole(landing)) {
            None | Some(0) => wanted.len(),
            Some(count) => count,
        }
    }

    /// Receives up to `count` frames, and returns the number of frames that arrived.
    pub(super) fn call(
        &mut self,
        socket: &OwnedFd,
        layout: Layout,
        vnet_len: usize,
        count: usize,
        apart: &mut Option<SplitWriter<'_>>,
    ) -> io::Result<usize> {
        for index in 0..count {
            let parts = &mut self.parts[index];
            let landing = &mut self.rx_buffers[index];
            *parts = match apart.as_mut().and_then(|apart| apart.place_mut(index)) {
                Some((front, place)) => landing.split_iovecs(layout, vnet_len, front, place),
                None if self.expected == Expected::Long => landing.parts_long(layout, vnet_len),
                None => landing.parts(layout, vnet_len),
            };
            let header = &mut self.messages[index].msg_hdr;
            (header.msg_iov, header.msg_iovlen) = (parts.as_mut_ptr(), parts.len() as _);
            let control = &mut self.controls[index].0;
            (header.msg_control, header.msg_controllen) = (control.as_mut_ptr().cast(), CONTROL_LEN as _);
        }
        receive_messages(socket, &mut self.messages[..count])
    }

    /// Sets the size of the next batch, after a batch of `count` frames. The size grows while more frames are
    /// available. It shrinks if long frames would leave the CPU's cache before they are sent.
    pub(super) fn settle_batch(&mut self, count: usize, was_last: bool, layout: Layout) {
        let lens = self.messages[..count].iter().map(|message| message.msg_len as usize);
        let (len, longest) = (lens.clone().sum::<usize>(), lens.max());
        if let Some(longest) = longest {
            self.expected = if layout.is_long(longest) { Expected::Long } else { Expected::Short };
        }
        if len > BATCH_LEN || self.expected == Expected::Long {
            self.wanted_count = (self.wanted_count / 2).max(GSO_COUNT);
        } else if !was_last && 2 * len <= BATCH_LEN {
            self.wanted_count = (self.wanted_count * 2).min(BATCH_COUNT);
        }
    }

    /// Returns the frame of message `index`; `None` if the frame was truncated, or if there was no memory for it.
    pub(super) fn take(
        &mut self,
        index: usize,
        layout: Layout,
        vnet_len: usize,
        laid: Split,
        place: Option<(HeaderLayout, &[u8])>,
        may_stay: bool,
    ) -> Option<ReceivedFrame> {
        let message = &self.messages[index];
        let landing = &mut self.rx_buffers[index];
        if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let len = (message.msg_len as usize).checked_sub(vnet_len)?;
        let laid = Split { len, ..laid };
        #[allow(clippy::unnecessary_cast, reason = "musl counts it in another type")]
        let control_len = (message.msg_hdr.msg_controllen as usize).min(CONTROL_LEN);
        let tag = tag(&self.controls[index].0[..control_len]);
        let came = match place {
            Some(place) => landing.split_frame(vnet_len, laid, place, may_stay && tag.is_none())?,
            None => RxOutcome::Single(landing.take(layout, len)?),
        };
        let mut buffer = match came {
            RxOutcome::Split(it) => return Some(ReceivedFrame::Split(it)),
            RxOutcome::Single(buffer) => buffer,
        };
        let header = VnetHeader::read(&landing.vnet);
        Some(match tag {
            Some(tag) if laid.link_type == LinkType::Ethernet && len >= ADDRESSES_LEN => {
                insert_tag(&mut buffer, laid.at, tag);
                let laid = Split { at: laid.at - TAG_LEN, len: len + TAG_LEN, ..laid };
                ReceivedFrame::Single(buffer, laid, header.moved_by(TAG_LEN as u16))
            }
            _ => ReceivedFrame::Single(buffer, laid, header),
        })
    }

    /// Whether each of the first `count` messages has memory for a frame of any length.
    pub(super) fn is_stocked(&self, count: usize) -> bool {
        self.rx_buffers[..count].iter().all(RxBuffer::is_stocked)
    }

    /// Returns the number of buffers kept for the next frames.
    pub(super) fn kept_count(&self) -> usize {
        self.rx_buffers.iter().map(RxBuffer::kept_count).sum()
    }

    /// Returns the kept buffers to the pool.
    pub(super) fn give_back(&mut self, pool: &mut Pool) {
        self.rx_buffers.iter_mut().for_each(|landing| landing.give_back(pool));
        self.wanted_count = FIRST_BATCH_COUNT;
    }
}

/// Returns the VLAN tag that the kernel stripped from a frame, from the ancillary data (packet(7),
/// `PACKET_AUXDATA`).
fn tag(control: &[u8]) -> Option<[u8; TAG_LEN]> {
    let word = |at: usize| control.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let half = |at: usize| control.get(at..at + 2)?.try_into().ok().map(u16::from_ne_bytes);
    let level = word(mem::offset_of!(libc::cmsghdr, cmsg_level))?;
    let kind = word(mem::offset_of!(libc::cmsghdr, cmsg_type))?;
    if (level as libc::c_int, kind as libc::c_int) != (libc::SOL_PACKET, libc::PACKET_AUXDATA) {
        return None;
    }
    let told_at = size_of::<libc::cmsghdr>();
    let status = word(told_at + mem::offset_of!(libc::tpacket_auxdata, tp_status))?;
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let [c0, c1] = half(told_at + mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tci))?.to_be_bytes();
    let protocol = half(told_at + mem::offset_of!(libc::tpacket_auxdata, tp_vlan_tpid))?;
    let is_told = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [p0, p1] = if is_told { protocol } else { libc::ETH_P_8021Q as u16 }.to_be_bytes();
    Some([p0, p1, c0, c1])
}

/// Inserts a tag after the MAC addresses of the frame at `at`. The frame then starts earlier by the tag's length.
fn insert_tag(buffer: &mut Buffer, at: usize, tag: [u8; TAG_LEN]) {
    let front = buffer.bytes_mut(at - TAG_LEN..at + ADDRESSES_LEN);
    front.copy_within(TAG_LEN.., 0);
    front[ADDRESSES_LEN..].copy_from_slice(&tag);
}

fn receive_messages(socket: &OwnedFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (first, count) = (messages.as_mut_ptr(), messages.len() as libc::c_uint);
    // SAFETY: the messages point to memory of buffers and of the socket's own that nobody else touches until the
    // call is over.
    let result =
        unsafe { libc::recvmmsg(socket.as_raw_fd(), first, count, libc::MSG_DONTWAIT as _, ptr::null_mut()) };
    checked(result).map(|count| count as usize)
}

/// Number of GSO packets per system call. In a measurement over packet sockets, batches of 4 or 8 took as much time
/// per packet as batches of 2, which need less memory. Batches of 1 took an eighth more time.
const GSO_COUNT: usize = 2;
/// Number of frames in the first batch. An idle port keeps buffers for these frames only.
const FIRST_BATCH_COUNT: usize = 8;
/// Length of a frame's ancillary data, in bytes: a header of 16 bytes and 20 bytes of data, rounded up to words of
/// eight bytes.
const CONTROL_LEN: usize = 40;
/// Length of a VLAN tag, and of the two MAC addresses before it, in bytes.
const TAG_LEN: usize = 4;
const ADDRESSES_LEN: usize = 12;
