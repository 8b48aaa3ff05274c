//! The interface common to all ports: batches of received frames, batches of frames to send, and offloads.

use offload::flow_offload::FlowOffload;
use packet::{Frame, Ingress, LinkType, PayloadSlots, Pool, SplitFrame};
use std::io;
use std::os::fd::BorrowedFd;

/// Source and destination of packets.
pub trait Port: Send {
    /// Its address, such as `packet:eth0`.
    fn address(&self) -> &str;

    /// Link type of its frames.
    fn medium(&self) -> LinkType;

    /// Offloads it accepts; without them it takes only single packets with complete checksums.
    fn offloads(&self) -> Offloads;

    /// Descriptor to wait on. It is readable when a frame may be available.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Appends available frames to `frames`, at most one batch, in buffers of `pool`. Never waits.
    ///
    /// # Errors
    /// The kernel's error for the interface, which may be gone. Frames that were appended are valid.
    fn receive(&mut self, ingress: Ingress, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<Received>;

    /// Like `receive`, with header split for predicted frames. The payloads of the first frames go to `places`, as
    /// long as the frames can be the expected ones. Those frames are appended to `landed`, one for each place, in
    /// order.
    ///
    /// All frames after the first unexpected one are whole and go to `frames`. A port without header split appends
    /// nothing to `landed`.
    ///
    /// # Errors
    /// See [`receive`](Port::receive).
    fn receive_apart(
        &mut self,
        ingress: Ingress,
        pool: &mut Pool,
        _places: PayloadSlots<'_>,
        _landed: &mut Vec<SplitFrame>,
        frames: &mut Vec<Frame>,
    ) -> io::Result<Received> {
        self.receive(ingress, pool, frames)
    }

    /// Sends `wires` in order and returns how many of them it took. The first one left over would have had to wait.
    /// Never waits itself.
    ///
    /// # Errors
    /// The reason why the first frame cannot be sent at all; none was sent. [`SendError::of`](crate::SendError::of)
    /// distinguishes the causes that a sender can act on.
    fn transmit(&mut self, wires: &[TxFrame<'_>]) -> io::Result<usize>;

    /// Frames that the kernel dropped because they were not read in time, since the port was opened.
    fn missed(&mut self) -> u64 {
        0
    }

    /// Frames that the port took and the kernel reported as dropped before transmission, since the port was opened.
    fn unsent(&mut self) -> u64 {
        0
    }

    /// Whether the port holds frames that it took and the kernel has not sent yet. They leave with the next call to
    /// `transmit` or `receive`.
    fn has_unsent(&mut self) -> bool {
        false
    }

    /// Flow offload of the port's ingress; `None` where the port has none.
    fn flow_offload(&mut self) -> Option<&mut FlowOffload> {
        None
    }

    /// Reason why flow offload does not work although it is [allowed](crate::Options::may_offload).
    fn why_no_offload(&self) -> Option<&str> {
        None
    }

    /// Tells the port that the worker holds none of the frames received so far. Offloaded flows can then continue
    /// in the kernel.
    fn commit(&mut self) {}

    /// All descriptors that another process needs to take the port over, [`fd`](Port::fd) first: see
    /// [`adopt`](crate::adopt).
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.fd()]
    }

    /// Receive buffers that the port keeps between two calls. The pool counts them as in use.
    fn kept_count(&self) -> usize {
        0
    }

    /// Returns those buffers to the pool they came from. The next receive takes new ones.
    fn give_back(&mut self, _pool: &mut Pool) {}
}

/// Work that a port can leave to the kernel or a network card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Complete transport checksums.
    pub checksum: bool,
    /// Segment TCP GSO packets.
    pub tcp: bool,
    /// Segment UDP GSO packets into datagrams.
    pub udp: bool,
}

/// Number of frames a port received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Received frames, including those that were not appended.
    pub count: usize,
    /// Of these, lost frames: the pool had no buffer, or the frame was truncated.
    pub lost_count: usize,
    /// No further frame was available.
    pub was_last: bool,
}

/// One frame to send, in two parts, and its offload request.
#[derive(Clone, Copy, Debug)]
pub struct TxFrame<'a> {
    /// Link, IP and transport header; or the whole frame.
    pub header: &'a [u8],
    /// The bytes after `header`.
    pub payload: &'a [u8],
    /// Work left to the kernel or card.
    pub to_do: TxOffload,
}

/// Work that a sender leaves to the port. It must be among the port's [`Offloads`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxOffload {
    /// Offset of the transport header and offset of the checksum field, from the start of the frame, in bytes. The
    /// field holds the pseudo-header's sum.
    pub checksum: Option<(u16, u16)>,
    /// Segmentation of a GSO packet.
    pub gso: Option<GsoRequest>,
}

/// How to segment a GSO packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GsoRequest {
    /// Payload of each segment, in bytes.
    pub segment_len: u16,
    /// Length of link, IP and transport header, in bytes.
    pub header_len: u16,
    /// Transport protocol.
    pub kind: GsoKind,
}

/// Transport protocol of a GSO packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GsoKind {
    /// TCP over IPv4, with or without the CWR flag.
    Tcp4 {
        /// Only the first segment may carry CWR (RFC 3168 section 6.1.2).
        cwr: bool,
    },
    /// TCP over IPv6, with or without the CWR flag.
    Tcp6 {
        /// See [`GsoKind::Tcp4`].
        cwr: bool,
    },
    /// UDP.
    Udp,
}
