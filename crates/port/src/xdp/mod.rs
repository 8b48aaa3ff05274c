//! An interface's frames -> packets; frames to send -> the interface: an AF_XDP socket in copy mode.
//!
//! The kernel and the socket share memory in chunks. Four rings transfer the ownership of chunks. A frame longer
//! than a chunk uses several chunks. The socket receives frames before the host's network stack does. So the frames
//! are as they were on the wire.
//!
//! With AF_XDP, the kernel does not report checksum states, and locally generated packets have partial checksums.
//! So the state is inferred from the checksum field.
//!
//! The kernel does not report stripped VLAN tags either. So an interface whose NIC strips tags is rejected. The far
//! end of a veth must not strip tags (`ethtool -K NAME txvlan off`).
//!
//! If the driver does not support XDP, the program runs in generic mode, after GRO. GRO must then be off (`ethtool
//! -K NAME gro off`).

mod interface;
mod rings;
mod socket;

use crate::options::Options;
use crate::port::{Offloads, Port, Received, TxFrame, TxOffload};
use crate::send_error::{SendError, refused};
use interface::Interface;
use linux::device::sentence;
use linux::netlink::Netlink;
use offload::xdp::Redirect;
use packet::{
    CLASS_LENS, Frame, HEADROOM, HeaderLayout, Ingress, LinkType, ParseError, PayloadSlots, Pool, SplitFrame,
};
use rings::{Mapping, Ring};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An AF_XDP socket on an interface with one queue.
///
/// Rust drops the fields in the order of declaration. The rings must precede the socket, because the queue stays in
/// use while a ring is mapped.
#[derive(Debug)]
pub struct XdpSocket {
    address: String,
    /// The interface's MTU at the last reading, in bytes.
    mtu: usize,
    rings: Rings,
    chunks: Mapping,
    /// Offsets of the free chunks for transmission, in bytes. The chunk that was freed last is used first.
    free: Vec<u64>,
    /// Received parts of a frame whose last part has not arrived yet.
    parts: Vec<libc::xdp_desc>,
    missed: u64,
    /// Whether the interface is virtual, such as a veth. Frames from a network stack of this machine may have
    /// partial checksums.
    is_of_this_machine: bool,
    unsent: u64,
    _redirect: Redirect,
    interface: Interface,
    socket: OwnedFd,
}

/// The four rings, which transfer the ownership of chunks.
#[derive(Debug)]
struct Rings {
    /// Ring of the parts of received frames.
    received: Ring<libc::xdp_desc>,
    /// Ring of free chunks into which the kernel receives.
    split: Ring<u64>,
    /// Ring of the parts of frames to send.
    sending: Ring<libc::xdp_desc>,
    /// Ring of the chunks that the kernel has sent.
    completed: Ring<u64>,
}

/// The result of receiving a frame.
enum RxFrame {
    /// A fragment whose payload is in the predicted place.
    Split(SplitFrame),
    /// Any other frame, in contiguous memory.
    Single(Frame),
    /// A frame that was dropped, as there was no memory for it.
    Nothing,
}

impl XdpSocket {
    /// Opens a socket on the interface `name`, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel refuses; the error contains the reason and a way to fix it. Causes: the interface is not Ethernet
    /// or has several queues, another program or socket uses it, or privileges are missing.
    pub fn open(name: &str, options: &Options) -> io::Result<XdpSocket> {
        let address = format!("xdp:{name}");
        let failed = |error: io::Error| sentence(&format!("{address}: cannot open it"), &error, remedy(&error));
        let interface = Interface::open(name).map_err(failed)?;
        let index = interface.index().map_err(failed)?;
        let mtu = interface.mtu().map_err(failed)?;
        if let Some(doubt) = interface.doubt()? {
            return Err(io::Error::new(io::ErrorKind::Unsupported, format!("{address}: {doubt}")));
        }
        let socket = socket::open().map_err(failed)?;
        socket::size_buffer(&socket, options.socket_buffer_len).map_err(failed)?;
        let chunks = Mapping::anonymous(2 * SHARE_COUNT as usize * CHUNK_LEN).map_err(failed)?;
        socket::share(&socket, &chunks, CHUNK_LEN).map_err(failed)?;
        let mut rings = Rings::make(&socket).map_err(failed)?;
        let (theirs, ours) = (0..u64::from(SHARE_COUNT), u64::from(SHARE_COUNT)..2 * u64::from(SHARE_COUNT));
        theirs.for_each(|chunk| rings.split.put(chunk * CHUNK_LEN as u64));
        rings.split.publish();
        socket::bind_patiently(&socket, index).map_err(failed)?;
        interface.make_promiscuous(index).map_err(failed)?;
        let interface_kind = Netlink::open()?.interface_at(index)?.kind;
        let redirect = Redirect::attach(name, index, socket.as_fd())?;
        Ok(XdpSocket {
            address,
            mtu,
            rings,
            chunks,
            free: ours.map(|chunk| chunk * CHUNK_LEN as u64).collect(),
            parts: Vec::with_capacity(PART_COUNT_MAX),
            is_of_this_machine: interface_kind.is_some(),
            missed: 0,
            unsent: 0,
            _redirect: redirect,
            interface,
            socket,
        })
    }

    /// Copies the frame in `parts` into a buffer of the pool; `None` if the pool has no memory.
    fn collect(&self, ingress: Ingress, pool: &mut Pool) -> Option<Frame> {
        let len = self.frame_len();
        let [.., largest] = CLASS_LENS;
        // A packet of any length fits after the headroom. VLAN tags extend the longest packet a few bytes into the
        // bitmap.
        let mut buffer = pool.allocate(len.saturating_sub(ETHERNET_LEN).min(largest))?;
        let mut at = FRAME_AT;
        for bytes in self.part_bytes() {
            buffer.put(at, bytes);
            at += bytes.len();
        }
        Some(judged(Frame::read(buffer, FRAME_AT, len, LinkType::Ethernet, ingress), self.is_of_this_machine))
    }

    /// Copies the headers of the frame in `parts` into a buffer, and the payload to the predicted place. The frame
    /// must not be longer than predicted. A frame that does not match the prediction is copied into contiguous
    /// memory.
    fn gather_apart(
        &self,
        ingress: Ingress,
        pool: &mut Pool,
        (front, place): (HeaderLayout, &mut [u8]),
    ) -> RxFrame {
        let len = self.frame_len();
        let room = (front.len() + place.len()).saturating_sub(ETHERNET_LEN);
        let Some(mut buffer) = pool.allocate(room) else { return RxFrame::Nothing };
        let mut at = 0;
        for bytes in self.part_bytes() {
            let (header, payload) = bytes.split_at(bytes.len().min(front.len().saturating_sub(at)));
            buffer.put(FRAME_AT + at, header);
            let behind = (at + header.len()).saturating_sub(front.len());
            place[behind..behind + payload.len()].copy_from_slice(payload);
            at += bytes.len();
        }
        match SplitFrame::of(buffer, FRAME_AT, len, front, place, LinkType::Ethernet, ingress) {
            Ok(split_frame) => RxFrame::Split(split_frame),
            Err(buffer) => RxFrame::Single(judged(
                Frame::read(buffer, FRAME_AT, len, LinkType::Ethernet, ingress),
                self.is_of_this_machine,
            )),
        }
    }

    fn frame_len(&self) -> usize {
        self.parts.iter().map(|part| part.len as usize).sum()
    }

    fn part_bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.parts.iter().map(|part| self.chunks.bytes(part.addr as usize, part.len as usize))
    }

    /// Receives a batch. The first frames use header split, as long as they match the prediction.
    fn receive_batch(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        mut places: Option<PayloadSlots<'_>>,
        split_frame: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        let mut received = Received { was_last: true, ..Received::default() };
        while let Some(part) = self.rings.received.take() {
            let is_last = part.options & libc::XDP_PKT_CONTD == 0;
            self.parts.push(part);
            if !is_last {
                continue;
            }
            received.count += 1;
            let front = places.as_ref().map(PayloadSlots::front);
            let expected = places.as_mut().and_then(Iterator::next);
            let came = match front.zip(expected) {
                Some((front, place)) if self.frame_len() <= front.len() + place.len() => {
                    self.gather_apart(ingress, pool, (front, place))
                }
                _ => self.collect(ingress, pool).map_or(RxFrame::Nothing, RxFrame::Single),
            };
            for part in self.parts.drain(..) {
                self.rings.split.put(chunk_of(part.addr));
            }
            match came {
                RxFrame::Split(it) => split_frame.push(it),
                RxFrame::Single(frame) => frames.push(frame),
                RxFrame::Nothing => received.lost_count += 1,
            }
            if split_frame.len() < received.count {
                places = None;
            }
            if received.count == BATCH_COUNT {
                received.was_last = false;
                break;
            }
        }
        self.rings.received.release();
        self.rings.split.publish();
        // Frames that cannot be sent now wait for the next call. The state of the interface is checked below.
        let _ = self.is_through();
        if received.count == 0 {
            socket::peek_rings(&self.socket).map_err(|error| {
                let what = format!("{}: cannot receive", self.address);
                sentence(&what, &error, "the interface is down or gone; set it up")
            })?;
        }
        Ok(received)
    }

    /// Reclaims the chunks that the kernel has sent.
    fn reclaim(&mut self) {
        while let Some(address) = self.rings.completed.take() {
            self.free.push(chunk_of(address));
        }
        self.rings.completed.release();
    }

    /// Sends as many of `wires` as the kernel accepts in one call, and returns their number.
    fn send_some(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
        if !self.is_through()? {
            return Ok(0);
        }
        self.reclaim();
        let mut left_count = PART_COUNT_AT_ONCE.min(self.free.len());
        let mut count = 0;
        for wire in wires {
            match self.refusal(wire) {
                None => {}
                Some(_) if count > 0 => break,
                Some(error) => return Err(error),
            }
            let part_count = part_count(wire);
            if part_count > left_count {
                break;
            }
            self.put(wire);
            left_count -= part_count;
            count += 1;
        }
        if count > 0 {
            self.rings.sending.publish();
            self.push_out().inspect_err(|_| self.take_back())?;
        }
        Ok(count)
    }

    /// Returns the reason why a frame cannot be sent; `None` if there is none. The kernel itself does not report
    /// these reasons.
    #[inline]
    fn refusal(&mut self, wire: &TxFrame<'_>) -> Option<io::Error> {
        if wire.offload != TxOffload::default() {
            return Some(refused(&self.address, io::Error::from_raw_os_error(libc::EINVAL), true));
        }
        if wire.header.len() + wire.payload.len() < ETHERNET_LEN {
            return Some(refused(&self.address, io::Error::from_raw_os_error(libc::EINVAL), false));
        }
        if packet_len(wire) > self.mtu {
            return self.too_long(wire);
        }
        None
    }

    /// Reads the MTU again, and returns the error for a frame that exceeds the MTU; `None` if the frame fits.
    #[cold]
    fn too_long(&mut self, wire: &TxFrame<'_>) -> Option<io::Error> {
        self.mtu = self.interface.mtu().unwrap_or(self.mtu);
        let error = || SendError::TooLong.error(&self.address, &io::Error::from_raw_os_error(libc::EMSGSIZE));
        (packet_len(wire) > self.mtu).then(error)
    }

    /// Copies one frame into free chunks, and puts the chunks into the ring. Enough chunks must be free.
    fn put(&mut self, wire: &TxFrame<'_>) {
        let mut rest = [wire.header, wire.payload];
        let mut left = wire.header.len() + wire.payload.len();
        while left > 0 {
            let address = self.free.pop().expect("free chunks were counted");
            let len = left.min(CHUNK_LEN);
            fill_chunk(self.chunks.bytes_mut(address as usize, len), &mut rest);
            left -= len;
            let options = if left > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.rings.sending.put(libc::xdp_desc { addr: address, len: len as u32, options });
        }
    }

    /// Makes the kernel send the entries of the transmit ring. Entries that the kernel cannot accept yet stay in
    /// the ring for a later call.
    ///
    /// # Errors
    /// The interface is down or does not exist any more, and the kernel accepted no entry.
    fn push_out(&mut self) -> io::Result<()> {
        let mut left_count = self.rings.sending.left_count();
        let mut timeout = TRIES;
        let mut has_looked = false;
        while left_count > 0 && timeout > 0 {
            match socket::send(&self.socket).map_err(|error| (error.raw_os_error(), error)) {
                // The kernel dropped the next frame: the other end did not accept it, or there is no other end.
                Err((Some(libc::EBUSY), _)) => self.lose_one(),
                Err((Some(libc::ENETDOWN | libc::ENXIO), error)) if !has_looked => {
                    return Err(refused(&self.address, error, false));
                }
                // The kernel also returns an error if the ring has more parts than one call sends.
                Ok(()) | Err(_) => {}
            }
            has_looked = true;
            let now_left_count = self.rings.sending.left_count();
            timeout = if now_left_count < left_count { TRIES } else { timeout - 1 };
            left_count = now_left_count;
        }
        Ok(())
    }

    #[cold]
    fn lose_one(&mut self) {
        self.unsent += 1;
        self.mtu = self.interface.mtu().unwrap_or(self.mtu);
    }

    /// Takes back all entries of the transmit ring. The kernel must not have read any of them.
    #[cold]
    fn take_back(&mut self) {
        while self.rings.sending.left_count() > 0 {
            let part = self.rings.sending.take_back();
            self.free.push(part.addr);
        }
        self.rings.sending.publish();
    }

    /// Whether the transmit ring is empty. Tries to send the remaining entries first.
    fn is_through(&mut self) -> io::Result<bool> {
        if self.rings.sending.left_count() > 0 {
            self.push_out()?;
        }
        Ok(self.rings.sending.left_count() == 0)
    }
}

impl Port for XdpSocket {
    fn address(&self) -> &str {
        &self.address
    }

    fn link_type(&self) -> LinkType {
        LinkType::Ethernet
    }

    fn offloads(&self) -> Offloads {
        Offloads::default()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received> {
        self.receive_batch(ingress, pool, None, &mut Vec::new(), frames)
    }

    fn receive_split(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        places: PayloadSlots<'_>,
        split_frame: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        self.receive_batch(ingress, pool, Some(places), split_frame, frames)
    }

    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize> {
        let mut sent_count = 0;
        while sent_count < wires.len() {
            match self.send_some(&wires[sent_count..]) {
                Ok(0) => break,
                Ok(count) => sent_count += count,
                Err(_) if sent_count > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent_count)
    }

    fn missed(&mut self) -> u64 {
        self.missed = socket::missed(&self.socket).unwrap_or(self.missed);
        self.missed
    }

    fn unsent(&mut self) -> u64 {
        self.unsent
    }

    fn has_unsent(&mut self) -> bool {
        self.rings.sending.left_count() > 0
    }
}

impl Rings {
    fn make(socket: &OwnedFd) -> io::Result<Rings> {
        for (ring, count) in [
            (libc::XDP_RX_RING, SHARE_COUNT),
            (libc::XDP_TX_RING, SHARE_COUNT),
            (libc::XDP_UMEM_FILL_RING, FILL_COUNT),
            (libc::XDP_UMEM_COMPLETION_RING, SHARE_COUNT),
        ] {
            socket::make_ring(socket, ring, count)?;
        }
        let offsets = socket::offsets(socket)?;
        let fd = socket.as_fd();
        Ok(Rings {
            received: Ring::new(fd, libc::XDP_PGOFF_RX_RING as u64, offsets.rx, SHARE_COUNT)?,
            split: Ring::new(fd, libc::XDP_UMEM_PGOFF_FILL_RING, offsets.fr, FILL_COUNT)?,
            sending: Ring::new(fd, libc::XDP_PGOFF_TX_RING as u64, offsets.tx, SHARE_COUNT)?,
            completed: Ring::new(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, SHARE_COUNT)?,
        })
    }
}

/// Infers the checksum state of a frame. Only a host of this machine leaves a checksum partial. A frame from a NIC
/// was on a wire, so its checksum is complete.
fn judged(frame: Frame, is_of_this_machine: bool) -> Frame {
    match frame {
        // Only GSO packets may lack a length, and AF_XDP delivers no GSO packets.
        Frame::Ip(packet) if packet.ip().length_missing => {
            Frame::Other(packet.into_opaque_frame(), ParseError::BadTotalLen)
        }
        Frame::Ip(mut packet) if is_of_this_machine => {
            packet.detect_checksum();
            Frame::Ip(packet)
        }
        other => other,
    }
}

/// Returns the start of the chunk that contains an address.
fn chunk_of(address: u64) -> u64 {
    address / CHUNK_LEN as u64 * CHUNK_LEN as u64
}

/// Returns the number of chunks that a frame needs.
fn part_count(wire: &TxFrame<'_>) -> usize {
    (wire.header.len() + wire.payload.len()).div_ceil(CHUNK_LEN)
}

/// Returns the length that counts against an MTU, in bytes: all except the Ethernet header and the first VLAN tag.
fn packet_len(wire: &TxFrame<'_>) -> usize {
    let is_tagged = matches!(wire.header.get(12..14), Some([0x81, 0x00] | [0x88, 0xA8]));
    let link_len = if is_tagged { ETHERNET_LEN + TAG_LEN } else { ETHERNET_LEN };
    (wire.header.len() + wire.payload.len()).saturating_sub(link_len)
}

/// Copies as many bytes of `rest` as fit into a chunk, and removes them from `rest`.
fn fill_chunk(mut room: &mut [u8], rest: &mut [&[u8]; 2]) {
    for part in rest {
        let (now, later) = part.split_at(part.len().min(room.len()));
        let (front, back) = room.split_at_mut(now.len());
        front.copy_from_slice(now);
        (*part, room) = (later, back);
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "another socket uses its queue; close that one, or use packet:",
        Some(libc::ENOBUFS) => "raise the limit on locked memory (`ulimit -l`), or run as root",
        Some(libc::ENODEV) => "`ip link` lists the interfaces",
        Some(libc::EAFNOSUPPORT | libc::EINVAL) => "it needs Linux 6.6 with AF_XDP; or use packet:",
        _ => "packet: works on every interface",
    }
}

/// Number of chunks for receiving, and also for sending. Must be a power of two.
const SHARE_COUNT: u32 = 2_048;
/// Number of entries of the fill ring. The kernel frees a chunk's entry only after it has delivered the chunk. So
/// the ring has more entries than there are chunks.
const FILL_COUNT: u32 = 2 * SHARE_COUNT;
/// Size of a chunk, in bytes: a page, the largest size that the kernel accepts.
const CHUNK_LEN: usize = 4_096;
/// Number of chunks of the longest received frame. The kernel reserves 256 bytes of each chunk.
const PART_COUNT_MAX: usize = 18;
/// Number of parts that the kernel sends in one call (TX_BATCH_SIZE in its xsk.c).
const PART_COUNT_AT_ONCE: usize = 32;
/// Number of send calls without progress after which the remaining entries wait for a later call. The number
/// exceeds the parts of one call ([`PART_COUNT_AT_ONCE`]), because the kernel may drop them one by one.
const TRIES: u32 = 64;
/// Largest number of frames in one batch.
const BATCH_COUNT: usize = 64;
/// Length of an Ethernet header and of a VLAN tag, in bytes.
const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
/// Offset of a frame in its buffer's memory, in bytes.
const FRAME_AT: usize = HEADROOM - ETHERNET_LEN;

#[cfg(test)]
mod tests {
    use super::*;
    use linux::namespace::Namespace;
    use std::time::{Duration, Instant};

    #[test]
    fn unsent_frames_leave_at_the_next_receive() {
        Namespace::new().expect("the test runs as root").enter(|| {
            let mut netlink = Netlink::open().expect("a socket is free");
            let here = Namespace::here().expect("/proc is there");
            netlink.make_veth("near", "far", &here).expect("the names are free");
            ["near", "far"].iter().for_each(|name| netlink.set_up(name).expect("it is there"));
            let open = |name| XdpSocket::open(name, &Options::default()).expect("it is there");
            let (mut near, mut far) = (open("near"), open("far"));
            let frame = [[2; 12].as_slice(), &[0x88, 0xB5], &[7; 86]].concat();
            let wire = TxFrame { header: &frame, payload: &[], offload: TxOffload::default() };
            let mut pool = Pool::new(1 << 20);
            let mut comes = |far: &mut XdpSocket, timeout| {
                let until = Instant::now() + timeout;
                let mut frames = Vec::new();
                while Instant::now() < until {
                    far.receive(Ingress(0), &mut pool, &mut frames).expect("it is up");
                    let is_ours = |came: &Frame| matches!(came, Frame::Other(raw, _) if raw.frame() == frame);
                    if frames.drain(..).any(|came| is_ours(&came)) {
                        return true;
                    }
                }
                false
            };
            // An interface that has just come up drops packets for a moment.
            while !comes(&mut far, Duration::from_millis(1)) {
                assert_eq!(near.transmit(&[wire]).expect("it is up"), 1);
            }
            while comes(&mut far, Duration::from_millis(20)) {}
            assert!(!near.has_unsent(), "all has left");
            // As if the kernel made no progress.
            near.put(&wire);
            near.rings.sending.publish();
            assert!(near.has_unsent());
            assert!(!comes(&mut far, Duration::from_millis(20)), "nobody sends it");
            near.receive(Ingress(0), &mut Pool::new(1 << 20), &mut Vec::new()).expect("it is up");
            assert!(!near.has_unsent());
            assert!(comes(&mut far, Duration::from_secs(10)));
        });
    }
}
